//! A sweep: every trial in a folder of its own, a row each in `sweep.csv`; one after the other, or side by side.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::Ordering},
    thread,
    time::{Instant, SystemTime},
};

use super::{
    draws::{self, Drawn},
    exit::{Exit, print_error},
    planned::{ExecuteError, Planned, Start},
    prepare::{Prepared, warnings},
    rungs::{self, Reached, Rungs, longest},
    session::{Session, named, report_error},
    sweep_folder,
    sweep_progress::{Phase, Progress, Stopped, is_at_rung, is_failure},
};
use crate::{
    event::{Outcome, Status},
    plan::{DeviceId, Machine},
    record::{
        Claims, LineMode, RecordError, RunDir, SweepLine, SweepTable, TrialEnd, TrialOfSweep, Verbosity,
        has_checkpoints, now,
    },
    spec::{Monitor, Problem, TrialSpec, short_keys},
    units,
};

pub(super) struct Sweep<'s, 'a, P: Planned> {
    pub session: &'s Session<'a, P>,
    pub prepared: &'s [Prepared<P>],
    pub folder: RunDir,
    pub claims: Arc<Claims>,
    /// When the summaries that were there at the start were written.
    pub summaries: BTreeMap<usize, SystemTime>,
    pub machine: &'s Machine,
    pub drawn: Drawn<P>,
    /// The short names of the swept keys.
    keys: Vec<&'s str>,
    pub line: Arc<SweepLine>,
    progress: Mutex<Progress>,
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
pub fn sweep<P: Planned>(session: &Session<'_, P>, prepared: &[Prepared<P>], machine: &Machine) -> Ended {
    run(session, prepared, machine).unwrap_or_else(|e| report_error(&ExecuteError::Record(e), None).into())
}

fn run<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    machine: &Machine,
) -> Result<Ended, RecordError> {
    let experiment = session.experiment;
    if let Some(exit) = refuse_jobs(session, prepared) {
        return Ok(exit.into());
    }
    let (folder, claims) = match sweep_folder::open(session)? {
        Ok(opened) => opened,
        Err(exit) => return Ok(exit.into()),
    };
    let warnings = warnings(experiment, prepared, "");
    warnings.print();
    warnings.texts().for_each(|text| session.warned.note(text));
    let begun = folder.trials();
    if let Some(trial) = sweep_folder::on_other_data(&begun, &prepared[..experiment.known]) {
        sweep_folder::print_other_data(trial);
        return Ok(Exit::Refused.into());
    }
    let summaries = begun.iter().filter_map(|(index, trial)| Some((*index, trial.summarized()?))).collect();
    let rungs = experiment.stop.map(|halving| Rungs::new(halving, folder.clone()));
    let left = rungs.as_ref().and_then(Rungs::left);
    let ends = sweep_folder::ends(&folder, &begun, experiment.trials.len(), left.as_ref());
    let drawn = draws::found(session, machine, &folder);
    let axes = |trial: &TrialSpec<P::Spec>| match drawn.get(trial.index).and_then(OnceLock::get) {
        Some((drawn, _)) => drawn.axes.clone(),
        None => trial.axes.clone(),
    };
    let points: Vec<Vec<(String, String)>> = experiment.trials.iter().map(axes).collect();
    let values = |axes: &Vec<(String, String)>| axes.iter().map(|(_, value)| value.clone()).collect();
    let rows = points.iter().map(values).zip(ends.iter().cloned()).collect();
    let claims = Arc::new(claims);
    let table = SweepTable::create(folder.path(), &experiment.axes, rows, Arc::clone(&claims))?;
    let halving = experiment.stop;
    let reached = |index: usize| {
        let folder = begun.get(&index).filter(|_| ends[index].is_some());
        halving.zip(folder).map(|(halving, folder)| Reached::in_folder(folder, halving.metric))
    };
    let reached: Vec<Reached> = (0..ends.len()).map(|index| reached(index).unwrap_or_default()).collect();
    let line = Arc::new(line(session, prepared, &ends));
    let worst = ends.iter().flatten().map(exit_of).fold(Exit::Done, Exit::more_severe);
    let learns = experiment.known < points.len();
    let is_known =
        |(index, _): &(usize, _)| learns && (*index < experiment.known || drawn[*index].get().is_some());
    let points = points.into_iter().enumerate().filter(is_known).collect();
    let costs = vec![None; ends.len()];
    let progress = Progress { table, ends, reached, points, costs, begun, worst, stopped: None, fault: None };
    let keys: Vec<&str> = experiment.axes.iter().map(String::as_str).collect();
    let keys = short_keys(&keys);
    let progress = Mutex::new(progress);
    let sweep = Sweep { session, prepared, folder, claims, summaries, machine, drawn, keys, line, progress };
    sweep.learn_from_ended();
    sweep.run_all(rungs)
}

