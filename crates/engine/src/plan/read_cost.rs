//! Rows that stay in a file: whether each step fetches its own, or the rows of many steps are read together.
//!
//! Rows in random order are sorted and read in file order, and one system call reads rows that lie close
//! together, along with what lies between them. So the more rows are read together, the fewer calls each
//! needs: where rows are narrow, it pays to read those of thousands of steps at once. The price: every row is
//! sorted and copied to its position, and nothing can be computed before the first chunk of an epoch is
//! there.
//!
//! The decision uses typical rates, so that a spec with the same number of threads always reads in the same
//! way. Either way, steps compute on the same rows and give the same bits.

use super::{chunks::Chunks, dataset_info::DatasetInfo, rates::MachineRates, run_length::RunLength};

/// Gaps up to this many bytes are read and dropped rather than skipped by another call: about what can be
/// copied in the time of a system call.
pub const GAP_BYTES: u64 = 4096;

/// The most bytes of one read: enough to make the system call cheap, few enough for the second-level cache.
pub const BLOCK_BYTES: u64 = 1 << 18;

/// Threads that read ahead if steps would otherwise wait for a disk.
pub const READERS_AHEAD: usize = 4;

/// Rows are read together only if that takes at most this share of the time in which steps would fetch them.
const MOST_SHARE: f64 = 0.5;

/// Approximate cost of a team's barriers within a step, in seconds: the team is only worth it for longer
/// steps.
const BARRIERS_S: f64 = 20e-6;

/// Seconds of the call that reads a single row, not counting its bytes, on a server's core and from the file
/// cache: 1.5 µs were measured for 40 bytes in random order and 1.9 for 3 KB; 2.4 if another core does the
/// same (benches/results/gap.md).
const CALL_S: f64 = 1.5e-6;

/// Seconds of a call that continues where the last one ended, not counting its bytes.
const NEXT_S: f64 = 0.4e-6;

/// Bytes per second of consecutive rows.
const BYTES_PER_S: f64 = 3.5e9;

/// Seconds of a row that is read along with its neighbours, not counting its bytes: it is sorted and copied
/// to its position.
const ROW_S: f64 = 40e-9;

/// What each further thread adds to the speed, as a fraction of the first thread's.
const SCALING: f64 = 0.7;

/// How the rows of a step are read from their file, and what that costs at typical rates if no disk is waited
/// for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCost {
    /// Whether the step fetches them itself; otherwise they are read outside the step, many at a time.
    pub in_step: bool,
    /// Seconds per step with one thread.
    serial_s: f64,
}

impl ReadCost {
    /// The cost for chunks read by one thread, or for steps that fetch their own rows. `None` if no rows stay
    /// in a file.
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
                // The mean distance of rows in the file, and the share of rows that have a neighbour within
                // the gap.
                let distance = facts.train_rows as f64 / rows * row_bytes;
                let near = 1.0 - (-(GAP_BYTES as f64) / distance).exp();
                let bytes = row_bytes + near * (distance - row_bytes).clamp(0.0, GAP_BYTES as f64);
                bytes / BYTES_PER_S + near * ROW_S + (1.0 - near) * CALL_S
            }
        };
        // A chunk's rows are written in random order: their cache lines are read and written; those of
        // targets only read.
        let lines = |numbers: usize| (64 + 4 * numbers) as f64;
        let moved = 2.0 * lines(facts.features) + lines(facts.target_width());
        let placed_s = if shuffle && chunks.is_some() { moved / rates.memory_bytes_per_s } else { 0.0 };
        Some(Self { in_step: chunks.is_none(), serial_s: length.batch as f64 * (row_s + placed_s) })
    }

    /// Seconds that `threads` threads take to fetch the rows of a step.
    pub fn in_step_s(&self, threads: usize) -> f64 {
        if self.in_step { self.serial_s / (1.0 + SCALING * (threads.max(1) - 1) as f64) } else { 0.0 }
    }
}

/// Returns `chunks` if the CPU should read rows in these rather than let up to `threads` threads fetch each
/// step's rows.
pub(super) fn together(
    facts: DatasetInfo,
    length: &RunLength,
    (shuffle, chunks): (bool, Chunks),
    (threads, rates): (usize, &MachineRates),
) -> Option<Chunks> {
    let cost = |chunks| ReadCost::new(facts, length, (shuffle, chunks), rates);
    let (alone, together) = (cost(None)?, cost(Some(chunks))?);
    let in_step_s = alone.in_step_s(1).min(alone.in_step_s(threads) + BARRIERS_S);
    (shuffle && together.serial_s < MOST_SHARE * in_step_s).then_some(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::facts;

    /// The chunk size of a one-epoch run in batches of 256, with the given free memory.
    fn chunk(
        rows: usize,
        features: usize,
        threads: usize,
        change: impl Fn(&mut RunLength, &mut u64),
    ) -> Option<usize> {
        let facts = facts(rows, features, true);
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
        // About 1.5 µs for a single row, 0.3 µs for one of a chunk; but 32 threads are about 23 times as fast
        // as one.
        assert_eq!(chunk(million, 10, 32, same), None);
    }
}
