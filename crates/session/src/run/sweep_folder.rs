//! A sweep's folder: creates or finds it, and reads how its trials ended.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Display,
    path::Path,
};

use serde::Deserialize;

use super::{
    exit::{Exit, print_stderr, warn},
    extension::{KnownTrials, trials_line},
    planned::{Planned, Resume, Role},
    prepare::Prepared,
    session::{Session, unrecorded},
    waiting::Waiting,
};
use crate::{
    event::Status,
    record::{Claims, RecordError, RunDir, RunLock, SWEEP_FILE, SweepLock, TrialEnd, remove_remnants},
};

/// Creates the folder of a sweep, or finds the one to resume, and joins its processes. Fails with an exit code
/// if that is refused (the reason was printed) or interrupted.
pub(super) fn open<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
) -> Result<(RunDir, Claims), Exit> {
    let experiment = session.experiment;
    let name = experiment.trials.first().map_or("", |first| P::name(&first.spec));
    let tail = format!("sweep-{}", experiment.hash8());
    let lock = session.lock_runs()?;
    let resumed = match &session.process.resume {
        Resume::No | Resume::Run(_) => None,
        Resume::Sweep(folder) => Some(folder.clone()),
        Resume::Auto => newest(session, &prepared[..experiment.known], (name, &tail)),
    };
    let is_found = resumed.is_some();
    let folder = match resumed {
        Some(folder) => folder,
        None => {
            let folder = RunDir::create(&session.process.runs_dir, name, session.process.start.at, &tail)
                .map_err(unrecorded)?;
            let text = experiment.to_sweep_toml(name);
            let text = format!("{text}\n{}\n", trials_line(&tail));
            folder.write(SWEEP_FILE, &text).map_err(unrecorded)?;
            folder
        }
    };
    drop(lock);
    // A kind that measures the machine must have it alone; and a rung can only be decided by processes that
    // can each run every trial.
    let missing = prepared.iter().position(|own| matches!(own, Prepared::Missing(_)));
    let plans = session.process.role == Role::Plans;
    let missing = missing.filter(|_| experiment.stop.is_some() && !plans);
    let is_shared = P::SIDE_BY_SIDE && missing.is_none();
    let waiting = Waiting::new(session.process.verbosity);
    let is_cut = || {
        waiting.report(|| "another process, which lets none join yet".to_owned());
        session.process.stop.signal().is_some()
    };
    // If an earlier sweep cannot go on, nothing was started.
    let not_joined = |e| {
        let exit = unrecorded(e);
        if is_found { Exit::Refused } else { exit }
    };
    let Some(claims) = Claims::new(folder.path(), is_shared, is_cut).map_err(not_joined)? else {
        if is_cut() {
            return Err(session.signal());
        }
        let mut message = format!("`{}` is under way in another process", folder.path().display());
        if let Some(trial) = missing {
            message +=
                &format!("; successive halving is not shared where devices of trial {trial} are missing");
        }
        return Err(Exit::refused(message, Some("wait for its end, or end it")));
    };
    check_trials(session, (&folder, &tail), &claims)?;
    // What a killed writer of the table has left: while the table is ours, none of it is anybody's.
    claims.with_lock(SweepLock::Table, || false, || remove_remnants(folder.path())).map_err(unrecorded)?;
    Ok((folder, claims))
}

/// The newest sweep of these trials on their data. Where only one on other data is there, a warning names it.
fn newest<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    (name, tail): (&str, &str),
) -> Option<RunDir> {
    let mut on_other = None;
    let fits = |folder: &RunDir| {
        let is_other = || on_other_data(&folder.trials(), prepared).is_some();
        let is_sweep = folder.file(SWEEP_FILE).is_file();
        if is_sweep && is_other() {
            on_other.get_or_insert_with(|| folder.path().display().to_string());
            return false;
        }
        is_sweep
    };
    let found = RunDir::newest(&session.process.runs_dir, name, tail, fits);
    if let (None, Some(path)) = (&found, on_other) {
        warn(format!("a new sweep begins, since the data are not those that `{path}` was trained on"));
    }
    found
}

/// Whether the trials that are planned are those of the folder, as its file says now, or it may be given more. Where not, this
/// has been printed. `claims` keep others from joining meanwhile, where this process is the first.
fn check_trials<P: Planned>(
    session: &Session<'_, P>,
    (sweep, tail): (&RunDir, &str),
    claims: &Claims,
) -> Result<(), Exit> {
    let known = KnownTrials::read(sweep);
    let extension = session.process.extension.as_ref();
    let expected =
        extension.map_or_else(|| tail.to_owned(), |extension| format!("sweep-{}", extension.earlier));
    // A folder may have another name by now.
    let is_same =
        known.tail.as_ref().map_or_else(|| sweep.name().contains(&expected), |known| *known == expected);
    let is_outdated = extension.is_some_and(|extension| extension.after != known);
    let path = sweep.path().display();
    let (message, hint) = if extension.is_some() && !claims.is_first() {
        (
            format!("`{path}` is under way in another process, and takes more trials when that has ended"),
            "wait for its end, or end it; without overrides this process joins it",
        )
    } else if is_same && !is_outdated {
        return Ok(());
    } else if is_outdated || matches!(session.process.resume, Resume::Auto) {
        (
            format!("`{path}` was given more trials than it had"),
            "`runner run --resume` with that folder goes on with all of them",
        )
    } else {
        (
            format!("`{}` no longer gives the trials that it gave", sweep.file(SWEEP_FILE).display()),
            "bring it back as it was, or run it anew: `runner run` with that file",
        )
    };
    Err(Exit::refused(message, Some(hint)))
}

