//! What it takes to fetch rows that stay in a file: a call of the system for every run of neighbours, and their bytes; and
//! what a disk adds, where the system has not got them in memory.
//!
//! A batch in any order is read in the order of the file, and rows that lie close together are read by one call, with
//! what lies between them. So the more rows are read together, the fewer calls each of them takes: where rows are narrow
//! it pays to read those of thousands of steps at once. Each of those is noted, sorted, and laid at its place among the
//! others, wherever that is in memory; and nothing can be computed before the first chunk of an epoch is there.

use super::{Chunks, DatasetInfo, FileRates, Speed, run_length::RunLength};
use crate::units;

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

/// Rows that are read together.
#[derive(Clone, Copy, Debug)]
struct CoalescedRead {
    /// How many.
    rows: f64,
    /// Of how many they are drawn; `None` where they follow each other.
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
    fn near_s(&self, rates: &FileRates) -> f64 {
        let Pieces { jumps, next, bytes, laid } = self.pieces();
        jumps * rates.call_s + next * rates.next_s + bytes / rates.bytes_per_s + laid * rates.row_s
    }

    /// Seconds of a disk for one thread after the other.
    fn disk_s(&self, rates: &FileRates) -> f64 {
        let Some(disk) = rates.disk else { return 0.0 };
        let Pieces { jumps, next, bytes, .. } = self.pieces();
        let each = if self.drawn_of.is_some() { (jumps + next) * disk.row_s } else { 0.0 };
        rates.disk_share() * (each + bytes / disk.bytes_per_s)
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
    /// In chunks of that size; else each step fetches its own.
    pub chunks: Option<Chunks>,
    /// Devices that share them.
    pub world_size: usize,
    /// Threads that read a chunk.
    pub readers: usize,
}

impl ReadPlan {
    /// To the CPU.
    pub fn on_the_cpu(shuffle: bool, chunks: Option<Chunks>) -> Self {
        Self { shuffle, chunks, world_size: 1, readers: 1 }
    }
}

/// What the rows of a step take that stay in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCost {
    /// At which speeds.
    pub rates: FileRates,
    /// Whether a step fetches them itself; else they are read beside it, many at a time.
    pub in_step: bool,
    /// Seconds of a thread that copies them out of the system's memory.
    pub near_s: f64,
    /// Seconds in which a disk reads them, as long as so many are on it as were found there. No part of the least that a step
    /// takes: what was read once may stay in memory.
    pub disk_s: f64,
    /// Whether the disk is waited for beside the steps. A step that fetches rows in the order of the file waits for them
    /// itself, since only the system reads ahead of it.
    pub disk_beside: bool,
    /// Seconds in which the orders of epochs are made, as a step's share: nothing is read before.
    pub order_s: f64,
    /// The parts of all rows that are in the first chunk of an epoch, and in its last. While the first is read nothing is
    /// computed, and nothing is read while the last is computed with.
    pub ends: [f64; 2],
    /// Steps of an epoch.
    epoch_steps: f64,
    /// As [`ReadCost::near_s`], at typical rates.
    typical_s: f64,
    /// Threads that read chunks.
    readers: usize,
}

/// What it costs to draw a row's place in the order of an epoch, by a core of a server with the order in its caches: 5 ns were
/// measured on 400,000 rows.
const DRAW_S: f64 = 4e-9;

/// Bytes that come from memory and go back where a number is changed that is not in the caches.
const LINE_BYTES: f64 = 64.0;

/// A last-level cache is no more than so many times as large as a second-level one, on servers of these years.
const LAST_LEVEL: u64 = 32;

/// Seconds for such a line to come from, or to go to, some place among so many bytes.
fn line_s(bytes: u64, speed: &Speed) -> f64 {
    let Speed { rates, cache_bytes, .. } = *speed;
    LINE_BYTES
        / match bytes {
            near if near <= cache_bytes => return 0.0,
            between if between <= LAST_LEVEL.saturating_mul(cache_bytes) => rates.cache_bytes_per_s,
            _ => rates.memory_bytes_per_s,
        }
}

/// Seconds in which the order of so many rows is made.
fn order_s(rows: usize, speed: &Speed) -> f64 {
    rows as f64 * (DRAW_S + line_s(4 * rows as u64, speed))
}

