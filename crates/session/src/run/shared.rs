//! A sweep that several processes run together: each claims one trial after the other, and the last process
//! to end completes the table.

use std::{
    cell::LazyCell,
    collections::BTreeSet,
    io,
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    rungs::{Reached, Rungs},
    sweep::Sweep,
    sweep_folder::{Row, end_in, print_other_data, rows},
    sweep_progress::{Phase, Stopped},
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
        let claim = match self.claims.claim(trial.index, phase.stop_after) {
            Ok(claim) => claim,
            Err(fault) => {
                self.with(|progress| progress.unlisted(fault));
                return None;
            }
        };
        let is_own = claim != Claim::Elsewhere;
        if is_own {
            self.with(|progress| progress.own.insert(trial.index));
        }
        if !is_own && self.session.experiment.stop.is_none() {
            self.look_around();
            return None;
        }
        let begun = self.with(|progress| progress.begun.get(&trial.index).cloned());
        // Search all trial folders for one that another process made.
        let begun = begun.or_else(|| (claim != Claim::New).then(|| self.folder.trial_of(trial.index))?);
        if let Some(folder) = begun.as_ref().filter(|folder| planned.has_other_data(folder)) {
            self.refuse_mixture(folder);
            return None;
        }
        let status = begun.as_ref().and_then(RunDir::status);
        let rows = LazyCell::new(|| rows(&self.folder));
        // For a trial claimed by this process, the row in the table only matters after a failure.
        let is_asked = !is_own || matches!(status, Some(Status::Failed | Status::Diverged));
        let row = || if is_asked { rows.get(&trial.index) } else { None };
        let end = self.end_elsewhere(trial.index, begun.as_ref(), row, phase.stop_after);
        if phase.stop_after.is_none() && (!is_own || end.is_some()) {
            self.line.stopped(trial.index);
        }
        if let Some(end) = end {
            let exit = self.take(trial.index, &end);
            return Some((end, exit));
        }
        // The process that last ran it may still be closing its files.
        if !is_own || begun.as_ref().is_some_and(|folder| RunLock::is_held(folder.path())) {
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

    /// How a trial ended in another process; `None` if it still runs, or is to run, before `stop_after`. The
    /// trial's folder tells this, except for failures, which are taken from its row in the table: the status
    /// in the folder may stem from an earlier part of the sweep that is being repeated right now, or the
    /// trial may have failed before it wrote one.
    fn end_elsewhere<'r>(
        &self,
        index: usize,
        folder: Option<&RunDir>,
        row: impl Fn() -> Option<&'r Row>,
        stop_after: Option<u64>,
    ) -> Option<TrialEnd> {
        let status = folder.and_then(RunDir::status);
        let is_there = |folder: &&RunDir| match status {
            Some(Status::Finished | Status::Diverged) => true,
            Some(Status::Waiting | Status::Stopped) => {
                let halving = self.session.experiment.stop.zip(stop_after);
                halving.is_some_and(|(halving, epochs)| {
                    Reached::in_folder(folder, halving.metric).epochs >= epochs
                })
            }
            Some(Status::Interrupted) => self.is_cut(),
            Some(Status::Failed) | None => false,
        };
        let end = match folder.filter(is_there) {
            Some(folder) if status == Some(Status::Diverged) => end_in(folder, row()),
            Some(folder) => end_in(folder, None),
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
                self.run_phase(Phase { is_last: true, ..Phase::new(all, None) });
                self.repeat_ends();
                return Ok(true);
            }
            // Other processes may join meanwhile.
            self.claims.go_on()?;
            let phase = self.run_phase(Phase::new(left, None));
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
        self.take_ends_but(&BTreeSet::new(), reads_rows);
    }

    fn take_ends_but(&self, own: &BTreeSet<usize>, reads_rows: bool) {
        if let Err(fault) = self.take_points() {
            self.with(|progress| progress.unlisted(fault));
        }
        let rows = LazyCell::new(|| rows(&self.folder));
        let folders = LazyCell::new(|| self.folder.trials()); // the list is long, and often nobody else has run a trial
        for index in (0..self.prepared.len()).filter(|index| !own.contains(index)) {
            let is_taken = self.with(|progress| matches!(progress.ends[index], Some(TrialEnd::Ran { .. })));
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
            // `Some(0)`: accept a trial that waits at any rung.
            let row = || if reads_rows { rows.get(&index) } else { None };
            if let Some(end) = self.end_elsewhere(index, folder, row, Some(0)) {
                let exit = self.take(index, &end);
                self.set(index, end, exit);
            }
        }
    }

    /// Takes over how a trial ended in another process after it was last seen waiting at a rung.
    pub fn take_end(&self, index: usize) {
        if self.with(|progress| progress.is_at_rung(index)) {
            let (rows, folder) = (rows(&self.folder), self.folder.trial_of(index));
            if let Some(end) = self.end_elsewhere(index, folder.as_ref(), || rows.get(&index), None) {
                let exit = self.take(index, &end);
                self.set(index, end, exit);
            }
        }
    }

    /// Trials whose processes died after this one last checked; with successive halving, only those that
    /// continued past the last decided rung.
    fn left(&self) -> Vec<usize> {
        let whole = Phase::new(Vec::new(), None);
        let halving = self.session.experiment.stop;
        let rungs =
            halving.map(|halving| Rungs::new(halving, self.folder.clone()).left().unwrap_or_default());
        let is_left = |trial: &usize| {
            matches!(self.prepared[*trial], Prepared::Run(_))
                && rungs.as_ref().is_none_or(|go_on| go_on.contains(trial))
                && !self.with(|progress| progress.is_done(*trial, &whole))
        };
        (0..self.prepared.len()).filter(is_left).collect()
    }
}
