//! A barrier for ranks that may fail: whoever fails poisons it, and whoever does not come is named.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::CollectiveError;
use crate::host;

/// Turns of the spinning wait before it begins to yield. Where there are more ranks than cores nobody spins: whoever is
/// waited for needs the core.
const SPINS: u32 = 300;

/// Turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 256;

/// Yielding turns before the wait sleeps in between: with more ranks than cores, the others need them.
const PATIENCE: u32 = 20_000;

/// Where all ranks meet, again and again.
pub struct Barrier {
    names: Vec<String>,
    /// Meetings that each rank has come to.
    came: Vec<AtomicUsize>,
    /// Meetings that are complete.
    complete: AtomicUsize,
    poisoned: AtomicBool,
    limit: Duration,
    spins: u32,
}

impl Barrier {
    /// For ranks of these names, each of which is waited for no longer than `limit`.
    pub fn new(names: Vec<String>, limit: Duration) -> Self {
        let came = names.iter().map(|_| AtomicUsize::new(0)).collect();
        let cores = host::logical_cores().unwrap_or(1);
        let spins = if names.len() > cores { 0 } else { SPINS };
        Self { names, came, complete: AtomicUsize::new(0), poisoned: AtomicBool::new(false), limit, spins }
    }

    /// How many meet.
    pub fn world_size(&self) -> usize {
        self.names.len()
    }

    /// Lets everybody go who waits or will come.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    /// Returns when all ranks have come.
    ///
    /// # Errors
    /// Where the meeting is poisoned, or a rank did not come in time; then it is poisoned for all.
    pub fn wait(&self, rank: usize) -> Result<(), CollectiveError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(CollectiveError::Poisoned);
        }
        // One order of all arrivals and looks: of two that come last, one sees the other.
        let mine = self.came[rank].fetch_add(1, Ordering::SeqCst) + 1;
        // The one that sees all there says so; several may, and say the same.
        if self.came.iter().all(|c| c.load(Ordering::SeqCst) >= mine) {
            self.complete.fetch_max(mine, Ordering::AcqRel);
            return Ok(());
        }
        let (mut turns, mut begun) = (0u32, None);
        while self.complete.load(Ordering::Acquire) < mine {
            if self.poisoned.load(Ordering::Relaxed) {
                return Err(CollectiveError::Poisoned);
            }
            turns = turns.saturating_add(1);
            if turns < self.spins {
                std::hint::spin_loop();
                continue;
            }
            if turns < PATIENCE {
                thread::yield_now()
            } else {
                thread::sleep(Duration::from_micros(50))
            }
            if turns.is_multiple_of(TURNS_PER_LOOK)
                && begun.get_or_insert_with(Instant::now).elapsed() > self.limit
            {
                return Err(self.stalled(mine));
            }
        }
        Ok(())
    }

    fn stalled(&self, meeting: usize) -> CollectiveError {
        self.poison();
        let missing = self.came.iter().position(|c| c.load(Ordering::Acquire) < meeting);
        let device = missing.map_or_else(String::new, |rank| self.names[rank].clone());
        CollectiveError::Stalled { device, waited: self.limit }
    }
}
