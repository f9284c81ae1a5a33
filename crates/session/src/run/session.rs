//! A session: one run, or every trial of a sweep.

use std::{path::PathBuf, time::Instant};

use chrono::Utc;

use super::{
    exit::{Exit, print, print_error, refuse},
    planned::{ExecuteError, Planned, Process, Resume, RunFacts},
    prepare::{self, Prepared, warnings},
    recording::Recording,
};
use crate::{
    event::{Outcome, Status},
    plan::Machine,
    record::{
        ConsoleOptions, RecordError, RunDir, SweepTable, TrialEnd, TrialNumber, Verbosity, Warned,
        has_checkpoints,
    },
    spec::{Experiment, Problem},
    units,
};

pub struct Session<'a, P: Planned> {
    process: Process,
    experiment: &'a Experiment<P::Spec>,
    shared: P::Shared,
    warned: Warned,
    /// Data errors reported so far; each is reported once.
    reported: Vec<String>,
}

pub struct Ended {
    pub exit: Exit,
    /// The sweep's folder.
    pub sweep: Option<PathBuf>,
}

/// What the newest run of a spec is good for.
enum Newest {
    Nothing,
    HasCheckpoints(RunDir),
    Finished(RunDir),
}

impl From<Exit> for Ended {
    fn from(exit: Exit) -> Self {
        Self { exit, sweep: None }
    }
}

impl<'a, P: Planned> Session<'a, P> {
    pub fn new(process: Process, experiment: &'a Experiment<P::Spec>, shared: P::Shared) -> Self {
        Self { process, experiment, shared, warned: Warned::default(), reported: Vec::new() }
    }

    /// Plans every trial, then runs them.
    pub fn run(mut self, machine: &Machine) -> Ended {
        let threads = self.process.available_threads;
        let prepared: Vec<Prepared<P>> =
            match prepare::prepare(self.experiment, &mut self.shared, machine, threads) {
                Ok(prepared) => prepared,
                Err(problems) => return refuse(&self.experiment.failure(problems)).into(),
            };
        self.process.load.mark();
        if self.process.stop.signal().is_some() {
            return self.signal().into();
        }
        if !self.experiment.is_sweep() {
            return self.single(&prepared).into();
        }
        self.sweep(&prepared).unwrap_or_else(|e| report_error(&ExecuteError::Record(e), None).into())
    }

    fn single(&mut self, prepared: &[Prepared<P>]) -> Exit {
        let planned = match prepared.first() {
            Some(Prepared::Run(planned)) => planned,
            Some(Prepared::Missing(problem)) => {
                refuse(&self.experiment.failure([(0, problem.clone())]));
                return Exit::Missing;
            }
            _ => return Exit::Done,
        };
        let resumed = match self.process.resume.clone() {
            Resume::No => None,
            Resume::Run(folder) => Some(folder),
            Resume::Auto => match self.newest(&**planned) {
                Newest::Finished(folder) => {
                    let path = folder.path().display();
                    return print(&format!("`{path}` has finished; there is nothing to go on with\n"));
                }
                Newest::HasCheckpoints(folder) => Some(folder),
                Newest::Nothing => None,
            },
        };
        let ready = planned.ready(&mut self.shared).and_then(|mut ready| {
            resumed.as_ref().map_or(Ok(()), |folder| planned.resume(&mut ready, folder)).map(|()| ready)
        });
        let mut ready = match ready {
            Ok(ready) => ready,
            Err(e) => {
                report_error(&e, None);
                return Exit::Refused;
            }
        };
        let facts = planned.facts(&mut ready);
        let Process { runs_dir, started, .. } = &self.process;
        let folder = match resumed {
            Some(folder) => folder.set_aside().map(|()| folder),
            None => RunDir::create(runs_dir, facts.name, *started, &planned.hash8()),
        };
        let result = folder
            .map_err(ExecuteError::from)
            .and_then(|folder| self.run_recorded((&**planned, ready, facts), &folder, self.console(None)));
        self.ended(result.as_ref(), None)
    }

    /// The newest run of the planned spec.
    fn newest(&self, planned: &P) -> Newest {
        let name = self.experiment.trials.first().map_or("", |trial| P::name(&trial.spec));
        match RunDir::newest(&self.process.runs_dir, name, &planned.hash8()) {
            Some(folder) if folder.has_finished() => Newest::Finished(folder),
            Some(folder) if has_checkpoints(folder.path()) => Newest::HasCheckpoints(folder),
            _ => Newest::Nothing,
        }
    }

    /// Runs a trial in `folder`.
    fn run_recorded<'p>(
        &self,
        (planned, ready, facts): (&'p P, P::Ready<'p>, RunFacts<'p>),
        folder: &RunDir,
        console: ConsoleOptions,
    ) -> Result<Outcome, ExecuteError> {
        let recording = Recording::begin(&self.process, planned.devices(), facts, folder, console)?;
        let outcome = planned.run(ready, folder, &self.process.stop, &recording.sender());
        recording.end(outcome, &self.process.load)
    }

    /// `trial` is its number in a sweep.
    fn ended(&mut self, result: Result<&Outcome, &ExecuteError>, trial: Option<usize>) -> Exit {
        match result {
            Ok(outcome) => match outcome.status {
                Status::Finished => Exit::Done,
                Status::Failed | Status::Diverged => {
                    print_error(named(trial, outcome.reason.as_deref().unwrap_or("the run failed")), None);
                    Exit::Failed
                }
                Status::Interrupted => self.signal(),
            },
            // Later trials on the same data fail with this error too.
            Err(ExecuteError::Data(what)) if self.reported.contains(what) => Exit::Failed,
            Err(e) => {
                let what = trial.map(|trial| match e {
                    ExecuteError::Data(what) => {
                        self.reported.push(what.clone());
                        format!("trial {trial} and all later ones on the same data")
                    }
                    _ => format!("trial {trial}"),
                });
                report_error(e, what)
            }
        }
    }

