//! A sweep: each trial has its own folder and a row in `sweep.csv`; trials run one after the other or side by
//! side.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, HashMap},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use super::{
    about_times::is_about_times,
    best_setting::{BestSetting, varies_setting},
    exit::{Exit, print_error},
    leases::{Leases, Wanted},
    planned::{Planned, Role},
    points::Points,
    prepare::{Prepared, first_run},
    rungs::{Rungs, reached_in},
    session::{Session, named},
    sweep_progress::{Ending, Phase, Progress, Stopped, is_failure},
};
use crate::{
    event::Status,
    host::lock,
    plan::{Lack, Machine},
    record::{Claims, RecordError, RunDir, SweepLine, TrialEnd, TrialOfSweep, Verbosity},
    spec::{Monitor, Problem, TrialSpec},
    units,
};

/// A trial that a sampler drew, and the decision about it.
pub(super) type DrawnTrial<P> = (TrialSpec<<P as Planned>::Spec>, Prepared<P>);

/// Trials that a sampler drew, by number.
pub(super) type Drawn<P> = Vec<OnceLock<DrawnTrial<P>>>;

pub(super) struct Sweep<'s, 'a, P: Planned> {
    pub session: &'s Session<'a, P>,
    pub prepared: &'s [Prepared<P>],
    pub folder: RunDir,
    pub claims: Arc<Claims>,
    pub leases: Leases<'s>,
    /// Read-locked by trials that run side by side, write-locked by one that must run alone.
    pub alone: RwLock<()>,
    pub machine: &'s Machine,
    /// The points that the sampler has drawn, and from which it draws.
    pub points: Mutex<Points<'s, P::Spec>>,
    pub drawn: Drawn<P>,
    /// The short names of the swept keys. `values` has those of their values that have one.
    pub keys: Vec<&'s str>,
    pub values: Vec<HashMap<String, String>>,
    pub line: Arc<SweepLine>,
    pub progress: Mutex<Progress>,
    /// Under successive halving.
    pub rungs: Option<Arc<Rungs>>,
}

/// Searches for the best setting that take longer are not made after every trial.
const LONG_SEARCH: Duration = Duration::from_millis(1);

pub struct Ended {
    pub exit: Exit,
    /// Its folder, if one was made completely.
    pub folder: Option<PathBuf>,
    /// Whether a trial got further, or this process waited at a rung for trials of other processes.
    pub has_progress: bool,
    /// How many trials have each status.
    pub statuses: BTreeMap<&'static str, usize>,
    /// What took most of the time, if that was not training.
    pub time: Option<String>,
}

impl From<Exit> for Ended {
    fn from(exit: Exit) -> Self {
        Self { exit, folder: None, has_progress: false, statuses: BTreeMap::new(), time: None }
    }
}

