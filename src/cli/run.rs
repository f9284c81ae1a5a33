//! `runner SPEC.toml`: one run, or every trial of its sweep.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use chrono::Utc;
use signal_hook::{
    consts::{SIGINT, SIGTERM, SIGXFSZ},
    flag,
};

use super::{
    args::{RunOptions, meant_command, on_terminal},
    check::warnings,
    execute::{ExecuteError, Process, Ready, execute},
    exit::{Exit, print, print_error, print_stderr},
    lab,
    machine::{machine, wants_gpu},
    prepare::{Datasets, Prepared, changed, initial_weights, prepare},
};
use crate::{
    event::{Outcome, Status},
    host::load::Watch,
    plan::Trial,
    record::{
        ConsoleOptions, Ending, GitQuery, RecordError, RunDir, SweepDir, SweepTable, TrialEnd, Verbosity,
        Warned, command_line,
    },
    report,
    spec::{self, Experiment, Loaded},
    train::StopFlag,
};

/// Runs the command.
pub fn run(options: &RunOptions, arguments: &[OsString], begun: Instant) -> Exit {
    let started = Utc::now();
    let path = options.spec();
    let git = GitQuery::start(&folder_of(&path));
    let command = command_line(arguments.iter().map(|a| a.to_string_lossy()));
    let experiment = match spec::read(&path, &options.overrides()) {
        Ok(Loaded::Train(experiment)) => *experiment,
        Ok(Loaded::Lab(experiment)) => return lab::run(options, command, &experiment, begun, git),
        Err(failure) => return refuse_spec(&path, &failure),
    };
    let stop = catch_signals();
    let machine = machine(options.virtual_gpus, wants_gpu(&experiment));
    let mut datasets = Datasets::new(&machine);
    let prepared = match prepare(&experiment, &mut datasets, &machine, options.thread_count()) {
        Ok(prepared) => prepared,
        Err(problems) => return refuse(&experiment.failure(problems)),
    };
    let mut load = Watch::default();
    load.mark();
    let process = Process {
        begun,
        started,
        command,
        threads: options.threads,
        virtual_gpus: options.virtual_gpus,
        git,
        stop: &stop,
        load,
    };
    let mut session =
        Session { process, experiment: &experiment, options, datasets, warned: Warned::default() };
    if stop.signal().is_some() {
        return session.signal();
    }
    if experiment.is_sweep() { session.sweep(&prepared) } else { session.single(&prepared) }
}

/// The folder that a spec is in.
pub fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// Prints what is wrong with a spec or its data.
pub fn refuse(failure: &spec::Failure) -> Exit {
    print_stderr(&failure.render(true));
    Exit::Refused
}

/// As [`refuse`]; a word that is no file may have been meant as a command.
fn refuse_spec(path: &Path, failure: &spec::Failure) -> Exit {
    refuse(failure);
    let word = path.to_string_lossy();
    if let Some(command) = meant_command(&word).filter(|_| !path.exists()) {
        print_stderr(&format!("  = hint: `{word}` was read as a spec; did you mean `runner {command}`?\n"));
    }
    Exit::Refused
}

/// The first signal asks the run to end in order; a second one ends the process at once.
pub fn catch_signals() -> StopFlag {
    let stop = StopFlag::default();
    // The second one may be of the other kind.
    let asked = Arc::new(AtomicBool::new(false));
    // Without handlers a signal ends the process, which loses nothing but the last unflushed rows.
    // With a handler, a file that may not grow further is an error of the write, which is told, and no sudden end.
    let _ = flag::register(SIGXFSZ, Arc::default());
    for signal in [SIGINT, SIGTERM] {
        // Actions run in the order in which they were registered: the first signal finds the flag unset.
        let _ = flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked));
    }
    for signal in [SIGINT, SIGTERM] {
        let _ = flag::register(signal, Arc::clone(&asked));
        let _ = flag::register_usize(signal, Arc::clone(&stop.0), signal as usize);
    }
    stop
}

struct Session<'a> {
    process: Process<'a>,
    experiment: &'a Experiment,
    options: &'a RunOptions,
    datasets: Datasets,
    warned: Warned,
}

