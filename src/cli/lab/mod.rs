//! Experiments of the lab from the command line: run, check, sweeps over them.

mod check;
mod execute;
mod prepare;
mod same;

use std::{sync::Mutex, time::Instant};

use chrono::Utc;

pub use check::check;

use super::{
    args::RunOptions,
    execute::{ExecuteError, Process},
    exit::{Exit, print, print_error, print_stderr},
    run::{catch_signals, more_severe, of_trial, refuse, report_error},
};
use crate::{
    event::Status,
    host::{self, load::Watch},
    lab::LabOutcome,
    plan::lab::LabTrial,
    record::{GitQuery, LabTable, RecordError, RunDir, SweepDir, SweepTable, TrialEnd, of_build},
    spec::{Experiment, LabSpec},
    tensor::Devices,
    units,
};
use execute::{Voice, execute};
use prepare::{Prepared, prepare};
use same::same_work;

/// Said below figures of virtual devices.
const VIRTUAL: &str =
    "virtual devices share the host's processor and memory: their times say nothing of GPUs";

/// Runs an experiment of the lab.
pub fn run(
    options: &RunOptions,
    command: String,
    experiment: &Experiment<LabSpec>,
    begun: Instant,
    git: GitQuery,
) -> Exit {
    let started = Utc::now();
    let machine = super::machine::machine(options.virtual_gpus, true);
    let stop = catch_signals();
    let prepared = match prepare(experiment, &machine, options.thread_count()) {
        Ok(prepared) => prepared,
        Err(problems) => return refuse(&experiment.failure(problems)),
    };
    if let Some(signal) = stop.signal() {
        return Exit::Signal(signal as u8);
    }
    let (threads, virtual_gpus) = (options.threads, options.virtual_gpus);
    let mut load = Watch::default();
    load.mark();
    let process = Process { begun, started, command, threads, virtual_gpus, git, stop: &stop, load };
    let mut session = Session { process, experiment, options };
    if experiment.is_sweep() {
        session.sweep(&prepared).unwrap_or_else(|e| report_error(&ExecuteError::Record(e), None))
    } else {
        session.single(&prepared)
    }
}

struct Session<'a> {
    process: Process<'a>,
    experiment: &'a Experiment<LabSpec>,
    options: &'a RunOptions,
}

