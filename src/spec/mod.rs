//! What the user wrote, understood: one struct per table of the spec, defaults filled in.
//!
//! Each table lives in a file of its own that holds its type, its reader and so its schema. [`load()`] gives an
//! [`Experiment`] or everything that is wrong with it; [`Spec::to_toml`] gives back the TOML that a spec was read from:
//! that is the resolved spec of a run folder.
//!
//! ```text
//! file, overrides -> tree (values with places) -> sweep -> one tree per trial -> reader -> Spec
//! ```

mod data;
mod devices;
mod diagnostic;
mod duration;
mod experiment;
mod key;
pub mod lab;
mod load;
mod logging;
mod model;
mod optimizer;
mod overrides;
mod problem;
#[cfg(test)]
mod properties;
mod reader;
mod resolved;
mod schedule;
mod schema;
mod suggest;
mod sweep;
pub mod templates;
mod trainer;
mod tree;

pub use data::{Csv, Data, Idx, Missing, Npy, Placement, Source, SyntheticRegression};
pub use devices::{
    DeviceName, Devices, EngineChoice, GpuCount, LrScaling, OnMissing, Precision, Request, Scaling,
};
pub use diagnostic::Failure;
pub use experiment::{Axis, Experiment, TrialSpec};
pub use lab::{Lab, LabSpec};
pub use load::{Loaded, load, read};
pub use logging::{Logging, Metric, Policy};
pub use model::{Init, Layer, Linear, Loss, Model, Parameter};
pub use optimizer::*;
pub use problem::{Location, Problem};
pub use schedule::{
    Anneal, Cosine, Curve, Exponential, Interval, LinearRamp, MultiStep, OneCycle, Rule, Schedule, Stage,
    Step,
};
pub use schema::schema;
pub use trainer::{EarlyStopping, Monitor, Trainer};

use reader::{Fields, Item, Read, words};
use serde::Serialize;
use tree::Value;

/// TOML's integers end here.
const MAX_SEED: u64 = i64::MAX as u64;

/// Leaves room for what a run's folder adds to it.
const MAX_NAME_BYTES: usize = 100;

/// A whole experiment of kind `train`, with every default filled in that does not depend on the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// Names the folder of the runs; the file's stem by default.
    pub name: String,
    /// Free text, kept with the run.
    pub description: String,
    /// The source of every random number: initial weights, order of rows, dropout, synthetic data, the split.
    pub seed: u64,
    /// What is run.
    pub kind: Kind,
    /// Where it runs.
    pub devices: Devices,
    /// What it learns from.
    pub data: Data,
    /// What is learned.
    pub model: Model,
    /// How weights are updated.
    pub optimizer: Optimizer,
    /// How the learning rate moves.
    #[serde(skip_serializing_if = "Schedule::is_constant")]
    pub schedule: Schedule,
    /// How long, and what happens around the steps.
    pub trainer: Trainer,
    /// What is recorded, and when it leaves the device.
    pub logging: Logging,
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
    /// Those that try the machine itself; each has a table of its name.
    pub const LABS: [Self; 3] = [Self::Matmul, Self::Transfer, Self::Tensors];
}

impl Spec {
    /// Reads a trial. Rules that span tables stand at the end.
    fn read(t: &mut Fields<'_>, default_name: &str) -> Self {
        let name = t.optional("name", "names the folder of the runs (the file's stem)", read_name);
        let description =
            t.default("description", "free text, kept with the run", String::new(), |v| v.string());
        let doc =
            "the source of every random number: weights, order of rows, dropout, synthetic data, the split";
        let seed = t.default("seed", doc, 0, |v| v.integer(0..=MAX_SEED));
        // A spec of another kind is read elsewhere; here they are known to be suggested.
        let kind = t.default("kind", "what is run", Kind::Train, Kind::read);
        if t.is_sound("kind") {
            t.later(&["checkpoint"]);
            Kind::LABS.iter().for_each(|lab| t.foreign(lab.name(), lab.name(), kind.name()));
        } else {
            t.ignore_the_rest();
        }
        let devices = t.section("devices", "where it runs; absent, the CPU", Devices::read);
        let data = t.required("data", "what it learns from", Data::read);
        let model = t.required("model", "what is learned: a Sequential of layers", |v| {
            v.table(|t| Model::read(t, &data.source))
        });
        let optimizer = t.required("optimizer", "how weights are updated", |v| v.table(|t| t.one_of(None)));
        let doc = "how the learning rate moves; absent, it is constant";
        let schedule = t.optional("schedule", doc, Schedule::read).unwrap_or(Schedule::CONSTANT);
        let trainer = t.section("trainer", "how long, and what happens around the steps", Trainer::read);
        let logging = t.section("logging", "what is recorded, and when it leaves the device", Logging::read);
        // The loader has taken the table out; it is named here for the schema.
        t.optional("sweep", "many trials from one spec", |v| {
            v.table(|t| sweep::Sweep::read(t, &mut Vec::new()))
        });
        let name = name.unwrap_or_else(|| default_name.to_owned());
        let spec = Self {
            name,
            description,
            seed,
            kind,
            devices,
            data,
            model,
            optimizer,
            schedule,
            trainer,
            logging,
        };
        spec.check_classes(t);
        spec.check_validation(t);
        spec
    }

