//! Resolves paths and patterns to the folders of runs and sweeps.

use std::{
    collections::HashSet,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    iter,
    path::{Path, PathBuf},
};

use super::ReportError;
use crate::{
    files::Leaves,
    record::{LOCK_FILE, runs_dir},
    spec::nearest,
};

/// A folder that holds results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A run's folder.
    Run(PathBuf),
    /// A sweep's folder with its trials.
    Sweep(PathBuf),
}

/// Depth of the search: `runs` contains names, a name contains runs.
const DEPTH: u32 = 2;

/// All runs and sweeps of the paths, in the given order without duplicates. Those below a path are ordered by
/// name, which means by time. And of each path that holds none, beside others that do, the error that says so.
pub(super) fn find(paths: &[String]) -> Result<(Vec<Found>, Vec<ReportError>), ReportError> {
    let (mut found, mut foreign) = (Vec::new(), Vec::new());
    for path in paths {
        let before = found.len();
        if Path::new(path).exists() {
            look(Path::new(path), DEPTH, &mut found)?;
            if found.len() == before {
                foreign.push(ReportError::NoRun(path.clone()));
            }
        } else if path.contains(['*', '?', '[']) {
            for folder in matches(path)? {
                look(&folder, DEPTH, &mut found)?;
            }
            if found.len() == before {
                return Err(ReportError::NoMatch(path.clone()));
            }
        } else {
            return Err(not_found(Path::new(path), &runs_dir()));
        }
    }
    if found.is_empty() && !foreign.is_empty() {
        return Err(foreign.swap_remove(0));
    }
    let mut seen = HashSet::new();
    found.retain(|found| {
        let (Found::Run(folder) | Found::Sweep(folder)) = found;
        seen.insert(fs::canonicalize(folder).unwrap_or_else(|_| folder.clone()))
    });
    Ok((found, foreign))
}

/// The only run or sweep that a path names.
pub fn find_one(path: &str) -> Result<Found, ReportError> {
    let (mut found, _) = find(&[path.to_owned()])?;
    match (found.len(), found.pop()) {
        (1, Some(found)) => Ok(found),
        (count, _) => Err(ReportError::Several { path: path.to_owned(), count }),
    }
}

/// The folders of runs, and of the trials of sweeps that have run.
pub(super) fn run_folders(found: Vec<Found>) -> Result<Vec<PathBuf>, ReportError> {
    let of = |found| match found {
        Found::Run(folder) => Ok(vec![folder]),
        Found::Sweep(folder) => Ok(folders_in(&folder)?.into_iter().filter(|trial| is_run(trial)).collect()),
    };
    Ok(found.into_iter().map(of).collect::<Result<Vec<_>, ReportError>>()?.concat())
}

/// A number that changes when a file of these runs and sweeps changes. It reads no file contents.
pub fn fingerprint(paths: &[String]) -> Result<u64, ReportError> {
    let mut hasher = DefaultHasher::new();
    for found in find(paths)?.0 {
        let (folder, trials) = match found {
            Found::Run(folder) => (folder, Vec::new()),
            Found::Sweep(folder) => (folder.clone(), folders_in(&folder)?),
        };
        for folder in iter::once(folder).chain(trials) {
            let unreadable = |e| ReportError::read(&folder, e);
            let entries: Vec<_> = fs::read_dir(&folder).and_then(Iterator::collect).map_err(unreadable)?;
            let mut files: Vec<PathBuf> =
                entries.into_iter().map(|entry: fs::DirEntry| entry.path()).collect();
            // A heartbeat changes nothing that is shown.
            files.retain(|file| !file.ends_with(LOCK_FILE));
            files.sort();
            for file in files {
                let metadata = fs::metadata(&file).ok();
                (file, metadata.map(|file| (file.len(), file.modified().ok()))).hash(&mut hasher);
            }
        }
    }
    Ok(hasher.finish())
}

