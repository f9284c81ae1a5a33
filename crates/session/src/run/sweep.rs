//! A sweep: every trial in a folder of its own, a row each in `sweep.csv`; one after the other, or side by side.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use chrono::Utc;

use super::{
    exit::{Exit, print_error},
    planned::{ExecuteError, Planned, Resume, Start},
    prepare::{Prepared, warnings},
    session::{Session, named, report_error},
};
use crate::{
    event::Status,
    plan::DeviceId,
    record::{
        LineMode, RecordError, RunDir, SweepLine, SweepTable, TrialEnd, TrialOfSweep, Verbosity,
        has_checkpoints,
    },
    spec::{Problem, TrialSpec, short_keys},
    units,
};

/// The sweep's own file in its folder; locked while the sweep runs.
const SPEC: &str = "sweep.toml";

/// Why trials that have not begun are not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// The disk takes no more: a trial could not be recorded.
    Full,
    /// `sweep.csv` cannot be written.
    Unlisted,
    /// A trial failed, and `--fail-fast` was given.
    Failed,
}

/// What trials that run side by side share.
struct Progress {
    table: SweepTable,
    ends: Vec<Option<TrialEnd>>,
    worst: Exit,
    stopped: Option<Stopped>,
    /// The first error of the table.
    fault: Option<RecordError>,
}

struct Sweep<'s, 'a, P: Planned> {
    session: &'s Session<'a, P>,
    prepared: &'s [Prepared<P>],
    folder: RunDir,
    /// The short names of the swept keys.
    keys: Vec<&'s str>,
    line: Arc<SweepLine>,
    /// Folders of trials that were begun before the sweep went on.
    begun: BTreeMap<usize, RunDir>,
    progress: Mutex<Progress>,
    next: AtomicUsize,
}

/// How a sweep ended.
pub struct Ended {
    pub exit: Exit,
    /// Its folder, where it has one that is whole.
    pub folder: Option<PathBuf>,
}

impl From<Exit> for Ended {
    fn from(exit: Exit) -> Self {
        Self { exit, folder: None }
    }
}

/// Runs the trials of a sweep that are not done.
pub fn sweep<P: Planned>(session: &Session<'_, P>, prepared: &[Prepared<P>]) -> Ended {
    run(session, prepared).unwrap_or_else(|e| report_error(&ExecuteError::Record(e), None).into())
}

fn run<P: Planned>(session: &Session<'_, P>, prepared: &[Prepared<P>]) -> Result<Ended, RecordError> {
    let experiment = session.experiment;
    let Some(first) = experiment.trials.first() else { return Ok(Exit::Done.into()) };
    if let Some(exit) = refuse_jobs(session, prepared) {
        return Ok(exit.into());
    }
    let name = P::name(&first.spec);
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
                return Ok(Exit::Refused.into());
            }
            folder
        }
        None => {
            let folder = RunDir::create(&session.process.runs_dir, name, session.process.start.at, &tail)?;
            folder.write(SPEC, &experiment.to_sweep_toml(name))?;
            folder
        }
    };
    let Some(_lock) = lock(&folder)? else {
        let message = format!("`{}` is under way in another process", folder.path().display());
        print_error(message, Some("wait for its end, or end it"));
        return Ok(Exit::Refused.into());
    };
    let warnings = warnings(experiment, prepared, "");
    warnings.print();
    warnings.texts().for_each(|text| session.warned.note(text));
    let begun = folder.trials();
    let reasons = reasons(&folder.file("sweep.csv"));
    let done = |index: usize| {
        let folder = begun.get(&index)?;
        // One that diverged would do so again.
        let status = folder.status().filter(|s| matches!(s, Status::Finished | Status::Diverged))?;
        let reason = reasons.get(&folder.name()).filter(|reason| !reason.is_empty()).cloned();
        Some(TrialEnd::Ran { status, folder: folder.name(), reason })
    };
    let ends: Vec<_> = (0..experiment.trials.len()).map(done).collect();
    let values = |trial: &TrialSpec<P::Spec>| trial.axes.iter().map(|(_, value)| value.clone()).collect();
    let rows = experiment.trials.iter().map(values).zip(ends.iter().cloned()).collect();
    let table = SweepTable::create(folder.path(), &experiment.axes, rows)?;
    let repeats = prepared.iter().filter(|prepared| matches!(prepared, Prepared::SameAs(..))).count();
    let settled = repeats + ends.iter().flatten().count();
    let mode = match (session.process.verbosity, session.process.terminal) {
        (Verbosity::Normal, true) => LineMode::Redrawn,
        (Verbosity::Normal, false) => LineMode::Lines,
        _ => LineMode::Hidden,
    };
    let line = Arc::new(SweepLine::new(ends.len(), settled, mode));
    let worst = if ends.iter().flatten().any(is_failure) { Exit::Failed } else { Exit::Done };
    let progress = Mutex::new(Progress { table, ends, worst, stopped: None, fault: None });
    let keys: Vec<&str> = experiment.axes.iter().map(String::as_str).collect();
    let keys = short_keys(&keys);
    let sweep = Sweep { session, prepared, folder, keys, line, begun, progress, next: AtomicUsize::new(0) };
    sweep.run_all()
}

