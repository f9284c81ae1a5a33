//! Claims to the trials of a sweep, which several processes may run together, also on several hosts: locks on bytes of
//! `sweep.toml`. One whose owner died is free again, since the system ends its locks.

use std::path::Path;

use super::RecordError;
use crate::host::ByteLocks;

/// A sweep's own file in its folder.
pub const SWEEP_FILE: &str = "sweep.toml";

/// Stands for the processes that are at work; trials have the bytes from 0.
const AT_WORK: u64 = 1 << 40;

/// What a process has claimed of a sweep, until it ends.
pub struct Claims(ByteLocks);

impl Claims {
    /// Joins a sweep, beside others or alone; `None` where it cannot be alone.
    pub fn new(sweep: &Path, is_shared: bool) -> Result<Option<Self>, RecordError> {
        let path = sweep.join(SWEEP_FILE);
        let locks = ByteLocks::open(&path).map_err(|e| RecordError::write(&path, e))?;
        if is_shared {
            // Waits for one that is writing the table of what it thought was the end.
            locks.share(AT_WORK);
        } else if !locks.try_lock(AT_WORK) {
            return Ok(None);
        }
        Ok(Some(Self(locks)))
    }

    /// Whether a trial is this process's to run. It stays so until the process ends, so that none runs twice.
    pub fn claim(&self, trial: usize) -> bool {
        self.0.try_lock(trial as u64)
    }

    /// Ends this process's work, and says whether no other is at work: then none can begin while the claims exist.
    pub fn leave(&self) -> bool {
        // Where several end at once, the last to come here finds itself alone.
        self.0.unlock(AT_WORK);
        self.0.try_lock(AT_WORK)
    }

    /// Whether a process is at work on a sweep.
    pub fn are_held(sweep: &Path) -> bool {
        ByteLocks::open(&sweep.join(SWEEP_FILE)).is_ok_and(|locks| locks.is_locked(AT_WORK))
    }
}
