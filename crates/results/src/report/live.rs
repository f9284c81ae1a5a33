//! A long `metrics.csv` is read once by a process; later, as in a live view, only what was added.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

use crate::{
    files::{FileError, MetricCurves, MetricsFile, Sizes},
    host::lock,
};

/// Bytes from which on a file is long.
const LONG: u64 = 64 << 20;

/// Long files by their paths.
static KNOWN: Mutex<BTreeMap<PathBuf, MetricsFile>> = Mutex::new(BTreeMap::new());

/// Files that a view of a moment remembers: those of the runs at work, which it reads first.
const MOST_OF_MOMENT: usize = 64;

/// What a view of a moment has read, by path, so that all its lines and curves are of one time.
static OF_MOMENT: Mutex<Option<BTreeMap<PathBuf, MetricsFile>>> = Mutex::new(None);

/// From now on files are read anew, and each once until the next call.
pub(super) fn begin_moment() {
    *lock(&OF_MOMENT) = Some(BTreeMap::new());
}

/// The curves of a `metrics.csv`; empty if there is no such file, as in lab runs.
pub(super) fn curves(path: &Path) -> Result<Vec<MetricCurves>, FileError> {
    if path.exists() { Ok(metrics(path)?.into_curves()) } else { Ok(Vec::new()) }
}

/// The contents of a `metrics.csv`.
pub(super) fn metrics(path: &Path) -> Result<MetricsFile, FileError> {
    let known = lock(&OF_MOMENT).as_ref().and_then(|files| files.get(path).cloned());
    if let Some(file) = known {
        return Ok(file);
    }
    let file = metrics_of(path, LONG)?;
    if let Some(files) = lock(&OF_MOMENT).as_mut().filter(|files| files.len() < MOST_OF_MOMENT) {
        files.insert(path.to_owned(), file.clone());
    }
    Ok(file)
}

fn metrics_of(path: &Path, long: u64) -> Result<MetricsFile, FileError> {
    let sizes = Sizes::default();
    if fs::metadata(path).map_or(0, |file| file.len()) < long {
        return MetricsFile::read(path, sizes);
    }
    let known = lock(&KNOWN).get(path).cloned();
    let file = match known {
        Some(mut file) => file.read_on(path, sizes).map(|()| file)?,
        None => MetricsFile::read(path, sizes)?,
    };
    lock(&KNOWN).insert(path.to_owned(), file.clone());
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use super::*;

    /// No other test of this crate takes a moment.
    #[test]
    fn a_file_is_read_once_in_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.csv");
        let write = |steps: u64| {
            let rows: String = (1..=steps).map(|step| format!("{step},1,train,8,0.5,0.1\n")).collect();
            fs::write(&path, format!("step,epoch,split,rows,loss,elapsed_s\n{rows}")).unwrap();
        };
        let step = || metrics(&path).unwrap().last.map(|row| row.step);
        begin_moment();
        write(3);
        assert_eq!(step(), Some(3));
        write(5);
        assert_eq!(step(), Some(3));
        begin_moment();
        assert_eq!(step(), Some(5));
        *lock(&OF_MOMENT) = None;
    }

    #[test]
    fn a_long_file_that_grows_is_read_on_and_one_that_is_cut_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.csv");
        let rows: String = (1..100).map(|step| format!("{step},1,train,8,0.5,0.1\n")).collect();
        fs::write(&path, format!("step,epoch,split,rows,loss,elapsed_s\n{rows}")).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let step = || metrics_of(&path, 60).map(|read| read.last.map(|row| row.step));
        assert_eq!(step().unwrap(), Some(99));
        write!(file, "100,1,train,8,0.5,0.1\n101,1,tra").unwrap();
        assert_eq!(step().unwrap(), Some(100));
        for _ in 0..2 {
            writeln!(file).unwrap();
            let error = step().unwrap_err().to_string();
            assert!(error.ends_with("is malformed at line 102: expected 6 cells, got 3"), "{error}");
        }
        file.set_len(62).unwrap();
        assert_eq!(step().unwrap(), Some(1));
    }
}
