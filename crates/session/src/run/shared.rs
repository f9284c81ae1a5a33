//! A sweep that several processes run together: each claims one trial after the other, and the last process
//! to end completes the table.

use std::{
    cell::LazyCell,
    io,
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    sweep::Sweep,
    sweep_folder::{Row, end_in, print_other_data, rows},
    sweep_progress::{Ending, Phase, Stopped},
};
use crate::{
    event::Status,
    record::{Claim, RecordError, RunDir, RunLock, TrialEnd, Verbosity},
    spec::TrialSpec,
};

/// Minimum time between two checks of other processes' trials.
const LOOKS: Duration = Duration::from_secs(1);

/// How long the last process waits before it checks again for others that still hold a trial.
const PAUSE: Duration = Duration::from_millis(20);

impl<P: Planned> Sweep<'_, '_, P> {
    /// Runs a trial. Returns `None` if another process has it; if another process already ran it, returns how
    /// it ended.
    pub fn claimed(
        &self,
        planned: &P,
        trial: &TrialSpec<P::Spec>,
        phase: &Phase,
    ) -> Option<(TrialEnd, Exit)> {
        let claim = match self.claims.claim(trial.index) {
            Ok(claim) => claim,
            Err(fault) => {
                self.with(|progress| progress.unlisted(fault));
                return None;
            }
        };
        if claim == Claim::Elsewhere {
            self.look_around();
            return None;
        }
        self.with(|progress| progress.own[trial.index] = true);
        let begun = self.with(|progress| progress.begun.get(&trial.index).cloned());
        // Search all trial folders for one that another process made.
        let begun = begun.or_else(|| (claim != Claim::New).then(|| self.folder.trial_of(trial.index))?);
        if let Some(folder) = begun.as_ref().filter(|folder| planned.has_other_data(folder)) {
            self.refuse_mixture(folder);
            return None;
        }
        let status = begun.as_ref().and_then(RunDir::status);
        let rows = LazyCell::new(|| rows(&self.folder));
        // The row in the table only matters after a failure.
        let row = || if status == Some(Status::Failed) { rows.get(&trial.index) } else { None };
        if let Some(end) = self.end_elsewhere(trial.index, begun.as_ref(), row) {
            self.line.pauses(trial.index, true);
            let exit = self.take(trial.index, &end);
            return Some((end, exit));
        }
        // The process that last ran it may still be closing its files.
        if begun.as_ref().is_some_and(|folder| RunLock::is_held(folder.path())) {
            return None;
        }
        if let Some(folder) = begun {
            self.with(|progress| progress.begun.insert(trial.index, folder));
        }
        Some(self.trial(planned, trial, phase))
    }

    /// Checks occasionally how other processes' trials ended, so that their best values are known here too.
    fn look_around(&self) {
        let begun = Instant::now();
        let is_time = self.with(|progress| {
            let is_time = progress.next_look.is_none_or(|next| next <= begun);
            if is_time {
                progress.next_look = Some(begun + LOOKS); // one thread at a time
            }
            is_time
        });
        if is_time {
            let own = self.with(|progress| progress.own.clone());
            self.take_ends_but(&own, false);
            let pause = LOOKS.max(20 * begun.elapsed());
            self.with(|progress| progress.next_look = Some(Instant::now() + pause));
        }
    }

