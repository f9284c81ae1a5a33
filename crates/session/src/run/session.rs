//! A session: one run, or every trial of a sweep.

use std::{
    fs::File,
    path::PathBuf,
    sync::{Mutex, MutexGuard, atomic::Ordering},
};

use super::{
    exit::{Exit, print, print_stderr, refuse, warn},
    planned::{ExecuteError, Planned, Process, Resume, RunFacts, Start},
    prepare::{self, Prepared},
    recording::Recording,
    waiting::Waiting,
};
use crate::{
    event::{Outcome, Status},
    host::{self, escape_line, lock},
    plan::Machine,
    record::{
        ConsoleOptions, RecordError, RunDir, TrialOfSweep, Verbosity, Warned, command_line, has_checkpoints,
        output_width,
    },
    spec::Experiment,
    train::{Judge, StopFlag},
};

pub struct Session<'a, P: Planned> {
    pub(super) process: Process,
    pub experiment: &'a Experiment<P::Spec>,
    shared: Mutex<P::Shared>,
    pub(super) warned: Warned,
    /// Data errors already reported, so that each is reported once.
    reported: Mutex<Vec<String>>,
}

/// What can be done with the newest run of a spec.
enum Newest {
    Nothing,
    IsLive(RunDir),
    HasCheckpoints(RunDir),
    Finished(RunDir),
}

impl<'a, P: Planned> Session<'a, P> {
    pub fn new(process: Process, experiment: &'a Experiment<P::Spec>, shared: P::Shared) -> Self {
        Self {
            process,
            experiment,
            shared: Mutex::new(shared),
            warned: Warned::default(),
            reported: Mutex::default(),
        }
    }

    /// Plans every trial. If one cannot run as written, the problem is printed and its exit code returned.
    pub(super) fn prepare(&self, machine: &Machine) -> Result<Vec<Prepared<P>>, Exit> {
        P::goes_on(&mut *self.shared(), self.begun());
        let prepared = prepare::prepare(self.experiment, &mut *self.shared(), machine, self.threads());
        if self.process.stop.signal().is_some() {
            return Err(self.signal()); // reading was interrupted
        }
        let prepared = prepared.map_err(|problems| refuse(&self.experiment.failure(problems)))?;
        self.process.stop.is_begun.store(true, Ordering::Relaxed);
        self.process.load.mark();
        if self.process.stop.signal().is_some() { Err(self.signal()) } else { Ok(prepared) }
    }

    /// The folders of runs that may be resumed, newest first.
    fn begun(&self) -> Vec<RunDir> {
        match (&self.process.resume, self.experiment.trials.first()) {
            (Resume::Sweep(folder), _) => folder.trials().into_values().collect(),
            (Resume::Auto, Some(first)) => RunDir::all(&self.process.runs_dir, P::name(&first.spec)),
            _ => Vec::new(),
        }
    }

    /// Runs the only trial of an experiment that is not a sweep.
    pub(super) fn single(&self, prepared: &[Prepared<P>]) -> Result<Exit, Exit> {
        let planned = match prepared.first() {
            Some(Prepared::Run(planned)) => planned,
            Some(Prepared::Missing(problem)) => {
                refuse(&self.experiment.failure([(0, (**problem).clone())]));
                return Err(Exit::Missing);
            }
            _ => return Ok(Exit::Done),
        };
        let refused = |error: ExecuteError| {
            report_error(&error, None);
            Exit::Refused
        };
        let mut ready = self.ready(&**planned).ok_or_else(|| self.signal())?.map_err(refused)?;
        let lock = self.lock_runs()?;
        let resumed = match self.process.resume.clone() {
            Resume::No | Resume::Sweep(_) => Ok(None),
            Resume::Run(folder) => planned.resume(&mut ready, &folder).map(|()| Some(folder)),
            Resume::Auto => match self.newest(&**planned) {
                Newest::Finished(folder) => {
                    return Ok(self.has_nothing_left(&folder));
                }
                Newest::IsLive(folder) => Err(ExecuteError::under_way(&folder)),
                Newest::HasCheckpoints(folder) => planned.resume(&mut ready, &folder).map(|()| Some(folder)),
                Newest::Nothing => Ok(self.resume_changed(&**planned, &mut ready)),
            },
        };
        let resumed = resumed.map_err(refused)?;
        let facts = planned.facts(&mut ready);
        let start = self.process.start;
        let folder = match resumed {
            Some(folder) => folder.set_aside().map(|()| folder),
            None => RunDir::create(&self.process.runs_dir, facts.name, start.at, &planned.hash8()),
        };
        let result = folder.map_err(ExecuteError::from).and_then(|folder| {
            let (process, devices) = (&self.process, (planned.devices(), false));
            let recording = Recording::begin(process, start, devices, facts, &folder, self.console(None))?;
            drop(lock);
            self.record(recording, (&**planned, ready), &folder, None)
        });
        Ok(self.ended(result.as_ref(), None))
    }

