//! Rows that are not resident come to their device in chunks: how many rows each chunk has.

use super::{dataset_info::DatasetInfo, devices::DeviceId, machine::Machine, run_length::RunLength};
use crate::program::Shard;

/// Approximate bytes of a chunk, of all GPUs together. Its steps are a block of their own, which costs a GPU some 40 us beside the
/// steps: a small part of the 600 us that a bus of 55 GB/s takes for the chunk.
const GPU_BYTES: u64 = 32 << 20;

/// Approximate bytes of a chunk for virtual GPUs, which no bus delays, for GPUs with little memory, and of validation rows.
const SMALL_BYTES: u64 = 8 << 20;

/// Bytes of a chunk for the CPU. It uses chunks only where it pays to read the rows of many steps together;
/// the more rows a chunk has, the closer they lie in their file.
const TOGETHER_BYTES: u64 = 64 << 20;

/// A larger chunk takes at most one part in this many of the free memory.
const PART: u64 = 16;

/// Maximum chunks in host memory per split when devices work on copies.
const ON_THE_HOST: u64 = 3;

/// Chunks on a GPU: one in use, one on its way. As many may be on the host, in pinned memory, until their copies are known to be
/// complete.
pub(super) const ON_A_GPU: u64 = 2;

/// The numbers of rows that are brought together, over all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Training rows of a chunk: whole batches, except at the end of an epoch.
    pub train: usize,
    pub validation: usize,
    train_batch: usize,
    validation_batch: usize,
    /// Chunks per pass, and number of passes, for training and for validation.
    passes: [[u64; 2]; 2],
    row_bytes: u64,
}

impl Chunks {
    /// For GPUs, each of which may be one of this machine's; the host holds some chunks, too.
    pub(super) fn new(
        facts: DatasetInfo,
        length: &RunLength,
        validation_batch: usize,
        machine: &Machine,
    ) -> Self {
        let free = machine.gpus.iter().map(|gpu| if gpu.is_virtual { 0 } else { gpu.memory_free }).min();
        let free = free.unwrap_or(0).min(machine.memory_available);
        let chunk_bytes = (free / PART).clamp(SMALL_BYTES, GPU_BYTES);
        Self::with_chunk_bytes(facts, length, validation_batch, chunk_bytes)
    }

    /// For the CPU, with `memory_available` bytes free.
    pub(super) fn together(
        facts: DatasetInfo,
        length: &RunLength,
        validation_batch: usize,
        memory_available: u64,
    ) -> Self {
        let chunk_bytes = TOGETHER_BYTES.min(memory_available / PART);
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
        // No more rows than the steps take of an epoch.
        let train = train.max(1).saturating_mul(train_batch).min(length.epoch_rows());
        let in_order = usize::try_from(SMALL_BYTES.min(chunk_bytes) / row_bytes).unwrap_or(1);
        let validation = (in_order / validation_batch).max(1).saturating_mul(validation_batch);
        let validation = validation.min(facts.validation_rows);
        let of_pass = |rows: usize, chunk: usize| rows.div_ceil(chunk.max(1)) as u64;
        let passes = [
            [of_pass(length.epoch_rows(), train), length.epochs()],
            [of_pass(facts.validation_rows, validation), length.validations],
        ];
        Self { train, validation, train_batch, validation_batch, passes, row_bytes }
    }

    /// The most training and validation chunks in host memory at the same time: one in use, one ready, one
    /// being read. The CPU computes on the host's chunk itself: it holds each until it gets the next one, even across
    /// passes. A GPU may hold two, with one free for the reader; a single pass never needs more than its chunks.
    pub fn on_the_host(&self, used: &[DeviceId]) -> [u64; 2] {
        let (is_held, is_lent) =
            (used.contains(&DeviceId::Cpu), used.iter().any(|id| id.own_gpu().is_some()));
        self.passes.map(|[chunks, passes]| match (is_held, passes) {
            (_, 0) => 0,
            (_, 1) if is_lent => chunks.min(ON_THE_HOST + 1),
            _ if is_lent => (chunks + ON_A_GPU).min(ON_THE_HOST + 1),
            (false, _) => chunks.min(ON_THE_HOST),
            (true, 1) => chunks.min(ON_THE_HOST + 1),
            (true, _) => (chunks + 1).min(ON_THE_HOST + 1),
        })
    }

    /// Bytes of a device's share of `counts` training and validation chunks.
    pub(super) fn bytes_of(&self, shard: Shard, validates: bool, counts: [u64; 2]) -> u64 {
        let rows = self.shares(shard, validates);
        let rows = rows[0].saturating_mul(counts[0]).saturating_add(rows[1].saturating_mul(counts[1]));
        rows.saturating_mul(self.row_bytes)
    }

    /// The device's rows of one training and one validation chunk together.
    pub(super) fn rows(&self, shard: Shard, validates: bool) -> u64 {
        let [train, validation] = self.shares(shard, validates);
        train.saturating_add(validation)
    }

    /// The device's rows of a training chunk and of a validation chunk.
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

    /// The numbers that the reading thread was seen to use: see the tests of `train::feed`.
    #[test]
    fn no_more_chunks_are_counted_than_there_are() {
        let of = |passes: u64, device: DeviceId| {
            [1, 2, 3, 4, 6].map(|count| {
                let passes = [[count, passes], [1, 0]];
                let (train, validation, row_bytes) = (1, 1, 8);
                let chunks =
                    Chunks { train, validation, train_batch: 1, validation_batch: 1, passes, row_bytes };
                let [train, validation] = chunks.on_the_host(&[device]);
                assert_eq!(validation, 0, "nothing is validated");
                train
            })
        };
        assert_eq!(of(1, DeviceId::Virtual(0)), [1, 2, 3, 3, 3]);
        assert_eq!(of(3, DeviceId::Virtual(0)), [1, 2, 3, 3, 3]);
        assert_eq!(of(1, DeviceId::Cpu), [1, 2, 3, 4, 4]);
        assert_eq!(of(3, DeviceId::Cpu), [2, 3, 4, 4, 4]);
        assert_eq!(of(1, DeviceId::Gpu(0)), [1, 2, 3, 4, 4]);
        assert_eq!(of(3, DeviceId::Gpu(0)), [3, 4, 4, 4, 4]);
    }
}