pub(super) fn print_other_data(trial: &RunDir) -> Exit {
    let message = format!("the data are not those that `{}` was trained on", trial.path().display());
    Exit::refused(message, Some("bring the data back, or run the spec anew"))
}

/// One of the trials that were begun with different data, if any.
pub(super) fn on_other_data<'b, P: Planned>(
    begun: &'b BTreeMap<usize, RunDir>,
    prepared: &[Prepared<P>],
) -> Option<&'b RunDir> {
    let is_it = |(index, trial): &(&usize, &RunDir)| match prepared.get(**index) {
        Some(Prepared::Run(planned)) => planned.has_other_data(trial),
        _ => false,
    };
    begun.iter().find(is_it).map(|(_, trial)| trial)
}

/// How the trials ended that do not run again: those that finished or were stopped at a rung, and those that diverged (they
/// would again); also those that wait at a rung. A process that `joins` others also accepts the failures recorded by
/// them.
pub(super) fn ends(
    rows: &HashMap<usize, Row>,
    joins: bool,
    begun: &BTreeMap<usize, RunDir>,
    trials: usize,
) -> Vec<Option<TrialEnd>> {
    let done = |index: usize| {
        let row = rows.get(&index);
        let is_kept = |end: &TrialEnd| match end {
            TrialEnd::Ran { status, .. } => !matches!(status, Status::Failed | Status::Interrupted),
            _ => false,
        };
        let of_folder = begun.get(&index).and_then(end_in).filter(is_kept);
        of_folder.or_else(|| row.filter(|row| joins && row.is_failure())?.end())
    };
    (0..trials).map(done).collect()
}

/// Takes out of `begun` the trials that `prepared` knows and whose files were damaged; says what is wrong with them.
pub(super) fn take_damaged<'p, P: Planned + 'p>(
    begun: &mut BTreeMap<usize, RunDir>,
    rows: &HashMap<usize, Row>,
    prepared: impl Fn(usize) -> Option<&'p Prepared<P>>,
    axes: &[String],
) -> BTreeMap<usize, (RunDir, String)> {
    let damage = |index: usize, folder: &RunDir| {
        let (prepared, has_ended) = (prepared(index)?, rows.get(&index).is_some_and(Row::has_ended));
        let foreign_spec = || match prepared {
            Prepared::Run(planned) => planned.foreign_spec(folder, axes),
            _ => None,
        };
        let damage = folder.damage(has_ended).or_else(foreign_spec);
        damage.filter(|_| !RunLock::is_held(folder.path()))
    };
    let damaged = begun.iter().filter_map(|(&index, folder)| Some((index, damage(index, folder)?)));
    let damaged: Vec<_> = damaged.collect();
    let taken = damaged.into_iter().filter_map(|(index, what)| Some((index, (begun.remove(&index)?, what))));
    taken.collect()
}

/// Moves the files of damaged trials out of the way, and says so. Returns their folders.
pub(super) fn begin_again(
    damaged: BTreeMap<usize, (RunDir, String)>,
) -> Result<BTreeMap<usize, RunDir>, RecordError> {
    let clear = |(index, (folder, what)): (usize, (RunDir, String))| {
        if let Some(aside) = folder.clear()? {
            print_stderr(&begins_again(index, what, Some(&aside)));
        }
        Ok((index, folder))
    };
    damaged.into_iter().map(clear).collect()
}

/// The warning that a trial is trained from its start again.
pub(super) fn begins_again(trial: usize, why: impl Display, aside: Option<&Path>) -> String {
    let aside = aside.map(|aside| format!("; its old files are in `{}`", aside.display()));
    format!("warning: trial {trial}: begins again, since {why}{}\n", aside.unwrap_or_default())
}

/// The warning that a trial is trained from its start again, since somebody removed its folder.
pub(super) fn gone(trial: usize) -> String {
    begins_again(trial, "its folder is gone", None)
}

/// How the trial of a folder ended, if known.
pub(super) fn end_in(folder: &RunDir) -> Option<TrialEnd> {
    let mut figures = folder.figures();
    let (status, folder) = (RunDir::status_in(&figures)?, folder.name());
    let reason = figures.remove("reason").filter(|reason| !reason.is_empty());
    Some(TrialEnd::Ran { status, folder, reason })
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
    /// Whether the trial reached its end or a rung, so that its summary had a row.
    pub fn has_ended(&self) -> bool {
        let ends = [Status::Finished, Status::Diverged, Status::Waiting, Status::Stopped];
        ends.iter().any(|end| self.status == end.name())
    }

    pub fn is_failure(&self) -> bool {
        self.status == Status::Failed.name()
    }

    /// How the trial ended, according to this row; used if its folder does not tell.
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

/// The rows of a sweep's table, by trial.
pub(super) fn rows(sweep: &RunDir) -> HashMap<usize, Row> {
    let rows = sweep.csv("sweep.csv").into_iter().flat_map(csv::Reader::into_deserialize);
    rows.flatten().map(|row: Row| (row.trial, row)).collect()
}