/// What a pattern matches. `**` stands for folders to which no link leads: those of a link to a folder above it would have no end.
fn matches(pattern: &str) -> Result<Vec<PathBuf>, ReportError> {
    glob::Pattern::new(pattern).map_err(|e| not_a_pattern(pattern, &e))?;
    let parts: Vec<&str> = pattern.split('/').collect();
    let Some(place) = parts.iter().position(|part| *part == "**") else { return plain_matches(pattern) };
    let rest: Vec<&str> = parts[place..].iter().copied().skip_while(|part| *part == "**").collect();
    let (above, rest) = (parts[..place].join("/"), rest.join("/"));
    let above = match (place, &above[..]) {
        (0, _) => vec![PathBuf::from(".")],
        (_, "") => vec![PathBuf::from("/")],
        _ => plain_matches(&above)?,
    };
    let mut folders = Vec::new();
    above.into_iter().filter(|folder| folder.is_dir()).for_each(|folder| add_below(folder, &mut folders));
    let of_folder = |folder: PathBuf| {
        let escaped = glob::Pattern::escape(&folder.display().to_string());
        match &rest[..] {
            "" => Ok(vec![folder]),
            rest => matches(&format!("{}/{rest}", escaped.trim_end_matches('/'))),
        }
    };
    let found = folders.into_iter().map(of_folder).collect::<Result<Vec<_>, ReportError>>()?.concat();
    let without_dot = |path: PathBuf| path.strip_prefix("./").map(Path::to_owned).unwrap_or(path);
    Ok(if place == 0 { found.into_iter().map(without_dot).collect() } else { found })
}

fn not_a_pattern(pattern: &str, error: &glob::PatternError) -> ReportError {
    ReportError::Pattern { pattern: pattern.to_owned(), message: error.msg.to_owned() }
}

/// Adds a folder and all below it, each before those in it. One that cannot be read has none.
fn add_below(folder: PathBuf, folders: &mut Vec<PathBuf>) {
    let inner = folders_in(&folder).unwrap_or_default();
    folders.push(folder);
    for inner in inner.into_iter().filter(|inner| !inner.is_symlink() && !is_hidden(inner)) {
        add_below(inner, folders);
    }
}

fn plain_matches(pattern: &str) -> Result<Vec<PathBuf>, ReportError> {
    let paths = glob::glob(pattern).map_err(|e| not_a_pattern(pattern, &e))?;
    paths
        .map(|path| {
            path.map_err(|e| {
                let path = e.path().to_owned();
                ReportError::read(&path, e.into())
            })
        })
        .collect()
}

fn look(folder: &Path, depth: u32, found: &mut Vec<Found>) -> Result<(), ReportError> {
    if is_sweep(folder) {
        found.push(Found::Sweep(folder.to_owned()));
    } else if is_run(folder) {
        found.push(Found::Run(folder.to_owned()));
    } else if depth > 0 && folder.is_dir() {
        // Skip folders inside a run that hold its earlier parts; a hidden folder is being removed.
        let is_own = |inner: &PathBuf| inner.ends_with("earlier") || inner.ends_with("checkpoints");
        for inner in folders_in(folder)?.into_iter().filter(|inner| !is_own(inner) && !is_hidden(inner)) {
            if look(&inner, depth - 1, found).is_err() {
                // It is reported as damaged if there are other runs.
                found.push(Found::Run(inner));
            }
        }
    }
    Ok(())
}

fn is_hidden(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether a folder holds a run, also one that was killed early. Others write files of some of these names, too.
pub fn is_run(folder: &Path) -> bool {
    // What they are is said where they are read.
    let has = |file: &str| folder.join(file).exists();
    has("spec.toml") && (has("summary.csv") || has("metrics.csv"))
}

/// Whether a folder holds a sweep.
pub fn is_sweep(folder: &Path) -> bool {
    ["sweep.csv", "sweep.toml"].iter().all(|file| folder.join(file).is_file())
}

/// The subfolders, by name.
pub(super) fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let unreadable = |e| ReportError::read(folder, e);
    let entries: Vec<_> = fs::read_dir(folder).and_then(Iterator::collect).map_err(unreadable)?;
    // The directory entry knows its type, unless it is a link.
    let is_folder = |entry: &fs::DirEntry| match entry.file_type() {
        Ok(kind) if !kind.is_symlink() => kind.is_dir(),
        _ => entry.path().is_dir(),
    };
    let mut folders: Vec<PathBuf> =
        entries.into_iter().filter(is_folder).map(|entry: fs::DirEntry| entry.path()).collect();
    folders.sort();
    Ok(folders)
}