    /// Classes need a loss over classes, and data that has them.
    fn check_classes(&self, t: &mut Fields<'_>) {
        let loss = self.model.loss;
        if !t.is_sound("model.loss") || !t.is_sound("data") {
            return;
        }
        if loss.classifies() {
            let numbers = "gives numbers to predict, not classes";
            match &self.data.source {
                Source::SyntheticRegression(_) => {
                    let message =
                        format!("`{loss}` needs classes, and `data.synthetic_regression` {numbers}");
                    t.report("model.loss", message, "use `mse`, `l1` or `huber`");
                }
                Source::Csv(csv) if csv.standardize_target => {
                    let message = format!("classes cannot be standardized, and the loss is `{loss}`");
                    t.report(
                        "data.csv.standardize_target",
                        message,
                        "remove it, or use `mse`, `l1` or `huber`",
                    );
                }
                _ => {}
            }
            return;
        }
        let message = format!("accuracy needs classes, and the loss is `{loss}`");
        let hint = "set `model.loss = \"cross_entropy\"`, or remove it";
        if t.is_sound("logging.metrics") && self.logging.metrics.contains(&Metric::Accuracy) {
            t.report("logging.metrics", message.clone(), hint);
        }
        let watched = self.trainer.early_stopping.as_ref().map(|e| e.metric);
        if t.is_sound("trainer.early_stopping") && watched == Some(Monitor::ValidationAccuracy) {
            t.report("trainer.early_stopping.metric", message, hint);
        }
    }

    /// Early stopping needs validation.
    fn check_validation(&self, t: &mut Fields<'_>) {
        let sound = ["data", "trainer"].into_iter().all(|key| t.is_sound(key));
        if self.trainer.early_stopping.is_none() || !sound {
            return;
        }
        let key = "trainer.early_stopping";
        if self.trainer.validate_every_epochs == 0 {
            let message = "there is no validation to watch: `trainer.validate_every_epochs` is 0";
            t.report(key, message, "set `validate_every_epochs = 1`");
        } else if !self.data.source.has_validation() {
            t.report(
                key,
                "there are no rows to validate on",
                "set aside some, such as `validation_fraction = 0.2`",
            );
        }
    }
}

/// Whether a character may stand in a name that becomes a folder's.
fn fits_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '=' | '+' | '-')
}

fn read_name(v: Item<'_>) -> String {
    // Looser than the rule: not every editor's regular expressions know letters beyond ASCII.
    let pattern = r"^[^-./\\\s][^/\\\s]*$";
    let schema = serde_json::json!({ "type": "string", "pattern": pattern, "maxLength": MAX_NAME_BYTES });
    let hint = "it names a folder: at most 100 letters, digits and `.` `_` `=` `+` `-`, not beginning with `.` or `-`";
    v.custom_hinted("a name", schema, "stand_in".to_owned(), Some(hint.to_owned()), |v| match v {
        Value::String(s) => {
            let fits = !s.is_empty() && s.len() <= MAX_NAME_BYTES && s.chars().all(fits_name);
            (fits && !s.starts_with(['.', '-'])).then(|| s.clone())
        }
        _ => None,
    })
}