impl Session<'_> {
    fn single(&mut self, prepared: &[Prepared]) -> Exit {
        let trial = match prepared.first() {
            Some(Prepared::Run(trial)) => trial,
            Some(Prepared::Missing(problem)) => {
                let failure = self.experiment.failure([(0, problem.clone())]);
                refuse(&failure);
                return Exit::Missing;
            }
            _ => return Exit::Done,
        };
        let ready = match self.ready(trial) {
            Ok(ready) => ready,
            Err(e) => {
                report_error(&e, None);
                return Exit::Refused;
            }
        };
        let folder = RunDir::create(
            &self.options.runs_dir,
            &trial.spec.name,
            self.process.started,
            &trial.spec.hash8(),
        );
        let result = folder.map_err(ExecuteError::from).and_then(|f| self.execute(ready, &f, None));
        self.ended(result, None)
    }

    /// `of`: the trial's number, where it is one of a sweep.
    fn ended(&self, result: Result<Outcome, ExecuteError>, of: Option<usize>) -> Exit {
        match result {
            Ok(outcome) => match outcome.status {
                Status::Finished => Exit::Done,
                Status::Failed | Status::Diverged => {
                    print_error(of_trial(of, outcome.reason.as_deref().unwrap_or("the run failed")), None);
                    Exit::Failed
                }
                Status::Interrupted => self.signal(),
            },
            Err(e) => report_error(&e, of),
        }
    }

    fn signal(&self) -> Exit {
        Exit::Signal(self.process.stop.signal().map_or(2, |s| s as u8))
    }

    /// Takes what the trial needs, before anything is written.
    fn ready<'t>(&mut self, trial: &'t Trial) -> Result<Ready<'t>, ExecuteError> {
        // Both were read once, when all trials were prepared; what cannot be read again has changed since.
        let unreadable = |problems: Vec<spec::Problem>| {
            let message = problems.into_iter().map(|p| p.message).next().unwrap_or_default();
            ExecuteError::Data(message)
        };
        let dataset = self.datasets.open(&trial.spec).map_err(unreadable)?;
        if let Some(difference) = changed(trial, &dataset) {
            return Err(ExecuteError::Data(difference));
        }
        let weights = initial_weights(trial, &mut self.datasets).map_err(unreadable)?;
        Ok(Ready::new(trial, dataset, weights.as_ref())?)
    }

    fn execute(
        &self,
        ready: Ready<'_>,
        folder: &RunDir,
        trial: Option<usize>,
    ) -> Result<Outcome, ExecuteError> {
        let verbosity = match (self.options.quiet, self.options.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        };
        let color = anstream::stdout().current_choice() != anstream::ColorChoice::Never;
        let warned = self.warned.clone();
        let ending = if trial.is_some() { Ending::Line } else { Ending::Table };
        let console = ConsoleOptions { verbosity, terminal: on_terminal(), color, ending, trial, warned };
        execute(&self.process, ready, folder, console)
    }

    fn sweep(&mut self, prepared: &[Prepared]) -> Exit {
        match self.trials(prepared) {
            Ok(exit) => exit,
            Err(e) => report_error(&ExecuteError::Record(e), None),
        }
    }

    fn trials(&mut self, prepared: &[Prepared]) -> Result<Exit, RecordError> {
        let experiment = self.experiment;
        let Some(name) = experiment.trials.first().map(|t| t.spec.name.clone()) else {
            return Ok(Exit::Done);
        };
        let sweep =
            SweepDir::create(&self.options.runs_dir, &name, self.process.started, &experiment.hash8())?;
        let axes: Vec<_> = experiment.axes.iter().map(|a| a.key.clone()).collect();
        let mut table = SweepTable::create(sweep.path(), &axes)?;
        let mut folders: Vec<String> = Vec::new();
        let (mut worst, mut reported) = (Exit::Done, Vec::new());
        let warnings = warnings(experiment, prepared, None);
        warnings.print();
        warnings.texts().for_each(|text| self.warned.note(text));
        for (trial, prepared) in experiment.trials.iter().zip(prepared) {
            let values: Vec<_> = trial.axes.iter().map(|(_, v)| v.clone()).collect();
            let mut folder_name = String::new();
            let stopped = self.process.stop.signal().is_some();
            let end = match prepared {
                _ if stopped => {
                    TrialEnd::Skipped { reason: "the sweep was interrupted before it began".into() }
                }
                Prepared::SameAs(earlier, devices) => TrialEnd::SameAs {
                    trial: *earlier,
                    folder: folders.get(*earlier).cloned().unwrap_or_default(),
                    note: devices.note.clone(),
                },
                Prepared::Missing(problem) => {
                    worst = more_severe(worst, Exit::Missing);
                    let there = problem.label.clone().map_or(String::new(), |l| format!(": {l}"));
                    if self.options.quiet {
                        print_error(of_trial(Some(trial.index), format!("{}{there}", problem.message)), None);
                    }
                    TrialEnd::Skipped { reason: format!("{}{there}", problem.message.replace('`', "")) }
                }
                Prepared::Run(planned) => {
                    (self.process.begun, self.process.started) = (Instant::now(), Utc::now());
                    self.process.load.mark();
                    let result = match self.ready(planned) {
                        Ok(ready) => {
                            let folder = sweep.trial(trial.index, &trial.axes)?;
                            folder_name = folder.name();
                            self.execute(ready, &folder, Some(trial.index))
                        }
                        Err(e) => Err(e),
                    };
                    let (status, reason) = match &result {
                        Ok(outcome) => (outcome.status, outcome.reason.clone()),
                        Err(e) => (Status::Failed, Some(e.to_string())),
                    };
                    worst = more_severe(
                        worst,
                        match result {
                            // What ends every later trial on the same data, too, is told once.
                            Err(ExecuteError::Data(what)) if reported.contains(&what) => Exit::Failed,
                            Err(ExecuteError::Data(what)) => {
                                let trial =
                                    format!("trial {} and all later ones on the same data", trial.index);
                                reported.push(what.clone());
                                fault_of(Some(trial), &ExecuteError::Data(what))
                            }
                            result => self.ended(result, Some(trial.index)),
                        },
                    );
                    TrialEnd::Ran { status, folder: folder_name.clone(), reason }
                }
            };
            folders.push(folder_name);
            table.append(trial.index, &values, &end)?;
        }
        if self.process.stop.signal().is_some() {
            worst = self.signal();
        }
        let printed = if self.options.quiet {
            print(&format!("{}\n", sweep.path().display()))
        } else {
            match report::sweep_end(sweep.path(), terminal_width()) {
                Ok(text) => print(&text),
                Err(e) => {
                    print_error(&e, e.hint());
                    Exit::Failed
                }
            }
        };
        Ok(more_severe(worst, printed))
    }
}

