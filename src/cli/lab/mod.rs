//! Experiments of the lab from the command line: run, check, sweeps over them.

mod check;
mod execute;
mod prepare;

use std::{sync::Mutex, time::Instant};

use chrono::Utc;

pub use check::check;

use super::{
    args::RunOptions,
    execute::{ExecuteError, Process},
    exit::{Exit, print, say, tell},
    run::{catch_signals, fault, graver, refuse},
};
use crate::{
    event::Status,
    host::load::Watch,
    lab::LabOutcome,
    record::{GitQuery, LabTable, RecordError, RunDir, SweepDir, SweepTable, TrialEnd, units},
    spec::{Experiment, LabSpec},
};
use execute::{Voice, execute};
use prepare::{Prepared, prepare};

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
    let (threads, virtual_gpus) = (options.threads, options.virtual_gpus);
    let mut load = Watch::default();
    load.mark();
    let process = Process { begun, started, command, threads, virtual_gpus, git, stop: &stop, load };
    let mut session = Session { process, experiment, options };
    if experiment.is_sweep() {
        session.sweep(&prepared).unwrap_or_else(|e| fault(&ExecuteError::Record(e)))
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
        let folder = RunDir::create(
            &self.options.runs_dir,
            &trial.spec.name,
            self.process.started,
            &trial.spec.hash8(),
        );
        let voice = self.voice();
        let ran = folder
            .map_err(ExecuteError::from)
            .and_then(|folder| Ok((execute(&self.process, trial, &folder, &voice)?, folder)));
        match ran {
            Ok(((outcome, mut table), folder)) => {
                if trial.devices.any_virtual() {
                    table.note(VIRTUAL);
                }
                let mut text = String::new();
                if !self.options.quiet {
                    if !table.is_empty() {
                        text = format!("{}\n", table.draw());
                    }
                    let seconds = units::seconds(outcome.wall_s);
                    text.push_str(&format!("{} {} in {seconds}\n", trial.spec.name, outcome.status.name()));
                    text.push_str(&format!("  folder {}\n", folder.path().display()));
                } else {
                    text.push_str(&format!("{}\n", folder.path().display()));
                }
                graver(self.ended(&outcome), print(&text))
            }
            Err(e) => fault(&e),
        }
    }

    fn voice(&self) -> Voice {
        let (quiet, verbose) = (self.options.quiet, self.options.verbose);
        Voice { quiet, verbose, prefix: String::new(), warned: Mutex::default() }
    }

    fn ended(&self, outcome: &LabOutcome) -> Exit {
        match outcome.status {
            Status::Finished => Exit::Done,
            Status::Interrupted => self.signal(),
            Status::Failed | Status::Diverged => {
                say(outcome.reason.as_deref().unwrap_or("the run failed"), None);
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
        let mut first: Option<f64> = None;
        let mut any_virtual = false;
        let mut voice = self.voice();
        for (trial, prepared) in experiment.trials.iter().zip(prepared) {
            let values: Vec<_> = trial.axes.iter().map(|(_, v)| v.clone()).collect();
            let mut own = String::new();
            let end = match prepared {
                _ if self.process.stop.signal().is_some() => {
                    TrialEnd::Skipped { reason: "the sweep was interrupted before it began".into() }
                }
                Prepared::SameAs(earlier) => {
                    ended.push(format!("trial {}: same_as trial {earlier}, not run twice", trial.index));
                    let folder = folders.get(*earlier).cloned().unwrap_or_default();
                    TrialEnd::SameAs { trial: *earlier, folder }
                }
                Prepared::Missing(problem) => {
                    worst = graver(worst, Exit::Missing);
                    let there = problem.label.clone().map_or(String::new(), |l| format!(": {l}"));
                    let reason = format!("{}{there}", problem.message.replace('`', ""));
                    ended.push(format!("trial {}: skipped: {reason}", trial.index));
                    TrialEnd::Skipped { reason }
                }
                Prepared::Run(planned) => {
                    (self.process.begun, self.process.started) = (Instant::now(), Utc::now());
                    self.process.load.mark();
                    any_virtual |= planned.devices.any_virtual();
                    let folder = sweep.trial(trial.index, &trial.axes)?;
                    own = folder.name();
                    voice.prefix = format!("{own}: ");
                    match execute(&self.process, planned, &folder, &voice) {
                        Ok((outcome, found)) => {
                            table.extend(found.of_trial(trial.index, &trial.axes));
                            // Virtual devices share one processor: no ratio of their times says anything.
                            let work = outcome.work_s.max(f64::MIN_POSITIVE);
                            let speed = outcome.done as f64 / work;
                            let ratio = match (first, planned.devices.any_virtual()) {
                                (Some(first), false) => format!(", {:.2}x", speed / first),
                                _ => String::new(),
                            };
                            if trial.index == 0 && !planned.devices.any_virtual() {
                                first = Some(speed);
                            }
                            ended.push(format!(
                                "trial {}: {} in {}{ratio}",
                                trial.index,
                                outcome.status.name(),
                                units::seconds(outcome.work_s)
                            ));
                            worst = graver(worst, self.ended(&outcome));
                            let (status, reason) = (outcome.status, outcome.reason);
                            TrialEnd::Ran { status, folder: own.clone(), reason }
                        }
                        Err(e) => {
                            let reason = Some(e.to_string());
                            worst = graver(worst, fault(&e));
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
        if any_virtual {
            table.note(VIRTUAL);
        }
        let text = if self.options.quiet {
            format!("{path}\n")
        } else {
            let ended: String = ended.iter().map(|line| format!("  {line}\n")).collect();
            let table = if table.is_empty() { String::new() } else { format!("{}\n", table.draw()) };
            let trials = units::counted(experiment.trials.len() as u64, "trial");
            format!("{table}{name}: {trials}\n{ended}  folder {path}\n")
        };
        Ok(graver(worst, print(&text)))
    }
}

/// Says something to standard error, with the trial's name before it.
fn say_plain(voice: &Voice, text: &str) {
    tell(&format!("{}{text}\n", voice.prefix));
}