impl Session<'_> {
    fn single(&self, prepared: &[Prepared]) -> Exit {
        let trial = match prepared.first() {
            Some(Prepared::Run(trial)) => trial,
            Some(Prepared::Missing(problem)) => {
                refuse(&self.experiment.failure([(0, problem.clone())]));
                return Exit::Missing;
            }
            _ => return Exit::Done,
        };
        let devices = match devices(trial) {
            Ok(devices) => devices,
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
        let voice = self.voice();
        let ran = folder
            .map_err(ExecuteError::from)
            .and_then(|folder| Ok((execute(&self.process, trial, &devices, &folder, &voice)?, folder)));
        match ran {
            Ok(((outcome, mut table), folder)) => {
                note_doubts(&mut table, trial.devices.any_virtual());
                let mut text = String::new();
                if !self.options.quiet {
                    if !table.is_empty() {
                        text = format!("{}\n", table.draw());
                    }
                    text.push_str(&format!(
                        "{} {}\n",
                        trial.spec.name,
                        ended_in_words(&outcome, outcome.wall_s)
                    ));
                    text.push_str(&format!("  folder {}\n", folder.path().display()));
                } else {
                    text.push_str(&format!("{}\n", folder.path().display()));
                }
                more_severe(self.ended(&outcome, None), print(&text))
            }
            Err(e) => report_error(&e, None),
        }
    }

    fn voice(&self) -> Voice {
        let (quiet, verbose) = (self.options.quiet, self.options.verbose);
        Voice { quiet, verbose, prefix: String::new(), warned: Mutex::default() }
    }

    /// `of`: the trial's number, where it is one of a sweep.
    fn ended(&self, outcome: &LabOutcome, of: Option<usize>) -> Exit {
        match outcome.status {
            Status::Finished => Exit::Done,
            Status::Interrupted => self.signal(),
            Status::Failed | Status::Diverged => {
                let reason = outcome.reason.as_deref().unwrap_or("the run failed");
                print_error(of_trial(of, reason), None);
                Exit::Failed
            }
        }
    }

    fn signal(&self) -> Exit {
        Exit::Signal(self.process.stop.signal().map_or(2, |s| s as u8))
    }

    fn sweep(&mut self, prepared: &[Prepared]) -> Result<Exit, RecordError> {
        let experiment = self.experiment;
        let Some(name) = experiment.trials.first().map(|t| t.spec.name.clone()) else {
            return Ok(Exit::Done);
        };
        let sweep =
            SweepDir::create(&self.options.runs_dir, &name, self.process.started, &experiment.hash8())?;
        let axes: Vec<_> = experiment.axes.iter().map(|a| a.key.clone()).collect();
        let mut rows = SweepTable::create(sweep.path(), &axes)?;
        let (mut table, mut worst) = (LabTable::default(), Exit::Done);
        let mut folders: Vec<String> = Vec::new();
        let mut ended: Vec<String> = Vec::new();
        let mut speeds: Vec<Speed<'_>> = Vec::new();
        let mut any_virtual = false;
        let mut voice = self.voice();
        let warnings = check::warnings(experiment, prepared);
        warnings.print();
        warnings.texts().for_each(|text| voice.note(text));
        for (trial, prepared) in experiment.trials.iter().zip(prepared) {
            let values: Vec<_> = trial.axes.iter().map(|(_, v)| v.clone()).collect();
            let mut own = String::new();
            let end = match prepared {
                _ if self.process.stop.signal().is_some() => {
                    TrialEnd::Skipped { reason: "the sweep was interrupted before it began".into() }
                }
                Prepared::SameAs(earlier, devices) => {
                    ended.push(format!("trial {}: same_as trial {earlier}, not run twice", trial.index));
                    let folder = folders.get(*earlier).cloned().unwrap_or_default();
                    TrialEnd::SameAs { trial: *earlier, folder, note: devices.note.clone() }
                }
                Prepared::Missing(problem) => {
                    worst = more_severe(worst, Exit::Missing);
                    let there = problem.label.clone().map_or(String::new(), |l| format!(": {l}"));
                    let reason = format!("{}{there}", problem.message.replace('`', ""));
                    ended.push(format!("trial {}: skipped: {reason}", trial.index));
                    TrialEnd::Skipped { reason }
                }
                Prepared::Run(planned) => {
                    (self.process.begun, self.process.started) = (Instant::now(), Utc::now());
                    self.process.load.mark();
                    any_virtual |= planned.devices.any_virtual();
                    let ran = devices(planned).and_then(|devices| {
                        let folder = sweep.trial(trial.index, &trial.axes)?;
                        own = folder.name();
                        voice.prefix = format!("{own}: ");
                        execute(&self.process, planned, &devices, &folder, &voice)
                    });
                    match ran {
                        Ok((outcome, found)) => {
                            table.extend(found.of_trial(trial.index, &trial.axes));
                            let speed = Speed::from_outcome(trial.index, trial.repeat, planned, &outcome);
                            let ratio =
                                speed.as_ref().and_then(|own| own.against(&speeds)).unwrap_or_default();
                            speeds.extend(speed);
                            let line = ended_in_words(&outcome, outcome.work_s);
                            ended.push(format!("trial {}: {line}{ratio}", trial.index));
                            worst = more_severe(worst, self.ended(&outcome, Some(trial.index)));
                            let (status, reason) = (outcome.status, outcome.reason);
                            TrialEnd::Ran { status, folder: own.clone(), reason }
                        }
                        Err(e) => {
                            let reason = Some(e.to_string());
                            ended.push(format!("trial {}: failed", trial.index));
                            worst = more_severe(worst, report_error(&e, Some(trial.index)));
                            TrialEnd::Ran { status: Status::Failed, folder: own.clone(), reason }
                        }
                    }
                }
            };
            folders.push(own);
            rows.append(trial.index, &values, &end)?;
        }
        if self.process.stop.signal().is_some() {
            worst = self.signal();
        }
        let path = sweep.path().display();
        note_doubts(&mut table, any_virtual);
        let text = if self.options.quiet {
            format!("{path}\n")
        } else {
            let ended: String = ended.iter().map(|line| format!("  {line}\n")).collect();
            let table = if table.is_empty() { String::new() } else { format!("{}\n", table.draw()) };
            let trials = units::counted(experiment.trials.len() as u64, "trial");
            format!("{table}{name}: {trials}\n{ended}  folder {path}\n")
        };
        Ok(more_severe(worst, print(&text)))
    }
}

/// What makes the figures of a table say less than they seem to.
fn note_doubts(table: &mut LabTable, any_virtual: bool) {
    if any_virtual {
        table.note(VIRTUAL);
    }
    if let Some(words) = of_build(host::BUILD) {
        table.note(&format!("build {words}"));
    }
}

/// The devices of a trial; taken before anything is written.
fn devices(trial: &LabTrial) -> Result<Devices, ExecuteError> {
    crate::lab::devices(trial).map_err(|e| ExecuteError::Lab(e.to_string()))
}

/// `finished in 12.3 ms`, `interrupted in 12.3 ms: Ctrl-C (SIGINT) after 3 of 10 products`; why one failed is told as an
/// error.
fn ended_in_words(outcome: &LabOutcome, seconds: f64) -> String {
    let reason = outcome.reason.as_ref().filter(|_| outcome.status == Status::Interrupted);
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} in {}{reason}", outcome.status.name(), units::seconds(seconds))
}

/// Products or copies per second of a trial.
struct Speed<'a> {
    trial: usize,
    repeat: u32,
    planned: &'a LabTrial,
    per_s: f64,
}

impl<'a> Speed<'a> {
    /// Of a whole trial on devices whose times mean something: virtual ones share one processor.
    fn from_outcome(trial: usize, repeat: u32, planned: &'a LabTrial, outcome: &LabOutcome) -> Option<Self> {
        let whole = outcome.status == Status::Finished && outcome.work_s > 0.0;
        let per_s = outcome.done as f64 / outcome.work_s;
        (whole && !planned.devices.any_virtual()).then_some(Self { trial, repeat, planned, per_s })
    }

    /// Held against the first trial of the same repeat that did the same work.
    fn against(&self, others: &[Self]) -> Option<String> {
        let first = others.iter().find(|o| o.repeat == self.repeat && same_work(o.planned, self.planned))?;
        Some(format!(", {:.2}x as fast as trial {}", self.per_s / first.per_s, first.trial))
    }
}

/// Says something to standard error, with the trial's name before it.
fn say_plain(voice: &Voice, text: &str) {
    print_stderr(&format!("{}{text}\n", voice.prefix));
}
