//! What a run leaves outlives a loss of power.
//!
//! A single run waits for the disk once, before its summary is written: a row in `summary.csv` says that all other files
//! are on the disk. All files are under way before the first one is waited for; a thread for each would be no faster on a
//! disk, and costs a millisecond. A sweep of short trials would still wait far longer than it computes: a thread syncs
//! what it has written at most once a second, and once more at its end, by one call for all files together. So a loss of
//! power takes the trials of the last seconds.

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

/// How often a sweep syncs at most.
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
    sweep: PathBuf,
    folders: Vec<PathBuf>,
    last: Instant,
    under_way: Option<JoinHandle<Result<(), RecordError>>>,
}

impl SyncQueue {
    pub(super) fn new(sweep: &Path) -> Self {
        Self { sweep: sweep.to_owned(), folders: Vec::new(), last: Instant::now(), under_way: None }
    }

    /// Adds a folder, and has all of them synced where the last time is long enough ago. Fails where an earlier sync did.
    pub(super) fn push(&mut self, folder: PathBuf) -> Result<(), RecordError> {
        self.folders.push(folder);
        if self.last.elapsed() < INTERVAL || self.under_way.as_ref().is_some_and(|sync| !sync.is_finished()) {
            return Ok(());
        }
        self.wait()?;
        self.last = Instant::now();
        let (sweep, folders) = (self.sweep.clone(), self.folders.clone());
        let work = move || sync_trials(&sweep, &folders);
        // Without a thread they wait for the end.
        if let Ok(sync) = thread::Builder::new().name("sync".to_owned()).spawn(work) {
            self.folders.clear();
            self.under_way = Some(sync);
        }
        Ok(())
    }

    /// Waits until the disk holds all of them.
    pub(super) fn sync(&mut self) -> Result<(), RecordError> {
        let waited = self.wait();
        let synced = sync_trials(&self.sweep, &std::mem::take(&mut self.folders));
        waited.and(synced)
    }

    fn wait(&mut self) -> Result<(), RecordError> {
        self.under_way.take().map_or(Ok(()), |sync| sync.join().unwrap_or(Err(RecordError::Gone)))
    }
}

/// By one call where the system has it: waiting for a file at a time takes a sweep of short trials most of its time.
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
