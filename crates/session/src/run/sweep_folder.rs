//! A sweep's folder: made, or found again, and what its trials came to.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    path::Path,
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::{
    exit::{Exit, print_error, print_stderr},
    planned::{Planned, Resume, Role},
    prepare::Prepared,
    session::Session,
    sweep_progress::is_at_rung,
};
use crate::{
    event::Status,
    host::read_text,
    record::{Claims, RecordError, RunDir, SWEEP_FILE, TrialEnd, Verbosity, make_folders, remove_remnants},
};

/// Makes the folder of a sweep, or finds the one that goes on, and joins its processes. An exit where that is refused, as was
/// printed, or interrupted.
pub(super) fn open<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
) -> Result<Result<(RunDir, Claims), Exit>, RecordError> {
    let experiment = session.experiment;
    let name = experiment.trials.first().map_or("", |first| P::name(&first.spec));
    let tail = format!("sweep-{}", experiment.hash8());
    // Of two that begin at once, the second waits and joins the sweep of the first.
    let is_auto = matches!(session.process.resume, Resume::Auto);
    let lock = is_auto.then(|| lock(&session.process.runs_dir));
    let resumed = match &session.process.resume {
        Resume::No | Resume::Run(_) => None,
        Resume::Sweep(folder) => Some(folder.clone()),
        Resume::Auto => {
            RunDir::newest(&session.process.runs_dir, name, &tail, |folder| folder.file(SWEEP_FILE).is_file())
        }
    };
    let folder = match resumed {
        Some(folder) => {
            let path = folder.file(SWEEP_FILE);
            // A folder may have another name by now.
            let is_named = |text: String| text.lines().any(|line| line == trials_line(&tail));
            if !folder.name().contains(&tail) && !read_text(&path).is_ok_and(is_named) {
                print_error(
                    format!("`{}` no longer gives the trials that it gave", path.display()),
                    Some("bring it back as it was, or run it anew: `runner run` with that file"),
                );
                return Ok(Err(Exit::Refused));
            }
            folder
        }
        None => {
            let folder = RunDir::create(&session.process.runs_dir, name, session.process.start.at, &tail)?;
            let text = experiment.to_sweep_toml(name);
            folder.write(SWEEP_FILE, &format!("{text}\n{}\n", trials_line(&tail)))?;
            folder
        }
    };
    drop(lock);
    // Who measures the machine wants it alone; a rung is decided by processes that can all run all its trials.
    let missing = prepared.iter().position(|own| matches!(own, Prepared::Missing(_)));
    let plans = session.process.role == Role::Plans;
    let missing = missing.filter(|_| experiment.stop.is_some() && !plans);
    let is_shared = P::SIDE_BY_SIDE && missing.is_none();
    let (begun, is_told) = (Instant::now(), Cell::new(session.process.verbosity == Verbosity::Quiet));
    let is_cut = || {
        if begun.elapsed() > Duration::from_secs(1) && !is_told.replace(true) {
            print_stderr("waiting for another process, which lets none join yet\n");
        }
        session.process.stop.signal().is_some()
    };
    let Some(claims) = Claims::new(folder.path(), is_shared, is_cut)? else {
        if is_cut() {
            return Ok(Err(session.signal()));
        }
        let mut message = format!("`{}` is under way in another process", folder.path().display());
        if let Some(trial) = missing {
            message +=
                &format!("; successive halving is not shared where devices of trial {trial} are missing");
        }
        print_error(message, Some("wait for its end, or end it"));
        return Ok(Err(Exit::Refused));
    };
    // What a killed writer of the table has left: while the table is ours, none of it is anybody's.
    claims.with_table(|| remove_remnants(folder.path()))?;
    Ok(Ok((folder, claims)))
}

/// The last line of `sweep.toml`, by which its trials are known again.
fn trials_line(tail: &str) -> String {
    format!("# Its trials: {tail}")
}