/// Seconds for a row to come to its place in a chunk: the lines that it lies in are read and written, and those of its
/// targets are read.
fn far_s(facts: DatasetInfo, chunks: &Chunks, speed: &Speed) -> f64 {
    let lines = |numbers: usize| 1.0 + (4 * numbers) as f64 / LINE_BYTES;
    let moved = 2.0 * lines(facts.features) + lines(facts.targets);
    moved * line_s(facts.row_bytes().saturating_mul(chunks.train as u64), speed)
}

impl ReadCost {
    /// Of a run that goes over rows that way. `None` where rows do not stay in a file.
    ///
    /// A chunk is cut by device and thread in the order of the epoch, and each part is read by itself. Where several devices
    /// share batches of rows that follow each other, the gaps in their shares are left out.
    pub(super) fn compute(
        facts: DatasetInfo,
        rates: Option<FileRates>,
        course: &RunLength,
        way: ReadPlan,
        speed: &Speed,
    ) -> Option<Self> {
        let row_bytes = facts.file_row_bytes? as f64;
        let ReadPlan { shuffle, chunks, world_size, readers } = way;
        let rates = rates.unwrap_or(FileRates::TYPICAL);
        let drawn_of = shuffle.then_some(facts.train_rows as f64);
        let (of_chunk, parts) = match chunks {
            Some(chunks) => (chunks.train.max(1), world_size.max(1) * readers.max(1)),
            None => (course.batch, 1),
        };
        let rows = (of_chunk as f64 / parts as f64).max(1.0);
        // Parts of a chunk that are a step's.
        let step = course.batch as f64 / rows;
        let together = CoalescedRead { rows, drawn_of, row_bytes };
        let scattered = chunks.filter(|_| shuffle);
        let far_s = scattered.map_or(0.0, |chunks| course.batch as f64 * far_s(facts, &chunks, speed));
        let disk_readers = match chunks {
            Some(_) => readers,
            None if shuffle => READERS_AHEAD,
            None => 1,
        };
        let (steps, epochs) = (course.steps.max(1) as f64, course.epochs() as f64);
        Some(Self {
            rates,
            in_step: chunks.is_none(),
            near_s: step * together.near_s(&rates) + far_s,
            disk_s: step * together.disk_s(&rates) / disk_readers.max(1) as f64,
            disk_beside: chunks.is_some() || shuffle,
            order_s: if shuffle { epochs * order_s(facts.train_rows, speed) / steps } else { 0.0 },
            ends: chunks.map_or([0.0; 2], |chunks| course.ends(chunks.train)),
            epoch_steps: steps / epochs.max(1.0),
            typical_s: step * together.near_s(&FileRates::TYPICAL) + far_s,
            readers,
        })
    }

    /// Seconds of a step that so many threads fetch rows in.
    pub fn in_step_s(&self, threads: usize) -> f64 {
        if self.in_step { self.near_s / self.rates.speedup(threads) } else { 0.0 }
    }

    /// The same at typical rates, by which decisions go.
    pub fn in_step_typical_s(&self, threads: usize) -> f64 {
        if self.in_step { self.typical_s / FileRates::TYPICAL.speedup(threads) } else { 0.0 }
    }

    /// Seconds at the beginning of an epoch in which its order is made, and its first chunk is read.
    pub fn wait_s(&self) -> [f64; 2] {
        [self.order_s, self.ends[0] * self.beside_s()].map(|of_step| of_step * self.epoch_steps)
    }

    /// `; the disk takes 26 µs for them as it is, beside it`; nothing where there is none.
    pub fn disk_in_words(&self) -> String {
        let place = if self.disk_beside { "beside it" } else { "within it" };
        let words =
            |_| format!("; the disk takes {} for them as it is, {place}", units::seconds(self.disk_s));
        self.rates.disk.map_or_else(String::new, words)
    }

    /// Seconds in which a step's rows are read beside others.
    pub fn beside_s(&self) -> f64 {
        if self.in_step { 0.0 } else { self.near_s / self.rates.speedup(self.readers) }
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
    let by = |chunks| ReadCost::compute(facts, None, course, ReadPlan { chunks, ..way }, speed);
    let (alone, together) = (by(None)?, by(way.chunks)?);
    let in_step_s = alone.in_step_s(1).min(alone.in_step_s(threads) + MEETINGS_S);
    way.chunks.filter(|_| way.shuffle && together.beside_s() < PAYS * in_step_s)
}

#[cfg(test)]
#[path = "read_cost_tests.rs"]
mod tests;
