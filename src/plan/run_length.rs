//! How a run goes over its rows, if nothing ends it early: its epochs, their steps, and how often it validates.

use super::DatasetInfo;
use crate::spec::Spec;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunLength {
    /// Rows of a step.
    pub batch: usize,
    /// Optimizer steps.
    pub steps: u64,
    /// Those of an epoch, the last of them perhaps on fewer rows.
    pub steps_per_epoch: u64,
    /// Passes over the validation rows.
    pub validations: u64,
    /// Rows of an epoch.
    rows: u64,
}

impl RunLength {
    /// Of a trial whose steps take so many rows.
    pub fn new(spec: &Spec, facts: DatasetInfo, batch: usize) -> Self {
        let trainer = &spec.trainer;
        let steps_per_epoch = facts.train_rows.div_ceil(batch.max(1)) as u64;
        let of_epochs = steps_per_epoch.saturating_mul(trainer.max_epochs);
        let steps = trainer.max_steps.map_or(of_epochs, |most| most.min(of_epochs));
        let mut course =
            Self { batch, steps, steps_per_epoch, validations: 0, rows: facts.train_rows as u64 };
        let every = trainer.validate_every_epochs;
        if facts.validation_rows > 0 && every > 0 {
            // After every so many epochs, and after the last.
            let epochs = course.epochs();
            course.validations = epochs / every + u64::from(!epochs.is_multiple_of(every));
        }
        course
    }

    /// Epochs begun.
    pub fn epochs(&self) -> u64 {
        self.steps.div_ceil(self.steps_per_epoch.max(1))
    }

    /// Epochs that are gone through to their end, and the rows that steps take of the one behind them.
    fn whole_and_rest(&self) -> (u64, u64) {
        let per_epoch = self.steps_per_epoch.max(1);
        let rest = (self.steps % per_epoch).saturating_mul(self.batch as u64);
        (self.steps / per_epoch, rest.min(self.rows))
    }

    /// Training rows that steps take, over all epochs.
    pub fn train_rows(&self) -> u64 {
        let (whole, rest) = self.whole_and_rest();
        whole.saturating_mul(self.rows).saturating_add(rest)
    }

    /// Rows that steps take of an epoch at most.
    pub fn epoch_rows(&self) -> usize {
        let (whole, rest) = self.whole_and_rest();
        (if whole > 0 { self.rows } else { rest }) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(rows: u64, batch: usize, steps: u64) -> RunLength {
        RunLength { batch, steps, steps_per_epoch: rows.div_ceil(batch as u64), validations: 0, rows }
    }

    /// 100 rows by 8 are 13 steps.
    #[test]
    fn rows_of_epochs_and_of_parts_of_one_are_counted() {
        let three = course(100, 8, 39);
        assert_eq!((three.epochs(), three.train_rows(), three.epoch_rows()), (3, 300, 100));
        // Two epochs and 40 rows of the third.
        let some = course(100, 8, 31);
        assert_eq!((some.epochs(), some.train_rows(), some.epoch_rows()), (3, 240, 100));
        // Less than one.
        let few = course(100, 8, 3);
        assert_eq!((few.epochs(), few.train_rows(), few.epoch_rows()), (1, 24, 24));
    }
}
