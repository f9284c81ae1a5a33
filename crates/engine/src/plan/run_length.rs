//! The length of a run that nothing ends early: its epochs, their steps, and how often it validates.

use super::dataset_info::DatasetInfo;
use crate::spec::{Every, Policy, Scaling, Spec, ValidateEvery};

/// The most steps, and the most rows, of the epochs that run without the host between them.
const MOST_AT_ONCE: [u64; 2] = [1 << 14, 1 << 20];

/// Minimum rows of a validation chunk, if there are as many.
const VALIDATION_ROWS: usize = 256;

/// Maximum rows of a validation chunk: f32 represents every integer up to here.
const MOST_VALIDATION_ROWS: usize = 1 << 24;

/// Rows of a step over all devices, before it is limited by the number of training rows.
pub fn global_batch(spec: &Spec, devices: usize) -> usize {
    match spec.devices.scaling {
        Scaling::Strong => spec.data.batch_size,
        Scaling::Weak => spec.data.batch_size.saturating_mul(devices.max(1)),
    }
}

/// Rows that are validated at once.
pub(super) fn validation_chunk(facts: DatasetInfo, batch: usize) -> usize {
    validation_rows(batch).min(facts.validation_rows)
}

/// Rows of a validation chunk, before it is limited by the number of validation rows.
pub fn validation_rows(batch: usize) -> usize {
    batch.clamp(VALIDATION_ROWS, MOST_VALIDATION_ROWS)
}

/// The number of steps, of validations, and of the rows that steps take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunLength {
    pub batch: usize,
    pub steps: u64,
    /// Steps of an epoch; the last may have fewer rows.
    pub steps_per_epoch: u64,
    pub validations: u64,
    rows: u64,
}

impl RunLength {
    /// For steps on `batch` rows.
    pub fn new(spec: &Spec, facts: DatasetInfo, batch: usize) -> Self {
        let trainer = &spec.trainer;
        let steps_per_epoch = facts.train_rows.div_ceil(batch.max(1)) as u64;
        let of_epochs = steps_per_epoch.saturating_mul(trainer.max_epochs);
        let steps = trainer.max_steps.map_or(of_epochs, |most| most.min(of_epochs));
        let validations = match trainer.validate_every.steps(steps_per_epoch) {
            // The run always ends with a validation, even if its last step is not one of the `every`.
            every @ 1.. if facts.validation_rows > 0 => steps.div_ceil(every),
            _ => 0,
        };
        Self { batch, steps, steps_per_epoch, validations, rows: facts.train_rows as u64 }
    }

    /// How many epochs after `epoch` have nothing for the host to do between them: no validation, no checkpoint. Those by steps end
    /// a block of steps, and not this. Under
    /// `per_epoch` the host reads the sums of each: they lie in one place, to which the next epoch's first step would add, and
    /// with them comes whether a loss was not finite, which this policy reports by the end of the epoch.
    pub fn stretch(&self, spec: &Spec, epoch: u64) -> u64 {
        let until = |every: u64| if every > 0 { every - epoch % every } else { u64::MAX };
        let validation = match spec.trainer.validate_every {
            ValidateEvery::Epochs(every) if self.validations > 0 => until(every),
            _ => u64::MAX,
        };
        let saves = match spec.checkpoint.as_deref().map(|rule| &rule.every) {
            Some(Every::Epochs(every)) => until(*every),
            _ => u64::MAX,
        };
        let per_epoch = [self.steps_per_epoch, self.rows];
        let most =
            MOST_AT_ONCE.iter().zip(per_epoch).map(|(most, each)| most / each.max(1)).min().unwrap_or(1);
        let most = if spec.logging.policy == Policy::PerEpoch { 1 } else { most.max(1) };
        let left = self.epochs().saturating_sub(epoch).max(1);
        most.min(validation).min(saves).min(left)
    }

    pub fn epochs(&self) -> u64 {
        self.steps.div_ceil(self.steps_per_epoch.max(1))
    }

    /// The number of complete epochs, and the rows taken of the incomplete one that follows.
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

    /// Chunks of `rows` rows in which the steps of all epochs get their rows.
    pub fn train_chunks(&self, rows: usize) -> u64 {
        let (whole, rest) = self.whole_and_rest();
        let rows = rows.max(1) as u64;
        whole.saturating_mul(self.rows.div_ceil(rows)).saturating_add(rest.div_ceil(rows))
    }

    /// The most rows that steps take of any epoch.
    pub fn epoch_rows(&self) -> usize {
        let (whole, rest) = self.whole_and_rest();
        (if whole > 0 { self.rows } else { rest }) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RunLength {
        /// A run that ends after `steps`.
        pub fn with_steps(batch: usize, rows: usize, steps: u64) -> Self {
            let steps_per_epoch = rows.div_ceil(batch) as u64;
            Self { batch, steps, steps_per_epoch, validations: 0, rows: rows as u64 }
        }
    }

    /// 100 rows in batches of 8 are 13 steps.
    #[test]
    fn rows_of_epochs_and_of_parts_of_one_are_counted() {
        for (steps, counts) in
            [(39, (3, 300, 100, 9)), (31, (3, 240, 100, 7)), (3, (1, 24, 24, 1)), (0, (0, 0, 0, 0))]
        {
            let length = RunLength::with_steps(8, 100, steps);
            let (epochs, rows, of_epoch) = (length.epochs(), length.train_rows(), length.epoch_rows());
            assert_eq!((epochs, rows, of_epoch, length.train_chunks(40)), counts);
        }
    }
}
