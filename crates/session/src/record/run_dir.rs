//! The folder of a run or sweep: named by time and spec, and created exclusively with mkdir, so that no two
//! runs ever share one and nothing is ever overwritten.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};

use super::{Claims, RecordError, RunLock, make_folders};
use crate::{
    event::Status,
    host::{Durability, read_text, write_atomically},
};

/// Maximum length in bytes of a folder name made from the user's text.
const LONGEST_NAME: usize = 100;

/// The same for a trial's folder, which its number alone identifies.
const LONGEST_TRIAL: usize = 60;

/// Holds what earlier parts of a run left, in numbered folders.
const EARLIER: &str = "earlier";

const SUMMARY: &str = "summary.csv";

/// The step of a trial's newest checkpoint, and how many processes have died in it since.
pub(super) const DEATHS: &str = "deaths";

/// What remains in a folder when its run starts over.
const STAYS: [&str; 3] = [EARLIER, "tags", DEATHS];

/// Files that every part of a run writes anew.
const WRITTEN_ANEW: [&str; 8] = [
    "timing.csv",
    "transfers.csv",
    SUMMARY,
    "system.csv",
    "trace.json",
    "model.safetensors",
    "best.safetensors",
    "confusion.csv",
];

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

    /// The folder of an existing run.
    pub fn existing(path: PathBuf) -> Self {
        Self { path }
    }

    /// All folders with this name, including those of sweeps' trials, newest first.
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

    /// The newest folder made by [`RunDir::create`] with this name and tail for which `fits` is true.
    pub fn newest(runs_dir: &Path, name: &str, tail: &str, fits: impl Fn(&Self) -> bool) -> Option<Self> {
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

    /// Whether the run has this resolved spec and data, according to its files.
    pub fn is_of(&self, spec: &str, data_digest: Option<&str>) -> bool {
        self.spec_text() == spec && self.data_digest().as_deref() == data_digest
    }

    /// The resolved spec, without the comments above it; empty if there is none.
    pub fn spec_text(&self) -> String {
        let text = read_text(&self.file("spec.toml")).unwrap_or_default();
        text.split_inclusive('\n').skip_while(|line| line.starts_with('#')).collect()
    }

    /// The digest of its data, from `environment.toml`.
    pub fn data_digest(&self) -> Option<String> {
        let text = read_text(&self.file("environment.toml")).ok()?;
        let environment: toml::Table = toml::from_str(&text).ok()?;
        environment.get("data")?.get("digest")?.as_str().map(str::to_owned)
    }

    /// The Slurm job that it runs or ran in, from `environment.toml`.
    pub fn slurm_job(&self) -> Option<String> {
        let text = read_text(&self.file("environment.toml")).ok()?;
        let environment: toml::Table = toml::from_str(&text).ok()?;
        environment.get("host")?.get("slurm_job")?.as_str().map(str::to_owned)
    }

    /// How the run ended, from its summary; `None` without one.
    pub fn status(&self) -> Option<Status> {
        let name = self.figure("status")?;
        Status::ALL.into_iter().find(|status| name == status.name())
    }

    /// A cell of its summary.
    pub fn figure(&self, column: &str) -> Option<String> {
        let mut rows = csv::Reader::from_path(self.file(SUMMARY)).ok()?;
        let place = rows.headers().ok()?.iter().position(|name| name == column)?;
        rows.records().flatten().last()?.get(place).map(str::to_owned)
    }

    pub fn has_finished(&self) -> bool {
        self.status() == Some(Status::Finished)
    }

    /// The existing trial folders of a sweep, by trial number; the newest if several have the same number.
    pub fn trials(&self) -> BTreeMap<usize, Self> {
        self.trials_of(|_| true)
    }

    /// The folder of a sweep's trial. Only its number is compared: processes may write its values
    /// differently.
    pub fn trial_of(&self, number: usize) -> Option<Self> {
        self.trials_of(|own| own == number).remove(&number)
    }

    fn trials_of(&self, is_wanted: impl Fn(usize) -> bool) -> BTreeMap<usize, Self> {
        let number = |entry: &fs::DirEntry| entry.file_name().to_str()?.split('-').next()?.parse().ok();
        let is_folder = |entry: &fs::DirEntry| match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            _ => entry.path().is_dir(),
        };
        let wanted = |entry: fs::DirEntry| {
            let number = number(&entry).filter(|number| is_wanted(*number))?;
            is_folder(&entry).then(|| (number, entry.path()))
        };
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut paths: Vec<(usize, PathBuf)> = entries.filter_map(wanted).collect();
        paths.sort();
        paths.into_iter().map(|(number, path)| (number, Self { path })).collect()
    }

    /// Whether a process is running here or in one of the sweep's trials: it holds the lock on the files.
    pub fn is_live(&self) -> bool {
        let mut runs = self.trials().into_values().chain([self.clone()]);
        Claims::are_held(&self.path) || runs.any(|run| RunLock::is_held(&run.path))
    }

    /// Before resuming: moves the files that the earlier part wrote at its end to `earlier/N`, and copies
    /// those that the run still needs.
    pub fn set_aside(&self) -> Result<(), RecordError> {
        let aside = self.aside()?;
        for name in ["spec.toml", "environment.toml"] {
            let copied = fs::copy(self.file(name), aside.join(name)).map(drop);
            unless_missing(copied).map_err(|e| RecordError::write(&aside.join(name), e))?;
        }
        WRITTEN_ANEW.iter().try_for_each(|name| self.move_to(&aside, name))
    }

    /// Before a run starts over in its folder: moves all its files to `earlier/N`.
    pub fn clear(&self) -> Result<(), RecordError> {
        super::remove_remnants(&self.path);
        let entries = fs::read_dir(&self.path).map_err(|e| RecordError::read(&self.path, e))?;
        let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        let aside = self.aside()?;
        let names = names.iter().filter_map(|name| name.to_str()).filter(|name| !STAYS.contains(name));
        names.into_iter().try_for_each(|name| self.move_to(&aside, name))
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

    /// The path of a file in it.
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

fn trial_name<'a>(number: usize, axes: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    // `sgd(lr 0.1)` as `sgd_lr_.1`.
    let words = |value: &str| {
        let words: Vec<String> = value.trim_end_matches(')').split([' ', '(']).map(short_number).collect();
        words.join("_")
    };
    let axes = axes.map(|(key, value)| format!("-{key}={}", words(value)));
    let mut name = folder_name(&format!("{number:03}{}", axes.collect::<String>()));
    name.truncate(LONGEST_TRIAL);
    name
}

