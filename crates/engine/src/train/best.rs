//! The weights of the best validation: a copy on the first device, which the host reads once, at the end.

use super::train_loop::{Halt, TrainLoop};
use crate::{
    device::Purpose,
    event::{Best, ValidationRow},
};

impl TrainLoop<'_> {
    /// Keeps the weights if this validation is better than all before. A value that is not finite never is.
    pub(super) fn keep_best(&mut self, row: &ValidationRow) -> Result<(), Halt> {
        let (monitor, layout) = (self.trial.spec.trainer.monitor, &self.trial.programs.layout);
        let (Some(value), Some(to)) = (row.value(monitor), layout.best) else { return Ok(()) };
        let is_better = |best: Best| monitor.cost(value) < monitor.cost(best.value);
        if !value.is_finite() || !self.validated.best.is_none_or(is_better) {
            return Ok(());
        }
        // If the copy fails, the weights kept before it are lost too.
        self.validated.best = None;
        self.group.copy(Purpose::Best, self.values(), layout.whole(to))?;
        self.validated.best =
            Some(Best { monitor, value, epoch: row.epoch, step: row.step, is_restored: false });
        Ok(())
    }

    /// Reads the kept weights. Without them the run has no best validation.
    pub(super) fn read_best(&mut self) -> Option<Vec<f32>> {
        let best = self.validated.best.take()?;
        let layout = &self.trial.programs.layout;
        let from = layout.whole(layout.best?);
        let mut values = vec![0.0; from.len];
        self.group.read(Purpose::Best, from, &mut values).ok()?;
        if !values.iter().all(|v| v.is_finite()) {
            return None;
        }
        self.validated.best = Some(best);
        Some(values)
    }
}
