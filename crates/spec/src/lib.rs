//! The spec: what the user wrote, as one struct per table with defaults filled in.
//!
//! Each table has a file of its own with its type and its reader; the schema is generated from the same
//! declaration. [`load()`] returns an [`Experiment`], or everything that is wrong with the spec.
//! [`Spec::to_toml`] writes the resolved spec of a run folder: TOML that reads back as the same spec.
//!
//! ```text
//! file, overrides -> tree (values with locations) -> sweep -> one tree per trial -> reader -> Spec
//! ```

mod alternatives;
mod base_file;
#[cfg(test)]
mod base_file_tests;
#[cfg(test)]
mod base_place_tests;
mod checkpoint;
mod class_weights;
mod data;
mod delete;
mod devices;
mod diagnostic;
pub mod duration;
mod experiment;
mod extend;
mod folders;
mod gaps;
mod key;
pub mod lab;
mod launcher;
mod load;
mod logging;
mod model;
mod monitor;
mod optimizer;
mod origin;
#[cfg(test)]
mod origin_tests;
mod overrides;
#[cfg(test)]
mod overrides_tests;
mod points;
mod problem;
#[cfg(test)]
mod properties;
mod reader;
mod refit;
mod replaced;
mod resolved;
mod schedule;
mod schema;
mod shared;
mod short_values;
mod spec_text;
mod suggest;
mod sweep;
mod swept_keys;
mod synthetic;
mod tables;
pub mod templates;
mod trainer;
mod tree;
mod typed;

pub use base_file::OF_FILES;
pub use checkpoint::{Checkpoint, Every};
pub use class_weights::ClassWeights;
pub use data::{Data, Idx, Npy, Placement, Source, SplitRule};
pub use devices::{
    DeviceName, Devices, EngineChoice, GpuCount, LrScaling, MOST_HOSTS, OnMissing, Precision, Request,
    Scaling,
};
pub use diagnostic::Failure;
pub use experiment::{Experiment, TrialSpec};
pub use extend::NotExtended;
pub use key::short_keys;
pub use lab::{Lab, LabSpec};
pub use launcher::{ArraySize, Launcher, Slurm};
pub use load::{Loaded, default_name, load, read, read_refit, written};
pub use logging::{Logging, Metric, Policy};
pub use model::{Init, Layer, Linear, Loss, Model, Parameter};
pub use monitor::Monitor;
pub use optimizer::*;
pub use problem::{Location, Problem};
pub use refit::{Length, RateFall, Refit, path_override, with_full_paths};
pub use replaced::replaced;
pub use schedule::{
    Anneal, Cosine, Curve, Exponential, Interval, LinearRamp, MultiStep, OneCycle, Plateau, Rule, Schedule,
    Stage, Step, ThresholdMode,
};
pub use schema::{key_of_option, schema};
pub use shared::Shared;
pub use short_values::{add_leaves, kinds_in_words, layers_in_words, short_values};
pub use suggest::{longer, nearest};
pub use sweep::{GpuSharing, Halving, History, Point, SEEDS};
pub use synthetic::{Synthetic, SyntheticClassification, SyntheticRegression};
pub use tables::{Csv, MISSING_VALUES, Missing, Parquet, separator};
pub use trainer::{EarlyStopping, Trainer, ValidateEvery};

use runner_base::host::escape_line;

use reader::{Fields, Item, Read, table, words};
use tree::Value;

/// The largest integer of TOML.
const MAX_SEED: u64 = i64::MAX as u64;

/// Leaves room for the time and the hash that a run folder's name adds.
const MAX_NAME_BYTES: usize = 100;

