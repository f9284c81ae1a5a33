//! What a run leaves outlives a loss of power.
//!
//! A single run waits for the disk once, before its summary is written: a row in `summary.csv` says that all other files
//! are on the disk. All files are under way before the first one is waited for; a thread for each would be no faster on a
//! disk, and costs a millisecond. A sweep of short trials would still wait longer than it computes, so its folders are
//! synced at most once a second and at its end: a loss of power takes the trials of the last second.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{RecordError, Sink};
use crate::{
    event::Event,
    host::{start_writing, sync_path},
};

/// How often a sweep waits for the disk at most.
const INTERVAL: Duration = Duration::from_secs(1);

/// Waits until every file of a folder, and the folder itself, is on the disk. Fails where a file could not be written, be
/// it long ago.
pub(super) fn sync_files(folder: &Path) -> Result<(), RecordError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| RecordError::read(folder, e))? {
        let path = entry.map_err(|e| RecordError::read(folder, e))?.path();
        if path.is_file() {
            let file = File::open(&path).map_err(|e| RecordError::read(&path, e))?;
            files.push((file, path));
        }
    }
    files.iter().for_each(|(file, _)| start_writing(file));
    files.iter().try_for_each(|(file, path)| file.sync_all().map_err(|e| RecordError::write(path, e)))?;
    // The folder's own name stands in the one above.
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    [folder].into_iter().chain(above).try_for_each(sync)
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
