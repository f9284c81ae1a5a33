//! All that the outside may learn about a run. The trainer emits events and formats nothing; sinks consume them.

mod checkpoint;
mod lab;

pub use checkpoint::{
    BestSoFar, Checkpoint, CheckpointFacts, EarlyStoppingState, EpochLoss, SavedState, StateArrays,
};
pub use lab::{CopyRow, Norms, ProductRow, StepRow, StepStatus, Together};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    device::{ClockCost, Kind, LaneTrace, Line, Purpose},
    host::load::Load,
    plan::TimeAccount,
    spec::{Metric, Monitor},
    units::named,
};

/// Nobody takes events any more: a sink has failed, and the recorder's end says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run can no longer be recorded")]
pub struct Closed;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first event.
    Started(Box<Header>),
    /// A block of training steps whose rows have reached the host.
    Train(TrainRows),
    Validation(ValidationRow),
    /// A state to be saved. All rows of steps before it have been handed over.
    Checkpoint(Box<Checkpoint>),
    /// At most some twenty a second.
    Progress(Progress),
    Norms(Norms),
    /// A device has done all its products of a shape.
    Product(ProductRow),
    /// All devices have done theirs.
    Together(Together),
    Copy(CopyRow),
    Step(Box<StepRow>),
    /// Something that `run.log` keeps and a person may want to read.
    Notice(Level, String),
    /// The last event.
    Finished(Box<Outcome>),
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Kept in the log, shown with `-v`.
    Info,
    /// Shown always.
    Warning,
}

/// What does not change during a run. What has no meaning for its kind is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    pub name: String,
    /// What is done, in words, where it is no training: `1,000 products of [100, 100] x [100, 100]`.
    pub lab: Option<String>,
    /// What the spec asked for: `3`, `all`, `gpu:1;gpu:2`.
    pub devices_requested: String,
    pub devices_used: Vec<String>,
    pub virtual_devices: bool,
    /// `strong` or `weak`.
    pub scaling: String,
    pub precision: String,
    pub engine: String,
    /// The metric columns of the run, in order.
    pub metrics: Vec<Metric>,
    /// Whether the task has classes, hence accuracy.
    pub classifies: bool,
    /// Equal for equal data.
    pub data_digest: String,
    /// Host memory that the plan counts at the run's peak, without the program's own.
    pub peak_planned_bytes: Option<u64>,
    /// What weak scaling makes of batch and rate.
    pub weak_scaling: Option<String>,
    /// The metric whose best value is shown.
    pub monitor: Option<Monitor>,
    pub train_rows: u64,
    /// Steps the run takes if nothing ends it early.
    pub steps_planned: u64,
    /// Epochs the run takes if nothing ends it early.
    pub epochs_planned: u64,
    /// The step after which it goes on from a checkpoint.
    pub resumed_after: Option<u64>,
    /// Seconds after which it ends in any case.
    pub max_time_s: Option<f64>,
    /// How the program was built: `release`, `debug`.
    pub build: &'static str,
}

/// Consecutive steps of one epoch (or, under `per_epoch`, one row that stands for the epoch).
#[derive(Clone, Debug, PartialEq)]
pub struct TrainRows {
    pub epoch: u64,
    /// Optimizer step of the first row, counted from 1.
    pub first_step: u64,
    /// Batch rows of every step but the last of the block.
    pub rows: u32,
    /// Batch rows of the last step of the block.
    pub last_rows: u32,
    /// Values per row: the metrics of the header but `lr`, in order.
    pub width: usize,
    /// `[steps, width]`.
    pub values: Vec<f32>,
    /// One per step where `lr` is among the metrics, else empty.
    pub lr: Vec<f64>,
    /// Since training began, one per step.
    pub elapsed_s: Vec<f64>,
}

impl TrainRows {
    pub fn len(&self) -> usize {
        self.elapsed_s.len()
    }

    pub fn is_empty(&self) -> bool {
        self.elapsed_s.is_empty()
    }
}

/// One pass over all validation rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationRow {
    /// The step after which it was taken.
    pub step: u64,
    pub epoch: u64,
    pub rows: u64,
    pub loss: f64,
    /// Part of the rows that is right, where there are classes.
    pub accuracy: Option<f64>,
    /// Since training began.
    pub elapsed_s: f64,
    /// Metrics of its predictions, by name; those of one of several targets as `mae_NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, f64>,
    /// Its confusion matrix, where metrics follow from one.
    #[serde(skip)]
    pub confusion: Confusion,
}

/// A confusion matrix: the cells that are not 0, counted row by row, each with its count; empty where none was measured.
pub type Confusion = Vec<[u64; 2]>;

impl ValidationRow {
    /// The metric's value, where the row has it; NaN where the loss is not finite, since such weights are no good.
    pub fn value(&self, monitor: Monitor) -> Option<f64> {
        self.measured(monitor.metric()).map(|value| if self.loss.is_finite() { value } else { f64::NAN })
    }

    /// The metric's value, where a validation measures it.
    pub fn measured(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Loss => Some(self.loss),
            Metric::Accuracy => self.accuracy,
            _ => self.scores.get(metric.name()).copied(),
        }
    }
}

/// The validation whose weights a run keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    pub monitor: Monitor,
    pub value: f64,
    pub epoch: u64,
    pub step: u64,
    /// Whether `model.safetensors` holds its weights, too.
    pub is_restored: bool,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    pub step: u64,
    /// Epoch of that step, counted from 1.
    pub epoch: u64,
    pub samples: u64,
    pub train_s: f64,
    /// Since training began.
    pub elapsed_s: f64,
    /// Last training loss that reached the host.
    pub loss: Option<f32>,
}

