//! A sweep that several processes run together: each claims one trial after the other, and the last to end completes the
//! table.

use std::{cell::LazyCell, io, sync::PoisonError, thread, time::Duration};

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    rungs::{Reached, Rungs},
    sweep::Sweep,
    sweep_folder::{Row, end_in, has_other_data, print_other_data, rows},
    sweep_progress::{Phase, Stopped, exit_of},
};
use crate::{
    event::Status,
    record::{RecordError, RunDir, RunLock, TrialEnd, Verbosity},
    spec::TrialSpec,
};

/// How long the last process waits for others that have a trial and are about to end.
const PAUSE: Duration = Duration::from_millis(20);

impl<P: Planned> Sweep<'_, '_, P> {
    /// Runs a trial, unless another process has it (`None`) or has run it since this one began.
    pub fn claimed(
        &self,
        planned: &P,
        trial: &TrialSpec<P::Spec>,
        phase: &Phase,
    ) -> Option<(TrialEnd, Exit)> {
        let claim = self.claims.claim(trial.index, phase.stop_after);
        let begun = self.with(|progress| progress.begun.get(&trial.index).cloned());
        let begun = begun.or_else(|| self.folder.existing_trial(trial.index, self.short_axes(trial)));
        let is_own = match (claim, begun.as_ref().filter(|folder| has_other_data(folder, planned))) {
            (Ok(is_own), None) => is_own,
            (Ok(_), Some(folder)) => {
                self.refuse_mixture(folder);
                return None;
            }
            (Err(fault), _) => {
                self.with(|progress| progress.unlisted(fault));
                return None;
            }
        };
        let end = match &begun {
            Some(folder) => self.end_elsewhere(trial.index, folder, phase.stop_after, is_own),
            None if is_own || phase.stop_after.is_none() => None,
            None => rows(&self.folder).get(&trial.index).and_then(Row::end),
        };
        if phase.stop_after.is_none() && (!is_own || end.is_some()) {
            self.line.stopped(trial.index);
        }
        if let Some(end) = end {
            let exit = exit_of(&end);
            return Some((end, exit));
        }
        // Its last process may still be closing its files.
        if !is_own || begun.as_ref().is_some_and(|folder| RunLock::is_held(folder.path())) {
            return None;
        }
        if let Some(folder) = begun {
            self.with(|progress| progress.begun.insert(trial.index, folder));
        }
        Some(self.trial(planned, trial, phase))
    }

    /// How a trial ended in another process, where it does not run again before `stop_after`.
    fn end_elsewhere(
        &self,
        index: usize,
        folder: &RunDir,
        stop_after: Option<u64>,
        is_own: bool,
    ) -> Option<TrialEnd> {
        let end = end_in(folder, None)?;
        let TrialEnd::Ran { status, .. } = &end else { return None };
        match status {
            Status::Finished => {}
            // One that failed before this process began is repeated, once.
            Status::Failed if is_own && !self.is_new(index, folder) => return None,
            Status::Failed | Status::Diverged => return end_in(folder, rows(&self.folder).get(&index)),
            Status::Stopped => {
                self.session.experiment.stop.filter(|halving| {
                    stop_after
                        .is_some_and(|epochs| Reached::in_folder(folder, halving.metric).epochs >= epochs)
                })?;
            }
            _ => return None,
        }
        self.learn_from(index, folder, *status);
        Some(end)
    }

    /// Ends the work of this process. The last one to end completes the table: returns whether this is it.
    pub fn complete(&self) -> Result<bool, RecordError> {
        while self.end_work()? {
            self.take_ends();
            let left = self.left();
            if left.is_empty() || self.is_cut() {
                self.run_phase(Phase::new(left, None)); // says why they are not run
                self.repeat_ends();
                return Ok(true);
            }
            // Others may join meanwhile.
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

    /// Writes what this process knows, and leaves; returns whether no other is at work.
    fn end_work(&self) -> Result<bool, RecordError> {
        self.with(|progress| {
            if let Err(fault) = progress.table.write_stale() {
                progress.unlisted(fault);
            }
        });
        self.claims.leave()
    }

    /// Two processes that began at one moment may have read other data at one path.
    fn refuse_mixture(&self, trial: &RunDir) {
        let before = self.with(|progress| progress.stopped.replace(Stopped::Mixed));
        if before != Some(Stopped::Mixed) {
            self.line.apart(&mut io::stderr(), |_| print_other_data(trial));
        }
    }

    /// Takes over how the trials of other processes ended.
    pub fn take_ends(&self) {
        let rows = LazyCell::new(|| rows(&self.folder));
        for (index, folder) in self.folder.trials() {
            let is_known = self.with(|progress| {
                progress.ends.get(index).is_none_or(|end| matches!(end, Some(TrialEnd::Ran { .. })))
            });
            if is_known {
                continue;
            }
            if matches!(self.own(index).1, Prepared::Run(planned) if has_other_data(&folder, &**planned)) {
                self.refuse_mixture(&folder);
            }
            let runs_again = |status| match status {
                Status::Interrupted => !self.is_cut(),
                status => status == Status::Failed && !self.is_new(index, &folder),
            };
            let Some(status) = folder.status().filter(|status| !runs_again(*status)) else { continue };
            self.learn_from(index, &folder, status);
            let row = matches!(status, Status::Failed | Status::Diverged).then(|| rows.get(&index)).flatten();
            if let Some(end) = end_in(&folder, row) {
                let exit = exit_of(&end);
                self.set(index, end, exit);
            }
        }
    }

    /// Whether a trial was summarized since this process began.
    fn is_new(&self, index: usize, folder: &RunDir) -> bool {
        folder.summarized().as_ref() != self.summaries.get(&index)
    }

    /// Trials whose owners died after this process had looked for the last time; under successive halving those that went
    /// on past the last rung.
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