    /// Names a run that has finished, as its own process would have.
    fn has_nothing_left(&self, folder: &RunDir) -> Exit {
        let path = folder.path().to_string_lossy();
        let path = escape_line(&path);
        let words = format!("`{path}` has finished; there is nothing to go on with\n");
        match self.process.verbosity {
            // Standard output is for events.
            _ if self.process.json => print_stderr(&words),
            Verbosity::Quiet => return print(&format!("{path}\n")),
            _ => return print(&words),
        }
        Exit::Done
    }

    /// With `--resume auto`, processes that start together take turns from here on, so that the later ones find what the first
    /// has begun. `Err` if a signal ended the wait.
    pub(super) fn lock_runs(&self) -> Result<Option<File>, Exit> {
        let Process { runs_dir, resume: Resume::Auto, .. } = &self.process else { return Ok(None) };
        let waiting = Waiting::new(self.process.verbosity);
        let is_cut = |folder: &File| {
            waiting.report(|| {
                let holder = host::lock_holder(folder).map(|process| format!("process {process}"));
                let holder = holder.unwrap_or_else(|| "another process".to_owned());
                format!("{holder}, which is starting a run in `{}`", runs_dir.display())
            });
            self.process.stop.signal().is_some()
        };
        let lock = RunDir::lock(runs_dir, is_cut);
        if self.process.stop.signal().is_some() { Err(self.signal()) } else { Ok(lock) }
    }

