//! Claims to the trials of a sweep, which several processes may run together, also on several hosts. A claim
//! is a lock on a byte of `.claims`; locks on bytes of `sweep.toml` serialize what only one process may do at
//! a time. If a process dies, the system releases its locks, so its trials are free again.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use super::RecordError;
use crate::{host::ByteLocks, random::mix};

/// A sweep's own file in its folder.
pub const SWEEP_FILE: &str = "sweep.toml";

/// Has a byte per trial, starting at 0, which says how far processes have come with it.
pub const CLAIMS_FILE: &str = ".claims";

/// A process has begun the trial.
const BEGUN: u8 = 1;
/// The trial has finished or was stopped at a rung, and its folder shows that.
const FINISHED: u8 = 2;

/// Locked, shared, by every process that is at work.
const AT_WORK: u64 = 1 << 40;

/// The first byte of the [`SweepLock`]s.
const LOCKS: u64 = AT_WORK + 1;

/// The bytes from here on stand for GPUs, chosen by UUID.
const GPUS: u64 = 1 << 41;
const MOST_GPUS: u64 = 1 << 40;

/// How long a process waits before it tries again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Who may run a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This process, and none has begun the trial yet.
    New,
    /// This process, but another one or an earlier part of the sweep may have begun the trial.
    Begun,
    /// Another process, which may have finished it.
    Elsewhere,
}

/// What only one process of a sweep may do at a time.
#[derive(Clone, Copy, Debug)]
pub enum SweepLock {
    /// Write the sweep's table.
    Table,
    /// Draw the values of a trial.
    Draw,
    /// Judge a trial at a rung of successive halving.
    Rung,
}

/// What a process has claimed in a sweep. Dropping this releases it all.
pub struct Claims {
    locks: ByteLocks,
    path: PathBuf,
    trials: ByteLocks,
    trials_path: PathBuf,
    is_shared: bool,
    is_first: bool,
    /// The time stamp of `sweep.toml` when this process joined; joining processes change it.
    joined: Option<SystemTime>,
}

impl Claims {
    /// Joins a sweep, together with other processes or exclusively. Returns `None` if exclusive access is not
    /// possible, or if `is_cut` becomes true while waiting for a process that does not admit others yet. The
    /// first process is alone until it calls [`Claims::go_on`].
    pub fn new(
        sweep: &Path,
        is_shared: bool,
        is_cut: impl Fn() -> bool,
    ) -> Result<Option<Self>, RecordError> {
        let path = sweep.join(SWEEP_FILE);
        let locks = ByteLocks::open(&path).map_err(|e| RecordError::write(&path, e))?;
        let trials_path = sweep.join(CLAIMS_FILE);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&trials_path);
        let trials = ByteLocks::new(file.map_err(|e| RecordError::write(&trials_path, e))?);
        let mut claims = Self { locks, path, trials, trials_path, is_shared, is_first: true, joined: None };
        loop {
            claims.is_first = claims.locked(claims.locks.try_lock(AT_WORK))?;
            if claims.is_first {
                // No other process is at work, so the folders alone show which trials were begun.
                let cleared = claims.trials.clear_marks();
                cleared.map_err(|e| RecordError::write(&claims.trials_path, e))?;
            }
            if claims.is_first || is_shared && claims.go_on()? {
                claims.join().map_err(|e| RecordError::write(&claims.path, e))?;
                return Ok(Some(claims));
            }
            if !is_shared || is_cut() {
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Shows the first process that others have joined, by giving the file a time stamp other than the one it
    /// saw.
    fn join(&mut self) -> io::Result<()> {
        self.joined = self.changed();
        while !self.is_first && self.joined.is_some() && self.joined == self.changed() {
            self.locks.touch()?;
            thread::sleep(LOCK_POLL_INTERVAL);
        }
        Ok(())
    }

    fn changed(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).ok()?.modified().ok()
    }

    /// Whether other processes may have run trials since this one began.
    pub fn has_others(&self) -> bool {
        !self.is_first || self.joined.is_none() || self.joined != self.changed()
    }

    /// Whether no other process was at work when this one joined. If so, the sweep's table stems from an
    /// earlier part.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    fn claimed<T>(&self, done: io::Result<T>) -> Result<T, RecordError> {
        done.map_err(|e| RecordError::Lock { path: self.trials_path.clone(), source: e })
    }

    fn locked<T>(&self, done: io::Result<T>) -> Result<T, RecordError> {
        done.map_err(|e| RecordError::Lock { path: self.path.clone(), source: e })
    }

    /// Claims a trial. The claim lasts until this process ends, or calls [`Claims::finish`], so no trial runs
    /// twice.
    pub fn claim(&self, trial: usize) -> Result<Claim, RecordError> {
        let trial = trial as u64;
        if !self.claimed(self.trials.try_lock(trial))? {
            return Ok(Claim::Elsewhere);
        }
        match self.claimed(self.trials.marked(trial))? {
            0 => {}
            FINISHED => {
                self.trials.unlock(trial);
                return Ok(Claim::Elsewhere);
            }
            _ => return Ok(Claim::Begun),
        }
        let marked = self.trials.mark(trial, BEGUN);
        marked.map_err(|e| RecordError::write(&self.trials_path, e))?;
        Ok(Claim::New)
    }

    /// Ends the claim to a trial that does not go on, as its folder shows. The system searches all locks of a
    /// file at every claim, so a sweep that kept them would slow down with the square of its trials.
    pub fn finish(&self, trial: usize) -> Result<(), RecordError> {
        let marked = self.trials.mark(trial as u64, FINISHED);
        marked.map_err(|e| RecordError::write(&self.trials_path, e))?;
        self.trials.unlock(trial as u64);
        Ok(())
    }

