//! `run.lock`: which process is at work on a run. It is there as long as one is, and after one that was killed.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    RecordError, Sink,
    environment::{now, rfc3339},
};
use crate::{
    event::Event,
    host::{self, ByteLocks, check_regular, read_text},
};

/// The file of a process at work.
pub const LOCK_FILE: &str = "run.lock";

/// The byte whose lock represents the whole folder.
const OWNED: u64 = 0;

/// The time between two heartbeats.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// The file begins with the time of the last heartbeat, which has the same length each time. So it is overwritten in place, at
/// once: other processes hold locks on this very file.
const BEFORE_TIME: &str = "heartbeat = \"";

/// What `run.lock` tells of the process that made it.
#[derive(Debug, Serialize, Deserialize)]
pub struct LockOwner {
    /// When it was last alive, RFC 3339 in UTC, to a few seconds.
    pub heartbeat: String,
    pub pid: u32,
    /// Where its number is that of a process.
    pub host: String,
}

impl LockOwner {
    /// Reads a run's `run.lock`; `None` without one that can be read.
    pub fn read(folder: &Path) -> Option<Self> {
        toml::from_str(&read_text(&folder.join(LOCK_FILE)).ok()?).ok()
    }
}

/// A locked run folder: no other process writes to it. The file is removed once this is dropped; the lock, not the file, decides
/// whether a process is at work.
pub struct RunLock {
    path: PathBuf,
    file: File,
    beaten: Instant,
}

impl RunLock {
    /// Locks a run's folder; `None` if another process is running it. On a file system without locks none is.
    pub fn take(folder: &Path) -> Result<Option<Self>, RecordError> {
        let path = folder.join(LOCK_FILE);
        loop {
            check_regular(&path).map_err(|e| RecordError::read(&path, e))?;
            let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(|e| RecordError::write(&path, e))?;
            if !ByteLocks::new(&file).try_lock(OWNED).unwrap_or(true) {
                return Ok(None);
            }
            let metadata = file.metadata().map_err(|e| RecordError::read(&path, e))?;
            // Whoever held the lock has removed the file meanwhile.
            if !is_at(&metadata, &path) {
                continue;
            }
            let lock = Self { path, file, beaten: Instant::now() };
            lock.write(metadata.len()).map_err(|e| RecordError::write(&lock.path, e))?;
            return Ok(Some(lock));
        }
    }

    /// Whether another process is running this folder.
    pub fn is_held(folder: &Path) -> bool {
        ByteLocks::are_held(&folder.join(LOCK_FILE), OWNED)
    }

    /// Writes the file, which has this length.
    fn write(&self, length: u64) -> io::Result<()> {
        let (time, pid, host) = (rfc3339(now()), process::id(), toml::Value::String(host::name()));
        let text = format!("{BEFORE_TIME}{time}\"\npid = {pid}\nhost = {host}\n");
        self.file.write_all_at(text.as_bytes(), 0)?;
        if length > text.len() as u64 { self.file.set_len(text.len() as u64) } else { Ok(()) }
    }
}

impl Sink for RunLock {
    fn event(&mut self, _: &Event) -> Result<(), RecordError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        if self.beaten.elapsed() >= HEARTBEAT_INTERVAL {
            self.beaten = Instant::now();
            // The file is for those who look on: the run goes on without it.
            let _ = self.file.write_all_at(rfc3339(now()).as_bytes(), BEFORE_TIME.len() as u64);
        }
        Ok(())
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // The folder may have been moved, and another may have its place.
        if self.file.metadata().is_ok_and(|own| is_at(&own, &self.path)) {
            let _ = fs::remove_file(&self.path); // without the lock it means nothing
        }
    }
}

/// Whether an open file is the one that a path names.
fn is_at(own: &fs::Metadata, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_who_is_at_work_and_since_when_nobody_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK_FILE);
        // What a killed process left is longer.
        let old = format!(
            "{BEFORE_TIME}2001-01-15T08:00:00.000Z\"\npid = 4194304\nhost = \"{}\"\n",
            "x".repeat(80)
        );
        fs::write(&path, &old).unwrap();
        assert!(!RunLock::is_held(folder.path()));
        assert_eq!(LockOwner::read(folder.path()).unwrap().pid, 4_194_304);
        let mut lock = RunLock::take(folder.path()).unwrap().unwrap();
        assert!(RunLock::is_held(folder.path()) && RunLock::take(folder.path()).unwrap().is_none());
        let own = LockOwner::read(folder.path()).unwrap();
        assert_eq!((own.pid, own.host), (process::id(), host::name()));
        let inode = fs::metadata(&path).unwrap().ino();
        lock.flush().unwrap();
        assert_eq!(LockOwner::read(folder.path()).unwrap().heartbeat, own.heartbeat);
        lock.beaten -= HEARTBEAT_INTERVAL;
        lock.file.write_all_at(b"2001-01-15T08:00:00.000Z", BEFORE_TIME.len() as u64).unwrap();
        lock.flush().unwrap();
        let beat = LockOwner::read(folder.path()).unwrap();
        assert!(beat.heartbeat >= own.heartbeat && !beat.heartbeat.starts_with("2001-01-15T08:00:00"));
        assert_eq!((beat.pid, fs::metadata(&path).unwrap().ino()), (own.pid, inode));
        drop(lock);
        assert!(
            !path.exists() && !RunLock::is_held(folder.path()) && LockOwner::read(folder.path()).is_none()
        );
    }

    #[test]
    fn a_file_in_place_of_its_own_stays() {
        let folder = tempfile::tempdir().unwrap();
        let lock = RunLock::take(folder.path()).unwrap().unwrap();
        fs::rename(&lock.path, folder.path().join("moved")).unwrap();
        let other = RunLock::take(folder.path()).unwrap().unwrap();
        drop(lock);
        assert!(other.path.exists() && RunLock::is_held(folder.path()));
    }
}