    /// Acquires a trial's resources; `None` if a signal interrupted that.
    pub(super) fn ready<'p>(&self, planned: &'p P) -> Option<Result<P::Ready<'p>, ExecuteError>> {
        let opened = planned.open(&mut *self.shared());
        let ready = opened.and_then(|opened| planned.ready(opened));
        (ready.is_ok() || self.process.stop.signal().is_none()).then_some(ready)
    }

    /// The newest run of the planned spec.
    fn newest(&self, planned: &P) -> Newest {
        let name = self.experiment.trials.first().map_or("", |trial| P::name(&trial.spec));
        // A folder's name has the hash of the spec that it was begun with, which may have changed since.
        let mut runs = RunDir::runs(&self.process.runs_dir, name).into_iter();
        match runs.find(|folder| planned.has_spec_of(folder) && folder.data_digest() == planned.data_digest())
        {
            Some(folder) if folder.has_finished() => Newest::Finished(folder),
            Some(folder) if folder.is_live() => Newest::IsLive(folder),
            Some(folder) if has_checkpoints(folder.path()) => Newest::HasCheckpoints(folder),
            _ => Newest::Nothing,
        }
    }

    /// Resumes the newest unfinished run of this name that can go on as the planned one, and says which. Where none can, a
    /// warning says why the newest cannot, that a finished run of this spec trained on other data, or that one ended without a
    /// checkpoint.
    fn resume_changed(&self, planned: &P, ready: &mut P::Ready<'_>) -> Option<RunDir> {
        let name = self.experiment.trials.first().map_or("", |trial| P::name(&trial.spec));
        let is_begun = |run: &RunDir| !run.has_finished() && has_checkpoints(run.path()) && !run.is_live();
        let mut newest = None;
        for folder in RunDir::runs(&self.process.runs_dir, name).into_iter().filter(is_begun) {
            let resume =
                |changes| planned.resume(ready, &folder).map(|()| changes).map_err(|e| e.to_string());
            let path = folder.path().display();
            match planned.changes_since(&folder).and_then(resume) {
                Ok(changes) => {
                    if let Some(changes) = changes.filter(|_| self.process.verbosity != Verbosity::Quiet) {
                        print_stderr(&format!("`{path}` goes on with a changed spec: {changes}\n"));
                    }
                    return Some(folder);
                }
                Err(why) => {
                    newest.get_or_insert_with(|| format!("`{path}` cannot go on: {why}"));
                }
            }
        }
        let on_other_data = || {
            let mut runs = RunDir::runs(&self.process.runs_dir, name).into_iter();
            let is_it =
                |run: &RunDir| run.has_finished() && planned.has_spec_of(run) && planned.has_other_data(run);
            let run = runs.find(is_it)?;
            Some(format!("the data are not those that `{}` was trained on", run.path().display()))
        };
        let without_checkpoint = || {
            let mut runs = RunDir::runs(&self.process.runs_dir, name).into_iter();
            let is_it = |run: &RunDir| {
                let is_ended = !run.has_finished() && !run.is_live();
                is_ended && !has_checkpoints(run.path()) && planned.has_spec_of(run)
            };
            let run = runs.find(is_it)?;
            Some(format!(
                "`{}` has no checkpoint to go on from: a table `[checkpoint]` says when one is written",
                run.path().display()
            ))
        };
        let otherwise = || self.finished_otherwise(planned, name);
        if let Some(why) = newest.or_else(on_other_data).or_else(without_checkpoint).or_else(otherwise) {
            warn(format!("a new run begins, since {why}"));
        }
        None
    }

    /// The newest finished run that differs from the planned one in nothing but what may change when a run goes on, such as its
    /// length; and the command by which it goes on, if it can.
    fn finished_otherwise(&self, planned: &P, name: &str) -> Option<String> {
        let runs = RunDir::runs(&self.process.runs_dir, name).into_iter();
        let mut runs = runs.filter(|run| run.has_finished() && !planned.has_other_data(run));
        let ((changes, overrides), run) = runs.find_map(|run| Some((planned.allowed_changes(&run)?, run)))?;
        let path = run.path().display();
        let mut why = format!("`{path}` has finished with another spec: {changes}");
        if has_checkpoints(run.path()) && !overrides.is_empty() {
            let words = ["runner", "run", "--resume"].map(str::to_owned).into_iter();
            let command = words.chain([path.to_string()]).chain(overrides);
            why += &format!("; `{}` goes on with it", escape_line(&command_line(command)));
        }
        Some(why)
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, P::Shared> {
        lock(&self.shared)
    }

    pub fn resume(&self) -> &Resume {
        &self.process.resume
    }

    /// The folder that this sweep would make.
    pub fn new_sweep_path(&self) -> PathBuf {
        let name = self.experiment.trials.first().map_or("", |first| P::name(&first.spec));
        let tail = format!("sweep-{}", self.experiment.hash8());
        RunDir::new_path(&self.process.runs_dir, name, self.process.start.at, &tail)
    }

    pub fn is_sweep(&self) -> bool {
        self.experiment.is_sweep()
    }

    /// Sets how many trials of a sweep run side by side, once it is known what they need.
    pub fn set_jobs(&mut self, jobs: usize) {
        self.process.jobs = jobs;
    }

    /// Number of trials that run side by side.
    pub(super) fn jobs(&self) -> usize {
        self.process.jobs.clamp(1, self.experiment.trials.len().max(1))
    }

    /// Threads per trial: trials side by side divide the processor.
    pub(super) fn threads(&self) -> usize {
        (self.process.available_threads / self.jobs()).max(1)
    }

    /// Runs a trial and records it in `folder`.
    pub(super) fn run_recorded<'p>(
        &self,
        start: Start,
        (planned, ready, facts): (&'p P, P::Ready<'p>, RunFacts<'p>),
        folder: &RunDir,
        console: ConsoleOptions,
        judge: Option<Judge>,
    ) -> Result<Outcome, ExecuteError> {
        let devices = (planned.devices(), self.experiment.share.allows(planned.gpu_need().1));
        let recording = Recording::begin(&self.process, start, devices, facts, folder, console)?;
        self.record(recording, (planned, ready), folder, judge)
    }

    fn record<'p>(
        &self,
        recording: Recording,
        (planned, ready): (&'p P, P::Ready<'p>),
        folder: &RunDir,
        judge: Option<Judge>,
    ) -> Result<Outcome, ExecuteError> {
        let stop = StopFlag { judge, ..self.process.stop.clone() };
        let outcome = planned.run(ready, folder, &stop, &recording.sender());
        recording.end(outcome, &self.process.load)
    }

    /// Reports how a trial ended; `trial` is its number in a sweep.
    pub(super) fn ended(&self, result: Result<&Outcome, &ExecuteError>, trial: Option<usize>) -> Exit {
        match result {
            Ok(outcome) => match outcome.status {
                Status::Finished | Status::Waiting | Status::Stopped => Exit::Done,
                Status::Failed | Status::Diverged => {
                    Exit::failed(named(trial, outcome.reason.as_deref().unwrap_or("the run failed")), None)
                }
                Status::Interrupted => self.signal(),
            },
            // Later trials on the same data fail with the same error; it was already printed.
            Err(ExecuteError::Data(what)) if lock(&self.reported).contains(what) => Exit::Failed,
            Err(e) => {
                let what = trial.map(|trial| match e {
                    ExecuteError::Data(what) => {
                        lock(&self.reported).push(what.clone());
                        format!("trial {trial} and all later ones on the same data")
                    }
                    _ => format!("trial {trial}"),
                });
                report_error(e, what)
            }
        }
    }

    pub(super) fn signal(&self) -> Exit {
        Exit::Signal(self.process.stop.signal().map_or(2, |s| s as u8))
    }

    pub(super) fn console(&self, trial: Option<TrialOfSweep>) -> ConsoleOptions {
        ConsoleOptions {
            verbosity: self.process.verbosity,
            json: self.process.json,
            terminal: self.process.terminal,
            is_alone: self.jobs() == 1,
            color: anstream::stdout().current_choice() != anstream::ColorChoice::Never,
            width: output_width(),
            trial,
            warned: self.warned.clone(),
        }
    }
}

