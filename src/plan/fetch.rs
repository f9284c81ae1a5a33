//! What it takes to fetch rows that stay in a file: a call of the system for every run of neighbours, and their bytes; and
//! what a disk adds, where the system has not got them in memory.
//!
//! A batch in any order is read in the order of the file, and rows that lie close together are read by one call, with
//! what lies between them. So the more rows are read together, the fewer calls each of them takes: where rows are narrow
//! it pays to read those of thousands of steps at once.

use super::{Chunks, Facts, Origin};
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

/// How quickly rows come from a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileRates {
    /// Where these figures come from.
    pub origin: Origin,
    /// A row by itself, beside its bytes, from the system's memory: a call, and pages to be looked up.
    pub call_s: f64,
    /// Of rows that follow each other, from there.
    pub bytes_per_s: f64,
    /// What each further thread adds, as a part of the first one's speed.
    pub scaling: f64,
    /// Rows that were looked at.
    pub looked_at: u32,
    /// Of those, rows that took longer than memory does.
    pub slow: u32,
    /// What a disk adds, where it is what made them slow.
    pub disk: Option<Disk>,
}

/// A disk that is waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Of the rows that were looked at, those that came from it.
    pub rows: u32,
    /// Seconds for one of them.
    pub row_s: f64,
    /// Of rows that follow each other and come from it.
    pub bytes_per_s: f64,
}

impl FileRates {
    /// What a row takes that is copied out of the system's memory by a core of a server: 1.5 µs were measured for 40 bytes
    /// in any order and 1.9 for 3 KB, 2.4 where another core does the same (benches/results/gap.md).
    pub const TYPICAL: Self = Self {
        origin: Origin::Typical,
        call_s: 1.5e-6,
        bytes_per_s: 3.5e9,
        scaling: 0.7,
        looked_at: 0,
        slow: 0,
        disk: None,
    };

    /// `one by itself in 1.9 µs, some that follow each other at 10.2 GB/s, measured on 64 rows, all of which the system had
    /// in memory`, of rows of so many bytes.
    pub fn in_words(&self, row_bytes: u64) -> String {
        let words = format!(
            "one by itself in {}, some that follow each other at {}B/s, {}",
            units::seconds(self.call_s + row_bytes as f64 / self.bytes_per_s),
            units::rate(self.bytes_per_s),
            self.origin.name()
        );
        if self.origin == Origin::Typical {
            return words;
        }
        let looked_at = units::counted(self.looked_at.into(), "row");
        match self.disk {
            None if self.slow == 0 => {
                format!("{words} on {looked_at}, all of which the system had in memory")
            }
            None => format!(
                "{words} on {looked_at}, all of which the system had in memory, though {} came late once",
                units::count(self.slow.into())
            ),
            Some(disk) => format!(
                "{words} on {looked_at}, of which {} came from the disk, in {} each",
                units::count(disk.rows.into()),
                units::seconds(disk.row_s)
            ),
        }
    }

    fn speedup(&self, threads: usize) -> f64 {
        1.0 + self.scaling * (threads.max(1) - 1) as f64
    }

    /// The part of rows that a disk is waited for.
    fn disk_share(&self) -> f64 {
        self.disk.map_or(0.0, |disk| f64::from(disk.rows) / f64::from(self.looked_at.max(1)))
    }
}

/// Rows that are read together.
#[derive(Clone, Copy, Debug)]
struct Together {
    /// How many.
    rows: f64,
    /// Of how many they are drawn; `None` where they follow each other.
    drawn_of: Option<f64>,
    row_bytes: f64,
}

impl Together {
    /// Calls of the system, and bytes that they read: as expected of rows that are drawn without regard to each other, so
    /// that what lies between two neighbours is a geometric number of rows.
    fn calls_and_bytes(&self) -> (f64, f64) {
        let Self { rows, drawn_of, row_bytes } = *self;
        let own = rows * row_bytes;
        let (calls, bytes) = match drawn_of {
            None => (1.0, own),
            Some(of) => {
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
                (1.0 + pairs * (1.0 - within), own + pairs * dropped * row_bytes)
            }
        };
        (calls + bytes / BLOCK_BYTES as f64, bytes)
    }

    /// Seconds of one thread, from the system's memory.
    fn near_s(&self, rates: &FileRates) -> f64 {
        let (calls, bytes) = self.calls_and_bytes();
        calls * rates.call_s + bytes / rates.bytes_per_s
    }

    /// Seconds of a disk for one thread after the other.
    fn disk_s(&self, rates: &FileRates) -> f64 {
        let Some(disk) = rates.disk else { return 0.0 };
        let (calls, bytes) = self.calls_and_bytes();
        let each = if self.drawn_of.is_some() { calls * disk.row_s } else { 0.0 };
        rates.disk_share() * (each + bytes / disk.bytes_per_s)
    }
}

/// What the rows of a step take that stay in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fetch {
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
    /// Threads that read chunks.
    readers: usize,
}

impl Fetch {
    /// Of steps on `batch` rows; chunks are for so many devices, and are read by so many threads. `None` where rows do not
    /// stay in a file.
    ///
    /// A chunk is cut by device and thread in the order of the epoch, and each part is read by itself. Where several devices
    /// share batches of rows that follow each other, the gaps in their shares are left out.
    pub(super) fn of(
        facts: Facts,
        rates: Option<FileRates>,
        (batch, shuffle): (usize, bool),
        (chunks, world_size, readers): (Option<Chunks>, usize, usize),
    ) -> Option<Self> {
        let row_bytes = facts.file_row_bytes? as f64;
        let rates = rates.unwrap_or(FileRates::TYPICAL);
        let drawn_of = shuffle.then_some(facts.train_rows as f64);
        let (of_chunk, parts) = match chunks {
            Some(chunks) => (chunks.train.max(1), world_size.max(1) * readers.max(1)),
            None => (batch, 1),
        };
        let rows = (of_chunk as f64 / parts as f64).max(1.0);
        // Parts of a chunk that are a step's.
        let step = batch as f64 / rows;
        let together = Together { rows, drawn_of, row_bytes };
        let disk_readers = match chunks {
            Some(_) => readers,
            None if shuffle => READERS_AHEAD,
            None => 1,
        };
        Some(Self {
            rates,
            in_step: chunks.is_none(),
            near_s: step * together.near_s(&rates),
            disk_s: step * together.disk_s(&rates) / disk_readers.max(1) as f64,
            disk_beside: chunks.is_some() || shuffle,
            readers,
        })
    }

    /// Seconds of a step that so many threads fetch rows in.
    pub fn in_step_s(&self, threads: usize) -> f64 {
        if self.in_step { self.near_s / self.rates.speedup(threads) } else { 0.0 }
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
    facts: Facts,
    (batch, shuffle): (usize, bool),
    chunks: Chunks,
    threads: usize,
) -> Option<Chunks> {
    let by = |chunks| Fetch::of(facts, None, (batch, shuffle), (chunks, 1, 1));
    let (alone, together) = (by(None)?, by(Some(chunks))?);
    let in_step_s = alone.in_step_s(1).min(alone.in_step_s(threads) + MEETINGS_S);
    (shuffle && together.beside_s() < PAYS * in_step_s).then_some(chunks)
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
