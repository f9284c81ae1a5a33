//! A sweep's folder: made, or found again, and what its trials came to.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{File, TryLockError},
    path::Path,
};

use super::{
    exit::print_error,
    planned::{Planned, Resume},
    session::Session,
};
use crate::{
    event::Status,
    record::{RecordError, RunDir, TrialEnd},
};

/// The sweep's own file in its folder; locked while the sweep runs.
const SPEC: &str = "sweep.toml";

/// Makes the folder of a sweep, or finds the one that goes on, and locks it. `None` where that is refused, as was printed.
pub(super) fn open<P: Planned>(session: &Session<'_, P>) -> Result<Option<(RunDir, File)>, RecordError> {
    let experiment = session.experiment;
    let name = experiment.trials.first().map_or("", |first| P::name(&first.spec));
    let tail = format!("sweep-{}", experiment.hash8());
    let resumed = match &session.process.resume {
        Resume::No | Resume::Run(_) => None,
        Resume::Sweep(folder) => Some(folder.clone()),
        Resume::Auto => {
            RunDir::newest(&session.process.runs_dir, name, &tail, |folder| folder.file(SPEC).is_file())
        }
    };
    let folder = match resumed {
        Some(folder) => {
            if !folder.name().contains(&tail) {
                let path = folder.file(SPEC);
                print_error(format!("`{}` no longer gives the trials that it gave", path.display()), None);
                return Ok(None);
            }
            folder
        }
        None => {
            let folder = RunDir::create(&session.process.runs_dir, name, session.process.start.at, &tail)?;
            folder.write(SPEC, &experiment.to_sweep_toml(name))?;
            folder
        }
    };
    let Some(lock) = lock(&folder)? else {
        let message = format!("`{}` is under way in another process", folder.path().display());
        print_error(message, Some("wait for its end, or end it"));
        return Ok(None);
    };
    Ok(Some((folder, lock)))
}

/// How trials ended that need not run again: those that finished, that diverged, as they would again, or that wait at a rung.
pub(super) fn ends(folder: &RunDir, begun: &BTreeMap<usize, RunDir>, trials: usize) -> Vec<Option<TrialEnd>> {
    let reasons = reasons(&folder.file("sweep.csv"));
    let done = |index: usize| {
        let folder = begun.get(&index)?;
        let is_kept = |s: &Status| matches!(s, Status::Finished | Status::Diverged | Status::Stopped);
        let status = folder.status().filter(is_kept)?;
        let reason = reasons.get(&folder.name()).filter(|reason| !reason.is_empty()).cloned();
        Some(TrialEnd::Ran { status, folder: folder.name(), reason })
    };
    (0..trials).map(done).collect()
}

/// Locks a sweep until its file is closed; `None` where another process holds it.
fn lock(folder: &RunDir) -> Result<Option<File>, RecordError> {
    let path = folder.file(SPEC);
    let file = File::open(&path).map_err(|e| RecordError::read(&path, e))?;
    // A file system without locks has none to hold.
    let is_held = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    Ok((!is_held).then_some(file))
}

/// The reasons of an earlier `sweep.csv`, by the trials' folders.
fn reasons(path: &Path) -> HashMap<String, String> {
    let Ok(mut reader) = csv::Reader::from_path(path) else { return HashMap::new() };
    let place = |name: &str, columns: &csv::StringRecord| columns.iter().position(|column| column == name);
    let places = reader.headers().ok().and_then(|all| Some((place("folder", all)?, place("reason", all)?)));
    let Some((folder, reason)) = places else { return HashMap::new() };
    let rows = reader.records().flatten();
    rows.filter_map(|row| Some((row.get(folder)?.to_owned(), row.get(reason)?.to_owned()))).collect()
}
