//! When the state of the training is saved. The recorder writes a checkpoint while training goes on; the next
//! checkpoint waits until the previous one is written, or is left out if training has waited long enough.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use super::state::Position;
use crate::{
    event::StateArrays,
    spec::{self, Every},
};

/// Training waits this long for the checkpoints of `every_epochs`, and one part in `WAIT_SHARE` of its time.
const FREE_WAIT: Duration = Duration::from_secs(1);
const WAIT_SHARE: u32 = 20;

/// The checkpoints of a run.
pub(super) struct Checkpoints {
    every: Option<Every>,
    keep_best: usize,
    /// Monitored values of the best checkpoints, at most `keep_best`; smaller is better.
    best: Vec<f64>,
    begun: Instant,
    pub last: Instant,
    /// Signal requests for a checkpoint that have been served.
    pub requests: usize,
    /// The last state that was saved or resumed from: its step, and whether its epoch was unfinished.
    pub saved: Option<(u64, bool)>,
    /// The arrays that the recorder is writing, and the channel that reports how long writing took.
    pub writing: Option<(Arc<StateArrays>, Receiver<Duration>)>,
    pub count: u64,
    /// How many were due and not made.
    pub left_out: u64,
    pub written: Duration,
}

impl Checkpoints {
    pub fn new(rule: Option<&spec::Checkpoint>, requests: usize) -> Self {
        let every = rule.map(|rule| rule.every.clone());
        let keep_best = rule.map_or(0, |rule| rule.keep_best);
        let begun = Instant::now();
        Self {
            every,
            keep_best: usize::try_from(keep_best).unwrap_or(usize::MAX),
            best: Vec::new(),
            begun,
            last: begun,
            requests,
            saved: None,
            writing: None,
            count: 0,
            left_out: 0,
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

    /// Whether one that is due is left out: training has `waited` for long enough, and would wait again. `cost` is the
    /// monitored value of the validation that it would follow, where there is one.
    pub fn leaves_out(&mut self, waited: Duration, cost: Option<f64>) -> bool {
        let most = FREE_WAIT + self.begun.elapsed() / WAIT_SHARE;
        let is_left_out = matches!(self.every, Some(Every::Epochs(_)))
            && waited > most
            && !cost.is_some_and(|cost| self.is_among_best(cost))
            && self.is_writing();
        self.left_out += u64::from(is_left_out);
        is_left_out
    }

    fn is_among_best(&self, cost: f64) -> bool {
        self.best.len() < self.keep_best || self.best.last().is_some_and(|worst| cost < *worst)
    }

    /// Counts a checkpoint that is made.
    pub fn made(&mut self, cost: Option<f64>) {
        self.count += 1;
        self.last = Instant::now();
        self.add_costs(cost);
    }

    /// Adds the monitored values of checkpoints.
    pub fn add_costs(&mut self, costs: impl IntoIterator<Item = f64>) {
        self.best.extend(costs);
        self.best.sort_by(f64::total_cmp);
        self.best.truncate(self.keep_best);
    }

    /// Whether the last checkpoint is still being written.
    pub fn is_writing(&mut self) -> bool {
        let Some((_, written)) = &self.writing else { return false };
        match written.try_recv() {
            Ok(time) => self.written += time,
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => {}
        }
        false
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    fn checkpoints(every: Every, keep_best: u64) -> Checkpoints {
        Checkpoints::new(Some(&spec::Checkpoint { every, keep_last: 1, keep_best }), 0)
    }

    #[test]
    fn one_is_left_out_only_while_another_is_written_and_training_has_waited_long() {
        let mut own = checkpoints(Every::Epochs(1), 0);
        assert!(!own.leaves_out(LONG, None), "none is being written");
        let (answer, written) = channel();
        own.writing = Some((Arc::default(), written));
        assert!(!own.leaves_out(Duration::from_millis(999), None));
        assert!(own.leaves_out(LONG, None));
        assert!(own.leaves_out(LONG, Some(1.0)), "`keep_best` is 0");
        // A twentieth of an hour may be waited for.
        own.begun -= Duration::from_secs(3600);
        assert!(!own.leaves_out(Duration::from_secs(180), None));
        assert!(own.leaves_out(Duration::from_secs(182), None));
        answer.send(Duration::from_secs(3)).unwrap();
        assert!(!own.leaves_out(Duration::from_secs(182), None), "it is written");
        assert_eq!((own.left_out, own.written), (3, Duration::from_secs(3)));
        drop(answer);
        own.wait();
        assert_eq!(own.written, Duration::from_secs(3), "its time counts once");
    }

    #[test]
    fn one_that_was_asked_for_is_never_left_out() {
        for every in [Every::Steps(1), Every::Minutes(0.001)] {
            let mut own = checkpoints(every, 0);
            let (_answer, written) = channel();
            own.writing = Some((Arc::default(), written));
            assert!(!own.leaves_out(LONG, None));
        }
    }

    #[test]
    fn the_best_are_kept() {
        let mut own = checkpoints(Every::Epochs(1), 2);
        let (_answer, written) = channel();
        own.writing = Some((Arc::default(), written));
        for cost in [3.0, 1.0] {
            assert!(!own.leaves_out(LONG, Some(cost)));
            own.made(Some(cost));
        }
        assert!(own.leaves_out(LONG, Some(3.0)));
        assert!(own.leaves_out(LONG, None), "it follows no validation");
        assert!(!own.leaves_out(LONG, Some(2.0)));
        own.made(Some(2.0));
        assert!(own.leaves_out(LONG, Some(2.5)));
        // A run that goes on knows those that it has.
        let mut resumed = checkpoints(Every::Epochs(1), 2);
        resumed.writing = own.writing.take();
        resumed.add_costs([3.0, 1.0, 2.0]);
        assert!(resumed.leaves_out(LONG, Some(2.5)));
        assert!(!resumed.leaves_out(LONG, Some(1.5)));
    }
}
