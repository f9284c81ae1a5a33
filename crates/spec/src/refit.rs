//! The final model of a run: the overrides that have its spec train on the rows that validated, too, for as long as was best.

use std::{fmt, path::Path};

use super::{
    Data, Interval, Layer, Plateau, Rule, Source, Spec, ValidateEvery,
    reader::Choices,
    typed::{is_swept, split_at_commas},
};

/// More epochs than any number of steps needs, where that number is not written plainly.
const NO_LIMIT: u64 = 1_000_000_000;

/// How long a final model trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As long as its spec says.
    OfSpec,
    /// Passes over its training rows.
    Epochs(u64),
    /// Optimizer steps.
    Steps(u64),
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfSpec => f.write_str("that of the run"),
            Self::Epochs(1) => f.write_str("1 epoch"),
            Self::Epochs(count) => write!(f, "{count} epochs"),
            Self::Steps(1) => f.write_str("1 step"),
            Self::Steps(count) => write!(f, "{count} steps"),
        }
    }
}

/// A reduction of the learning rate, after a step and its epoch.
#[derive(Clone, Copy, Debug)]
pub struct RateFall {
    /// The epoch, from 1.
    pub epoch: u64,
    /// The step, from 1.
    pub step: u64,
    /// The rate before and after it, to the digits of f32.
    pub rates: [f64; 2],
}

impl RateFall {
    /// Whether the rate after it is `factor` times that before: `min_lr` may have kept it higher.
    fn is_by(&self, factor: f64) -> bool {
        let [before, after] = self.rates;
        (after - before * factor).abs() <= 1e-6 * after.abs()
    }
}

/// A final model of the run with a resolved spec.
pub struct Refit<'a> {
    /// The resolved spec of the run.
    pub spec: &'a Spec,
    /// The run's source, where its files were moved.
    pub moved: Option<&'a Source>,
    /// How long it trains, unless an override says so.
    pub length: Length,
    /// The run's steps in an epoch, if each had as many.
    pub steps_per_epoch: Option<u64>,
    /// Where a plateau reduced the run's rate.
    pub falls: &'a [RateFall],
    /// Whether it trains on the test rows, too.
    pub tests: bool,
    /// Whether the overrides have rows validate.
    pub validates: bool,
    /// Whether the data are others, so that the model may have other inputs.
    pub infers: bool,
    /// The user's overrides, each of which takes the place of those for the same key.
    pub given: &'a [String],
}