/// Columns of the terminal, or of a page where there is none.
pub fn terminal_width() -> u16 {
    terminal_size::terminal_size_of(std::io::stdout()).map_or(120, |(width, _)| width.0)
}

/// Of two ends of trials, the one that the process ends with.
pub fn more_severe(a: Exit, b: Exit) -> Exit {
    let weight = |e: &Exit| match e {
        Exit::Done => 0,
        Exit::Missing => 1,
        Exit::Failed => 2,
        Exit::Refused => 3,
        Exit::Signal(_) => 4,
    };
    if weight(&b) > weight(&a) { b } else { a }
}

/// Words on a trial, with its number where it is one of a sweep.
pub fn of_trial(trial: Option<usize>, words: impl std::fmt::Display) -> String {
    trial.map_or_else(|| words.to_string(), |trial| format!("trial {trial}: {words}"))
}

/// Says why a run, or that trial of a sweep, did not come to its recorded end.
pub fn report_error(error: &ExecuteError, of: Option<usize>) -> Exit {
    fault_of(of.map(|trial| format!("trial {trial}")), error)
}

/// The same of whatever is named.
fn fault_of(what: Option<String>, error: &ExecuteError) -> Exit {
    let hint = match error {
        ExecuteError::Record(e) => e.hint(),
        ExecuteError::Data(_) => Some("start again once nothing writes to them, or on a copy"),
        _ => None,
    };
    print_error(what.map_or_else(|| error.to_string(), |what| format!("{what}: {error}")), hint);
    Exit::Failed
}
