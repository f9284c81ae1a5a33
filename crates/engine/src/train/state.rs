//! The state of the training loop, one struct per concern.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{scores::Scores, stop::EarlyStopper};
use crate::{
    device::{Kind, Purpose, Reads},
    event::{Best, CheckpointFacts, Closed, Confusion, Event, ValidationRow},
    spec::Trainer,
};

/// The approximate maximum time of a block.
pub(super) const BLOCK: Duration = Duration::from_millis(50);

/// Takes events in order.
pub type Emit<'a> = &'a mut dyn FnMut(Vec<Event>) -> Result<(), Closed>;

/// How far the run has come.
#[derive(Clone, Copy, Default)]
pub(super) struct Position {
    pub step: u64,
    /// Counted from 1; 0 before the first epoch.
    pub epoch: u64,
    /// Whether the epoch is unfinished: steps, its row or its validation are still to come.
    pub in_epoch: bool,
    pub samples: u64,
}

impl From<&CheckpointFacts> for Position {
    fn from(facts: &CheckpointFacts) -> Self {
        let CheckpointFacts { step, epoch, in_epoch, samples, .. } = *facts;
        Self { step, epoch, in_epoch, samples }
    }
}

/// Rows on their way from files to the steps.
#[derive(Default)]
pub(super) struct Inputs {
    /// Counters of what is read from files.
    pub reads: Vec<(Kind, Purpose, Arc<Reads>)>,
    /// The time spent making the orders of epochs, and binding them.
    pub ordering: Duration,
    /// The last step at which the files were found unchanged.
    pub unchanged_at: u64,
    /// Waits for a core while logging.
    pub lost_in_log: Duration,
    /// [`page_faults`](crate::host::page_faults) once the rows are loaded.
    pub page_faults: Option<u64>,
}

/// What the length of the next block is derived from.
pub(super) struct Pacing {
    /// The time of the first step, which runs as a block of its own.
    pub warmup: Option<Duration>,
    /// Estimate of a step's time; zero while it is unknown.
    pub step_time: Duration,
    /// Steps of the previous block.
    pub before: usize,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { warmup: None, step_time: Duration::ZERO, before: 1 }
    }
}

impl Pacing {
    /// Steps that fit into the time of a block.
    pub fn steps(&self) -> usize {
        if self.warmup.is_none() {
            return 1;
        }
        if self.step_time.is_zero() {
            // The device runs asynchronously and has not reported yet.
            return self.before.saturating_mul(2);
        }
        let ns = self.step_time.as_nanos().max(1);
        usize::try_from(BLOCK.as_nanos() / ns).unwrap_or(usize::MAX).max(1)
    }
}

/// Events that wait to be sent.
pub(super) struct Outbox<'a> {
    emit: Emit<'a>,
    pub events: Vec<Event>,
    pub last_report: Instant,
    /// When the log was last read from the device.
    pub last_flush: Instant,
}

impl<'a> Outbox<'a> {
    pub fn new(emit: Emit<'a>) -> Self {
        let now = Instant::now();
        Self { emit, events: Vec::new(), last_report: now, last_flush: now }
    }

    pub fn send(&mut self) -> Result<(), Closed> {
        (self.emit)(std::mem::take(&mut self.events))
    }
}

/// How often the devices' parameters were compared (and found equal), and the time that took.
#[derive(Default)]
pub(super) struct ReplicaChecks {
    pub count: u64,
    pub time: Duration,
}

/// The validations so far.
pub(super) struct Validated {
    pub stopper: Option<EarlyStopper>,
    pub last: Option<ValidationRow>,
    /// The metrics being accumulated, during a validation that computes some from predictions.
    pub scores: Option<Scores>,
    /// The best validation by `trainer.monitor`; the first device holds its weights.
    pub best: Option<Best>,
    /// Its confusion matrix.
    pub best_confusion: Confusion,
}

impl Validated {
    pub fn new(trainer: &Trainer) -> Self {
        let stopper = trainer.early_stopping.clone().map(EarlyStopper::new);
        Self { stopper, last: None, scores: None, best: None, best_confusion: Vec::new() }
    }
}