impl Refit<'_> {
    /// Whether an override sets or deletes the key, or a table that holds it, or a key in it.
    pub fn is_given(&self, key: &str) -> bool {
        let holds = |table: &str, key: &str| key.strip_prefix(table).is_some_and(|key| key.starts_with('.'));
        let mut given = self.given.iter().map(|word| key_of(word));
        given.any(|own| own == key || holds(own, key) || holds(key, own))
    }

    fn sets(&self, is_key: impl Fn(&str) -> bool) -> bool {
        self.given.iter().any(|word| !word.starts_with('~') && is_key(key_of(word)))
    }

    /// Whether an override says how long it trains.
    pub fn has_given_length(&self) -> bool {
        ["trainer.max_epochs", "trainer.max_steps"].into_iter().any(|key| self.is_given(key))
    }

    /// The most that an override sets the key to; `None` without one, or where that is no plain number.
    fn given_most(&self, key: &str) -> Option<u64> {
        let (_, value) = self.given.iter().rev().find(|word| key_of(word) == key)?.split_once('=')?;
        let counts: Option<Vec<u64>> =
            split_at_commas(value).into_iter().map(|own| own.parse().ok()).collect();
        counts?.into_iter().max()
    }

    /// Whether early stopping ends it, as an override has it: the run's length is then the most.
    pub fn stops_early(&self) -> bool {
        self.validates && self.sets(|key| key.starts_with("trainer.early_stopping"))
    }

    /// The overrides, without those of the user.
    ///
    /// # Errors
    /// The validation rows are in files of their own; and a hint.
    pub fn overrides(&self) -> Result<Vec<String>, [String; 2]> {
        let mut words = vec![format!("name={}-refit", &*self.spec.name)];
        if self.spec.final_model != Some(true) {
            words.push("final_model=true".to_owned());
        }
        let files = self.moved.iter().flat_map(|source| source.files_by_key());
        words.extend(files.map(|(key, path)| path_override(key, path)));
        self.take_rows(&mut words)?;
        self.take_length(&mut words);
        self.leave_out_validation(&mut words);
        self.infer_inputs(&mut words);
        self.take_schedule(&mut words);
        words.retain(|word| !self.is_given(key_of(word)));
        if self.plateau().is_some() {
            words.push("~schedule".to_owned());
        }
        Ok(words)
    }

    /// Those of the user, but for keys of a plateau that [`Refit::check_plateau`] refuses: whether rows validate is read without.
    pub fn given(&self) -> impl Iterator<Item = &String> {
        let is_left = self.plateau().is_none();
        self.given.iter().filter(move |word| is_left || !key_of(word).starts_with("schedule."))
    }

    /// The plateau of the run, if it has no validations to follow, and no override deletes or replaces it, or names another rule.
    fn plateau(&self) -> Option<(&'static str, &Plateau)> {
        let names_other = |word: &String| match key_of(word).split('.').collect::<Vec<_>>()[..] {
            ["schedule"] | ["schedule", "chain"] | ["schedule", "chain", _] => true,
            ["schedule", "plateau"] | ["schedule", "chain", _, "plateau"] => word.starts_with('~'),
            ["schedule", "plateau" | "chain", ..] => false,
            ["schedule", rule, ..] => Rule::choices().iter().any(|choice| choice.name == rule),
            _ => false,
        };
        self.spec.schedule.plateau().filter(|_| !self.validates && !self.given.iter().any(names_other))
    }

    /// Checks that a plateau of the run has validations to follow.
    ///
    /// # Errors
    /// It has none, and no override names another schedule; and a hint.
    pub fn check_plateau(&self) -> Result<(), [String; 2]> {
        let Some((key, plateau)) = self.plateau() else { return Ok(()) };
        // The final model is as long in one of them.
        let by_steps = matches!(self.length, Length::Steps(_)) || self.is_given("trainer.max_steps");
        let given = |key: &str| self.given_most(key).unwrap_or(u64::MAX);
        let [epochs, steps] = match self.length {
            _ if self.has_given_length() => [given("trainer.max_epochs"), given("trainer.max_steps")],
            Length::Epochs(end) => [end, u64::MAX],
            Length::Steps(end) => [u64::MAX, end],
            Length::OfSpec => [u64::MAX; 2],
        };
        // A fall after the last epoch changes nothing, one within it does.
        let last_epoch = epochs.saturating_sub(u64::from(!by_steps));
        let is_within = |fall: &&RateFall| fall.epoch <= last_epoch && fall.step < steps;
        let within: Vec<&RateFall> = self.falls.iter().filter(is_within).collect();
        // A stage of a chain counts steps.
        let by_steps = by_steps || matches!(self.spec.schedule.rule, Rule::Chain { .. });
        let place = |fall: &RateFall| if by_steps { fall.step } else { fall.epoch };
        let mut falls: Vec<u64> = within.iter().map(|fall| place(fall)).collect();
        falls.dedup();
        let listed = |and: &str| {
            let falls: Vec<String> = falls.iter().map(u64::to_string).collect();
            falls.split_last().map_or_else(String::new, |(last, rest)| match rest {
                [] => last.clone(),
                rest => format!("{}{and}{last}", rest.join(", ")),
            })
        };
        let (unit, interval) = if by_steps { ("step", "") } else { ("epoch", "interval = \"epoch\", ") };
        let (gamma, milestones) = (plateau.factor, listed(", "));
        let is_by_factor = falls.len() == within.len() && within.iter().all(|fall| fall.is_by(gamma));
        let way = match (&falls[..], &self.spec.schedule.rule) {
            ([], Rule::Chain { .. }) => "and the run's plateau reduced nothing for as long".to_owned(),
            ([], _) => "as that of the run was for as long".to_owned(),
            (_, Rule::Chain { .. }) => {
                "and a stage of a chain counts its own steps; the rate fell by those of the run".to_owned()
            }
            _ if !is_by_factor => format!("and that of the run fell, not always to {gamma:?} of what it was"),
            _ => format!(
                "and `'schedule={{ {interval}multi_step = {{ milestones = [{milestones}], gamma = {gamma:?} }} }}'` reduces it \
                 as it fell in the run"
            ),
        };
        let fell = match falls.len() {
            0 => String::new(),
            1 => format!(", after {unit} {}", listed("")),
            _ => format!(", after {unit}s {}", listed(" and ")),
        };
        Err([
            format!("`{key}`: a plateau follows validations, and the final model has none"),
            format!(
                "`'~schedule'` after RUN trains at a constant rate, {way}{fell}; the plateau stays if rows validate: {}",
                self.spec.data.set_aside()
            ),
        ])
    }

    fn take_rows(&self, words: &mut Vec<String>) -> Result<(), [String; 2]> {
        let data: &Data = &self.spec.data;
        if let Some(made) = data.source.synthetic() {
            if made.validation_rows > 0 && !self.is_given(made.validation_key) {
                words.push(format!("{}={}", made.train_key, made.train_rows + made.validation_rows));
                words.push(format!("{}=0", made.validation_key));
            }
            return Ok(());
        }
        let files = data.source.validation_files();
        if files.iter().any(|key| !self.is_given(key)) {
            let [files, deleted] = [
                files.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" and "),
                files.iter().map(|key| format!("'~{key}'")).collect::<Vec<_>>().join(" "),
            ];
            return Err([
                format!(
                    "{files}: the validation rows are in a file of their own, which cannot be joined to the others"
                ),
                format!(
                    "`{deleted}` after RUN trains on the others alone; with one file of all rows, name it, too"
                ),
            ]);
        }
        let key = data.validation_key();
        let has_fraction = data.validation_fraction().is_some_and(|(_, fraction)| fraction > 0.0);
        let says_which = |own: &str| {
            ["data.folds", "data.fold"].contains(&own)
                || (own.starts_with("data.split") && !key.starts_with("data.split"))
                || (own.contains(".validation_") && Source::names_file(own))
        };
        match self.sets(says_which) {
            // They say which rows validate, and do not go with a fraction.
            true if has_fraction => words.push(format!("~{key}")),
            true => {}
            false if data.folds.is_some() => {
                words.extend(["~data.folds".to_owned(), "~data.fold".to_owned(), format!("{key}=0")]);
            }
            false if has_fraction || !files.is_empty() => words.push(format!("{key}=0")),
            false => {}
        }
        if self.tests && data.split.as_ref().is_some_and(|split| split.test > 0.0) {
            words.push("data.split.test=0".to_owned());
        }
        Ok(())
    }

    /// The run's other limits do not end it before a length that an override gives.
    fn take_length(&self, words: &mut Vec<String>) {
        let [steps, epochs] =
            ["trainer.max_steps", "trainer.max_epochs"].map(|key| self.sets(|own| own == key));
        match self.length {
            // Each epoch has a step at least.
            _ if steps => {
                let epochs = self.given_most("trainer.max_steps").unwrap_or(NO_LIMIT);
                words.push(format!("trainer.max_epochs={epochs}"));
            }
            _ if epochs => words.extend(self.spec.trainer.max_steps.map(|_| "~trainer.max_steps".to_owned())),
            _ if self.has_given_length() || self.stops_early() => return,
            Length::OfSpec => return,
            Length::Epochs(count) => words.push(format!("trainer.max_epochs={count}")),
            Length::Steps(count) => words.push(format!("trainer.max_steps={count}")),
        }
        if self.spec.trainer.max_time.is_some() {
            words.push("~trainer.max_time".to_owned());
        }
    }

    /// The length was found by early stopping, or by the best epoch: it is not looked for again, unless the user asks for it. What was
    /// monitored stays: `evaluate --importance` sorts by it.
    fn leave_out_validation(&self, words: &mut Vec<String>) {
        let trainer = &self.spec.trainer;
        let names_validations = !matches!(trainer.validate_every, ValidateEvery::Epochs(0 | 1));
        let deleted = [
            ("early_stopping", trainer.early_stopping.is_some()),
            ("restore_best", !self.validates && trainer.restore_best == Some(true)),
            (trainer.validate_every.name(), !self.validates && names_validations),
        ];
        let deleted = deleted.into_iter().filter(|(_, is_set)| *is_set);
        words.extend(deleted.map(|(key, _)| format!("~trainer.{key}")));
        let metrics = &self.spec.logging.metrics;
        let kept: Vec<&str> =
            metrics.iter().filter(|own| !own.needs_predictions()).map(|own| own.name()).collect();
        if !self.validates && kept.len() < metrics.len() {
            words.push(format!("logging.metrics=[{}]", kept.join(",")));
        }
    }

    /// The resolved spec has the inputs of every layer, as they were with the run's data and layers.
    fn infer_inputs(&self, words: &mut Vec<String>) {
        let sources = ["csv", "parquet", "npy", "idx", "synthetic_regression", "synthetic_classification"];
        let is_other = sources.iter().any(|source| self.is_given(&format!("data.{source}")));
        let are_others = [self.infers || is_other, self.is_given("model.layers")];
        let has_inputs =
            |layer: &Layer| matches!(layer, Layer::Linear(linear) if linear.in_features.is_some());
        let layers = self.spec.model.layers.iter().enumerate().filter(|(_, layer)| has_inputs(layer));
        let count = match are_others {
            [_, true] => usize::MAX,
            [true, false] => 1,
            [false, false] => 0,
        };
        words
            .extend(layers.take(count).map(|(layer, _)| format!("~model.layers.{layer}.linear.in_features")));
    }

    /// A schedule as long as the run stays as long: in epochs, which may have more steps now. If an override says how long the model
    /// trains, the schedule follows it.
    fn take_schedule(&self, words: &mut Vec<String>) {
        let (schedule, trainer) = (&self.spec.schedule, &self.spec.trainer);
        let epochs = schedule.curve_epochs.unwrap_or(trainer.max_epochs);
        let total = match (schedule.interval, trainer.max_steps, self.steps_per_epoch) {
            (Interval::Epoch, ..) => epochs,
            (Interval::Step, Some(steps), _) if schedule.curve_epochs.is_none() => steps,
            (Interval::Step, _, Some(steps)) => steps.saturating_mul(epochs),
            (Interval::Step, _, None) => return,
        };
        let Some(key) = schedule.length_of_run(total).filter(|key| !self.is_given(key)) else { return };
        if self.has_given_length() {
            words.push(format!("~{key}"));
            words.extend(schedule.curve_epochs.map(|_| "~schedule.curve_epochs".to_owned()));
        } else if schedule.interval == Interval::Step
            // Its final model is as many steps long.
            && !matches!(trainer.validate_every, ValidateEvery::Steps(_))
            && (trainer.max_steps.is_none() || schedule.curve_epochs.is_some())
        {
            words.push(format!("~{key}"));
            if schedule.curve_epochs.is_none() {
                words.push(format!("schedule.curve_epochs={epochs}"));
            }
        }
    }
}

/// Overrides of a run's spec, which is in a folder that no one types: their relative paths of data start at the current folder.
pub fn with_full_paths(words: &[String]) -> Vec<String> {
    let full = |piece: &str| {
        let path = Path::new(piece.trim_matches(['"', '\'']));
        quoted(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy())
    };
    let of_word = |word: &String| match word.split_once('=') {
        Some((key, value)) if Source::names_file(key) && !value.starts_with(['[', '{']) => {
            let pieces = split_at_commas(value).into_iter();
            let pieces = pieces.map(|piece| if is_swept(&[piece]) { piece.to_owned() } else { full(piece) });
            format!("{key}={}", pieces.collect::<Vec<_>>().join(","))
        }
        _ => word.clone(),
    };
    words.iter().map(of_word).collect()
}

/// An override that sets a key to a path.
pub fn path_override(key: &str, path: &Path) -> String {
    format!("{key}={}", quoted(&path.to_string_lossy()))
}

/// A path as a value of an override.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { toml::Value::from(path).to_string() }
}

/// The key of an override.
fn key_of(word: &str) -> &str {
    let key = word.strip_prefix('~').unwrap_or(word);
    key.split_once('=').map_or(key, |(key, _)| key).trim_end()
}
