//! The ledger: every copy between memories and every wait of the host for a device, by purpose.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::Moved;
use crate::{op::Reads, units::named};

named! {
    /// The kinds of events that are counted.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    pub enum Kind {
        HostToDevice = "h2d",
        DeviceToHost = "d2h",
        DeviceToDevice = "d2d",
        /// A sum over devices.
        AllReduce = "all_reduce",
        /// The host waits for the device.
        Sync = "sync",
        /// Reads of rows that stay in a file.
        Read = "read",
        /// Rows that are read ahead, so that the operating system caches them.
        ReadAhead = "read_ahead",
    }
}

named! {
    /// Why something is copied.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    pub enum Purpose {
        /// The rows of a batch, or the order that selects them.
        Batch = "batch",
        /// All rows, once.
        Dataset = "dataset",
        /// Weights.
        Parameters = "parameters",
        /// Learning rates and other constants of steps.
        Constants = "constants",
        /// Arguments of launches: a program's instructions, and the counters of each block of steps.
        Launch = "launch",
        /// Metrics of training steps.
        Log = "log",
        Gradients = "gradients",
        /// Metrics of validation.
        Validation = "validation",
        /// The weights of the best validation.
        Best = "best",
        /// The state that is saved during the run.
        Checkpoint = "checkpoint",
        /// A tensor that the user moved.
        Tensor = "tensor",
        /// Digests, which compare the devices' parameters.
        Digest = "digest",
    }
}

/// The counts of one kind and purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Copies that moved bytes, or waits.
    pub count: u64,
    /// Copies to where the data already was, so nothing moved.
    pub noop_count: u64,
    pub bytes: u64,
    /// Time that the host spent in them.
    pub time: Duration,
    /// Copies queued among a device's other work, whose times the host does not know.
    pub untimed: u64,
}

impl From<&Reads> for Line {
    fn from(reads: &Reads) -> Self {
        let (count, bytes, time) = reads.total();
        Self { count, bytes, time, ..Self::default() }
    }
}

impl Line {
    /// Total seconds; `None` where some are unknown.
    pub fn seconds(&self) -> Option<f64> {
        (self.untimed == 0).then_some(self.time.as_secs_f64())
    }
}

/// All lines of one device.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    lines: BTreeMap<(Kind, Purpose), Line>,
}

impl Ledger {
    /// Records a copy that started at `begun` and ends now.
    pub fn count(&mut self, kind: Kind, purpose: Purpose, moved: Moved, begun: Instant) {
        match moved {
            Moved::Bytes(bytes) => self.copy(kind, purpose, bytes, begun.elapsed()),
            Moved::AfterWait { bytes, wait } => {
                self.sync(purpose, wait);
                self.copy(kind, purpose, bytes, begun.elapsed().saturating_sub(wait));
            }
            Moved::Nothing => self.nothing(kind, purpose),
        }
    }

    /// Records a copy.
    pub fn copy(&mut self, kind: Kind, purpose: Purpose, bytes: u64, time: Duration) {
        self.copies(kind, purpose, 1, bytes, time);
    }

    /// Records `count` copies with `bytes` bytes in total.
    pub fn copies(&mut self, kind: Kind, purpose: Purpose, count: u64, bytes: u64, time: Duration) {
        if count > 0 {
            let line = self.lines.entry((kind, purpose)).or_default();
            line.count += count;
            line.bytes += bytes;
            line.time += time;
        }
    }

    /// Records `count` copies with `bytes` bytes in total that were queued among a device's other work.
    pub fn queued(&mut self, kind: Kind, purpose: Purpose, count: u64, bytes: u64) {
        self.copies(kind, purpose, count, bytes, Duration::ZERO);
        if count > 0 {
            self.lines.entry((kind, purpose)).or_default().untimed += count;
        }
    }

    /// Records a copy that moved nothing.
    pub fn nothing(&mut self, kind: Kind, purpose: Purpose) {
        self.lines.entry((kind, purpose)).or_default().noop_count += 1;
    }

    /// Records a wait of the host for the device.
    pub fn sync(&mut self, purpose: Purpose, time: Duration) {
        self.copy(Kind::Sync, purpose, 0, time);
    }

    /// Records the time of a wait; the read that follows counts the wait itself.
    pub fn sync_before_read(&mut self, purpose: Purpose, time: Duration) {
        self.lines.entry((Kind::Sync, purpose)).or_default().time += time;
    }

    /// Adds what was counted elsewhere.
    pub fn absorb(&mut self, lines: &[(Kind, Purpose, Line)]) {
        for (kind, purpose, line) in lines {
            let own = self.lines.entry((*kind, *purpose)).or_default();
            own.count += line.count;
            own.noop_count += line.noop_count;
            own.bytes += line.bytes;
            own.time += line.time;
            own.untimed += line.untimed;
        }
    }

    /// All lines, ordered by kind and purpose.
    pub fn lines(&self) -> impl Iterator<Item = (Kind, Purpose, Line)> + '_ {
        self.lines.iter().map(|((kind, purpose), line)| (*kind, *purpose, *line))
    }
}
