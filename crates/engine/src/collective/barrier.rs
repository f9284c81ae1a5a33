//! A barrier for ranks that may fail: a failing rank poisons it, and a missing rank is named in the error.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use super::{CollectiveError, give_way};
use crate::host::{self, AwakeTimer};

/// Turns that a wait spins before it yields. With more ranks than cores it never spins, since the others need
/// the cores.
const SPINS: u32 = 300;

/// Turns between two readings of the clock.
const TURNS_PER_LOOK: u32 = 256;

/// Turns before the wait sleeps between two checks.
const SLEEP_AFTER: u32 = 20_000;

/// Reusable: every rank calls [`wait`](Self::wait) once per round.
pub struct Barrier {
    names: Vec<String>,
    /// Rounds that each rank has reached.
    came: Vec<AtomicUsize>,
    /// Rounds that all ranks have reached.
    complete: AtomicUsize,
    poisoned: AtomicBool,
    limit: Duration,
    spins: u32,
}

impl Barrier {
    /// `names` are those of the ranks' devices; a wait takes at most `limit`.
    pub fn new(names: Vec<String>, limit: Duration) -> Self {
        let came = names.iter().map(|_| AtomicUsize::new(0)).collect();
        let cores = host::logical_cores().unwrap_or(1);
        let spins = if names.len() > cores { 0 } else { SPINS };
        Self { names, came, complete: AtomicUsize::new(0), poisoned: AtomicBool::new(false), limit, spins }
    }

    pub fn world_size(&self) -> usize {
        self.names.len()
    }

    /// Ends all current and later waits with an error.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    /// Returns when all ranks have arrived.
    ///
    /// # Errors
    /// The barrier is poisoned, or a rank did not arrive in time, which poisons it.
    pub fn wait(&self, rank: usize) -> Result<(), CollectiveError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(CollectiveError::Poisoned);
        }
        // Sequentially consistent: of two ranks that arrive last, at least one sees the arrival of the other.
        let mine = self.came[rank].fetch_add(1, Ordering::SeqCst) + 1;
        // Several ranks may see that the round is complete; they all store the same value.
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
            if turns < SLEEP_AFTER {
                give_way();
            } else {
                thread::sleep(Duration::from_micros(50));
            }
            if turns.is_multiple_of(TURNS_PER_LOOK)
                && begun.get_or_insert_with(AwakeTimer::start).elapsed() > self.limit
            {
                return Err(self.stalled(mine));
            }
        }
        Ok(())
    }

    fn stalled(&self, round: usize) -> CollectiveError {
        self.poison();
        let missing = self.came.iter().position(|c| c.load(Ordering::Acquire) < round);
        let device = missing.map_or_else(String::new, |rank| self.names[rank].clone());
        CollectiveError::Stalled { device, waited: self.limit }
    }
}