    fn signal(&self) -> Exit {
        Exit::Signal(self.process.stop.signal().map_or(2, |s| s as u8))
    }

    fn console(&self, trial: Option<usize>) -> ConsoleOptions {
        ConsoleOptions {
            verbosity: self.process.verbosity,
            terminal: self.process.terminal,
            color: anstream::stdout().current_choice() != anstream::ColorChoice::Never,
            trial: trial.map(|number| TrialNumber { number, of: self.experiment.trials.len() }),
            warned: self.warned.clone(),
        }
    }

    fn sweep(&mut self, prepared: &[Prepared<P>]) -> Result<Ended, RecordError> {
        let experiment = self.experiment;
        let Some(first) = experiment.trials.first() else { return Ok(Exit::Done.into()) };
        let Process { runs_dir, started, .. } = &self.process;
        let tail = format!("sweep-{}", experiment.hash8());
        let folder = RunDir::create(runs_dir, P::name(&first.spec), *started, &tail)?;
        let axes: Vec<_> = experiment.axes.iter().map(|a| a.key.clone()).collect();
        let mut table = SweepTable::create(folder.path(), &axes)?;
        let warnings = warnings(experiment, prepared, "");
        warnings.print();
        warnings.texts().for_each(|text| self.warned.note(text));
        let (mut worst, mut ended) = (Exit::Done, Vec::<TrialEnd>::new());
        // Whether the disk takes no more: later trials would fail, too.
        let mut is_full = false;
        for (trial, prepared) in experiment.trials.iter().zip(prepared) {
            let end = match prepared {
                _ if self.process.stop.signal().is_some() => {
                    TrialEnd::Skipped { reason: "the sweep was interrupted before it began".into() }
                }
                _ if is_full => TrialEnd::Skipped { reason: "an earlier trial could not be recorded".into() },
                Prepared::SameAs(earlier, devices) => {
                    let folder = match ended.get(*earlier) {
                        Some(TrialEnd::Ran { folder, .. }) => folder.clone(),
                        _ => String::new(),
                    };
                    TrialEnd::SameAs { trial: *earlier, folder, note: devices.note.clone() }
                }
                Prepared::Missing(problem) => {
                    worst = worst.more_severe(Exit::Missing);
                    self.skip(trial.index, problem)
                }
                Prepared::Run(planned) => {
                    let (end, exit);
                    (end, exit, is_full) = self.trial(planned, &folder, (trial.index, &trial.axes))?;
                    worst = worst.more_severe(exit);
                    end
                }
            };
            let values: Vec<_> = trial.axes.iter().map(|(_, value)| value.clone()).collect();
            let appended = table.append(trial.index, &values, &end);
            if is_full && appended.is_err() {
                return Ok(worst.into()); // the trial's error was printed
            }
            appended?;
            ended.push(end);
        }
        table.finish()?;
        if self.process.stop.signal().is_some() {
            worst = self.signal();
        }
        Ok(Ended { exit: worst, sweep: Some(folder.path().to_owned()) })
    }

    fn skip(&self, index: usize, problem: &Problem) -> TrialEnd {
        let there = problem.label.clone().map_or(String::new(), |label| format!(": {label}"));
        if self.process.verbosity == Verbosity::Quiet {
            print_error(named(Some(index), format!("{}{there}", problem.message)), None);
        }
        TrialEnd::Skipped { reason: format!("{}{there}", problem.message.replace('`', "")) }
    }

    /// Runs one trial of a sweep in its own folder; also returns whether the disk takes no more.
    fn trial(
        &mut self,
        planned: &P,
        sweep: &RunDir,
        (index, axes): (usize, &[(String, String)]),
    ) -> Result<(TrialEnd, Exit, bool), RecordError> {
        (self.process.begun, self.process.started) = (Instant::now(), Utc::now());
        self.process.load.mark();
        let console = self.console(Some(index));
        let mut name = String::new();
        let result = match planned.ready(&mut self.shared) {
            Ok(mut ready) => {
                let folder = sweep.trial(index, axes)?;
                name = folder.name();
                let facts = planned.facts(&mut ready);
                self.run_recorded((planned, ready, facts), &folder, console)
            }
            Err(e) => Err(e),
        };
        let exit = self.ended(result.as_ref(), Some(index));
        let (status, reason) = match &result {
            Ok(outcome) => (outcome.status, outcome.reason.clone()),
            Err(e) => (Status::Failed, Some(e.to_string())),
        };
        let is_full = matches!(&result, Err(ExecuteError::Record(e)) if !e.is_of_one_folder());
        let later = self.experiment.trials.len() - index - 1;
        if is_full && later > 0 {
            print_error(
                format!("{} not run: the disk takes no more", units::counted(later as u64, "trial")),
                None,
            );
        }
        Ok((TrialEnd::Ran { status, folder: name, reason }, exit, is_full))
    }
}

/// Prefixes a message with the trial's number.
fn named(trial: Option<usize>, words: impl std::fmt::Display) -> String {
    trial.map_or_else(|| words.to_string(), |trial| format!("trial {trial}: {words}"))
}

/// Prints why `what` did not come to its recorded end.
fn report_error(error: &ExecuteError, what: Option<String>) -> Exit {
    let hint = match error {
        ExecuteError::Record(e) => e.hint(),
        ExecuteError::Data(_) => Some("start again once nothing writes to them, or on a copy"),
        ExecuteError::Resume { hint, .. } => Some(*hint),
        _ => None,
    };
    print_error(what.map_or_else(|| error.to_string(), |what| format!("{what}: {error}")), hint);
    Exit::Failed
}
