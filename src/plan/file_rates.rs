//! How quickly rows come from a file that they stay in: typical of a server, or measured.

use super::Origin;
use crate::units;

/// How quickly rows come from a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileRates {
    /// Where these figures come from.
    pub origin: Origin,
    /// A row by itself, beside its bytes, from the system's memory: a call, and pages to be looked up.
    pub call_s: f64,
    /// A call that goes on where the last one ended, beside its bytes.
    pub next_s: f64,
    /// Of rows that follow each other, from there.
    pub bytes_per_s: f64,
    /// A row that is read with its neighbours and laid at a place of its own, beside its bytes: noted, sorted, copied.
    pub row_s: f64,
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
    /// in any order and 1.9 for 3 KB, 2.4 where another core does the same (benches/results/gap.md). Decisions go by these,
    /// however quickly rows come at the time, so that the same spec is always planned alike.
    pub const TYPICAL: Self = Self {
        origin: Origin::Typical,
        call_s: 1.5e-6,
        next_s: 0.4e-6,
        bytes_per_s: 3.5e9,
        row_s: 40e-9,
        scaling: 0.7,
        looked_at: 0,
        slow: 0,
        disk: None,
    };

    /// `one by itself in 1.9 µs, one among many in 54 ns, some that follow each other at 10.2 GB/s, measured on 64 rows, all
    /// of which the system had in memory`, of rows of so many bytes.
    pub fn in_words(&self, row_bytes: u64) -> String {
        let words = format!(
            "one by itself in {}, one among many in {}, some that follow each other at {}B/s, {}",
            units::seconds(self.call_s + row_bytes as f64 / self.bytes_per_s),
            units::seconds(self.row_s + row_bytes as f64 / self.bytes_per_s),
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

    /// How many times as quick as one thread so many are.
    pub(super) fn speedup(&self, threads: usize) -> f64 {
        1.0 + self.scaling * (threads.max(1) - 1) as f64
    }

    /// The part of rows that a disk is waited for.
    pub(super) fn disk_share(&self) -> f64 {
        self.disk.map_or(0.0, |disk| f64::from(disk.rows) / f64::from(self.looked_at.max(1)))
    }
}
