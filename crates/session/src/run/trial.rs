//! Runs one trial of a sweep in its own folder.

use std::{io, sync::atomic::Ordering, time::Instant};

use super::{
    exit::{Exit, print_error, print_stderr},
    planned::{ExecuteError, Planned, Role, Start},
    rungs::reached,
    sweep::Sweep,
    sweep_folder::{begins_again, gone},
    sweep_progress::{Phase, Stopped},
};
use crate::{
    event::{Outcome, Status},
    record::{
        RecordError, RunDir, TrialEnd, count_death, forget_deaths, has_checkpoints, has_deaths, newest_step,
        now,
    },
    spec::TrialSpec,
    units,
};

/// Once this number of processes have died in a trial, one after the other, it is not tried again.
const MOST_DEATHS: u32 = 3;

/// The result of running a trial.
type Attempt = Result<Outcome, ExecuteError>;

impl<P: Planned> Sweep<'_, '_, P> {
    /// Runs a trial in its own folder: from its newest checkpoint if it has one, else from the start.
    pub fn trial(&self, planned: &P, trial: &TrialSpec<P::Spec>, phase: &Phase) -> (TrialEnd, Exit) {
        let session = self.session;
        session.process.load.mark();
        let begun = Instant::now();
        let mut attempted = self.attempt(planned, trial);
        let has_failed =
            |result: &Attempt| result.as_ref().map_or(true, |outcome| outcome.status == Status::Failed);
        // If the folder of a trial vanished while it ran, try again: otherwise it would never reach its rung
        // and be out of the sweep for good. Only once: whoever removes the folder again means it.
        if let Some((result, name)) = &attempted
            && session.experiment.stop.is_some()
            && has_failed(result)
            && !name.is_empty()
            && self.is_gone(trial.index, &RunDir::existing(self.folder.file(name)))
        {
            attempted = self.attempt(planned, trial);
        }
        let Some((result, name)) = attempted else {
            self.line.pauses(trial.index, true);
            let begun = self.with(|progress| {
                progress
                    .begun
                    .get(&trial.index)
                    .filter(|_| progress.is_waiting(trial.index))
                    .map(RunDir::name)
            });
            let waits = |folder| TrialEnd::Ran { status: Status::Waiting, folder, reason: None };
            return (begun.map_or(TrialEnd::Planned, waits), Exit::Done);
        };
        if let Ok(outcome) = &result {
            let reached = self.rungs.as_ref().and_then(|rungs| reached(outcome, rungs.monitor));
            let best = outcome.best.as_ref().map(|best| (best.monitor, best.value));
            self.learn(trial.index, outcome.status, best, reached);
            self.with(|progress| progress.time.add(begun.elapsed().as_secs_f64(), outcome));
        }
        let status = result.as_ref().ok().map(|outcome| outcome.status);
        if matches!(status, Some(Status::Waiting | Status::Stopped)) {
            self.line.pauses(trial.index, status == Some(Status::Stopped));
            return (ran(&result, name), Exit::Done);
        }
        let exit = match status {
            Some(Status::Finished) => Exit::Done,
            _ => self.line.apart(&mut io::stderr(), |_| session.ended(result.as_ref(), Some(trial.index))),
        };
        self.line.ended(trial.index, exit == Exit::Failed, &mut io::stderr());
        if matches!(&result, Err(ExecuteError::Record(e)) if e.is_of_all_folders()) {
            self.stop_unrecorded(phase);
        }
        (ran(&result, name), exit)
    }