table! {
    /// A whole experiment of kind `train`. Defaults are filled in unless they depend on the data.
    pub struct Spec {
        /// Names the folder of the runs (the file's stem).
        pub name: Shared<String> => |v| read_name(v).into(), else Shared::default(),
        /// Free text, kept with the run.
        pub description: Shared<String> = Shared::default(),
        /// The source of every random number: weights, order of rows, dropout, synthetic data, the split.
        pub seed: u64 = 0 => read_seed,
        /// What is run.
        pub kind: Kind = Kind::Train,
        /// Whether it is the final model of a run, as `runner refit` trains it: without a validation nothing ranks it.
        pub final_model: Option<bool> = None,
        /// Where it runs; absent, the CPU.
        pub devices: Shared<Devices> [default],
        /// What the run learns from.
        pub data: Shared<Data>,
        /// What is learned: a Sequential of layers.
        pub model: Shared<Model>,
        /// How weights are updated.
        pub optimizer: Shared<Optimizer> => |v| v.table(|t| t.one_of::<Optimizer>(None)).into(),
        /// How the learning rate moves; absent, it is constant.
        pub schedule: Shared<Schedule> [skip_serializing_if = "Schedule::is_constant"], else Schedule::CONSTANT.into(),
        /// How long, and what happens around the steps.
        pub trainer: Shared<Trainer> [default],
        /// When the state of the training is saved; absent, only when a signal ends it.
        pub checkpoint: Option<Shared<Checkpoint>> = None,
        /// What is recorded, and when it leaves the device.
        pub logging: Shared<Logging> [default],
    }
    check check
}

words! {
    /// The kinds of experiment.
    pub enum Kind {
        /// Train a model.
        Train = "train",
        /// Multiply matrices, log their norms.
        Matmul = "matmul",
        /// Copy between memories.
        Transfer = "transfer",
        /// Make, move and apply tensors, step by step.
        Tensors = "tensors",
    }
}

impl Kind {
    /// The kinds of the lab, which try the machine itself. Each has a table of its own name.
    pub const LABS: [Self; 3] = [Self::Matmul, Self::Transfer, Self::Tensors];
}

impl Spec {
    /// Checks rules that span tables, and rejects tables that do not belong in a trial.
    fn check(&mut self, t: &mut Fields<'_>) {
        tables_of_sweeps(t);
        // The tables of other kinds are read elsewhere. Declaring them here lets error messages suggest them.
        if t.is_sound("kind") {
            Kind::LABS.iter().for_each(|lab| t.foreign(lab.name(), lab.name(), self.kind.name()));
        } else {
            t.ignore_the_rest();
        }
        let are_classes = matches!(self.data.source, Source::Idx(_) | Source::SyntheticClassification(_));
        if !t.has("model.loss") && are_classes {
            self.model.loss = Loss::CrossEntropy;
        }
        let trainer = &mut *self.trainer;
        if let Some(stopping) = &mut trainer.early_stopping {
            // `trainer.monitor` and early stopping use one metric, unless both name one.
            if let Some(metric) = stopping.metric.filter(|_| !t.has("trainer.monitor")) {
                trainer.monitor = metric;
            }
            stopping.metric.get_or_insert(trainer.monitor);
            trainer.restore_best.get_or_insert(true);
        }
        self.schedule.watch(trainer.monitor);
        self.check_classes(t);
        self.check_targets(t);
        self.check_validation(t);
    }

