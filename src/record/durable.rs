//! What a run leaves outlives a loss of power.
//!
//! A single run waits for the disk once, before its summary is written: a row in `summary.csv` says that all other files
//! are on the disk. Every file is waited for on a thread of its own: the disk takes them together, and ext4 writes them with
//! one commit of its journal, which is ten times faster than one after the other where the disk is busy. A sweep of short
//! trials would still wait longer than it computes, so its folders are synced at most once a second and at its end: a loss
//! of power takes the trials of the last second.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{RecordError, Sink};
use crate::{event::Event, host::sync_path};

/// How often a sweep waits for the disk at most.
const INTERVAL: Duration = Duration::from_secs(1);

/// Waits until every file of a folder, and the folder itself, is on the disk. Fails where a file could not be written, be
/// it long ago.
pub(super) fn sync_files(folder: &Path) -> Result<(), RecordError> {
    // The folder's own name stands in the one above.
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    let mut paths: Vec<PathBuf> = [folder].into_iter().chain(above).map(Path::to_owned).collect();
    for entry in fs::read_dir(folder).map_err(|e| RecordError::read(folder, e))? {
        let path = entry.map_err(|e| RecordError::read(folder, e))?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    thread::scope(|scope| {
        let start = |path| thread::Builder::new().spawn_scoped(scope, move || sync(path));
        let threads: Vec<_> = paths.iter().map(|path| (path, start(path))).collect();
        threads.into_iter().try_for_each(|(path, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or(Err(RecordError::Gone)),
            Err(_) => sync(path), // no thread to be had
        })
    })
}

fn sync(path: &Path) -> Result<(), RecordError> {
    sync_path(path).map_err(|e| RecordError::write(path, e))
}

/// At the end of a run, waits until the disk holds what was written before.
pub(super) enum DiskSync {
    /// Everything in a run's folder.
    Folder(PathBuf),
    File(PathBuf),
}

impl Sink for DiskSync {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match (event, self) {
            (Event::Finished(_), Self::Folder(folder)) => sync_files(folder),
            (Event::Finished(_), Self::File(path)) => sync(path),
            _ => Ok(()),
        }
    }
}

/// Folders of trials that the disk is still to take.
pub(super) struct SyncQueue {
    folders: Vec<PathBuf>,
    last: Instant,
}

impl SyncQueue {
    pub(super) fn new() -> Self {
        Self { folders: Vec::new(), last: Instant::now() }
    }

    /// Adds a folder, and waits for the disk where the last wait is long enough ago.
    pub(super) fn push(&mut self, folder: PathBuf) -> Result<(), RecordError> {
        self.folders.push(folder);
        if self.last.elapsed() < INTERVAL { Ok(()) } else { self.sync() }
    }

    pub(super) fn sync(&mut self) -> Result<(), RecordError> {
        let synced = self.folders.drain(..).try_for_each(|folder| sync_files(&folder));
        self.last = Instant::now();
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_wait_for_their_turn() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let mut queue = SyncQueue::new();
        queue.push(folder.path().to_owned()).unwrap();
        assert_eq!(queue.folders.len(), 1);
        queue.last = Instant::now() - INTERVAL;
        queue.push(folder.path().to_owned()).unwrap();
        assert!(queue.folders.is_empty());
        let gone = folder.path().join("gone");
        queue.push(gone.clone()).unwrap();
        let error = queue.sync().unwrap_err().to_string();
        assert_eq!(error, format!("cannot read `{}`: no such file or directory", gone.display()));
    }
}
