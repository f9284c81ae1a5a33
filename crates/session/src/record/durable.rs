//! Makes what a run leaves survive a power loss.
//!
//! A single run waits for the disk once, before its summary is written: a row in `summary.csv` means that all
//! other files are on the disk. Writing back all files is started before waiting for the first; a thread per
//! file would be no faster on a disk, and costs a millisecond. A sweep of short trials would still wait far
//! longer than it computes. So a thread syncs what the sweep has written at most once a second, and once more
//! at its end, with one system call for all files. A power loss then costs at most the trials of the last
//! seconds.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{RecordError, Sink};
use crate::{
    event::Event,
    host::{start_writing, sync_file_system, sync_path},
};

/// Minimum time between two syncs of a sweep.
const INTERVAL: Duration = Duration::from_secs(1);

/// Waits until every file of a folder, and the folder itself, is on the disk. Fails if a write failed, even
/// long ago.
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
    // The folder's own name is an entry of its parent.
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    [folder].into_iter().chain(above).try_for_each(sync)
}

fn sync(path: &Path) -> Result<(), RecordError> {
    sync_path(path).map_err(|e| RecordError::write(path, e))
}

/// Makes a folder and those above it that are missing. Waits until the disk has their names: without them, what is in them
/// would not outlive a loss of power.
pub fn make_folders(folder: &Path) -> Result<(), RecordError> {
    let named = folder.ancestors().filter(|path| !path.as_os_str().is_empty());
    let missing: Vec<&Path> = named.take_while(|path| !path.is_dir()).collect();
    fs::create_dir_all(folder).map_err(|e| RecordError::make_folder(folder, e))?;
    for made in missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync(above)?;
    }
    Ok(())
}

/// At the end of a run, waits until everything written before is on the disk.
pub(super) enum DiskSync {
    /// Syncs everything in a run's folder.
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

/// Folders of trials that are not yet synced to disk.
pub(super) struct SyncQueue {
    sweep: PathBuf,
    folders: Vec<PathBuf>,
    last: Instant,
    under_way: Option<JoinHandle<Result<(), RecordError>>>,
}

impl SyncQueue {
    pub(super) fn new(sweep: &Path) -> Self {
        Self { sweep: sweep.to_owned(), folders: Vec::new(), last: Instant::now(), under_way: None }
    }

    /// Adds a folder; if the last sync is long enough ago, starts syncing all folders in the queue. Fails if
    /// an earlier sync failed.
    pub(super) fn push(&mut self, folder: PathBuf) -> Result<(), RecordError> {
        self.folders.push(folder);
        if self.last.elapsed() < INTERVAL || self.under_way.as_ref().is_some_and(|sync| !sync.is_finished()) {
            return Ok(());
        }
        self.wait()?;
        self.last = Instant::now();
        let (sweep, folders) = (self.sweep.clone(), self.folders.clone());
        let work = move || sync_trials(&sweep, &folders);
        // If no thread can be started, the folders wait for the sync at the end.
        if let Ok(sync) = thread::Builder::new().name("sync".to_owned()).spawn(work) {
            self.folders.clear();
            self.under_way = Some(sync);
        }
        Ok(())
    }

    /// Waits until all of them are on the disk.
    pub(super) fn sync(&mut self) -> Result<(), RecordError> {
        let waited = self.wait();
        let synced = sync_trials(&self.sweep, &std::mem::take(&mut self.folders));
        waited.and(synced)
    }

    fn wait(&mut self) -> Result<(), RecordError> {
        self.under_way.take().map_or(Ok(()), |sync| sync.join().unwrap_or(Err(RecordError::Gone)))
    }
}

/// Uses one system call for all files where the system has one: waiting for one file at a time would take
/// most of the time of a sweep of short trials.
fn sync_trials(sweep: &Path, folders: &[PathBuf]) -> Result<(), RecordError> {
    if folders.is_empty() {
        return Ok(());
    }
    let all = File::open(sweep).map_err(|e| RecordError::read(sweep, e))?;
    if sync_file_system(&all).map_err(|e| RecordError::write(sweep, e))? {
        return Ok(());
    }
    for folder in folders {
        let inside = fs::read_dir(folder).map_err(|e| RecordError::read(folder, e))?;
        let inside = inside.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        inside.chain([folder.clone()]).try_for_each(|folder| sync_files(&folder))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_wait_for_their_turn() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let mut queue = SyncQueue::new(folder.path());
        queue.push(folder.path().to_owned()).unwrap();
        assert_eq!(queue.folders.len(), 1);
        queue.last = Instant::now() - INTERVAL;
        queue.push(folder.path().to_owned()).unwrap();
        assert!(queue.folders.is_empty() && queue.under_way.is_some());
        queue.push(folder.path().to_owned()).unwrap();
        queue.sync().unwrap();
        assert!(queue.folders.is_empty() && queue.under_way.is_none());
        queue.sweep = folder.path().join("gone");
        queue.push(folder.path().to_owned()).unwrap();
        let error = queue.sync().unwrap_err().to_string();
        assert_eq!(error, format!("cannot read `{}`: no such file or directory", queue.sweep.display()));
    }
}
