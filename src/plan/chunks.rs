//! Rows that are brought to where they are computed with in chunks, because they do not stay there: how many at a time.

use super::Facts;
use crate::program::Shard;

/// Bytes of a chunk for a device with a memory of its own, about.
const CHUNK_BYTES: u64 = 8 << 20;

/// The same for the CPU, which has chunks only where it pays to read the rows of many steps together: the more of them,
/// the closer they lie in their file.
const TOGETHER_BYTES: u64 = 64 << 20;

/// The part of the memory that is free which one of those may fill.
const TOGETHER_PART: u64 = 16;

/// Chunks of the same rows that are in the host's memory at the same time: one is computed with, one is ready, one is
/// being read. The CPU computes with the host's own, which is not filled again before it has the next.
pub(super) const ON_THE_HOST: u64 = 3;

/// The same on a GPU: one is computed with, one is on its way. Each has its like in pinned memory.
pub(super) const ON_A_GPU: u64 = 2;

/// Rows that are brought together, of all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Rows to train on: whole batches, but for the last of an epoch.
    pub train: usize,
    /// Rows to validate on, the same.
    pub validation: usize,
    train_batch: usize,
    validation_batch: usize,
    /// Bytes of a row.
    row_bytes: u64,
}

impl Chunks {
    /// For batches of those sizes on devices with a memory of their own; `[train, validation]`.
    pub(super) fn new(facts: Facts, batches: [usize; 2]) -> Self {
        Self::of(facts, batches, CHUNK_BYTES)
    }

    /// The same for the CPU, which has that much memory.
    pub(super) fn together(facts: Facts, batches: [usize; 2], memory_available: u64) -> Self {
        Self::of(facts, batches, TOGETHER_BYTES.min(memory_available / TOGETHER_PART))
    }

    fn of(facts: Facts, batches: [usize; 2], chunk_bytes: u64) -> Self {
        let row_bytes = facts.row_bytes().max(1);
        let [train_batch, validation_batch] = batches.map(|batch| batch.max(1));
        let train = usize::try_from(chunk_bytes / row_bytes.saturating_mul(train_batch as u64)).unwrap_or(1);
        let rows = train.max(1).saturating_mul(train_batch);
        // Those follow each other: there is nothing to be had by many of them.
        let in_order = usize::try_from(CHUNK_BYTES.min(chunk_bytes) / row_bytes).unwrap_or(1);
        let validation = (in_order / validation_batch).max(1).saturating_mul(validation_batch);
        Self {
            train: rows.min(facts.train_rows),
            validation: validation.min(facts.validation_rows),
            train_batch,
            validation_batch,
            row_bytes,
        }
    }

    /// Bytes of a chunk to train on and of one to validate on: what that device has of both, where it validates.
    pub(super) fn bytes(&self, shard: Shard, validates: bool) -> u64 {
        self.rows(shard, validates).saturating_mul(self.row_bytes)
    }

    /// The rows of both.
    pub(super) fn rows(&self, shard: Shard, validates: bool) -> u64 {
        let share = |rows: usize, batch: usize| -> u64 {
            ((rows / batch) * shard.rows(batch).len() + shard.rows(rows % batch).len()) as u64
        };
        let validation = if validates { share(self.validation, self.validation_batch) } else { 0 };
        share(self.train, self.train_batch).saturating_add(validation)
    }
}
