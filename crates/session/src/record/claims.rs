//! Claims to the trials of a sweep, which several processes may run together, also on several hosts: locks on bytes of
//! `sweep.toml`. One whose owner died is free again, since the system ends its locks.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::RecordError;
use crate::host::ByteLocks;

/// A sweep's own file in its folder.
pub const SWEEP_FILE: &str = "sweep.toml";

/// Stands for the processes that are at work; trials have the bytes from 0.
const AT_WORK: u64 = 1 << 40;

/// Held by the one that writes the sweep's table.
const TABLE: u64 = AT_WORK + 1;

/// Held by the one that draws a trial, or decides a rung.
const CHOICE: u64 = AT_WORK + 2;

/// Trials that a rung has bytes for, and rungs; those above share the bytes of the last, so that one process has both.
const TRIALS: u64 = 1 << 20;
const RUNGS: u64 = 1 << 20;

/// How long a process waits before it looks again.
const PAUSE: Duration = Duration::from_millis(20);
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// What a process has claimed of a sweep, until it ends.
pub struct Claims {
    locks: ByteLocks,
    path: PathBuf,
    is_shared: bool,
}

impl Claims {
    /// Joins a sweep, beside others or alone; `None` where it cannot be alone, or `is_cut` while it waits for one that writes
    /// the table at what it thought was the end.
    pub fn new(
        sweep: &Path,
        is_shared: bool,
        is_cut: impl Fn() -> bool,
    ) -> Result<Option<Self>, RecordError> {
        let path = sweep.join(SWEEP_FILE);
        let locks = ByteLocks::open(&path).map_err(|e| RecordError::write(&path, e))?;
        let claims = Self { locks, path, is_shared };
        if !is_shared {
            let is_alone = claims.locked(claims.locks.try_lock(AT_WORK))?;
            return Ok(is_alone.then_some(claims));
        }
        while !claims.go_on()? {
            if is_cut() {
                return Ok(None);
            }
        }
        Ok(Some(claims))
    }

    fn locked<T>(&self, done: io::Result<T>) -> Result<T, RecordError> {
        done.map_err(|e| RecordError::Lock { path: self.path.clone(), source: e })
    }

    /// Whether a trial is this process's to run, up to a rung or to its end. It stays so until the process ends, so that
    /// none runs twice.
    pub fn claim(&self, trial: usize, rung: Option<u64>) -> Result<bool, RecordError> {
        self.locked(self.locks.try_lock(rung.unwrap_or(0).min(RUNGS - 1) * TRIALS + trial as u64))
    }

    /// Ends this process's work, and says whether no other is at work: then none can begin while the claims exist, unless
    /// this one goes on.
    pub fn leave(&self) -> Result<bool, RecordError> {
        if !self.is_shared {
            return Ok(true);
        }
        // Where several end at once, the last to come here finds itself alone.
        self.locks.unlock(AT_WORK);
        self.locked(self.locks.try_lock(AT_WORK))
    }

    /// Is at work beside others again; false, after a pause, where another process lets none begin.
    pub fn go_on(&self) -> Result<bool, RecordError> {
        let goes_on = self.locked(self.locks.try_share(AT_WORK))?;
        if !goes_on {
            thread::sleep(PAUSE);
        }
        Ok(goes_on)
    }

    /// Does something while no other process writes the sweep's table.
    pub fn with_table<R>(&self, what: impl FnOnce() -> R) -> Result<R, RecordError> {
        self.alone(TABLE, what)
    }

    /// Draws a trial or decides a rung while no other process does.
    pub fn with_choice<R>(&self, what: impl FnOnce() -> R) -> Result<R, RecordError> {
        self.alone(CHOICE, what)
    }

    fn alone<R>(&self, byte: u64, what: impl FnOnce() -> R) -> Result<R, RecordError> {
        while !self.locked(self.locks.try_lock(byte))? {
            thread::sleep(LOCK_PAUSE);
        }
        let done = what();
        self.locks.unlock(byte);
        Ok(done)
    }

    /// Whether a process is at work on a sweep.
    pub fn are_held(sweep: &Path) -> bool {
        ByteLocks::are_held(&sweep.join(SWEEP_FILE), AT_WORK)
    }
}