/// Keeps other processes from making a sweep's folder; a file system without locks does not.
fn lock(runs_dir: &Path) -> Option<File> {
    make_folders(runs_dir).ok()?; // where this fails, the folder cannot be made either, and that is reported
    let folder = File::open(runs_dir).ok()?;
    folder.lock().ok().map(|()| folder)
}

/// Whether a trial was begun with other data than it would have now.
pub(super) fn has_other_data<P: Planned>(trial: &RunDir, planned: &P) -> bool {
    let digests = trial.data_digest().zip(planned.data_digest());
    digests.is_some_and(|(was, is)| was != is)
}

pub(super) fn print_other_data(trial: &RunDir) {
    let message = format!("the data are not those that `{}` was trained on", trial.path().display());
    print_error(message, Some("bring the data back, or run the spec anew"));
}

/// One of the trials that were begun with other data.
pub(super) fn on_other_data<'b, P: Planned>(
    begun: &'b BTreeMap<usize, RunDir>,
    prepared: &[Prepared<P>],
) -> Option<&'b RunDir> {
    let is_it = |(index, trial): &(&usize, &RunDir)| match prepared.get(**index) {
        Some(Prepared::Run(planned)) => has_other_data(trial, &**planned),
        _ => false,
    };
    begun.iter().find(is_it).map(|(_, trial)| trial)
}

/// How trials ended that do not run again: those that finished, that diverged, as they would again, or that wait at a rung,
/// and all but the ones that successive halving has `left`, once a rung is decided. One that `joins` others takes over what
/// failed there.
pub(super) fn ends(
    folder: &RunDir,
    joins: bool,
    begun: &BTreeMap<usize, RunDir>,
    trials: usize,
    left: Option<&BTreeSet<usize>>,
) -> Vec<Option<TrialEnd>> {
    let rows = rows(folder);
    let done = |index: usize| {
        let row = rows.get(&index);
        let is_over = left.is_some_and(|left| !left.contains(&index));
        let is_kept = |end: &TrialEnd| match end {
            TrialEnd::Ran { status: Status::Finished | Status::Diverged, .. } => true,
            TrialEnd::Ran { status: Status::Failed, .. } => is_over,
            end if is_at_rung(end) => true,
            _ => false,
        };
        let of_folder = begun.get(&index).and_then(|folder| end_in(folder, row)).filter(is_kept);
        of_folder.or_else(|| row.filter(|row| is_over || joins && row.is_failure())?.end())
    };
    (0..trials).map(done).collect()
}

/// How the trial of a folder ended, as far as that is known, and why, where its row says so.
pub(super) fn end_in(folder: &RunDir, row: Option<&Row>) -> Option<TrialEnd> {
    let (status, folder) = (folder.status()?, folder.name());
    let row = row.filter(|row| row.folder == folder && !row.reason.is_empty());
    Some(TrialEnd::Ran { status, folder, reason: row.map(|row| row.reason.clone()) })
}

/// A row of a `sweep.csv`.
#[derive(Deserialize)]
pub(super) struct Row {
    trial: usize,
    status: String,
    folder: String,
    reason: String,
}

impl Row {
    pub fn is_failure(&self) -> bool {
        self.status == Status::Failed.name()
    }

    /// The end of a trial whose folder does not tell it.
    pub fn end(&self) -> Option<TrialEnd> {
        let reason = self.reason.clone();
        match self.status.as_str() {
            "skipped" => Some(TrialEnd::Skipped { reason }),
            "failed" => {
                let (status, folder) = (Status::Failed, self.folder.clone());
                Some(TrialEnd::Ran { status, folder, reason: Some(reason) })
            }
            _ => None,
        }
    }
}

/// The rows of a sweep's table by their trials.
pub(super) fn rows(sweep: &RunDir) -> HashMap<usize, Row> {
    let rows =
        csv::Reader::from_path(sweep.file("sweep.csv")).into_iter().flat_map(csv::Reader::into_deserialize);
    rows.flatten().map(|row: Row| (row.trial, row)).collect()
}
