//! What it takes to fetch rows that stay in a file: a call of the system for every run of neighbours, and their bytes; and
//! what a disk adds, where the system has not got them in memory.
//!
//! A batch in any order is read in the order of the file, and rows that lie close together are read by one call, with
//! what lies between them. So the more rows are read together, the fewer calls each of them takes: where rows are narrow
//! it pays to read those of thousands of steps at once.

use super::{Chunks, Facts, Origin};

/// Bytes that are read and dropped rather than skipped by a read of their own: what is copied in the time of a system
/// call, about.
pub const GAP_BYTES: u64 = 4096;

/// Bytes of one read at most: large enough to make a system call cheap, small enough for the second-level cache.
pub const BLOCK_BYTES: u64 = 1 << 18;

/// Threads that read ahead of steps which would wait for a disk.
pub const READERS_AHEAD: usize = 4;

/// Rows are read together only where that takes at most this part of the time that steps would take to fetch them.
const PAYS: f64 = 0.5;

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
    /// What a disk adds, where some of those had to be waited for.
    pub disk: Option<Disk>,
}

/// A disk that is waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Of the rows that were looked at, those that came from it.
    pub rows: u32,
    /// Seconds for one of them.
    pub row_s: f64,
    /// Of rows that follow each other.
    pub bytes_per_s: f64,
}

impl FileRates {
    /// What a row takes that is copied out of the system's memory by a core of a server (1.5 µs by itself, 0.3 µs for each
    /// further kilobyte; benches/results/gap.md).
    pub const TYPICAL: Self = Self {
        origin: Origin::Typical,
        call_s: 1.5e-6,
        bytes_per_s: 3.5e9,
        scaling: 0.7,
        looked_at: 0,
        disk: None,
    };

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
    /// Seconds in which a disk reads them, beside the steps, as long as so many are on it as were found there. No part of the
    /// least that a step takes: what was read once may stay in memory.
    pub disk_s: f64,
    /// Threads that read chunks.
    readers: usize,
}

impl Fetch {
    /// Of steps on `batch` rows; chunks are read by so many threads. `None` where rows do not stay in a file.
    pub(super) fn of(
        facts: Facts,
        rates: Option<FileRates>,
        (batch, shuffle): (usize, bool),
        (chunks, readers): (Option<Chunks>, usize),
    ) -> Option<Self> {
        let row_bytes = facts.file_row_bytes? as f64;
        let rates = rates.unwrap_or(FileRates::TYPICAL);
        let drawn_of = shuffle.then_some(facts.train_rows as f64);
        let together = chunks.map_or(batch, |chunks| chunks.train.max(1));
        let step = batch as f64 / together as f64;
        let together = Together { rows: together as f64, drawn_of, row_bytes };
        let disk_readers = if chunks.is_some() { readers } else { READERS_AHEAD };
        Some(Self {
            rates,
            in_step: chunks.is_none(),
            near_s: step * together.near_s(&rates),
            disk_s: step * together.disk_s(&rates) / disk_readers.max(1) as f64,
            readers,
        })
    }

    /// Seconds of a step that so many threads fetch rows in.
    pub fn in_step_s(&self, threads: usize) -> f64 {
        if self.in_step { self.near_s / self.rates.speedup(threads) } else { 0.0 }
    }

    /// Seconds in which a step's rows are read beside others.
    pub fn beside_s(&self) -> f64 {
        if self.in_step { 0.0 } else { self.near_s / self.rates.speedup(self.readers) }
    }
}