/// The exit code of a trial that ended before the sweep went on. One that is still skipped lacks its devices.
pub(super) fn exit_of(end: &TrialEnd) -> Exit {
    match end {
        TrialEnd::Skipped { .. } => Exit::Missing,
        end if is_failure(end) => Exit::Failed,
        _ => Exit::Done,
    }
}

/// The line that says how far the sweep is, where `ends` are known.
fn line<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    ends: &[Option<TrialEnd>],
) -> SweepLine {
    let is_settled = |(own, end): (&Prepared<P>, &Option<TrialEnd>)| {
        matches!(own, Prepared::SameAs(..)) || end.as_ref().is_some_and(|end| !is_at_rung(end))
    };
    let settled: BTreeSet<usize> =
        (0..ends.len()).filter(|&trial| is_settled((&prepared[trial], &ends[trial]))).collect();
    let work = rungs::work(session.experiment.stop, ends.len() - settled.len(), longest(prepared));
    let mode = match (session.process.verbosity, session.process.terminal) {
        (Verbosity::Normal, true) => LineMode::Redrawn,
        (Verbosity::Normal, false) => LineMode::Lines,
        _ => LineMode::Hidden,
    };
    SweepLine::new(ends.len(), settled, work, mode)
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

impl<P: Planned> Sweep<'_, '_, P> {
    fn run_all(self, rungs: Option<Rungs>) -> Result<Ended, RecordError> {
        let all = (0..self.prepared.len()).collect();
        match rungs {
            Some(rungs) => self.halve(rungs, all)?,
            None => self.phase(all, None),
        }
        self.line.apart(&mut io::stderr(), |_| {});
        let is_last = self.complete()?;
        let folder = self.folder.path().to_owned();
        let session = self.session;
        let Progress { table, mut worst, stopped, fault, .. } =
            self.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (fault, stopped) {
            // The error of the trial that found the disk full was printed.
            (Some(_), Some(Stopped::Full)) => return Ok(worst.into()),
            (Some(fault), _) => return Err(fault),
            (None, _) if is_last => table.finish()?,
            (None, _) => table.leave()?,
        }
        if stopped == Some(Stopped::Mixed) {
            return Ok(Exit::Refused.into());
        }
        if session.process.stop.signal().is_some() {
            worst = session.signal();
        }
        Ok(Ended { exit: worst, folder: Some(folder) })
    }

    /// Takes the values of the trials that ended before the sweep went on.
    fn learn_from_ended(&self) {
        for index in 0..self.prepared.len() {
            let (trial, Prepared::Run(planned)) = self.own(index) else { continue };
            let ended = self.with(|progress| {
                let end = progress.ends[index].clone()?;
                Some((end, progress.begun.get(&index)?.clone(), progress.reached[index]))
            });
            let Some((end, folder, reached)) = ended else { continue };
            let value = folder.figure("best_value").and_then(|figure| figure.parse().ok());
            let best = planned.monitor().zip(value);
            if let Some((monitor, value)) = best {
                self.line.validated((index, &self.shown_axes(trial)), monitor, value);
            }
            if let TrialEnd::Ran { status, .. } = end {
                self.learn(index, status, best, reached);
            }
        }
    }

    /// Keeps what a sampler learns from a trial: the value that the sweep is judged by.
    fn learn(&self, index: usize, status: Status, best: Option<(Monitor, f64)>, reached: Reached) {
        let value = match self.session.experiment.stop {
            Some(halving) => reached.value.map(|value| (halving.metric, value)),
            None => best,
        };
        if matches!(status, Status::Finished | Status::Stopped) {
            self.with(|progress| progress.costs[index] = value.map(|(monitor, value)| monitor.cost(value)));
        }
    }

    /// Runs trials up to a rung, or to their end.
    pub fn phase(&self, trials: Vec<usize>, stop_after: Option<u64>) {
        let phase = self.run_phase(Phase::new(trials, stop_after));
        let elsewhere = phase.elsewhere.into_inner().unwrap_or_else(PoisonError::into_inner);
        // The processes that had them may have died since.
        self.run_phase(Phase::new(elsewhere, stop_after));
    }

    pub fn run_phase(&self, phase: Phase) -> Phase {
        thread::scope(|scope| {
            // Where a thread cannot be started, the others do its work.
            let work = || self.work(&phase);
            (1..self.session.jobs())
                .for_each(|_| drop(thread::Builder::new().name("trial".into()).spawn_scoped(scope, work)));
            work();
        });
        phase
    }

    /// Whether trials are left that nothing but the end of the sweep keeps from running.
    pub fn is_cut(&self) -> bool {
        self.session.process.stop.signal().is_some() || self.with(|progress| progress.stopped.is_some())
    }

    /// Takes one trial after the other.
    fn work(&self, phase: &Phase) {
        loop {
            let next = phase.next.fetch_add(1, Ordering::Relaxed);
            let Some(&index) = phase.trials.get(next) else { return };
            let (is_done, stopped) = self.with(|progress| (progress.is_done(index, phase), progress.stopped));
            // One that waits at a rung stays there where the sweep is cut.
            if is_done || (self.is_cut() && self.with(|progress| progress.is_at_rung(index))) {
                continue;
            }
            if stopped.is_none()
                && self.session.process.stop.signal().is_none()
                && let Err((end, exit)) = self.draw(index)
            {
                self.set(index, end, exit);
                continue;
            }
            let (trial, prepared) = self.own(index);
            let (end, exit) = match (prepared, stopped) {
                (Prepared::SameAs(..), _) => continue,
                _ if self.session.process.stop.signal().is_some() => {
                    (skipped("the sweep was interrupted before it began"), Exit::Done)
                }
                (_, Some(Stopped::Full | Stopped::Unlisted)) => {
                    (skipped("an earlier trial could not be recorded"), Exit::Done)
                }
                (_, Some(Stopped::Mixed)) => (skipped("another process trains on other data"), Exit::Done),
                (_, Some(Stopped::Failed)) => (skipped("an earlier trial failed"), Exit::Done),
                (Prepared::Missing(problem), _) => (self.skip(index, problem), Exit::Missing),
                (Prepared::Run(planned), _) => match self.claimed(planned, trial, phase) {
                    Some(ended) => ended,
                    None => {
                        phase.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).push(index);
                        continue;
                    }
                },
            };
            self.set(index, end, exit);
        }
    }

    /// Writes the ends of trials that only repeat others.
    pub fn repeat_ends(&self) {
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

    pub fn with<R>(&self, what: impl FnOnce(&mut Progress) -> R) -> R {
        what(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set(&self, index: usize, end: TrialEnd, exit: Exit) {
        self.with(|progress| {
            progress.worst = progress.worst.more_severe(exit);
            if self.session.process.fail_fast && is_failure(&end) {
                progress.stopped.get_or_insert(Stopped::Failed);
            }
            if let Err(fault) = progress.table.set(index, &end) {
                progress.unlisted(fault);
            }
            if let TrialEnd::Skipped { .. } = &end {
                self.line.skipped(index);
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
    pub fn trial(&self, planned: &P, trial: &TrialSpec<P::Spec>, phase: &Phase) -> (TrialEnd, Exit) {
        let session = self.session;
        session.process.load.mark();
        let start = Start { begun: Instant::now(), at: now() };
        let mut name = String::new();
        let ready = planned.ready(&mut *session.shared());
        let result = ready.and_then(|mut ready| {
            let begun = self.with(|progress| progress.begun.remove(&trial.index));
            let folder = match begun {
                None => self.folder.trial(trial.index, self.short_axes(trial))?,
                Some(folder) if has_checkpoints(folder.path()) => {
                    name = folder.name();
                    planned.resume(&mut ready, &folder)?;
                    folder.set_aside()?;
                    folder
                }
                Some(folder) => {
                    folder.clear()?;
                    folder
                }
            };
            name = folder.name();
            let facts = planned.facts(&mut ready);
            let console = session.console(Some(self.of_sweep(trial)));
            let ran =
                session.run_recorded(start, (planned, ready, facts), &folder, console, phase.stop_after);
            if phase.stop_after.is_some() {
                self.with(|progress| progress.begun.insert(trial.index, folder));
            }
            ran
        });
        if let Ok(outcome) = &result {
            let metric = session.experiment.stop.map(|halving| halving.metric);
            let reached = metric.map_or_else(Reached::default, |metric| Reached::new(outcome, metric));
            self.with(|progress| progress.reached[trial.index] = reached);
            let best = outcome.best.as_ref().map(|best| (best.monitor, best.value));
            self.learn(trial.index, outcome.status, best, reached);
        }
        if matches!(&result, Ok(outcome) if outcome.status == Status::Stopped) {
            self.line.waits(trial.index);
            return (ran(&result, name), Exit::Done);
        }
        let exit = match &result {
            Ok(outcome) if outcome.status == Status::Finished => Exit::Done,
            _ => self.line.apart(&mut io::stderr(), |_| session.ended(result.as_ref(), Some(trial.index))),
        };
        self.line.ended(trial.index, exit == Exit::Failed, &mut io::stderr());
        if matches!(&result, Err(ExecuteError::Record(e)) if !e.is_of_one_folder()) {
            self.disk_is_full(phase);
        }
        (ran(&result, name), exit)
    }

    /// The values of a trial under the short names of their keys, where they vary.
    pub fn short_axes<'t>(
        &'t self,
        trial: &'t TrialSpec<P::Spec>,
    ) -> impl Iterator<Item = (&'t str, &'t str)> {
        let values = trial.axes.iter().map(|(_, value)| value.as_str());
        self.keys.iter().copied().zip(values).filter(|(_, value)| !value.is_empty())
    }

    /// Its values, such as `lr 0.01 width 32`.
    fn shown_axes(&self, trial: &TrialSpec<P::Spec>) -> String {
        let values = self.short_axes(trial).map(|(key, value)| format!("{key} {value}"));
        values.collect::<Vec<_>>().join(" ")
    }

    fn of_sweep(&self, trial: &TrialSpec<P::Spec>) -> TrialOfSweep {
        TrialOfSweep {
            number: trial.index,
            of: self.prepared.len(),
            values: self.shown_axes(trial),
            line: Arc::clone(&self.line),
        }
    }

    /// Later trials would fail, too.
    fn disk_is_full(&self, phase: &Phase) {
        let is_new = self.with(|progress| progress.stopped.replace(Stopped::Full) != Some(Stopped::Full));
        let left = phase.trials.len().saturating_sub(phase.next.load(Ordering::Relaxed));
        if is_new && left > 0 {
            let trials = units::counted(left as u64, "trial");
            print_error(format!("{trials} not run: the disk takes no more"), None);
        }
    }
}

fn ran(result: &Result<Outcome, ExecuteError>, folder: String) -> TrialEnd {
    let (status, reason) = match result {
        Ok(outcome) => (outcome.status, outcome.reason.clone()),
        Err(e) => (Status::Failed, Some(e.to_string())),
    };
    TrialEnd::Ran { status, folder, reason }
}

fn skipped(reason: &str) -> TrialEnd {
    TrialEnd::Skipped { reason: reason.to_owned() }
}
