//! What ends a run early: a signal, a rung of its sweep's successive halving, or a metric that no longer
//! improves, or is good enough.

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

    /// Records a validation. Returns the reason to stop, if there is one.
    pub fn observe(&mut self, row: &ValidationRow) -> Option<String> {
        let metric = self.monitor();
        let value = metric.cost(row.value(metric)?);
        // A value that is not finite is neither an improvement nor a reference for later ones.
        if value.is_finite() && self.seen.best.is_none_or(|best| value < best - self.rule.min_delta) {
            self.seen.best = Some(value);
            self.seen.waited = 0;
        } else {
            self.seen.waited += 1;
        }
        self.verdict(Some(row))
    }

    /// The reason to stop by what was seen so far, of which `last` is the latest.
    pub fn verdict(&self, last: Option<&ValidationRow>) -> Option<String> {
        last.and_then(|row| self.reached(row)).or_else(|| self.exhausted())
    }

    /// Whether one of as many next validations may end the run.
    pub fn may_end(&self, validations: u64) -> bool {
        let EarlyStopping { patience, stopping_threshold, .. } = self.rule;
        stopping_threshold.is_some() || patience.is_some_and(|most| self.seen.waited + validations >= most)
    }

    /// The reason to stop if the watched value is at the threshold or better.
    pub fn reached(&self, row: &ValidationRow) -> Option<String> {
        let metric = self.monitor();
        let (threshold, value) = (self.rule.stopping_threshold?, row.value(metric)?);
        let is_reached = value.is_finite() && metric.cost(value) <= metric.cost(threshold);
        is_reached.then(|| {
            let (value, name) = (units::shortest(value as f32), metric.column());
            let threshold = units::exact(threshold);
            format!("early stopping: the validation {name}, {value}, reached the threshold of {threshold}")
        })
    }

    /// The reason to stop if the patience is exhausted by what was seen so far.
    pub fn exhausted(&self) -> Option<String> {
        if self.seen.waited == 0 {
            return None;
        }
        let metric = self.monitor();
        let name = metric.column();
        // As in Lightning and Keras, a patience of 0 acts like 1.
        (self.seen.waited >= self.rule.patience?).then(|| match self.seen.best {
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

    /// The results of observing these losses.
    fn observed_by(rule: EarlyStopping, losses: &[f64]) -> Vec<Option<String>> {
        let mut stopper = EarlyStopper::new(rule);
        let row = |loss| ValidationRow {
            step: 1,
            epoch: 1,
            rows: 1,
            loss,
            accuracy: Some(1.0 - loss),
            ..ValidationRow::default()
        };
        losses.iter().map(|&loss| stopper.observe(&row(loss))).collect()
    }

    /// The results with a patience of two validations.
    fn observed(losses: &[f64]) -> Vec<Option<String>> {
        let metric = Some(Monitor::LOSS);
        let rule = EarlyStopping { metric, patience: Some(2), min_delta: 0.1, stopping_threshold: None };
        observed_by(rule, losses)
    }

    #[test]
    fn a_threshold_ends_the_run_at_its_value() {
        let rule = |metric, stopping_threshold| EarlyStopping {
            metric: Some(metric),
            patience: None,
            min_delta: 10.0,
            stopping_threshold: Some(stopping_threshold),
        };
        let words = |text: &str| Some(format!("early stopping: the validation {text}"));
        // However small the improvement is.
        let ended = observed_by(rule(Monitor::LOSS, 0.25), &[1.0, f64::NAN, f64::NEG_INFINITY, 0.26, 0.25]);
        assert_eq!(ended[..4], [const { None }; 4]);
        assert_eq!(ended[4], words("loss, 0.25, reached the threshold of 0.25"));
        let ended = observed_by(rule(Monitor::ACCURACY, 0.75), &[1.0, 0.5, 0.125]);
        assert_eq!(ended, [None, None, words("accuracy, 0.875, reached the threshold of 0.75")]);
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