/// Prefixes a message with the trial's number.
pub(super) fn named(trial: Option<usize>, words: impl std::fmt::Display) -> String {
    trial.map_or_else(|| words.to_string(), |trial| format!("trial {trial}: {words}"))
}

/// Prints why a sweep cannot be recorded.
pub(super) fn unrecorded(error: RecordError) -> Exit {
    report_error(&ExecuteError::Record(error), None)
}

/// Prints why `what` did not reach its recorded end.
pub(super) fn report_error(error: &ExecuteError, what: Option<String>) -> Exit {
    let hint = match error {
        ExecuteError::Record(e) => e.hint(),
        ExecuteError::Data(_) => Some("start again once nothing writes to them, or on a copy"),
        ExecuteError::Deadly(_) => Some(
            "`--resume` tries it again; on machines that may be taken away, `[checkpoint] every_minutes` keeps what each process \
             did; if the system's log (`dmesg`, `sacct`) says out of memory, give each process more",
        ),
        ExecuteError::NoCheckpoint { .. } => Some("run its spec again: `spec.toml` in its folder"),
        ExecuteError::Resume { hint, .. } => Some(*hint),
        _ => None,
    };
    Exit::failed(what.map_or_else(|| error.to_string(), |what| format!("{what}: {error}")), hint)
}