    /// Runs a trial; also returns the name of its folder. `None` if a signal came first.
    fn attempt(&self, planned: &P, trial: &TrialSpec<P::Spec>) -> Option<(Attempt, String)> {
        let session = self.session;
        let start = Start { begun: Instant::now(), at: now() };
        let (mut name, mut taken) = (String::new(), 0);
        let result = session.ready(planned)?.and_then(|mut ready| {
            let begun = self.with(|progress| progress.begun.remove(&trial.index));
            let begun = begun.filter(|folder| !self.is_gone(trial.index, folder));
            // If a process died while trials ran side by side, we cannot tell which trial killed it, so each
            // of them runs alone the next time.
            let is_suspect = begun.as_ref().is_some_and(has_deaths);
            let _alone = is_suspect.then(|| self.alone.write());
            let _beside = (!is_suspect).then(|| self.alone.read());
            if let Some(folder) = &begun {
                (name, taken) = (folder.name(), newest_step(folder.path()));
                self.count_death(folder)?;
            }
            let folder = match begun {
                None => self.new_folder(trial)?,
                Some(folder) if has_checkpoints(folder.path()) => {
                    match planned.resume(&mut ready, &folder) {
                        Ok(()) => folder.set_aside()?,
                        Err(error) => self.begin_again(trial.index, &folder, error)?,
                    }
                    folder
                }
                Some(folder) => {
                    folder.clear()?;
                    folder
                }
            };
            name = folder.name();
            let facts = planned.facts(&mut ready);
            let console = session.console(Some(self.of_sweep(trial.index)));
            let judge = self.judge(trial.index);
            let ran = session.run_recorded(start, (planned, ready, facts), &folder, console, judge);
            if matches!(&ran, Ok(outcome) if outcome.status == Status::Waiting) {
                self.with(|progress| progress.begun.insert(trial.index, folder));
            }
            ran
        });
        let is_further = |outcome: &Outcome| outcome.status != Status::Interrupted || outcome.steps > taken;
        if result.as_ref().is_ok_and(is_further) {
            self.with(|progress| progress.has_progress = true);
        }
        if !name.is_empty() {
            forget_deaths(&RunDir::existing(self.folder.file(&name))); // this process survived the trial
        }
        Some((result, name))
    }

    fn new_folder(&self, trial: &TrialSpec<P::Spec>) -> Result<RunDir, RecordError> {
        let axes = self.axes(trial);
        self.folder.trial(trial.index, axes.iter().map(|(_, key, value)| (*key, value.as_str())))
    }

    /// Counts a death of an earlier process in this trial. Fails if [`MOST_DEATHS`] processes died at the
    /// same step of it.
    fn count_death(&self, folder: &RunDir) -> Result<(), ExecuteError> {
        let is_one_of_many = !self.claims.is_first() || self.session.process.role == Role::RunsOneOfMany;
        if !is_one_of_many || folder.status().is_some() {
            return Ok(());
        }
        match count_death(folder)? {
            MOST_DEATHS.. => Err(ExecuteError::Deadly(MOST_DEATHS)),
            _ => Ok(()),
        }
    }

    /// Whether somebody removed the folder of a trial; prints that it begins again.
    fn is_gone(&self, trial: usize, folder: &RunDir) -> bool {
        let is_gone = !folder.path().is_dir() && self.folder.path().is_dir();
        if is_gone {
            self.with(|progress| progress.begun.remove(&trial));
            self.line.apart(&mut io::stderr(), |_| print_stderr(&gone(trial)));
        }
        is_gone
    }

    /// If the state to resume from was lost, clears the folder: training from the start gives the same
    /// result.
    fn begin_again(&self, trial: usize, folder: &RunDir, lost: ExecuteError) -> Result<(), ExecuteError> {
        let is_lost = matches!(
            lost,
            ExecuteError::NoCheckpoint { .. }
                | ExecuteError::Record(RecordError::Unusable { .. } | RecordError::Read { .. })
        );
        if !is_lost {
            return Err(lost);
        }
        let text = begins_again(trial, lost, folder.clear()?.as_deref());
        self.line.apart(&mut io::stderr(), |_| print_stderr(&text));
        Ok(())
    }

    /// Stops the sweep: later trials could not be recorded either.
    fn stop_unrecorded(&self, phase: &Phase) {
        let is_new =
            self.with(|progress| progress.stopped.replace(Stopped::Unrecorded) != Some(Stopped::Unrecorded));
        let left = phase.trials.len().saturating_sub(phase.next.load(Ordering::Relaxed));
        if is_new && left > 0 {
            let trials = units::counted(left as u64, "trial");
            print_error(format!("{trials} not run: they could not be recorded either"), None);
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
