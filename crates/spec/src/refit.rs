//! The final model of a run: the overrides that have its spec train on the rows that validated, too, for as long as was best.

use std::fmt;

use super::{Data, Monitor, Source, Spec};

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

/// A final model of the run with a resolved spec.
pub struct Refit<'a> {
    /// The resolved spec of the run.
    pub spec: &'a Spec,
    /// How long it trains, unless an override says so.
    pub length: Length,
    /// Whether it trains on the test rows, too.
    pub tests: bool,
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

    /// Whether an override says how long it trains.
    pub fn has_given_length(&self) -> bool {
        ["trainer.max_epochs", "trainer.max_steps"].into_iter().any(|key| self.is_given(key))
    }

    /// The overrides, without those of the user.
    ///
    /// # Errors
    /// The validation rows are in files of their own; and a hint.
    pub fn overrides(&self) -> Result<Vec<String>, [String; 2]> {
        let mut words = vec![format!("name={}-refit", &*self.spec.name)];
        self.take_rows(&mut words)?;
        self.take_length(&mut words);
        let trainer = &self.spec.trainer;
        let deleted = [
            ("early_stopping", trainer.early_stopping.is_some()),
            ("monitor", trainer.monitor != Monitor::LOSS),
            ("restore_best", trainer.restore_best == Some(true)),
        ];
        let deleted = deleted.into_iter().filter(|(_, is_set)| *is_set);
        words.extend(deleted.map(|(key, _)| format!("~trainer.{key}")));
        let metrics = &self.spec.logging.metrics;
        let kept: Vec<&str> =
            metrics.iter().filter(|own| !own.needs_predictions()).map(|own| own.name()).collect();
        if kept.len() < metrics.len() {
            words.push(format!("logging.metrics=[{}]", kept.join(",")));
        }
        words.retain(|word| !self.is_given(key_of(word)));
        Ok(words)
    }

    fn take_rows(&self, words: &mut Vec<String>) -> Result<(), [String; 2]> {
        let data: &Data = &self.spec.data;
        if let Source::SyntheticRegression(rows) = &data.source {
            if rows.validation_rows > 0 {
                let all = rows.train_rows + rows.validation_rows;
                words.push(format!("data.synthetic_regression.train_rows={all}"));
                words.push("data.synthetic_regression.validation_rows=0".to_owned());
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
        if data.folds.is_some() {
            words.extend(["~data.folds", "~data.fold"].map(str::to_owned));
        }
        let validates = data.folds.is_some() || !files.is_empty();
        if validates || data.validation_fraction().is_some_and(|(_, fraction)| fraction > 0.0) {
            words.push(format!("{}=0", data.validation_key()));
        }
        if self.tests && data.split.as_ref().is_some_and(|split| split.test > 0.0) {
            words.push("data.split.test=0".to_owned());
        }
        Ok(())
    }

    fn take_length(&self, words: &mut Vec<String>) {
        if self.has_given_length() {
            return;
        }
        let trainer = &self.spec.trainer;
        match self.length {
            Length::OfSpec => return,
            Length::Epochs(count) => words.push(format!("trainer.max_epochs={count}")),
            Length::Steps(count) => words.push(format!("trainer.max_steps={count}")),
        }
        if trainer.max_time.is_some() {
            words.push("~trainer.max_time".to_owned());
        }
    }
}

/// The key of an override.
fn key_of(word: &str) -> &str {
    let key = word.strip_prefix('~').unwrap_or(word);
    key.split_once('=').map_or(key, |(key, _)| key)
}