fn is_failure(end: &TrialEnd) -> bool {
    matches!(end, TrialEnd::Ran { status: Status::Failed | Status::Diverged, .. })
}

/// Trials beside each other need devices that they do not share.
fn refuse_jobs<P: Planned>(session: &Session<'_, P>, prepared: &[Prepared<P>]) -> Option<Exit> {
    if session.jobs() == 1 {
        return None;
    }
    let of_gpu = |own: &Prepared<P>| match own {
        Prepared::Run(planned) => planned.devices().used.iter().any(|used| matches!(used, DeviceId::Gpu(_))),
        _ => false,
    };
    let message = if !P::SIDE_BY_SIDE {
        "`--jobs` runs trainings side by side; this kind measures the machine".to_owned()
    } else {
        let trial = prepared.iter().position(of_gpu)?;
        format!("`--jobs` runs trials on the CPU side by side; trial {trial} uses a GPU")
    };
    print_error(message, Some("leave `--jobs` out"));
    Some(Exit::Refused)
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

impl<P: Planned> Sweep<'_, '_, P> {
    fn run_all(self) -> Result<Ended, RecordError> {
        let jobs = self.session.jobs();
        thread::scope(|scope| {
            // Where a thread cannot be started, the others do its work.
            let work = || self.work();
            (1..jobs)
                .for_each(|_| drop(thread::Builder::new().name("trial".into()).spawn_scoped(scope, work)));
            work();
        });
        self.line.apart(&mut io::stderr(), |_| {});
        self.repeat_ends();
        let folder = self.folder.path().to_owned();
        let session = self.session;
        let Progress { table, mut worst, stopped, fault, .. } =
            self.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (fault, stopped) {
            // The error of the trial that found the disk full was printed.
            (Some(_), Some(Stopped::Full)) => return Ok(worst.into()),
            (Some(fault), _) => return Err(fault),
            (None, _) => table.finish()?,
        }
        if session.process.stop.signal().is_some() {
            worst = session.signal();
        }
        Ok(Ended { exit: worst, folder: Some(folder) })
    }

    /// Takes one trial after the other.
    fn work(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some((trial, prepared)) =
                self.session.experiment.trials.get(index).zip(self.prepared.get(index))
            else {
                return;
            };
            let (is_done, stopped) = self.with(|progress| (progress.ends[index].is_some(), progress.stopped));
            if is_done {
                continue;
            }
            let (end, exit) = match (prepared, stopped) {
                (Prepared::SameAs(..), _) => continue,
                _ if self.session.process.stop.signal().is_some() => {
                    (skipped("the sweep was interrupted before it began"), Exit::Done)
                }
                (_, Some(Stopped::Full | Stopped::Unlisted)) => {
                    (skipped("an earlier trial could not be recorded"), Exit::Done)
                }
                (_, Some(Stopped::Failed)) => (skipped("an earlier trial failed"), Exit::Done),
                (Prepared::Missing(problem), _) => (self.skip(index, problem), Exit::Missing),
                (Prepared::Run(planned), _) => self.trial(planned, trial),
            };
            self.set(index, end, exit);
        }
    }

    /// Writes the ends of trials that only repeat others.
    fn repeat_ends(&self) {
        for (index, prepared) in self.prepared.iter().enumerate() {
            let Prepared::SameAs(earlier, devices) = prepared else { continue };
            let folder = self.with(|progress| match &progress.ends[*earlier] {
                Some(TrialEnd::Ran { folder, .. }) => Some(folder.clone()),
                _ => None,
            });
            let end = match folder {
                Some(folder) => TrialEnd::SameAs { trial: *earlier, folder, note: devices.note.clone() },
                None => skipped(&format!("trial {earlier}, which it would repeat, was not run")),
            };
            self.set(index, end, Exit::Done);
        }
    }

    fn with<R>(&self, what: impl FnOnce(&mut Progress) -> R) -> R {
        what(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, index: usize, end: TrialEnd, exit: Exit) {
        self.with(|progress| {
            progress.worst = progress.worst.more_severe(exit);
            if self.session.process.fail_fast && is_failure(&end) {
                progress.stopped.get_or_insert(Stopped::Failed);
            }
            if let Err(fault) = progress.table.set(index, &end) {
                progress.stopped.get_or_insert(Stopped::Unlisted);
                progress.fault.get_or_insert(fault);
            }
            if let TrialEnd::Skipped { .. } = &end {
                self.line.skipped();
            }
            progress.ends[index] = Some(end);
        });
    }

    fn skip(&self, index: usize, problem: &Problem) -> TrialEnd {
        let there = problem.label.clone().map_or(String::new(), |label| format!(": {label}"));
        if self.session.process.verbosity == Verbosity::Quiet {
            print_error(named(Some(index), format!("{}{there}", problem.message)), None);
        }
        skipped(&format!("{}{there}", problem.message.replace('`', "")))
    }

    /// Runs a trial in its own folder: from its newest checkpoint where it has one, else from the start.
    fn trial(&self, planned: &P, trial: &TrialSpec<P::Spec>) -> (TrialEnd, Exit) {
        let session = self.session;
        session.process.load.mark();
        let start = Start { begun: Instant::now(), at: Utc::now() };
        let mut name = String::new();
        let ready = planned.ready(&mut *session.shared());
        let result = ready.and_then(|mut ready| {
            let folder = match self.begun.get(&trial.index) {
                None => self.folder.trial(trial.index, self.short_axes(trial))?,
                Some(folder) if has_checkpoints(folder.path()) => {
                    name = folder.name();
                    planned.resume(&mut ready, folder)?;
                    folder.set_aside()?;
                    folder.clone()
                }
                Some(folder) => {
                    folder.clear()?;
                    folder.clone()
                }
            };
            name = folder.name();
            let facts = planned.facts(&mut ready);
            let console = session.console(Some(self.of_sweep(trial)));
            session.run_recorded(start, (planned, ready, facts), &folder, console)
        });
        let exit = match &result {
            Ok(outcome) if outcome.status == Status::Finished => Exit::Done,
            _ => self.line.apart(&mut io::stderr(), |_| session.ended(result.as_ref(), Some(trial.index))),
        };
        self.line.ended(trial.index, exit == Exit::Failed, &mut io::stderr());
        let (status, reason) = match &result {
            Ok(outcome) => (outcome.status, outcome.reason.clone()),
            Err(e) => (Status::Failed, Some(e.to_string())),
        };
        if matches!(&result, Err(ExecuteError::Record(e)) if !e.is_of_one_folder()) {
            self.disk_is_full();
        }
        (TrialEnd::Ran { status, folder: name, reason }, exit)
    }

    /// The values of a trial under the short names of their keys.
    fn short_axes<'t>(&'t self, trial: &'t TrialSpec<P::Spec>) -> impl Iterator<Item = (&'t str, &'t str)> {
        self.keys.iter().copied().zip(trial.axes.iter().map(|(_, value)| value.as_str()))
    }

    fn of_sweep(&self, trial: &TrialSpec<P::Spec>) -> TrialOfSweep {
        let values: Vec<String> =
            self.short_axes(trial).map(|(key, value)| format!("{key} {value}")).collect();
        TrialOfSweep {
            number: trial.index,
            of: self.prepared.len(),
            values: values.join(" "),
            line: Arc::clone(&self.line),
        }
    }

    /// Later trials would fail, too.
    fn disk_is_full(&self) {
        let is_new = self.with(|progress| progress.stopped.replace(Stopped::Full) != Some(Stopped::Full));
        let left = self.prepared.len().saturating_sub(self.next.load(Ordering::Relaxed));
        if is_new && left > 0 {
            let trials = units::counted(left as u64, "trial");
            print_error(format!("{trials} not run: the disk takes no more"), None);
        }
    }
}

fn skipped(reason: &str) -> TrialEnd {
    TrialEnd::Skipped { reason: reason.to_owned() }
}