    /// The loss must fit the data (classes or numbers), and metrics must fit the loss.
    fn check_classes(&self, t: &mut Fields<'_>) {
        let loss = self.model.loss;
        if !t.is_sound("model.loss") || !t.is_sound("data") {
            return;
        }
        if loss.classifies() {
            let numbers = "gives numbers to predict, not classes";
            if let Source::SyntheticRegression(_) = &self.data.source {
                let message = format!("`{loss}` needs classes, and `data.synthetic_regression` {numbers}");
                t.report("model.loss", message, "use `mse`, `l1` or `huber`");
            }
            if let Some((key, table)) = self.data.source.table() {
                if table.standardize_target {
                    let message = format!("classes cannot be standardized, and the loss is `{loss}`");
                    let hint = "remove it, or use `mse`, `l1` or `huber`";
                    t.report(&format!("{key}.standardize_target"), message, hint);
                } else if table.target.len() > 1 {
                    let message = format!("`{loss}` has one column of classes to predict");
                    let hint = "name one, or use `mse`, `l1` or `huber`";
                    t.report(&format!("{key}.target"), message, hint);
                }
            }
        }
        if let (Source::SyntheticClassification(_), false) = (&self.data.source, loss.classifies()) {
            let message =
                format!("`{loss}` needs numbers, and `data.synthetic_classification` gives classes");
            t.report("model.loss", message, "set `model.loss = \"cross_entropy\"`");
        }
        if self.model.class_weights.is_some() && !loss.classifies() {
            let message = format!("it needs classes, and the loss is `{loss}`");
            t.report("model.class_weights", message, "set `model.loss = \"cross_entropy\"`, or remove it");
        }
        let named = |key| t.has(key) && t.is_sound(key);
        let early = ["trainer.early_stopping.metric"].into_iter().find(|key| named(key));
        let watched = early.unwrap_or("trainer.monitor");
        let is_watched = |key: &str| key == watched || key.starts_with("schedule");
        let monitors = self.monitors().filter(|(key, _)| is_watched(key) && t.is_sound(key));
        let logged = self.logging.metrics.iter().map(|metric| ("logging.metrics", *metric));
        let logged = logged.filter(|(key, _)| t.is_sound(key));
        let all: Vec<_> = logged.chain(monitors.map(|(key, monitor)| (key, monitor.metric()))).collect();
        let mut reported = "";
        for (key, metric) in all {
            let [what, other] = match loss.classifies() {
                true if metric.is_of_numbers() => ["numbers to predict", "mse"],
                false if metric.is_of_classes() => ["classes", "cross_entropy"],
                _ => continue,
            };
            if std::mem::replace(&mut reported, key) != key {
                let message = format!("{metric} needs {what}, and the loss is `{loss}`");
                t.report(key, message, &format!("set `model.loss = \"{other}\"`, or remove it"));
            }
        }
    }

    /// A metric of one target needs a target of this name; how many an array has is known once it is read.
    fn check_targets(&self, t: &mut Fields<'_>) {
        let targets = match (&self.data.source, self.data.source.table()) {
            _ if !t.has("data") || !t.is_sound("data") || self.model.loss.classifies() => return,
            (_, Some((_, table))) => table.target.clone(),
            (Source::SyntheticRegression(_), _) => Vec::new(),
            (_, None) => return,
        };
        let named = |key: &str| t.has(key) && t.is_sound(key);
        let monitors: Vec<_> = self.monitors().filter(|(key, _)| named(key)).collect();
        for (key, monitor) in monitors {
            if let Err([message, hint]) = monitor.check_target(&targets) {
                t.report(key, message, &hint);
            }
        }
    }

    /// Keeps the tables that equal those of `other` only once.
    pub fn share_with(&mut self, other: &Self) {
        self.name.share_with(&other.name);
        self.description.share_with(&other.description);
        self.devices.share_with(&other.devices);
        self.data.share_with(&other.data);
        self.model.share_with(&other.model);
        self.optimizer.share_with(&other.optimizer);
        self.schedule.share_with(&other.schedule);
        self.trainer.share_with(&other.trainer);
        self.logging.share_with(&other.logging);
        if let (Some(own), Some(other)) = (&mut self.checkpoint, &other.checkpoint) {
            own.share_with(other);
        }
    }

    /// The seed of the initial weights.
    pub fn init_seed(&self) -> u64 {
        self.model.init_seed.unwrap_or(self.seed)
    }

    /// The seed of the order of rows.
    pub fn shuffle_seed(&self) -> u64 {
        self.data.shuffle_seed.unwrap_or(self.seed)
    }

    /// Every key that names a monitor, with what it names; a plateau that watches `trainer.monitor` is left out.
    pub fn monitors(&self) -> impl Iterator<Item = (&'static str, Monitor)> {
        let key = |table| if table == "schedule.plateau" { "schedule.plateau.metric" } else { table };
        let plateau =
            self.schedule.plateau().and_then(|(table, plateau)| Some((key(table), plateau.metric?)));
        self.trainer.monitors().chain(plateau.filter(|(_, metric)| *metric != self.trainer.monitor))
    }