    /// Lets trials be claimed again that finished and whose folders do not show that any more; only while no
    /// other process is at work.
    pub fn reopen(&self, trials: &[usize]) -> Result<(), RecordError> {
        for trial in trials.iter().map(|trial| *trial as u64) {
            if self.claimed(self.trials.marked(trial))? == FINISHED {
                let marked = self.trials.mark(trial, BEGUN);
                marked.map_err(|e| RecordError::write(&self.trials_path, e))?;
            }
        }
        Ok(())
    }

    /// Leases a GPU, by its UUID, so that other processes of the sweep cannot use it; with `is_shared`, only
    /// those that need it exclusively cannot. Returns false if it is already leased.
    pub fn lease(&self, uuid: &str, is_shared: bool) -> bool {
        let byte = byte_of(uuid);
        let taken = if is_shared { self.locks.try_share(byte) } else { self.locks.try_lock(byte) };
        taken.unwrap_or(true) // claiming trials reports problems with locks
    }

    pub fn end_lease(&self, uuid: &str) {
        self.locks.unlock(byte_of(uuid));
    }

    /// Ends this process's work. Returns whether no other process is at work; then none can join as long as
    /// these claims exist, unless this process calls [`Claims::go_on`].
    pub fn leave(&self) -> Result<bool, RecordError> {
        if !self.is_shared {
            return Ok(true);
        }
        // If several processes end at once, the last one to get here finds itself alone.
        self.locks.unlock(AT_WORK);
        self.locked(self.locks.try_lock(AT_WORK))
    }

    /// Marks this process as at work and admits others; false if another process admits none.
    pub fn go_on(&self) -> Result<bool, RecordError> {
        Ok(!self.is_shared || self.locked(self.locks.try_share(AT_WORK))?)
    }

    /// Runs `what` while this process holds a lock; `None` if `is_cut` becomes true while waiting. Only one thread of this process
    /// may hold the lock.
    pub fn with_lock<R>(
        &self,
        lock: SweepLock,
        is_cut: impl Fn() -> bool,
        what: impl FnOnce() -> R,
    ) -> Result<Option<R>, RecordError> {
        let byte = LOCKS + lock as u64;
        while !self.locked(self.locks.try_lock(byte))? {
            if is_cut() {
                return Ok(None);
            }
            thread::sleep(LOCK_POLL_INTERVAL);
        }
        let done = what();
        self.locks.unlock(byte);
        Ok(Some(done))
    }

    /// Whether a process is at work on a sweep.
    pub fn are_held(sweep: &Path) -> bool {
        ByteLocks::are_held(&sweep.join(SWEEP_FILE), AT_WORK)
    }
}

fn byte_of(uuid: &str) -> u64 {
    GPUS + uuid.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte))) % MOST_GPUS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_is_alone_until_it_lets_others_join() {
        let sweep = tempfile::tempdir().unwrap();
        std::fs::write(sweep.path().join(SWEEP_FILE), "").unwrap();
        let join = |is_shared| Claims::new(sweep.path(), is_shared, || true).unwrap();
        let first = join(true).unwrap();
        assert!(first.is_first() && join(true).is_none());
        assert!(first.go_on().unwrap());
        assert!(!first.has_others());
        let second = join(true).unwrap();
        assert!(!second.is_first() && join(false).is_none());
        assert!(first.has_others() && second.has_others());
        let claim = |of: &Claims, trial| of.claim(trial).unwrap();
        assert_eq!([claim(&first, 3), claim(&second, 3)], [Claim::New, Claim::Elsewhere]);
        // A GPU belongs to one process, or to several that share it.
        assert!(first.lease("GPU-1", false) && !second.lease("GPU-1", false) && !second.lease("GPU-1", true));
        first.end_lease("GPU-1");
        assert!(first.lease("GPU-1", true) && second.lease("GPU-1", true) && second.lease("GPU-2", false));
        // A signal ends the wait for the lock.
        let waited = |lock| {
            first.with_lock(SweepLock::Draw, || false, || second.with_lock(lock, || true, || ()).unwrap())
        };
        assert_eq!(
            [SweepLock::Draw, SweepLock::Rung].map(|lock| waited(lock).unwrap()),
            [Some(None), Some(Some(()))]
        );
        // A trial that finished is free, and nobody claims it again.
        assert_eq!([claim(&first, 5), claim(&second, 5)], [Claim::New, Claim::Elsewhere]);
        first.finish(5).unwrap();
        assert!(first.trials.try_lock(5).unwrap() && second.trials.try_lock(3).is_ok_and(|is_free| !is_free));
        first.trials.unlock(5);
        assert_eq!([claim(&second, 5), claim(&first, 5)], [Claim::Elsewhere; 2]);
        assert!(!first.leave().unwrap() && second.leave().unwrap());
        let becomes = |expected: Claim, claimed: &dyn Fn() -> Option<Claim>| {
            // A child process that another test has just forked holds the files, and so the locks, until it executes its
            // program.
            let end = std::time::Instant::now() + Duration::from_secs(30);
            while claimed() != Some(expected) {
                assert!(std::time::Instant::now() < end, "the locks of a dropped process are still held");
                thread::yield_now();
            }
        };
        // Once a process has ended, its trials are free, and marked as begun as long as any process is at
        // work.
        drop(first);
        becomes(Claim::Begun, &|| Some(claim(&second, 3)));
        becomes(Claim::New, &|| Some(claim(&second, 4)));
        drop(second);
        becomes(Claim::New, &|| Some(claim(&join(true)?, 3)));
    }
}
