//! What the user wrote, understood: one struct per table of the spec, defaults filled in.
//!
//! Each table lives in a file of its own that holds its type, its reader and so its schema. [`Spec`] serializes back
//! to the TOML it was read from: that is the resolved spec of a run folder.

mod data;
mod devices;
mod logging;
mod model;
mod optimizer;
mod problem;
mod schedule;
mod sweep;
mod trainer;

pub use data::{Csv, Data, Idx, Missing, Npy, Placement, Source, SyntheticRegression};
pub use devices::{
    DeviceName, Devices, EngineChoice, GpuCount, LrScaling, OnMissing, Precision, Request, Scaling,
};
pub use logging::{Logging, Metric, Policy};
pub use model::{Init, Layer, Linear, Loss, Model};
pub use optimizer::{Adam, AdamW, Optimizer, Sgd};
pub use problem::{Place, Problem};
pub use schedule::{
    Anneal, Cosine, Curve, Exponential, Interval, LinearRamp, Link, MultiStep, OneCycle, Rule, Schedule, Step,
};
pub use sweep::Sweep;
pub use trainer::{EarlyStopping, Monitor, Trainer};

use serde::Serialize;

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

/// The kinds of experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Train a model.
    Train,
}
