//! Everything that the outside can learn about a run. The trainer emits events and formats nothing; sinks consume them.

mod checkpoint;
mod lab;

pub use checkpoint::{
    BestSoFar, Checkpoint, CheckpointFacts, EarlyStoppingState, EpochLoss, PlateauState, SavedState,
    StateArrays,
};
pub use lab::{CopyRow, Norms, ProductRow, Spread, StepRow, StepStatus, Together};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    device::{ClockCost, Kind, LaneTrace, Line, Purpose},
    host::load::Load,
    plan::TimeAccount,
    spec::{Metric, Monitor},
    units::named,
};

/// Nobody receives events any more: a sink has failed. The recorder reports why when it ends.
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
    /// A state to be saved. All rows of the steps before it have been sent.
    Checkpoint(Box<Checkpoint>),
    /// Sent at most about twenty times a second.
    Progress(Progress),
    Norms(Norms),
    /// A device has finished its products of a shape.
    Product(ProductRow),
    /// All devices have finished their products of a shape.
    Together(Together),
    Copy(CopyRow),
    Step(Box<StepRow>),
    /// A message for `run.log` that a person may want to read.
    Notice(Level, String),
    /// The last event.
    Finished(Box<Outcome>),
}

/// How important a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Written to the log, shown with `-v`.
    Info,
    /// Why a run failed; also printed at its end.
    Error,
    /// Always shown.
    Warning,
}

/// Facts that do not change during a run. Those that do not apply to its kind are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    pub name: String,
    /// What a run that is no training does, in words: `1,000 products of [100, 100] x [100, 100]`.
    pub lab: Option<String>,
    /// What the lab counts as its steps: `products`.
    pub lab_unit: &'static str,
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
    /// Whether the task is a classification, which has an accuracy.
    pub classifies: bool,
    /// Equal for equal data.
    pub data_digest: String,
    /// Host memory at the run's peak, as planned; the program itself is not counted.
    pub peak_planned_bytes: Option<u64>,
    /// How weak scaling changes batch and learning rate, in words.
    pub weak_scaling: Option<String>,
    /// The metric whose best value is shown.
    pub monitor: Option<Monitor>,
    /// The best validation before a resume.
    pub best: Option<Best>,
    pub train_rows: u64,
    /// Steps the run takes if nothing ends it early.
    pub steps_planned: u64,
    /// Epochs the run takes if nothing ends it early.
    pub epochs_planned: u64,
    /// The step of the checkpoint that the run was resumed from.
    pub resumed_after: Option<u64>,
    /// Seconds after which the run ends in any case.
    pub max_time_s: Option<f64>,
    /// Whether a limit of time or of patience may leave out planned steps, so that the time left is an upper bound.
    pub may_skip_steps: bool,
    /// How the program was built: `release`, `debug`.
    pub build: &'static str,
}

/// Consecutive steps of one epoch (under `per_epoch`, one row that stands for the whole epoch).
#[derive(Clone, Debug, PartialEq)]
pub struct TrainRows {
    pub epoch: u64,
    /// Optimizer step of the first row, counted from 1.
    pub first_step: u64,
    /// Batch rows of every step of the block but the last.
    pub rows: u32,
    /// Batch rows of the last step of the block.
    pub last_rows: u32,
    /// Values per row: the header's metrics without `lr`, in order.
    pub width: usize,
    /// `[steps, width]`.
    pub values: Vec<f32>,
    /// One per step if `lr` is among the metrics, else empty.
    pub lr: Vec<f64>,
    /// Seconds since training began, one per step.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValidationRow {
    /// The step after which it was measured.
    pub step: u64,
    pub epoch: u64,
    pub rows: u64,
    pub loss: f64,
    /// The fraction of rows that were classified correctly; `None` for a regression.
    pub accuracy: Option<f64>,
    /// Seconds since training began.
    pub elapsed_s: f64,
    /// Metrics computed from predictions, by name; for one of several targets the name is `mae_NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, f64>,
    /// The confusion matrix, if metrics are computed from one.
    #[serde(skip)]
    pub confusion: Confusion,
}

/// The nonzero cells of a confusion matrix as pairs of index (row-major) and count; empty if none was measured.
pub type Confusion = Vec<[u64; 2]>;

impl ValidationRow {
    /// The metric's value, if the row has it. NaN if the loss is not finite, since such weights are useless.
    pub fn value(&self, monitor: Monitor) -> Option<f64> {
        let value = match monitor.target() {
            Some(_) => self.scores.get(monitor.column()).copied(),
            None => self.measured(monitor.metric()),
        };
        value.map(|value| if self.loss.is_finite() { value } else { f64::NAN })
    }

    /// How bad a finite value of the metric is, if the row follows `step`.
    pub fn cost_at(&self, step: u64, monitor: Monitor) -> Option<f64> {
        let value = self.value(monitor).filter(|value| self.step == step && value.is_finite())?;
        Some(monitor.cost(value))
    }