impl<P: Planned> Sweep<'_, '_, P> {
    pub fn run_all(self) -> Result<Ended, RecordError> {
        if let Some(next) = self.next_run() {
            next.warm_up();
        }
        self.phase((0..self.prepared.len()).collect());
        self.line.apart(&mut io::stderr(), |_| {});
        let is_last = self.complete()?;
        if is_last {
            self.report_epochs();
        }
        let folder = self.folder.path().to_owned();
        let session = self.session;
        let statuses = self.with(|progress| progress.statuses());
        let Progress { table, mut worst, stopped, fault, has_progress, time, .. } =
            self.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (fault, stopped) {
            // The error of the trial that found the disk full was already printed.
            (Some(_), Some(Stopped::Unrecorded)) => return Ok(worst.into()),
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
        let time = time.in_words(session.jobs(), session.threads());
        Ok(Ended { exit: worst, folder: Some(folder), has_progress, statuses, time })
    }

    /// The first trial that has not ended.
    fn next_run(&self) -> Option<&P> {
        self.prepared.iter().enumerate().find_map(|(index, prepared)| match prepared {
            Prepared::Run(planned) if !self.with(|progress| progress.is_done(index)) => Some(&**planned),
            _ => None,
        })
    }

    /// Takes over how trials ended before the sweep was resumed, and their values.
    pub fn take_ended(&self, ends: &[Option<TrialEnd>]) {
        for (index, end) in ends.iter().enumerate() {
            let Some(end) = end else { continue };
            let exit = self.take(index, end);
            self.with(|progress| progress.worst = progress.worst.more_severe(exit));
            self.leave_rungs_at(index, end);
            let folder = self.with(|progress| progress.begun.get(&index).cloned());
            if let (TrialEnd::Ran { status, .. }, Some(folder)) = (end, folder) {
                self.learn_from(index, &folder, *status);
            }
        }
    }

    /// Takes over the value of a trial that ended in another process or in an earlier part of the sweep.
    pub fn learn_from(&self, index: usize, folder: &RunDir, status: Status) {
        let planned = match self.own(index).1 {
            Prepared::Run(planned) => Some(&**planned),
            // Sweeps that learn from results use the same monitor for all trials.
            _ => first_run(self.prepared).map(|(_, planned)| planned),
        };
        let value = folder.figure("best_value").and_then(|figure| figure.parse().ok());
        let best = planned.and_then(P::monitor).zip(value);
        let reached = self.rungs.as_ref().and_then(|rungs| reached_in(folder, rungs.monitor));
        self.learn(index, status, best, reached);
    }

    /// Keeps the best value of a trial, for the line with the best setting, and what a sampler learns from it: the value that
    /// the sweep is judged by.
    pub fn learn(&self, index: usize, status: Status, best: Option<(Monitor, f64)>, reached: Option<f64>) {
        let value = match &self.rungs {
            Some(rungs) => reached.map(|value| (rungs.monitor, value)),
            None => best,
        };
        if matches!(status, Status::Finished | Status::Waiting | Status::Stopped) {
            self.with(|progress| {
                if !self.drawn.is_empty() {
                    progress.costs.resize(self.prepared.len(), None);
                    progress.costs[index] = value.map(|(monitor, value)| monitor.cost(value));
                }
            });
        }
        let elsewhere = (!self.is_known(index)).then(|| self.drawn_elsewhere(index));
        let Some(trial) = elsewhere.as_ref().map_or_else(|| Some(self.own(index).0), Option::as_ref) else {
            return;
        };
        let (seeds, rows) = (P::seeds_and_fold(&trial.spec), P::drawn_by(&trial.spec));
        self.with(|progress| {
            progress.settings.take(&self.shown_setting(trial), (index, seeds, rows), status, best);
            self.show_best(progress);
        });
    }

    /// Updates the best setting on the line. Long searches take at most a twentieth of the time.
    fn show_best(&self, progress: &mut Progress) {
        if is_about_times(&self.session.experiment.axes, progress.settings.has_one_seed()) {
            return;
        }
        let begun = Instant::now();
        if !self.line.is_hidden() && progress.next_best.is_none_or(|next| next <= begun) {
            self.line.show_best(progress.settings.best().map(|best| in_words(&best)));
            let took = begun.elapsed();
            progress.next_best = (took > LONG_SEARCH).then(|| Instant::now() + 20 * took);
        }
    }

    /// Runs trials, then those of other processes that have died meanwhile.
    fn phase(&self, trials: Vec<usize>) {
        let phase = self.run_phase(Phase::new(trials));
        let elsewhere = phase.elsewhere.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !elsewhere.is_empty() {
            self.take_ends(true);
            self.run_phase(Phase::new(elsewhere));
        }
    }

    pub fn run_phase(&self, mut phase: Phase) -> Phase {
        if let Some(rungs) = &self.rungs {
            rungs.sort(&mut phase.trials);
        }
        thread::scope(|scope| {
            // If a thread cannot be started, the others do its work.
            let work = || self.work(&phase);
            (1..self.session.jobs())
                .for_each(|_| drop(thread::Builder::new().name("trial".into()).spawn_scoped(scope, work)));
            work();
        });
        phase
    }

    /// Whether the sweep was interrupted or stopped, so that no more trials run.
    pub fn is_cut(&self) -> bool {
        self.session.process.stop.signal().is_some() || self.with(|progress| progress.stopped.is_some())
    }

    /// Takes one trial after the other.
    fn work(&self, phase: &Phase) {
        while let Some(index) = self.next(phase) {
            if let Some((end, exit)) = self.turn(index, phase) {
                // Whatever the rungs bring, neither of them goes on.
                let ends = [Status::Finished, Status::Stopped];
                let is_over = matches!(end, TrialEnd::Ran { status, .. } if ends.contains(&status));
                self.set(index, end, exit);
                if is_over && let Err(fault) = self.claims.finish(index) {
                    self.with(|progress| progress.unlisted(fault));
                }
            }
        }
    }

    /// Handles a trial when its turn comes; returns how it ended if this process is the one to record that.
    fn turn(&self, index: usize, phase: &Phase) -> Option<(TrialEnd, Exit)> {
        let (is_done, stopped) = self.with(|progress| (progress.is_done(index), progress.stopped));
        // In an interrupted sweep, trials waiting at a rung stay there, and others may be left to other
        // processes.
        let stays = || !phase.is_last || self.with(|progress| progress.is_waiting(index));
        if is_done || (self.is_cut() && stays()) {
            return None;
        }
        let is_interrupted = || self.session.process.stop.signal().is_some();
        if stopped.is_none()
            && !is_interrupted()
            && let Err(ended) = self.draw(index)
        {
            return Some(ended);
        }
        let (trial, prepared) = self.own(index);
        match (prepared, stopped) {
            (Prepared::SameAs(..), _) => None,
            _ if is_interrupted() => Some((TrialEnd::Planned, Exit::Done)),
            (_, Some(stopped)) => Some((skipped(stopped.reason()), Exit::Done)),
            (Prepared::Missing(problem), _) => {
                // Another process may have its devices.
                if !self.claims.has_others() {
                    self.leave_rungs(index);
                }
                Some((self.skip(index, problem), Exit::Missing))
            }
            (Prepared::Run(planned), _) => self.leased(planned, trial, phase),
        }
    }

    /// Runs a trial on leased devices.
    fn leased(&self, planned: &P, trial: &TrialSpec<P::Spec>, phase: &Phase) -> Option<(TrialEnd, Exit)> {
        let wanted = Wanted::new(planned);
        let Some(lease) = self.leases.take(&wanted, || self.is_cut()) else {
            return self.turn(trial.index, phase); // the sweep was interrupted
        };
        let own = lease.devices(planned.devices()).and_then(|devices| planned.on(devices));
        let ended = self.claimed(own.as_ref().unwrap_or(planned), trial, phase);
        if ended.is_none() {
            lock(&phase.elsewhere).push(trial.index);
        }
        ended
    }

    /// Records the ends of trials that only repeat others.
    pub fn repeat_ends(&self) {
        let folders = LazyCell::new(|| self.folder.trials());
        for (index, prepared) in self.prepared.iter().enumerate() {
            let Prepared::SameAs(earlier, devices) = prepared else { continue };
            let ended = self.with(|progress| progress.ends[*earlier]);
            let folder = || folders.get(earlier).map(RunDir::name).unwrap_or_default();
            let end = match ended {
                Some(Ending::Ran(_)) => TrialEnd::SameAs {
                    trial: *earlier,
                    folder: folder(),
                    note: devices.lack.as_ref().map(Lack::to_string),
                },
                Some(Ending::Planned) => TrialEnd::Planned,
                _ => skipped(&format!("trial {earlier}, which it would repeat, was not run")),
            };
            self.set(index, end, Exit::Done);
        }
    }

    pub fn with<R>(&self, what: impl FnOnce(&mut Progress) -> R) -> R {
        what(&mut lock(&self.progress))
    }

    pub fn set(&self, index: usize, end: TrialEnd, exit: Exit) {
        self.leave_rungs_at(index, &end);
        let values = self.values_of(index);
        self.with(|progress| {
            progress.worst = progress.worst.more_severe(exit);
            if self.session.process.fail_fast && is_failure(&end) {
                progress.stopped.get_or_insert(Stopped::Failed);
            }
            if let Err(fault) = progress.table.set(index, &values, &end) {
                progress.unlisted(fault);
            }
            if let TrialEnd::Skipped { .. } | TrialEnd::Planned = &end {
                self.line.skipped(index);
            }
            progress.ends[index] = Some(Ending::from(&end));
        });
    }

    /// Takes over how a trial ended in another process or in an earlier part of the sweep. If no table will
    /// tell why it failed, prints the error.
    pub fn take(&self, index: usize, end: &TrialEnd) -> Exit {
        let process = &self.session.process;
        let is_quiet = process.verbosity == Verbosity::Quiet && process.role != Role::Plans;
        let (how, reason, exit) = match end {
            TrialEnd::Ran { status: Status::Failed, reason, .. } => {
                ("failed", reason.as_deref(), Exit::Failed)
            }
            TrialEnd::Ran { status: Status::Diverged, reason, .. } => {
                ("diverged", reason.as_deref(), Exit::Failed)
            }
            // A trial that is skipped even now lacks its devices.
            TrialEnd::Skipped { reason } => ("been skipped", Some(reason.as_str()), Exit::Missing),
            _ => return Exit::Done,
        };
        if is_quiet {
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let text = format!("trial {index} had {how}{reason}");
            self.line.apart(&mut io::stderr(), |_| print_error(text, None));
        }
        exit
    }

    fn skip(&self, index: usize, problem: &Problem) -> TrialEnd {
        let there = problem.label.clone().map_or(String::new(), |label| format!(": {label}"));
        if self.session.process.verbosity == Verbosity::Quiet {
            print_error(named(Some(index), format!("{}{there}", problem.message)), None);
        }
        skipped(&format!("{}{there}", problem.message.replace('`', "")))
    }

    /// The values of a trial that vary in the sweep, under the full and the short names of their keys.
    pub fn axes(&self, trial: &TrialSpec<P::Spec>) -> Vec<(&str, &str, String)> {
        let experiment = self.session.experiment;
        let values = experiment.values(trial).into_iter().zip(&self.values);
        let values = values.map(|(value, short)| short.get(&value).cloned().unwrap_or(value));
        let keys = experiment.axes.iter().map(String::as_str).zip(self.keys.iter().copied());
        let axes = keys.zip(values).map(|((full, key), value)| (full, key, value));
        axes.filter(|(.., value)| !value.is_empty()).collect()
    }

    /// The values of a trial as text, without its seeds.
    fn shown_setting(&self, trial: &TrialSpec<P::Spec>) -> String {
        let varied = self.axes(trial).into_iter().filter(|(full, ..)| varies_setting(full));
        varied.map(|(_, key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(" ")
    }

    pub fn of_sweep(&self, trial: usize) -> TrialOfSweep {
        TrialOfSweep { number: trial, of: self.prepared.len(), line: Arc::clone(&self.line) }
    }
}

/// `0.0615 (#12: lr 0.01 width 32)`: the value, and the trial with its values.
fn in_words(best: &BestSetting) -> [String; 2] {
    let value = match best.monitor {
        Monitor::ACCURACY => units::percent(best.value),
        _ => units::number(best.value),
    };
    let count = match (best.folds, best.count) {
        (Some([finished, all]), _) => format!(", {finished} of {all} folds"),
        (None, 0 | 1) => String::new(),
        (None, count) => format!(", n {count}"),
    };
    [format!("{value}{count}"), format!("#{}: {}", best.trial, best.setting)]
}

pub(super) fn skipped(reason: &str) -> TrialEnd {
    TrialEnd::Skipped { reason: reason.to_owned() }
}