named! {
    /// How a run ended.
    #[derive(Default)]
    pub enum Status {
        #[default]
        Finished = "finished",
        /// A fault: the reason says which.
        Failed = "failed",
        /// By a signal.
        Interrupted = "interrupted",
        /// The loss is no longer a finite number.
        Diverged = "diverged",
        /// At a rung of successive halving: it goes on if it is among the best there.
        Waiting = "waiting",
        /// By its sweep: it was not.
        Stopped = "stopped",
    }
}

/// Why a run has no weights to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoModel {
    /// How far a diverged run went beyond its last row depends on the length of its blocks.
    Diverged,
    /// Some weights are not finite.
    NotFinite,
    /// After a device failure we cannot tell which step its parameters belong to.
    Device,
    Unread,
}

/// The end of a run, in numbers. `None` is a value that is not known, or has no meaning for its kind: an empty cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub status: Status,
    /// Why it ended so, where that needs words.
    pub reason: Option<String>,
    /// Epochs begun.
    pub epochs: Option<u64>,
    /// Optimizer steps taken; products, copies or steps over tensors.
    pub steps: u64,
    /// Training rows seen.
    pub samples: Option<u64>,
    /// Loss of the last training row; `None` under `off`.
    pub final_train_loss: Option<f32>,
    /// Mean training loss of the last epoch, by rows; `None` under `off`.
    pub epoch_train_loss: Option<f64>,
    /// Rows that it is the mean of: fewer than all where the run ended within the epoch.
    pub epoch_train_rows: u64,
    pub final_validation_loss: Option<f64>,
    pub final_validation_accuracy: Option<f64>,
    /// What `best.safetensors` holds.
    pub best: Option<Best>,
    /// Seconds of training before the last resume, which the times below include, but for those of phases and copies.
    pub earlier_s: f64,
    /// The training loop: steps, validation, log.
    pub loop_s: f64,
    /// The training loop without validation.
    pub train_s: f64,
    pub logging_s: f64,
    /// Largest use of device memory by this run, over the devices.
    pub peak_device_bytes: u64,
    pub timing: Vec<PhaseTime>,
    pub transfers: Vec<Transfer>,
    /// Checkpoints that were due while another was being written, and not made.
    pub checkpoints_left_out: u64,
    /// What it took to read the host's clock and to write its times down.
    pub instrument: ClockCost,
    /// `trace.json`; empty where it was not asked for.
    pub traces: Vec<TraceLane>,
    /// What its training time went into; `None` where that is not known.
    pub account: Option<TimeAccount>,
    /// What others took of the machine meanwhile, where that is known.
    pub load: Option<Load>,
    /// Why there are no weights to keep; `None` where there are.
    pub no_model: Option<NoModel>,
}

impl Outcome {
    /// Leaves out what concerns steps after `last`, whose rows were lost.
    pub fn forget_after(&mut self, last: u64) {
        self.steps = last;
        (self.epochs, self.samples) = (None, None);
        (self.final_train_loss, self.epoch_train_loss) = (None, None);
        (self.final_validation_loss, self.final_validation_accuracy) = (None, None);
        self.best = self.best.filter(|best| best.step <= last);
        self.account = None;
    }
}

/// A lane of `trace.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceLane {
    /// `host`, or the device's name.
    pub process: String,
    pub name: &'static str,
    pub trace: LaneTrace,
}

/// A row of `timing.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseTime {
    pub device: String,
    /// `host` or `device`.
    pub clock: &'static str,
    /// `data`, `forward`, ..., `total`.
    pub phase: &'static str,
    pub count: u64,
    pub total_s: f64,
    pub mean_s: f64,
    /// Their standard deviation (n - 1); `None` below two samples.
    pub std_s: Option<f64>,
    pub min_s: f64,
    pub p50_s: f64,
    pub p95_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
    /// Part of `total`.
    pub share: f64,
    /// Times that were measured; fewer than `count` where these are means over blocks of steps.
    pub samples: u64,
}

/// A row of `transfers.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// `h2d`, `d2h`, `d2d`, `all_reduce` or `sync`.
    pub kind: &'static str,
    /// `batch`, `dataset`, `parameters`, `log`, ...
    pub purpose: &'static str,
    pub from: String,
    pub to: String,
    /// Copies that moved bytes (or waits).
    pub count: u64,
    /// Copies to where the data already was.
    pub noop_count: u64,
    /// Bytes that were meant; `None` for a wait.
    pub bytes: Option<u64>,
    /// Bytes that moved: with those that only align them.
    pub moved_bytes: Option<u64>,
    /// Time that the host spent, or the device where it is timed; 0 for no-ops, `None` where nobody knows: a sum that is queued
    /// among a device's own work.
    pub total_s: Option<f64>,
}

impl Transfer {
    /// What a ledger has under one kind and purpose.
    pub fn new(kind: Kind, purpose: Purpose, from: String, to: String, line: Line) -> Self {
        Self {
            kind: kind.name(),
            purpose: purpose.name(),
            from,
            to,
            count: line.count,
            noop_count: line.noop_count,
            bytes: (kind != Kind::Sync).then_some(line.bytes),
            moved_bytes: (kind != Kind::Sync).then_some(line.bytes),
            total_s: line.seconds(),
        }
    }
}