    /// The metric's value, if it was measured.
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
    /// Whether `model.safetensors` holds these weights as well.
    pub is_restored: bool,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    pub step: u64,
    /// Epoch of that step, counted from 1; 0 in the lab.
    pub epoch: u64,
    /// Rows so far; in the lab as many as steps.
    pub samples: u64,
    pub train_s: f64,
    /// Seconds since training began.
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
        /// An error; the reason says which.
        Failed = "failed",
        /// Ended by a signal.
        Interrupted = "interrupted",
        /// The loss is no longer a finite number.
        Diverged = "diverged",
        /// Paused at a rung of successive halving: it continues if it is among the best there.
        Waiting = "waiting",
        /// Ended by its sweep: it was not among the best.
        Stopped = "stopped",
    }
}

/// Why a run has no weights to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoModel {
    /// The run diverged. How far it went beyond its last row depends on the length of its blocks, so no weights are kept.
    Diverged,
    /// Some weights are not finite.
    NotFinite,
    /// After a device failure we cannot tell which step its parameters belong to.
    Device,
    Unread,
}

/// The end of a run, in numbers. `None` means that a value is unknown or does not apply, and becomes an empty cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub status: Status,
    /// Why it ended that way, if that needs explaining.
    pub reason: Option<String>,
    /// Epochs begun.
    pub epochs: Option<u64>,
    /// Optimizer steps taken; in the lab: products, copies or tensor steps done.
    pub steps: u64,
    /// Training rows seen.
    pub samples: Option<u64>,
    /// Loss of the last training row; `None` under `off`.
    pub final_train_loss: Option<f32>,
    /// Mean training loss of the last epoch's rows, by their weights; `None` under `off`.
    pub epoch_train_loss: Option<f64>,
    /// The rows of that mean: fewer than all if the run ended within the epoch.
    pub epoch_train_rows: u64,
    pub final_validation_loss: Option<f64>,
    pub final_validation_accuracy: Option<f64>,
    /// The other metrics of the last validation; see [`ValidationRow::scores`].
    pub final_scores: BTreeMap<String, f64>,
    /// What `best.safetensors` holds.
    pub best: Option<Best>,
    /// Seconds of `loop_s` before the last resume. The times below include them, except those of phases and copies.
    pub earlier_s: f64,
    /// Those of `train_s`.
    pub earlier_train_s: f64,
    /// The training loop: steps, validation, logging.
    pub loop_s: f64,
    /// The training loop without validation.
    pub train_s: f64,
    /// What logging took of that.
    pub logging_s: f64,
    /// What it took to make the orders of rows and to bring them to the devices, since the last resume.
    pub ordering_s: f64,
    /// Largest use of device memory by this run, over the devices.
    pub peak_device_bytes: u64,
    pub timing: Vec<PhaseTime>,
    pub transfers: Vec<Transfer>,
    /// Checkpoints that were due while another was being written, and not made.
    pub checkpoints_left_out: u64,
    /// The cost of reading the host's clock and recording its times.
    pub instrument: ClockCost,
    /// The lanes of `trace.json`; empty if no trace was requested.
    pub traces: Vec<TraceLane>,
    /// What its training time was spent on; `None` if that is unknown.
    pub account: Option<TimeAccount>,
    /// How much of the machine other processes used meanwhile, if known.
    pub load: Option<Load>,
    /// The part of the run's time, 0 to 1, in which its main thread was ready to run and had no core; known of short runs too.
    pub core_wait_share: Option<f64>,
    /// Joules that its GPUs took together, where all of them report that; unknown of a run that was resumed.
    pub energy_j: Option<f64>,
    /// Why no weights are kept; `None` if they are.
    pub no_model: Option<NoModel>,
}

impl Outcome {
    /// Removes what concerns lost rows. The best weights are of one validation: if its row was lost, none is the best.
    pub fn forget_lost(&mut self, recorded: &Recorded) {
        if recorded.step < self.steps {
            (self.steps, self.epochs, self.samples) = (recorded.step, Some(recorded.epoch), None);
            (self.final_train_loss, self.epoch_train_loss, self.account) = (None, None, None);
        }
        let mut values = recorded.validation.clone();
        self.final_validation_loss = values.remove(Metric::Loss.name());
        self.final_validation_accuracy = values.remove(Metric::Accuracy.name());
        self.final_scores = values;
        self.best = self.best.filter(|best| best.step <= recorded.validated);
    }
}

/// What the file with a row per step has of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The last step, and its epoch.
    pub step: u64,
    pub epoch: u64,
    /// The step of the last validation; 0 without one.
    pub validated: u64,
    /// The figures of that validation, by their columns.
    pub validation: BTreeMap<String, f64>,
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
    /// Standard deviation of the samples (n - 1); `None` below two samples.
    pub std_s: Option<f64>,
    pub min_s: f64,
    pub p50_s: f64,
    pub p95_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
    /// Fraction of `total`.
    pub share: f64,
    /// Number of measured times; fewer than `count` if they are means over blocks of steps.
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
    /// Payload bytes; `None` for a wait.
    pub bytes: Option<u64>,
    /// Bytes that were actually moved, including padding for alignment.
    pub moved_bytes: Option<u64>,
    /// Time spent by the host, or by the device if it is timed there. 0 for no-ops; `None` if unknown, as of a queued all-reduce.
    pub total_s: Option<f64>,
}

impl Transfer {
    /// The row of a ledger's line for one kind and purpose.
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
