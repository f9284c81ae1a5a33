//! What the training loop knows while it runs, one struct for each idea.

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

/// The longest block, about.
pub(super) const BLOCK: Duration = Duration::from_millis(50);

/// Takes events in order.
pub type Emit<'a> = &'a mut dyn FnMut(Vec<Event>) -> Result<(), Closed>;

/// How far a run is.
#[derive(Clone, Copy, Default)]
pub(super) struct Position {
    pub step: u64,
    /// From 1; 0 before the first.
    pub epoch: u64,
    /// Whether steps of this epoch, its row or its validation are still to come.
    pub in_epoch: bool,
    pub samples: u64,
}

impl From<&CheckpointFacts> for Position {
    fn from(facts: &CheckpointFacts) -> Self {
        let CheckpointFacts { step, epoch, in_epoch, samples, .. } = *facts;
        Self { step, epoch, in_epoch, samples }
    }
}

/// What the parts of a run before its last resume took.
#[derive(Default)]
pub(super) struct Earlier {
    pub steps: u64,
    pub elapsed_s: f64,
    /// The part of it that was no validation.
    pub train_s: f64,
    pub logging_s: f64,
}

impl From<&CheckpointFacts> for Earlier {
    fn from(facts: &CheckpointFacts) -> Self {
        let CheckpointFacts { step, elapsed_s, train_s, logging_s, .. } = *facts;
        Self { steps: step, elapsed_s, train_s, logging_s }
    }
}

/// Rows on their way from files to the steps.
#[derive(Default)]
pub(super) struct Inputs {
    /// Counts of what is read from files.
    pub reads: Vec<(Kind, Purpose, Arc<Reads>)>,
    /// The time that the orders of epochs took.
    pub ordering: Duration,
    /// The last step at which the files were found unchanged.
    pub unchanged_at: u64,
    /// [`run_delay`](crate::host::run_delay) before the first step.
    pub run_delay: Option<Duration>,
    /// [`page_faults`](crate::host::page_faults) once the rows are in place.
    pub page_faults: Option<u64>,
}

/// What the length of blocks follows from.
pub(super) struct Pacing {
    /// The time of the first step, which runs alone.
    pub warmup: Option<Duration>,
    /// Estimate of a step's time; zero while nothing is known of it.
    pub step_time: Duration,
    /// Steps of the block before.
    pub before: usize,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { warmup: None, step_time: Duration::ZERO, before: 1 }
    }
}

impl Pacing {
    /// Steps that fit a block's time.
    pub fn steps(&self) -> usize {
        if self.warmup.is_none() {
            return 1;
        }
        if self.step_time.is_zero() {
            // A device that is not waited for has not reported yet.
            return self.before.saturating_mul(2);
        }
        let ns = self.step_time.as_nanos().max(1);
        usize::try_from(BLOCK.as_nanos() / ns).unwrap_or(usize::MAX).max(1)
    }
}

/// Events that wait to be handed over.
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

/// Comparisons of the devices' parameters that found them equal.
#[derive(Default)]
pub(super) struct ReplicaChecks {
    pub count: u64,
    pub time: Duration,
}

/// The validations so far.
pub(super) struct Validated {
    pub stopper: Option<EarlyStopper>,
    pub last: Option<ValidationRow>,
    /// Metrics of predictions, while a validation is under way that is to measure some.
    pub scores: Option<Scores>,
    /// That with the best value of `trainer.monitor`; the first device has its weights.
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
