//! Rows that are brought to where they are computed with in chunks, because they do not stay there: how many at a time.

use super::{dataset_info::DatasetInfo, run_length::RunLength};
use crate::program::Shard;

/// Bytes of a chunk for a device with a memory of its own, about.
const CHUNK_BYTES: u64 = 8 << 20;

/// Bytes of a chunk for the CPU, which has chunks only where it pays to read the rows of many steps together: the more of
/// them, the closer they lie in their file.
const TOGETHER_BYTES: u64 = 64 << 20;

/// The part of the memory that is free which one of those may fill.
const TOGETHER_PART: u64 = 16;

/// Maximum chunks in host memory per split when devices work on copies.
const ON_THE_HOST: u64 = 3;

/// Chunks on a GPU: one is computed with, one is on its way. Each has a copy in pinned memory.
pub(super) const ON_A_GPU: u64 = 2;

/// Rows that are brought together, of all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Rows to train on: whole batches, but for the last of an epoch.
    pub train: usize,
    pub validation: usize,
    train_batch: usize,
    validation_batch: usize,
    /// Chunks of a pass over either, and passes.
    passes: [[u64; 2]; 2],
    row_bytes: u64,
}

impl Chunks {
    /// For devices with a memory of their own.
    pub(super) fn new(facts: DatasetInfo, length: &RunLength, validation_batch: usize) -> Self {
        Self::with_chunk_bytes(facts, length, validation_batch, CHUNK_BYTES)
    }

    /// For the CPU, which has that much memory.
    pub(super) fn together(
        facts: DatasetInfo,
        length: &RunLength,
        validation_batch: usize,
        memory_available: u64,
    ) -> Self {
        let chunk_bytes = TOGETHER_BYTES.min(memory_available / TOGETHER_PART);
        Self::with_chunk_bytes(facts, length, validation_batch, chunk_bytes)
    }

    fn with_chunk_bytes(
        facts: DatasetInfo,
        length: &RunLength,
        validation_batch: usize,
        chunk_bytes: u64,
    ) -> Self {
        let row_bytes = facts.row_bytes().max(1);
        let [train_batch, validation_batch] = [length.batch, validation_batch].map(|batch| batch.max(1));
        let train = usize::try_from(chunk_bytes / row_bytes.saturating_mul(train_batch as u64)).unwrap_or(1);
        // No more than steps take of an epoch.
        let train = train.max(1).saturating_mul(train_batch).min(length.epoch_rows());
        // Validation rows are in file order, so a large chunk gains nothing.
        let in_order = usize::try_from(CHUNK_BYTES.min(chunk_bytes) / row_bytes).unwrap_or(1);
        let validation = (in_order / validation_batch).max(1).saturating_mul(validation_batch);
        let validation = validation.min(facts.validation_rows);
        let of_pass = |rows: usize, chunk: usize| rows.div_ceil(chunk.max(1)) as u64;
        let passes = [
            [of_pass(length.epoch_rows(), train), length.epochs()],
            [of_pass(facts.validation_rows, validation), length.validations],
        ];
        Self { train, validation, train_batch, validation_batch, passes, row_bytes }
    }

    /// The most chunks of either kind in the host's memory at one time: one in use, one ready, one being read. `is_held`:
    /// whether a device computes with the host's own. It then holds the last one until it gets the next, even of the next
    /// pass.
    pub(super) fn on_the_host(&self, is_held: bool) -> [u64; 2] {
        self.passes.map(|[chunks, passes]| match (is_held, passes) {
            (_, 0) => 0,
            (false, _) => chunks.min(ON_THE_HOST),
            (true, 1) => chunks.min(ON_THE_HOST + 1),
            (true, _) => (chunks + 1).min(ON_THE_HOST + 1),
        })
    }

    /// Bytes of a device's share of these numbers of chunks of either kind.
    pub(super) fn bytes_of(&self, shard: Shard, validates: bool, counts: [u64; 2]) -> u64 {
        let rows = self.shares(shard, validates);
        let rows = rows[0].saturating_mul(counts[0]).saturating_add(rows[1].saturating_mul(counts[1]));
        rows.saturating_mul(self.row_bytes)
    }

    /// The rows of both.
    pub(super) fn rows(&self, shard: Shard, validates: bool) -> u64 {
        let [train, validation] = self.shares(shard, validates);
        train.saturating_add(validation)
    }

    /// That device's share of a chunk of either kind.
    fn shares(&self, shard: Shard, validates: bool) -> [u64; 2] {
        let share = |rows: usize, batch: usize| -> u64 {
            ((rows / batch) * shard.rows(batch).len() + shard.rows(rows % batch).len()) as u64
        };
        let validation = if validates { share(self.validation, self.validation_batch) } else { 0 };
        [share(self.train, self.train_batch), validation]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the reading thread was seen to take them: see the tests of `train::feed`.
    #[test]
    fn no_more_chunks_are_counted_than_there_are() {
        let of = |passes: u64, is_held| {
            [1, 2, 3, 4, 6].map(|count| {
                let passes = [[count, passes], [1, 0]];
                let (train, validation, row_bytes) = (1, 1, 8);
                let chunks =
                    Chunks { train, validation, train_batch: 1, validation_batch: 1, passes, row_bytes };
                let [train, validation] = chunks.on_the_host(is_held);
                assert_eq!(validation, 0, "nothing is validated");
                train
            })
        };
        assert_eq!(of(1, false), [1, 2, 3, 3, 3]);
        assert_eq!(of(3, false), [1, 2, 3, 3, 3]);
        assert_eq!(of(1, true), [1, 2, 3, 4, 4]);
        assert_eq!(of(3, true), [2, 3, 4, 4, 4]);
    }
}
