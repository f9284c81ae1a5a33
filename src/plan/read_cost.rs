//! Whether steps fetch rows that stay in a file, or rows of many steps are read together: by a call of the system for every
//! run of neighbours, and their bytes.
//!
//! A batch in any order is read in the order of the file, and rows that lie close together are read by one call, with
//! what lies between them. So the more rows are read together, the fewer calls each of them takes: where rows are narrow
//! it pays to read those of thousands of steps at once. Each of those is noted, sorted, and laid at its place among the
//! others, wherever that is in memory; and nothing can be computed before the first chunk of an epoch is there.

use super::{Chunks, DatasetInfo, Speed, run_length::RunLength};

/// Bytes that are read and dropped rather than skipped by a read of their own: what is copied in the time of a system
/// call, about.
pub const GAP_BYTES: u64 = 4096;

/// Bytes of one read at most: large enough to make a system call cheap, small enough for the second-level cache.
pub const BLOCK_BYTES: u64 = 1 << 18;

/// Threads that read ahead of steps which would wait for a disk.
pub const READERS_AHEAD: usize = 4;

/// Rows are read together only where that takes at most this part of the time that steps would take to fetch them.
const PAYS: f64 = 0.5;

/// What it costs a team, about, to meet within a step: a step shorter than that is one thread's.
const MEETINGS_S: f64 = 20e-6;

/// A row by itself, beside its bytes, that is copied out of the system's memory by a core of a server: 1.5 µs were measured
/// for 40 bytes in any order and 1.9 for 3 KB, 2.4 where another core does the same (benches/results/gap.md).
const CALL_S: f64 = 1.5e-6;

/// A call that goes on where the last one ended, beside its bytes.
const NEXT_S: f64 = 0.4e-6;

/// Bytes per second of rows that follow each other.
const BYTES_PER_S: f64 = 3.5e9;

/// A row that is read with its neighbours and laid at a place of its own, beside its bytes: noted, sorted, copied.
const ROW_S: f64 = 40e-9;

/// What each further thread adds, as a part of the first one's speed.
const SCALING: f64 = 0.7;

/// Rows that are read together.
#[derive(Clone, Copy, Debug)]
struct CoalescedRead {
    /// How many.
    rows: f64,
    /// Number of rows they are drawn from; `None` where they follow each other.
    drawn_of: Option<f64>,
    row_bytes: f64,
}

impl CoalescedRead {
    /// What it takes to read them: as expected of rows that are drawn without regard to each other, so that what lies
    /// between two neighbours is a geometric number of rows.
    fn pieces(&self) -> Pieces {
        let Self { rows, drawn_of, row_bytes } = *self;
        let own = rows * row_bytes;
        let Some(of) = drawn_of else {
            return Pieces { jumps: 0.0, next: (own / BLOCK_BYTES as f64).max(1.0), bytes: own, laid: 0.0 };
        };
        let absent = 1.0 - (rows / of).min(1.0);
        // The most rows that are read and dropped between two neighbours.
        let most = (GAP_BYTES as f64 / row_bytes).floor();
        let within = 1.0 - absent.powf(most + 1.0);
        let dropped = if absent < 1.0 {
            let tail = 1.0 - (most + 1.0) * absent.powf(most) + most * absent.powf(most + 1.0);
            absent * tail / (1.0 - absent)
        } else {
            0.0
        };
        let pairs = (rows - 1.0).max(0.0);
        let bytes = own + pairs * dropped * row_bytes;
        let jumps = 1.0 + pairs * (1.0 - within);
        Pieces { jumps, next: bytes / BLOCK_BYTES as f64, bytes, laid: pairs * within }
    }

    /// Seconds of one thread, from the system's memory.
    fn near_s(&self) -> f64 {
        let Pieces { jumps, next, bytes, laid } = self.pieces();
        jumps * CALL_S + next * NEXT_S + bytes / BYTES_PER_S + laid * ROW_S
    }
}

/// What rows that are read together are read by.
struct Pieces {
    /// Calls of the system that begin somewhere else.
    jumps: f64,
    /// Those that go on where the last one ended.
    next: f64,
    /// Bytes that are read.
    bytes: f64,
    /// Rows that came with another one and are laid at a place of their own.
    laid: f64,
}