/// Chunks, where the CPU should rather have those than that each step fetches its own rows. Typical rates decide, so that
/// the same data are always read in the same way.
pub(super) fn together(facts: Facts, (batch, shuffle): (usize, bool), chunks: Chunks) -> Option<Chunks> {
    let by = |chunks| Fetch::of(facts, None, (batch, shuffle), (chunks, 1));
    let (alone, together) = (by(None)?, by(Some(chunks))?);
    (shuffle && together.near_s < PAYS * alone.near_s).then_some(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(rows: usize, features: usize) -> Facts {
        Facts {
            train_rows: rows,
            validation_rows: 0,
            features,
            targets: 1,
            classes: None,
            file_row_bytes: Some(4 * features as u64),
        }
    }

    /// Held against rows that are drawn and counted one by one.
    #[test]
    fn calls_and_bytes_are_those_of_rows_that_are_drawn() {
        for (rows, of, row_bytes) in
            [(3000, 100_000, 40_usize), (3000, 1_000_000, 40), (500, 800, 3136), (64, 64, 8)]
        {
            let mut drawn: Vec<usize> = (0..of).collect();
            // Fisher and Yates with a fixed stream.
            for i in 0..rows {
                drawn.swap(i, i + (crate::random::mix(i as u64) % (of - i) as u64) as usize);
            }
            drawn.truncate(rows);
            drawn.sort_unstable();
            let most = GAP_BYTES as usize / row_bytes;
            let (mut calls, mut bytes) = (1, rows * row_bytes);
            for pair in drawn.windows(2) {
                let dropped = pair[1] - pair[0] - 1;
                match dropped <= most {
                    true => bytes += dropped * row_bytes,
                    false => calls += 1,
                }
            }
            let together =
                Together { rows: rows as f64, drawn_of: Some(of as f64), row_bytes: row_bytes as f64 };
            let (expected_calls, expected_bytes) = together.calls_and_bytes();
            let whole = calls as f64 + bytes as f64 / BLOCK_BYTES as f64;
            assert!((expected_calls / whole - 1.0).abs() < 0.05, "{rows} of {of}: {expected_calls} {whole}");
            assert!(
                (expected_bytes / bytes as f64 - 1.0).abs() < 0.05,
                "{rows} of {of}: {expected_bytes} {bytes}"
            );
        }
    }

    #[test]
    fn narrow_rows_in_any_order_are_read_many_at_a_time() {
        let memory = 16 << 30;
        let together = |rows, features, shuffle| {
            let facts = facts(rows, features);
            let chunks = Chunks::together(facts, [256, 1], memory);
            super::together(facts, (256, shuffle), chunks).map(|chunks| chunks.train)
        };
        // A gigabyte of ten numbers per row: 64 MiB of rows and targets at a time, in whole batches.
        assert_eq!(together(26_843_546, 10, true), Some((64 << 20) / 44 / 256 * 256));
        assert_eq!(together(26_843_546, 10, false), None, "they follow each other");
        assert_eq!(together(1_310_720, 784, true), None, "wide rows lie far apart, however many are read");
        assert_eq!(together(3_200, 10, true), Some(3_200), "each batch would read half of the file");
        assert_eq!(together(3_200, 2_000, true), None, "to copy a row takes longer than to ask for it");
        let little = Chunks::together(facts(26_843_546, 10), [256, 1], 64 << 20);
        assert_eq!(
            super::together(facts(26_843_546, 10), (256, true), little),
            None,
            "there is no room for so many"
        );
    }

    #[test]
    fn a_disk_is_waited_for_beside_the_steps() {
        let rates = FileRates {
            origin: Origin::Measured,
            call_s: 1e-6,
            bytes_per_s: 4e9,
            scaling: 0.5,
            looked_at: 64,
            disk: Some(Disk { rows: 16, row_s: 100e-6, bytes_per_s: 1e8 }),
        };
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        let facts = facts(10_000_000, 1000);
        let alone = Fetch::of(facts, Some(rates), (1, true), (None, 1)).expect("a file");
        // One row of 4000 bytes: a call, a microsecond of copying; a quarter of the rows are far, four are waited for at once.
        let call = 1.0 + 4000.0 / BLOCK_BYTES as f64;
        close(alone.in_step_s(1), call * 1e-6 + 1e-6);
        close(alone.in_step_s(3), (call * 1e-6 + 1e-6) / 2.0);
        close(alone.disk_s, 0.25 * (call * 100e-6 + 40e-6) / 4.0);
        let chunks = Chunks::new(facts, [1, 1]);
        let fed = Fetch::of(facts, Some(rates), (1, false), (Some(chunks), 2)).expect("a file");
        let bytes = chunks.train as f64 * 4000.0;
        let call = (1.0 + bytes / BLOCK_BYTES as f64) / chunks.train as f64;
        assert_eq!([fed.in_step_s(1), alone.beside_s()], [0.0; 2]);
        close(fed.beside_s(), (call * 1e-6 + 1e-6) / 1.5);
        close(fed.disk_s, 0.25 * 40e-6 / 2.0);
    }
}