    /// How a trial ended in another process; `None` if it still runs, or is to run. The trial's folder tells
    /// this, except for failures, which are taken from its row in the table: the status in the folder may
    /// stem from an earlier part of the sweep that is being repeated right now, or the trial may have failed
    /// before it wrote one.
    fn end_elsewhere<'r>(
        &self,
        index: usize,
        folder: Option<&RunDir>,
        row: impl Fn() -> Option<&'r Row>,
    ) -> Option<TrialEnd> {
        let status = folder.and_then(RunDir::status);
        let is_there = match status {
            Some(Status::Finished | Status::Diverged | Status::Stopped) => true,
            Some(Status::Interrupted | Status::Waiting) => self.is_cut(),
            Some(Status::Failed) | None => false,
        };
        let end = match folder.filter(|_| is_there) {
            Some(folder) => end_in(folder),
            None => row().filter(|row| row.is_failure())?.end(),
        };
        if let (Some(TrialEnd::Ran { status, .. }), Some(folder)) = (&end, folder) {
            self.learn_from(index, folder, *status);
        }
        end
    }

    /// Ends this process's work. The last process to end completes the table; returns whether this is it.
    pub fn complete(&self) -> Result<bool, RecordError> {
        while self.end_work()? {
            self.take_ends(true);
            let left = self.left();
            if left.is_empty() || self.is_cut() {
                // Visiting all trials records why they are not run.
                let all = if self.is_cut() { (0..self.prepared.len()).collect() } else { Vec::new() };
                self.run_phase(Phase { is_last: true, ..Phase::new(all) });
                self.repeat_ends();
                return Ok(true);
            }
            self.claims.reopen(&left)?;
            // Other processes may join meanwhile.
            self.claims.go_on()?;
            let phase = self.run_phase(Phase::new(left));
            if !phase.elsewhere.into_inner().unwrap_or_else(PoisonError::into_inner).is_empty() {
                thread::sleep(PAUSE);
            }
        }
        if self.session.process.verbosity != Verbosity::Quiet {
            print_stderr("other processes go on with this sweep; the last to end completes `sweep.csv`\n");
        }
        Ok(false)
    }

    /// Writes what this process knows and leaves the sweep; returns whether no other process is at work.
    fn end_work(&self) -> Result<bool, RecordError> {
        self.with(|progress| {
            if let Err(fault) = progress.table.write_stale() {
                progress.unlisted(fault);
            }
        });
        self.claims.leave()
    }

    /// Two processes started at the same moment may have read different data from the same path.
    fn refuse_mixture(&self, trial: &RunDir) {
        let before = self.with(|progress| progress.stopped.replace(Stopped::Mixed));
        if before != Some(Stopped::Mixed) {
            self.line.apart(&mut io::stderr(), |_| print_other_data(trial));
        }
    }

    /// Takes over the points other processes have drawn and how their trials ended. Folders tell most of it;
    /// `reads_rows` also reads the table, which tells more but may be long.
    pub fn take_ends(&self, reads_rows: bool) {
        self.take_ends_but(&[], reads_rows);
    }

    fn take_ends_but(&self, own: &[bool], reads_rows: bool) {
        if let Err(fault) = self.take_points() {
            self.with(|progress| progress.unlisted(fault));
        }
        let rows = LazyCell::new(|| rows(&self.folder));
        let folders = LazyCell::new(|| self.folder.trials()); // the list is long, and often nobody else has run a trial
        for index in (0..self.prepared.len()).filter(|index| own.get(*index) != Some(&true)) {
            let is_taken = self.with(|progress| {
                progress.is_done(index) && matches!(progress.ends[index], Some(Ending::Ran(_)))
            });
            if is_taken {
                continue;
            }
            let folder = folders.get(&index);
            if let Some(folder) = folder
                && self.is_known(index)
                && matches!(self.own(index).1, Prepared::Run(planned) if planned.has_other_data(folder))
            {
                self.refuse_mixture(folder);
            }
            let row = || if reads_rows { rows.get(&index) } else { None };
            if let Some(end) = self.end_elsewhere(index, folder, row) {
                let exit = self.take(index, &end);
                self.set(index, end, exit);
            }
        }
    }

    /// Trials whose processes died after this one last checked.
    fn left(&self) -> Vec<usize> {
        let is_left = |trial: &usize| {
            matches!(self.prepared[*trial], Prepared::Run(_))
                && !self.with(|progress| progress.is_done(*trial))
        };
        (0..self.prepared.len()).filter(is_left).collect()
    }
}