    /// The keys that need rows to validate on.
    pub fn needing_validation(&self) -> impl Iterator<Item = &'static str> {
        // A final model keeps what its run monitored.
        let is_kept = |key: &&str| self.final_model == Some(true) && *key == "trainer.monitor";
        let of_trainer = self.trainer.needing_validation().filter(move |key| !is_kept(key));
        of_trainer.chain(self.schedule.plateau().map(|(key, _)| key))
    }

    /// Metrics that are monitored and not logged.
    pub fn monitored(&self) -> Vec<Metric> {
        let mut monitored = Vec::new();
        let validates = self.trainer.validate_every != ValidateEvery::NEVER && self.data.has_validation();
        for (_, monitor) in self.monitors().filter(|_| validates) {
            let metric = monitor.metric();
            if !self.logging.metrics.contains(&metric) && !monitored.contains(&metric) {
                monitored.push(metric);
            }
        }
        monitored
    }

    /// Metrics, logged or monitored, that are computed from a validation's predictions.
    pub fn scores(&self) -> Vec<Metric> {
        let mut scores = self.logging.metrics.clone();
        scores.extend(self.monitored());
        scores.retain(|metric| metric.needs_predictions());
        scores
    }

    /// Early stopping, best weights and some metrics need validation rows.
    fn check_validation(&self, t: &mut Fields<'_>) {
        let sound = ["data", "schedule", "trainer", "logging"].into_iter().all(|key| t.is_sound(key));
        let logged = self.logging.metrics.iter().any(|metric| metric.needs_predictions());
        let keys = self.needing_validation().chain(logged.then_some("logging.metrics"));
        // Early stopping sets others that the spec does not name.
        let keys: Vec<_> = keys.filter(|key| sound && t.has(key)).collect();
        let Some((key, others)) = keys.split_first() else { return };
        let listed = suggest::listing(others.iter().copied(), "and");
        let others = match others.len() {
            0 => String::new(),
            1 => format!("; {listed} needs validation, too"),
            _ => format!("; {listed} need validation, too"),
        };
        if self.trainer.validate_every == ValidateEvery::NEVER {
            let message = "there is no validation to watch: `trainer.validate_every_epochs` is 0";
            t.report(key, format!("{message}{others}"), "set `validate_every_epochs = 1`");
        } else if !self.data.has_validation() {
            let set_aside = self.data.set_aside();
            let refit = match self.final_model {
                Some(true) => "",
                _ => "; `runner refit RUN` trains the final model of a run without any",
            };
            let message = format!("there are no rows to validate on{others}");
            t.report(key, message, &format!("{set_aside}{refit}"));
        }
    }
}

/// The loader has already removed these tables from the tree; they are declared for the schema.
fn tables_of_sweeps(t: &mut Fields<'_>) {
    t.optional("sweep", sweep::DOC, |v| v.table(|t| sweep::Sweep::read(t, &mut Vec::new())));
    t.optional("launcher", launcher::DOC, Launcher::read);
    base_file::refuse_elsewhere(t);
}

/// Whether a name that becomes a folder's name may contain this character.
fn fits_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '=' | '+' | '-')
}

fn read_seed(v: Item<'_>) -> u64 {
    v.integer(0..=MAX_SEED)
}

fn read_name(v: Item<'_>) -> String {
    // The schema's pattern is looser than the check below, because some editors' regular expressions know
    // only ASCII letters.
    let pattern = r"^[^-./\\\s][^/\\\s]*$";
    let schema = serde_json::json!({ "type": "string", "pattern": pattern, "maxLength": MAX_NAME_BYTES });
    let hint = "it names a folder: at most 100 bytes of letters, digits and `.` `_` `=` `+` `-` without spaces, not beginning with `.` or `-`";
    let hint = match v.text().and_then(|name| name.chars().find(|c| !fits_name(*c))) {
        Some(' ') => format!("a space does not fit: {hint}"),
        Some(c) => format!("`{}` does not fit: {hint}", escape_line(&c.to_string())),
        None => hint.to_owned(),
    };
    v.custom_hinted("a name", schema, "stand_in".to_owned(), Some(hint), |v| match v {
        Value::String(s) => {
            let fits = !s.is_empty() && s.len() <= MAX_NAME_BYTES && s.chars().all(fits_name);
            (fits && !s.starts_with(['.', '-'])).then(|| s.clone())
        }
        _ => None,
    })
}
