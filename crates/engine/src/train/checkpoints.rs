//! When the state of the training is saved. The recorder writes a checkpoint while training goes on; the next
//! checkpoint waits until the previous one is written.

use std::{
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use super::state::Position;
use crate::{
    event::StateArrays,
    spec::{self, Every},
};

/// The checkpoints of a run.
pub(super) struct Checkpoints {
    every: Option<Every>,
    pub last: Instant,
    /// Signal requests for a checkpoint that have been served.
    pub requests: usize,
    /// The last state that was saved or resumed from: its step, and whether its epoch was unfinished.
    pub saved: Option<(u64, bool)>,
    /// The arrays that the recorder is writing, and the channel that reports how long writing took.
    pub writing: Option<(Arc<StateArrays>, Receiver<Duration>)>,
    pub count: u64,
    pub written: Duration,
}

impl Checkpoints {
    pub fn new(rule: Option<&spec::Checkpoint>, requests: usize) -> Self {
        let every = rule.map(|rule| rule.every.clone());
        Self {
            every,
            last: Instant::now(),
            requests,
            saved: None,
            writing: None,
            count: 0,
            written: Duration::ZERO,
        }
    }

    /// The most steps that may run after `step` before the next checkpoint is due.
    pub fn steps_left(&self, step: u64) -> usize {
        match self.every {
            Some(Every::Steps(n)) => usize::try_from(n - step % n).unwrap_or(usize::MAX),
            _ => usize::MAX,
        }
    }

    pub fn is_due(&self, at: &Position) -> bool {
        match self.every {
            Some(Every::Epochs(n)) => !at.in_epoch && at.epoch.is_multiple_of(n),
            Some(Every::Steps(n)) => at.step.is_multiple_of(n),
            Some(Every::Minutes(most)) => self.last.elapsed().as_secs_f64() >= 60.0 * most,
            None => false,
        }
    }

    /// Waits until the last checkpoint is written; returns its arrays, so that the next one can reuse their
    /// memory.
    pub fn wait(&mut self) -> StateArrays {
        let Some((arrays, written)) = self.writing.take() else { return StateArrays::default() };
        // The channel closes without an answer if the checkpoint could not be written; the recorder reports
        // that.
        self.written += written.iter().sum::<Duration>();
        Arc::try_unwrap(arrays).unwrap_or_default()
    }
}
