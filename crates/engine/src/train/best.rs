//! The weights of the best validation: a copy on the first device, which the host reads only once, at the
//! end.

use super::{
    stop::EarlyStopper,
    train_loop::{Halt, TrainLoop},
};
use crate::{
    device::Purpose,
    event::{Best, ValidationRow},
    spec::Metric,
    units,
};

impl TrainLoop<'_> {
    /// Keeps the weights if this validation is better than all before. A value that is not finite is never
    /// better.
    pub(super) fn keep_best(&mut self, row: &ValidationRow) -> Result<(), Halt> {
        let (monitor, layout) = (self.trial.spec.trainer.monitor, &self.trial.programs.layout);
        let (Some(value), Some(to)) = (row.value(monitor), layout.best) else { return Ok(()) };
        let is_better = |best: Best| monitor.cost(value) < monitor.cost(best.value);
        if !value.is_finite() || !self.validated.best.is_none_or(is_better) {
            return Ok(());
        }
        // If the copy fails, the weights kept before it are lost too.
        self.validated.best = None;
        self.validated.best_confusion.clone_from(&row.confusion);
        self.group.copy(Purpose::Best, self.values(), layout.whole(to))?;
        self.validated.best =
            Some(Best { monitor, value, epoch: row.epoch, step: row.step, is_restored: false });
        Ok(())
    }

    /// A warning, with advice, if no validation measured the watched metric as a finite number although the
    /// loss was finite.
    pub(super) fn unmeasured(&self) -> Option<String> {
        let last = self.validated.last.as_ref().filter(|row| row.loss.is_finite())?;
        let trainer = &self.trial.spec.trainer;
        let kept = (self.trial.programs.layout.best.is_some() && self.validated.best.is_none())
            .then_some(trainer.monitor)
            // If the last value was finite, the weights had been kept and were lost with their device.
            .filter(|monitor| last.value(*monitor).is_some_and(|value| !value.is_finite()));
        let stopper = self.validated.stopper.as_ref().filter(|stopper| stopper.seen.best.is_none());
        let monitor = kept.or(stopper.map(EarlyStopper::monitor))?;
        let metric = monitor.metric();
        let weights = if kept.is_some() { ": no weights are kept as the best" } else { "" };
        let ended = match stopper.filter(|stopper| stopper.exhausted().is_some()) {
            Some(stopper) => {
                let count = units::counted(stopper.seen.waited, "validation");
                format!(
                    "{} early stopping ended the run after {count}",
                    if weights.is_empty() { ":" } else { ", and" }
                )
            }
            None => String::new(),
        };
        let needs = match metric {
            Metric::Auc | Metric::AveragePrecision => {
                "validate on rows of two classes or more (`data.split.stratify`), or watch"
            }
            Metric::R2 => "validate on two rows or more, or watch",
            _ => "watch",
        };
        Some(format!(
            "no validation measured a finite `{}`{weights}{ended}; {needs} `validation.loss`",
            monitor.column()
        ))
    }

    /// Reads the kept weights. If that fails, the run has no best validation.
    pub(super) fn read_best(&mut self) -> Option<Vec<f32>> {
        let best = self.validated.best.take()?;
        let layout = &self.trial.programs.layout;
        let from = layout.whole(layout.best?);
        let mut values = Vec::new();
        self.group.read(Purpose::Best, from, &mut values).ok()?;
        if !values.iter().all(|v| v.is_finite()) {
            return None;
        }
        self.validated.best = Some(best);
        Some(values)
    }
}