/// How rows come to the steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPlan {
    /// Whether in any order.
    pub shuffle: bool,
    /// In chunks of that size, read by one thread; else each step fetches its own.
    pub chunks: Option<Chunks>,
}

/// How the rows of a step are read that stay in a file, and what that takes of the system's memory at typical rates. What a
/// disk adds is measured by a run, and decides nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCost {
    /// Whether a step fetches them itself; else they are read beside it, many at a time.
    pub in_step: bool,
    /// Seconds of one thread.
    near_s: f64,
}

/// Bytes that come from memory and go back where a number is changed that is not in the caches.
const LINE_BYTES: f64 = 64.0;

/// Largest ratio of a last-level cache to a second-level one, on servers of these years.
const LAST_LEVEL: u64 = 32;

/// Seconds for such a line to come from, or to go to, some place among `bytes`.
fn line_s(bytes: u64, speed: &Speed) -> f64 {
    let Speed { rates, cache_bytes, .. } = *speed;
    LINE_BYTES
        / match bytes {
            near if near <= cache_bytes => return 0.0,
            between if between <= LAST_LEVEL.saturating_mul(cache_bytes) => rates.cache_bytes_per_s,
            _ => rates.memory_bytes_per_s,
        }
}

/// Seconds for a row to come to its place in a chunk: the lines that it lies in are read and written, and those of its
/// targets are read.
fn far_s(facts: DatasetInfo, chunks: &Chunks, speed: &Speed) -> f64 {
    let lines = |numbers: usize| 1.0 + (4 * numbers) as f64 / LINE_BYTES;
    let moved = 2.0 * lines(facts.features) + lines(facts.targets);
    moved * line_s(facts.row_bytes().saturating_mul(chunks.train as u64), speed)
}

impl ReadCost {
    /// The cost of a run that goes over rows that way. `None` where rows do not stay in a file.
    pub(super) fn compute(
        facts: DatasetInfo,
        course: &RunLength,
        way: ReadPlan,
        speed: &Speed,
    ) -> Option<Self> {
        let row_bytes = facts.file_row_bytes? as f64;
        let ReadPlan { shuffle, chunks } = way;
        let drawn_of = shuffle.then_some(facts.train_rows as f64);
        let rows = chunks.map_or(course.batch, |chunks| chunks.train).max(1) as f64;
        // Parts of a chunk that are a step's.
        let step = course.batch as f64 / rows;
        let together = CoalescedRead { rows, drawn_of, row_bytes };
        let scattered = chunks.filter(|_| shuffle);
        let far_s = scattered.map_or(0.0, |chunks| course.batch as f64 * far_s(facts, &chunks, speed));
        Some(Self { in_step: chunks.is_none(), near_s: step * together.near_s() + far_s })
    }

    /// Seconds in which `threads` fetch the rows of a step.
    pub fn in_step_s(&self, threads: usize) -> f64 {
        if self.in_step { self.near_s / (1.0 + SCALING * (threads.max(1) - 1) as f64) } else { 0.0 }
    }
}

/// Chunks, where the CPU should rather have those than that each step fetches its own rows. Typical rates decide, so that
/// the same spec on as many threads always reads in the same way; and whichever it is, steps compute with the same rows, to
/// the same bits.
///
/// Chunks are read by one thread, beside the steps. Rows that steps fetch are fetched by all of a team, where a step is long
/// enough for one.
pub(super) fn together(
    facts: DatasetInfo,
    course: &RunLength,
    way: ReadPlan,
    (threads, speed): (usize, &Speed),
) -> Option<Chunks> {
    let by = |chunks| ReadCost::compute(facts, course, ReadPlan { chunks, ..way }, speed);
    let (alone, together) = (by(None)?, by(way.chunks)?);
    let in_step_s = alone.in_step_s(1).min(alone.in_step_s(threads) + MEETINGS_S);
    way.chunks.filter(|_| way.shuffle && together.near_s < PAYS * in_step_s)
}

#[cfg(test)]
#[path = "read_cost_tests.rs"]
mod tests;