/// `.01` for `0.01`.
fn short_number(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(0.0) => "0".to_owned(),
        Ok(_) if value.starts_with("0.") || value.starts_with("-0.") => value.replacen("0.", ".", 1),
        _ => value.to_owned(),
    }
}

/// Turns text into a safe folder name: characters other than ASCII letters, digits and `. _ = + -` become
/// `_`. The name has at most 100 bytes, is not hidden and cannot lead to a parent folder.
fn folder_name(text: &str) -> String {
    let mut name: String = text
        .chars()
        .take(LONGEST_NAME)
        .map(|c| if c.is_ascii_alphanumeric() || "._=+-".contains(c) { c } else { '_' })
        .collect();
    if name.is_empty() {
        name.push('_');
    }
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    name
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

    #[test]
    fn trials_are_named_by_their_axes() {
        let name = |number, axes: &[(&str, &str)]| trial_name(number, axes.iter().copied());
        assert_eq!(name(0, &[("num_gpus", "0")]), "000-num_gpus=0");
        assert_eq!(name(12, &[("lr", "0.001"), ("use", "[\"gpu:1\"]")]), "012-lr=.001-use=__gpu_1__");
        assert_eq!(name(3, &[("a", "-0.5"), ("b", "0.0"), ("c", "10.5")]), "003-a=-.5-b=0-c=10.5");
        assert_eq!(
            name(4, &[("optimizer", "sgd(lr 0.1 momentum 0.9)")]),
            "004-optimizer=sgd_lr_.1_momentum_.9"
        );
        assert_eq!(name(7, &[]), "007");
        assert_eq!(name(1, &[("path", &"é".repeat(200))]).len(), 60);
        // A name cannot leave its folder.
        assert_eq!(folder_name("../../etc"), "_._.._etc");
        assert_eq!(folder_name(""), "_");
        assert_eq!(folder_name("a b\n/ü"), "a_b___");
    }
}