/// That a path does not exist; the hint names a run that may be meant.
pub fn not_found(path: &Path, runs_dir: &Path) -> ReportError {
    ReportError::NotFound { path: path.display().to_string(), near: near(path, runs_dir) }
}

/// A folder in the runs folder that has the name, or one beside the path or there whose name is similar.
fn near(path: &Path, runs: &Path) -> Option<String> {
    let meant = |path: PathBuf| Some(format!("did you mean `{}`?", path.display()));
    let in_runs = runs.join(path);
    if in_runs.is_dir() {
        return meant(in_runs);
    }
    let name = path.file_name()?.to_str()?;
    let near_in = |folder: &Path| {
        let inner = folders_in(folder).ok()?;
        // A hidden one is being removed.
        let names = inner.iter().filter(|inner| !is_hidden(inner));
        let names = names.filter_map(|folder| folder.file_name()?.to_str());
        nearest(name, names).map(str::to_owned)
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match near_in(parent.unwrap_or(Path::new("."))) {
        Some(near) => meant(path.with_file_name(near)),
        None if parent.is_none() => meant(runs.join(near_in(runs)?)),
        None => None,
    }
}

/// The folder of the newest run or sweep of a path.
pub fn latest(path: &str) -> Result<PathBuf, ReportError> {
    let (found, _) = find(&[path.to_owned()])?;
    let found = found.into_iter().map(|found| (started(&found), found));
    let newest = found.max_by(|a, b| a.0.cmp(&b.0));
    let folder = newest.map(|(_, Found::Run(folder) | Found::Sweep(folder))| folder);
    folder.ok_or_else(|| ReportError::NoRun(path.to_owned()))
}

/// When a run began, or the first trial of a sweep. Reads no other trial, of which there may be many.
fn started(found: &Found) -> Option<String> {
    let of_run = |folder: &Path| {
        let environment = Leaves::read(&folder.join("environment.toml")).ok()??;
        environment.get("started").map(str::to_owned)
    };
    match found {
        Found::Run(folder) => of_run(folder),
        Found::Sweep(folder) => folders_in(folder).ok()?.iter().find_map(|trial| of_run(trial)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_to_folders_above_have_an_end() {
        let place = tempfile::tempdir().unwrap();
        let all = place.path().join("a[1]");
        fs::create_dir_all(all.join("b/c")).unwrap();
        fs::create_dir_all(all.join(".hidden/c")).unwrap();
        ["x", "y", "b/up"].iter().for_each(|link| symlink(&all, all.join(link)).unwrap());
        let found = |pattern: &str| {
            let paths = matches(&format!("{}/{pattern}", place.path().display())).unwrap();
            let own = paths.iter().map(|path| path.strip_prefix(place.path()).unwrap().display().to_string());
            own.collect::<Vec<_>>()
        };
        assert_eq!(found("a*/**"), ["a[1]", "a[1]/b", "a[1]/b/c"]);
        assert_eq!(found("**/**/c"), ["a[1]/b/c"]);
        assert_eq!(found("**/b/**/c"), ["a[1]/b/c"]);
        assert_eq!(found("a*/*/c"), ["a[1]/.hidden/c", "a[1]/b/c"]);
        let error = matches("runs/**x").unwrap_err().to_string();
        assert!(error.starts_with("`runs/**x` is not a pattern: "), "{error}");
    }
}
