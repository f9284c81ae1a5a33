//! The folder of a run or sweep: named by time and spec, and created exclusively with mkdir, so that no two
//! runs ever share one and nothing is ever overwritten.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use chrono::{DateTime, Utc};

use super::{
    Claims, LOCK_FILE, RUNNING, RecordError, RunLock, SWEEP_FILE,
    folder_name::{folder_name, trial_name},
    make_folders,
};
use crate::{
    event::Status,
    host::{Durability, check_regular, open_regular, read_text, write_atomically},
};

/// Holds what earlier parts of a run left, in numbered folders.
const EARLIER: &str = "earlier";

const SUMMARY: &str = "summary.csv";

/// The step of a trial's newest checkpoint, and how many processes have died in it since.
pub(super) const DEATHS: &str = "deaths";

/// What remains in a folder when its run starts over.
const STAYS: [&str; 4] = [EARLIER, "tags", DEATHS, LOCK_FILE];

/// Files that every part of a run writes anew.
pub(super) const WRITTEN_ANEW: [&str; 8] = [
    "timing.csv",
    "transfers.csv",
    SUMMARY,
    "system.csv",
    "trace.json",
    "model.safetensors",
    "best.safetensors",
    "confusion.csv",
];

/// How long a process waits before it tries again to lock the folder of runs.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The folder of one run or sweep, which exists and belongs to it alone.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes `<runs_dir>/<name>/<UTC yyyymmddThhmmssZ>-<tail>/`; if it exists, `-2`, `-3`, ... is appended.
    /// The tail is the spec's hash, for a sweep `sweep-` and its hash.
    pub fn create(
        runs_dir: &Path,
        name: &str,
        started: DateTime<Utc>,
        tail: &str,
    ) -> Result<Self, RecordError> {
        let path = Self::new_path(runs_dir, name, started, tail);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        make_new(path.parent().unwrap_or(runs_dir), &name)
    }

    /// The path that [`RunDir::create`] would use if it does not exist yet.
    pub fn new_path(runs_dir: &Path, name: &str, started: DateTime<Utc>, tail: &str) -> PathBuf {
        runs_dir.join(folder_name(name)).join(format!("{}-{tail}", started.format("%Y%m%dT%H%M%SZ")))
    }

    /// Locks the folder of runs so that no other process with `--resume auto` begins one in it. `None` on file systems without
    /// locks, or if `is_cut` becomes true while waiting for a process that holds the lock on the folder.
    pub fn lock(runs_dir: &Path, is_cut: impl Fn(&File) -> bool) -> Option<File> {
        make_folders(runs_dir).ok()?; // if this fails, making a run's folder fails too and is reported
        let folder = File::open(runs_dir).ok()?;
        loop {
            match folder.try_lock() {
                Ok(()) => return Some(folder),
                Err(TryLockError::WouldBlock) if !is_cut(&folder) => thread::sleep(LOCK_PAUSE),
                Err(_) => return None,
            }
        }
    }

    /// The folder of an existing run.
    pub fn existing(path: PathBuf) -> Self {
        Self { path }
    }

    /// All folders with this name, with those of sweeps' trials, newest first.
    pub fn all(runs_dir: &Path, name: &str) -> Vec<Self> {
        let with_trials = |folder: Self| folder.trials().into_values().chain([folder]);
        Self::below(runs_dir, name).into_iter().flat_map(with_trials).collect()
    }

    /// The runs of this name that are no sweep's trials, the newest first.
    pub fn runs(runs_dir: &Path, name: &str) -> Vec<Self> {
        let mut folders = Self::below(runs_dir, name);
        folders.retain(|folder| folder.file("spec.toml").is_file());
        folders
    }

    /// The sweeps of this name, the newest first.
    pub fn sweeps(runs_dir: &Path, name: &str) -> Vec<Self> {
        let mut folders = Self::below(runs_dir, name);
        folders.retain(|folder| folder.file(SWEEP_FILE).is_file());
        folders
    }

    /// The newest folder made by [`RunDir::create`] with this name and tail for which `fits` is true.
    pub fn newest(
        runs_dir: &Path,
        name: &str,
        tail: &str,
        mut fits: impl FnMut(&Self) -> bool,
    ) -> Option<Self> {
        let has_tail = |folder: &Self| {
            let name = folder.name();
            let rest = name.split_once('-').and_then(|(_, rest)| rest.strip_prefix(tail));
            let is_number = |rest: &str| rest.strip_prefix('-').is_some_and(|n| n.parse::<u64>().is_ok());
            rest.is_some_and(|rest| rest.is_empty() || is_number(rest))
        };
        Self::below(runs_dir, name).into_iter().find(|folder| has_tail(folder) && fits(folder))
    }

    /// What lies below `<runs_dir>/<name>`, the newest first.
    fn below(runs_dir: &Path, name: &str) -> Vec<Self> {
        let entries = fs::read_dir(runs_dir.join(folder_name(name))).into_iter().flatten().flatten();
        let mut folders: Vec<_> = entries.map(|entry| Self { path: entry.path() }).collect();
        // By the time in the first 16 bytes; then `-10` is later than `-2` of the same second.
        folders.sort_by_cached_key(|folder| {
            let name = folder.name();
            Reverse((name.get(..16).map(str::to_owned), name.len(), name))
        });
        folders
    }

    /// The resolved spec, without the comments above it; empty if there is none.
    pub fn spec_text(&self) -> String {
        let text = read_text(&self.file("spec.toml")).unwrap_or_default();
        text.split_inclusive('\n').skip_while(|line| line.starts_with('#')).collect()
    }

    /// A value of `environment.toml`.
    pub fn environment(&self, path: &[&str]) -> Option<toml::Value> {
        let text = read_text(&self.file("environment.toml")).ok()?;
        let environment: toml::Table = toml::from_str(&text).ok()?;
        path.iter()
            .try_fold(toml::Value::Table(environment), |mut table, key| table.as_table_mut()?.remove(*key))
    }

    pub fn data_digest(&self) -> Option<String> {
        self.environment(&["data", "digest"])?.as_str().map(str::to_owned)
    }

    /// How the run ended, from its summary; `None` without one.
    pub fn status(&self) -> Option<Status> {
        Self::status_in(&self.figures())
    }

    /// The status among a summary's cells.
    pub fn status_in(figures: &BTreeMap<String, String>) -> Option<Status> {
        let name = figures.get("status")?;
        Status::ALL.into_iter().find(|status| name == status.name())
    }

    /// A CSV file in it; `None` if there is none that can be read.
    pub fn csv(&self, name: &str) -> Option<csv::Reader<File>> {
        open_regular(&self.file(name)).ok().map(|(file, _)| csv::Reader::from_reader(file))
    }

    /// A cell of its summary.
    pub fn figure(&self, column: &str) -> Option<String> {
        self.figures().remove(column)
    }

    /// The cells of its summary, by column; none before the run has ended.
    pub fn figures(&self) -> BTreeMap<String, String> {
        let row = self.csv(SUMMARY).and_then(|file| file.into_deserialize::<BTreeMap<_, _>>().next()?.ok());
        row.filter(|row| row.get("status").is_none_or(|status| status != RUNNING)).unwrap_or_default()
    }

    pub fn has_finished(&self) -> bool {
        self.status() == Some(Status::Finished)
    }

    /// The number of a sweep's trial: what is recorded in its folder, which may have another name by now. The name tells it of a
    /// trial that has not recorded it yet.
    pub fn trial_number(&self) -> Option<usize> {
        self.recorded_trial().or_else(|| self.number_in_name())
    }

    /// The number in the first line of `environment.toml`. There may be many trials, so nothing else is read.
    pub fn recorded_trial(&self) -> Option<usize> {
        let mut begin = Vec::new();
        let (file, _) = open_regular(&self.file("environment.toml")).ok()?;
        file.take(32).read_to_end(&mut begin).ok()?;
        // The last of them may be a part of a character.
        String::from_utf8_lossy(&begin).lines().next()?.strip_prefix("trial = ")?.parse().ok()
    }

    fn number_in_name(&self) -> Option<usize> {
        self.name().split('-').next()?.parse().ok()
    }

    /// The existing trial folders of a sweep, by trial number; of several with the same number the newest whose name has it.
    pub fn trials(&self) -> BTreeMap<usize, Self> {
        let folders = self.folders().into_iter();
        let numbered = folders.filter_map(|folder| Some((folder.trial_number()?, folder)));
        let mut trials: Vec<(usize, Self)> = numbered.collect();
        let is_renamed = |number, folder: &Self| folder.number_in_name() != Some(number);
        trials.sort_by_cached_key(|(number, folder)| {
            (*number, Reverse(is_renamed(*number, folder)), folder.path.clone())
        });
        trials.into_iter().collect()
    }

    /// The folder of a sweep's trial. Only its number is compared: processes may write its values
    /// differently.
    pub fn trial_of(&self, number: usize) -> Option<Self> {
        // Most have the name that they were given.
        let mut named = self.folders();
        named.retain(|folder| {
            folder.number_in_name() == Some(number) && folder.trial_number() == Some(number)
        });
        named.sort_by_cached_key(|folder| folder.path.clone());
        named.pop().or_else(|| self.trials().remove(&number))
    }

    /// The folders in it.
    fn folders(&self) -> Vec<Self> {
        let is_folder = |entry: &fs::DirEntry| match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            _ => entry.path().is_dir(),
        };
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter(is_folder).map(|entry| Self { path: entry.path() }).collect()
    }

    /// Whether a process is running here or in one of the sweep's trials: it holds the lock on the files.
    pub fn is_live(&self) -> bool {
        Claims::are_held(&self.path) || RunLock::is_held(&self.path) || self.has_live_trial()
    }

    /// Whether a process is running in one of the folders in it, also in one of several with a trial's number.
    pub fn has_live_trial(&self) -> bool {
        self.folders().iter().any(|folder| RunLock::is_held(&folder.path))
    }

    /// Before resuming: moves the files that the earlier part wrote at its end to `earlier/N`, and copies
    /// those that the run still needs.
    pub fn set_aside(&self) -> Result<(), RecordError> {
        const COPIED: [&str; 2] = ["spec.toml", "environment.toml"];
        for path in COPIED.map(|name| self.file(name)) {
            check_regular(&path).map_err(|e| RecordError::read(&path, e))?;
        }
        let aside = self.aside()?;
        for name in COPIED {
            let copied = fs::copy(self.file(name), aside.join(name)).map(drop);
            unless_missing(copied).map_err(|e| RecordError::write(&aside.join(name), e))?;
        }
        WRITTEN_ANEW.iter().try_for_each(|name| self.move_to(&aside, name))
    }

    /// Before a run starts over in its folder: moves all its files to `earlier/N`, and returns that folder. `None` if there are
    /// none.
    pub fn clear(&self) -> Result<Option<PathBuf>, RecordError> {
        super::remove_remnants(&self.path);
        let entries = fs::read_dir(&self.path).map_err(|e| RecordError::read(&self.path, e))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let names: Vec<_> = names.filter(|name| !STAYS.contains(&&**name)).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let aside = self.aside()?;
        names.iter().try_for_each(|name| self.move_to(&aside, name))?;
        Ok(Some(aside))
    }

    /// Makes the next numbered folder in `earlier`.
    fn aside(&self) -> Result<PathBuf, RecordError> {
        let above = self.path.join(EARLIER);
        fs::create_dir_all(&above).map_err(|e| RecordError::make_folder(&above, e))?;
        make_numbered(&above)
    }

    fn move_to(&self, aside: &Path, name: &str) -> Result<(), RecordError> {
        let moved = fs::rename(self.file(name), aside.join(name));
        unless_missing(moved).map_err(|e| RecordError::write(&aside.join(name), e))
    }

    /// Makes the folder of a sweep's trial `number` (from 0), named after its values under the short names of
    /// their keys: `007-lr=.01-width=32`.
    pub fn trial<'a>(
        &self,
        number: usize,
        axes: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, RecordError> {
        make_new(&self.path, &trial_name(number, axes))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's own name, without its parents.
    pub fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a small file, such as `spec.toml`, atomically. It survives a kill of the process.
    pub fn write(&self, name: &str, text: &str) -> Result<(), RecordError> {
        let path = self.file(name);
        write_atomically(&path, Durability::Process, |file| file.write_all(text.as_bytes()))
            .map_err(|e| RecordError::write(&path, e))
    }
}

fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// Makes the folder `1`, or the next free number.
fn make_numbered(parent: &Path) -> Result<PathBuf, RecordError> {
    let mut number = 1_u64;
    loop {
        let path = parent.join(number.to_string());
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(e) => return Err(RecordError::make_folder(&path, e)),
        }
    }
}

/// Makes a folder that did not exist. Only mkdir itself can tell whether a name is free: checking first would
/// race.
fn make_new(parent: &Path, name: &str) -> Result<RunDir, RecordError> {
    let mut path = parent.join(name);
    let mut number = 1_u64;
    loop {
        match fs::create_dir(&path) {
            Ok(()) => break,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                number += 1;
                path = parent.join(format!("{name}-{number}"));
            }
            // Another process may have made the parent meanwhile, so try the name again in any case.
            Err(e) if e.kind() == io::ErrorKind::NotFound || !parent.is_dir() => {
                make_folders(parent)?;
            }
            Err(e) => return Err(RecordError::make_folder(&path, e)),
        }
    }
    Ok(RunDir { path })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Barrier, thread};

    use super::*;

    fn time() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    #[test]
    fn eight_threads_at_once_get_eight_folders() {
        let mut expected = BTreeSet::from(["20270115T080000Z-0123abcd".to_owned()]);
        expected.extend((2..=8).map(|n| format!("20270115T080000Z-0123abcd-{n}")));
        // Repeat often enough that some threads find the parent missing while another one makes it.
        for _ in 0..50 {
            let runs = tempfile::tempdir().unwrap();
            let start = Barrier::new(8);
            let create = || {
                start.wait();
                RunDir::create(runs.path(), "lin/reg", time(), "0123abcd").unwrap().name()
            };
            let made: BTreeSet<String> = thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            assert_eq!(made, expected);
            assert_eq!(fs::read_dir(runs.path().join("lin_reg")).unwrap().count(), 8);
        }
    }
}
