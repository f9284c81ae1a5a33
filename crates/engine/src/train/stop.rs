//! What ends a run early: a signal, a rung of its sweep's successive halving, or a metric that no longer
//! improves.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{
    event::{EarlyStoppingState, Status, ValidationRow},
    spec::{EarlyStopping, Monitor},
    units,
};

/// Judges a run after a whole epoch, by its validation so far: the status with which it ends there, and why; `None` if it goes
/// on.
pub type Judge = Arc<dyn Fn(u64, Option<&ValidationRow>) -> Option<(Status, String)> + Send + Sync>;

/// What signals and the sweep have asked of a run.
#[derive(Clone, Default)]
pub struct StopFlag {
    /// The number of the signal that asks the run to end; 0 for none.
    pub number: Arc<AtomicUsize>,
    /// How often a signal has asked to save the state and continue.
    pub saves: Arc<AtomicUsize>,
    /// Whether there is a run to end in an orderly way; until then a signal ends the process.
    pub is_begun: Arc<AtomicBool>,
    /// The sweep's judgement at its rungs; a run that ends there anyway is not judged.
    pub judge: Option<Judge>,
}

impl StopFlag {
    pub fn signal(&self) -> Option<usize> {
        Some(self.number.load(Ordering::Relaxed)).filter(|s| *s != 0)
    }

    /// How many times a save has been requested.
    pub fn save_requests(&self) -> usize {
        self.saves.load(Ordering::Relaxed)
    }

    pub fn name(&self) -> &'static str {
        match self.signal() {
            Some(1) => "SIGHUP",
            // Slurm's warning before the limit of a task.
            Some(10) => "its time limit (SIGUSR1)",
            Some(15) => "SIGTERM",
            Some(24) => "SIGXCPU",
            _ => "Ctrl-C (SIGINT)",
        }
    }
}

/// Counts validations without improvement.
pub struct EarlyStopper {
    rule: EarlyStopping,
    pub seen: EarlyStoppingState,
}

impl EarlyStopper {
    pub fn new(rule: EarlyStopping) -> Self {
        Self { rule, seen: EarlyStoppingState::default() }
    }

    /// The metric that is watched.
    pub fn monitor(&self) -> Monitor {
        self.rule.metric.unwrap_or(Monitor::LOSS)
    }

    /// Records a validation. Returns the reason to stop if the patience is exhausted.
    pub fn observe(&mut self, row: &ValidationRow) -> Option<String> {
        let metric = self.monitor();
        let value = metric.cost(row.value(metric)?);
        // A value that is not finite is neither an improvement nor a reference for later ones.
        if value.is_finite() && self.seen.best.is_none_or(|best| value < best - self.rule.min_delta) {
            self.seen.best = Some(value);
            self.seen.waited = 0;
            return None;
        }
        self.seen.waited += 1;
        self.exhausted()
    }

    /// Whether the next validation may exhaust the patience.
    pub fn may_end(&self) -> bool {
        self.seen.waited + 1 >= self.rule.patience
    }

    /// The reason to stop if the patience is exhausted by what was seen so far.
    pub fn exhausted(&self) -> Option<String> {
        if self.seen.waited == 0 {
            return None;
        }
        let metric = self.monitor();
        let name = metric.column();
        // As in Lightning and Keras, a patience of 0 acts like 1.
        (self.seen.waited >= self.rule.patience).then(|| match self.seen.best {
            Some(best) => {
                let (best, waited) =
                    (units::shortest(metric.cost(best) as f32), units::counted(self.seen.waited, "validation"));
                if self.rule.min_delta > 0.0 {
                    let delta = units::exact(self.rule.min_delta);
                    return format!(
                        "early stopping: {waited} without an improvement of more than {delta} on a validation {name} of {best}"
                    );
                }
                format!("early stopping: the best validation {name}, {best}, is {waited} old")
            }
            None => format!("early stopping: no validation {name} of {} was a finite number", self.seen.waited),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of observing these losses with a patience of two validations.
    fn observed(losses: &[f64]) -> Vec<Option<String>> {
        let rule = EarlyStopping { metric: Some(Monitor::LOSS), patience: 2, min_delta: 0.1 };
        let mut patience = EarlyStopper::new(rule);
        let row = |loss| ValidationRow { step: 1, epoch: 1, rows: 1, loss, ..ValidationRow::default() };
        losses.iter().map(|&loss| patience.observe(&row(loss))).collect()
    }

    #[test]
    fn what_is_not_finite_is_never_the_best() {
        assert_eq!(observed(&[f64::NAN, 2.0, 1.0, f64::NAN, 0.5]), [const { None }; 5]);
        let words = "early stopping: no validation loss of 2 was a finite number";
        assert_eq!(observed(&[f64::NAN, f64::INFINITY])[1].as_deref(), Some(words));
        let words =
            "early stopping: 2 validations without an improvement of more than 0.1 on a validation loss of 2";
        assert_eq!(observed(&[2.0, f64::NAN, f64::NEG_INFINITY])[2].as_deref(), Some(words));
    }

    #[test]
    fn patience_ends_as_in_lightning_and_keras() {
        let ended = observed(&[1.0, 0.5, 0.45, 0.39, 0.3, 0.35]);
        assert_eq!(ended[..5], [const { None }; 5], "0.39 is better than 0.5 by more than `min_delta`");
        assert_eq!(
            ended[5].as_deref(),
            Some(
                "early stopping: 2 validations without an improvement of more than 0.1 on a validation loss of 0.39"
            )
        );
    }
}
