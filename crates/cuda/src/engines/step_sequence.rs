//! Which steps of a block are on full batches, and which on the last, smaller one of an epoch.

use crate::device::Block;

/// Consecutive steps.
pub struct StepSequence {
    pub steps: usize,
    /// Those before the first smaller batch; `usize::MAX` if all batches are full.
    pub before_last: usize,
    pub per_epoch: usize,
}

impl StepSequence {
    /// Of `steps` steps of a block from its step `first` on.
    pub fn new(block: &Block<'_>, first: usize, steps: usize, batch: usize) -> Self {
        let (rows, [position, _]) = (block.rows, block.place(first, batch));
        let before_last = if rows.is_multiple_of(batch) { usize::MAX } else { (rows - position) / batch };
        Self { steps, before_last, per_epoch: rows.div_ceil(batch).max(1) }
    }

    pub fn is_last(&self, step: usize) -> bool {
        step >= self.before_last && (step - self.before_last).is_multiple_of(self.per_epoch)
    }

    /// Runs of full batches, and the smaller ones between them.
    pub fn runs(&self) -> impl Iterator<Item = (usize, bool)> {
        let mut first = 0;
        std::iter::from_fn(move || {
            let is_last = self.is_last(first);
            let left = self.steps.checked_sub(first).filter(|left| *left > 0)?;
            let full = if first <= self.before_last { self.before_last - first } else { self.per_epoch - 1 };
            let count = if is_last { 1 } else { left.min(full) };
            first += count;
            Some((count, is_last))
        })
    }
}
