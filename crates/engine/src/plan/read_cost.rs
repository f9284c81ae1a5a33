//! Whether steps fetch rows that stay in a file, or rows of many steps are read together.
//!
//! Rows in any order are read in the order of the file, and one call reads rows that lie close together, with what lies
//! between them. So the more rows are read together, the fewer calls each of them takes: where rows are narrow it pays to
//! read those of thousands of steps at once. Each of those is sorted and copied to its place, and nothing can be computed
//! before the first chunk of an epoch is there.
//!
//! Typical rates decide, so that a spec on the same number of threads always reads in the same way. Steps compute with the
//! same rows either way, to the same bits.

use super::{chunks::Chunks, dataset_info::DatasetInfo, rates::MachineRates, run_length::RunLength};

/// Bytes that are read and dropped rather than skipped by a read of their own: what is copied in the time of a system
/// call, about.
pub const GAP_BYTES: u64 = 4096;

/// Bytes of one read at most: large enough to make a system call cheap, small enough for the second-level cache.
pub const BLOCK_BYTES: u64 = 1 << 18;

/// Threads that read ahead of steps which would wait for a disk.
pub const READERS_AHEAD: usize = 4;

/// Rows are read together only where that takes at most this part of the time that steps would take to fetch them.
const PAYS: f64 = 0.5;

/// Cost of a team's barriers within a step, about: a shorter step is one thread's.
const BARRIERS_S: f64 = 20e-6;

/// A row by itself, beside its bytes, that a core of a server copies from the system's memory: 1.5 µs were measured for 40
/// bytes in any order and 1.9 for 3 KB, 2.4 where another core does the same (benches/results/gap.md).
const CALL_S: f64 = 1.5e-6;

/// A call that goes on where the last one ended, beside its bytes.
const NEXT_S: f64 = 0.4e-6;

/// Bytes per second of rows that follow each other.
const BYTES_PER_S: f64 = 3.5e9;

/// A row that is read with its neighbours, beside its bytes: sorted and copied to its place.
const ROW_S: f64 = 40e-9;

/// What each further thread adds, as a part of the first one's speed.
const SCALING: f64 = 0.7;

/// How the rows of a step are read that stay in a file, and the cost at typical rates, without a disk's share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCost {
    /// Whether a step fetches them itself; else they are read beside it, many at a time.
    pub in_step: bool,
    /// Seconds of one thread per step.
    serial_s: f64,
}

impl ReadCost {
    /// For chunks that one thread reads, or for steps that fetch their own rows. `None` if rows do not stay in a file.
    pub(super) fn new(
        facts: DatasetInfo,
        length: &RunLength,
        (shuffle, chunks): (bool, Option<Chunks>),
        rates: &MachineRates,
    ) -> Option<Self> {
        let row_bytes = facts.file_row_bytes? as f64;
        let rows = chunks.map_or(length.batch, |chunks| chunks.train).max(1) as f64;
        let row_s = match shuffle {
            false => row_bytes / BYTES_PER_S + NEXT_S / rows,
            true => {
                // The mean distance of rows in the file, and the share of those that come with a neighbour.
                let distance = facts.train_rows as f64 / rows * row_bytes;
                let near = 1.0 - (-(GAP_BYTES as f64) / distance).exp();
                let bytes = row_bytes + near * (distance - row_bytes).clamp(0.0, GAP_BYTES as f64);
                bytes / BYTES_PER_S + near * ROW_S + (1.0 - near) * CALL_S
            }
        };
        // Rows of a chunk go to places all over it: their cache lines are read and written, those of targets read.
        let lines = |numbers: usize| (64 + 4 * numbers) as f64;
        let moved = 2.0 * lines(facts.features) + lines(facts.targets);
        let placed_s = if shuffle && chunks.is_some() { moved / rates.memory_bytes_per_s } else { 0.0 };
        Some(Self { in_step: chunks.is_none(), serial_s: length.batch as f64 * (row_s + placed_s) })
    }

    /// Seconds in which `threads` fetch the rows of a step.
    pub fn in_step_s(&self, threads: usize) -> f64 {
        if self.in_step { self.serial_s / (1.0 + SCALING * (threads.max(1) - 1) as f64) } else { 0.0 }
    }
}

/// `chunks`, if the CPU should rather read those than let a team of `threads` fetch the rows of each step.
pub(super) fn together(
    facts: DatasetInfo,
    length: &RunLength,
    (shuffle, chunks): (bool, Chunks),
    (threads, rates): (usize, &MachineRates),
) -> Option<Chunks> {
    let cost = |chunks| ReadCost::new(facts, length, (shuffle, chunks), rates);
    let (alone, together) = (cost(None)?, cost(Some(chunks))?);
    let in_step_s = alone.in_step_s(1).min(alone.in_step_s(threads) + BARRIERS_S);
    (shuffle && together.serial_s < PAYS * in_step_s).then_some(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of chunks of a run of one epoch by 256, with that much memory.
    fn chunk(
        rows: usize,
        features: usize,
        threads: usize,
        change: impl Fn(&mut RunLength, &mut u64),
    ) -> Option<usize> {
        let facts = DatasetInfo {
            train_rows: rows,
            validation_rows: 0,
            features,
            targets: 1,
            classes: None,
            file_row_bytes: Some(4 * features as u64),
            digest: 0,
        };
        let mut memory = 16 << 30;
        let mut length = RunLength::with_steps(256, rows, rows.div_ceil(256) as u64);
        change(&mut length, &mut memory);
        let chunks = Chunks::together(facts, &length, 1, memory);
        let rates = MachineRates::typical("avx2");
        together(facts, &length, (true, chunks), (threads, &rates)).map(|chunks| chunks.train)
    }

    #[test]
    fn narrow_rows_in_any_order_are_read_many_at_a_time() {
        let million = 26_843_546;
        let same = |_: &mut RunLength, _: &mut u64| {};
        // A gigabyte of ten numbers per row: 64 MiB of rows and targets at a time, in whole batches.
        assert_eq!(chunk(million, 10, 2, same), Some((64 << 20) / 44 / 256 * 256));
        assert_eq!(chunk(1_310_720, 784, 2, same), None, "wide rows lie far apart, however many are read");
        assert_eq!(chunk(3_200, 10, 2, same), Some(3_200), "each batch would read half of the file");
        assert_eq!(chunk(3_200, 2_000, 2, same), None, "to copy a row takes longer than to ask for it");
        assert_eq!(chunk(million, 10, 2, |_, memory| *memory = 64 << 20), None, "no room");
        let few = |length: &mut RunLength, _: &mut u64| *length = RunLength::with_steps(256, 26_843_546, 100);
        assert_eq!(chunk(million, 10, 2, few), None, "too few steps");
        // 1.5 µs for a row by itself, 0.3 for one of a chunk: 32 threads are some 23 times as quick as one.
        assert_eq!(chunk(million, 10, 32, same), None);
    }
}
