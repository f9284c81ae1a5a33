//! A sweep that several processes run together: each claims one trial after the other, and the last to end completes the
//! table.

use std::{sync::PoisonError, thread, time::Duration};

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    sweep::{Sweep, exit_of},
    sweep_progress::Phase,
};
use crate::{
    event::Status,
    record::{RecordError, RunDir, TrialEnd, Verbosity},
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
        match self.claims.claim(trial.index) {
            Ok(true) => {}
            Ok(false) => {
                self.line.stopped(trial.index);
                return None;
            }
            Err(fault) => {
                self.with(|progress| progress.unlisted(fault));
                return None;
            }
        }
        let begun = self.with(|progress| progress.begun.get(&trial.index).cloned());
        let is_new = begun.is_none();
        let begun = begun.or_else(|| self.folder.existing_trial(trial.index, self.short_axes(trial)));
        // A trial that failed before this process began is repeated, once.
        let end = begun.as_ref().and_then(ended).filter(|end| match end {
            TrialEnd::Ran { status: Status::Finished | Status::Diverged, .. } => true,
            TrialEnd::Ran { status: Status::Failed, .. } => is_new,
            _ => false,
        });
        if let Some(end) = end {
            self.line.stopped(trial.index);
            let exit = exit_of(&end);
            return Some((end, exit));
        }
        if let Some(folder) = begun {
            self.with(|progress| progress.begun.insert(trial.index, folder));
        }
        Some(self.trial(planned, trial, phase))
    }

    /// Ends the work of this process. The last one to end completes the table: returns whether this is it.
    pub fn complete(&self) -> Result<bool, RecordError> {
        while self.claims.leave()? {
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

    /// Takes over how the trials of other processes ended.
    fn take_ends(&self) {
        for (index, folder) in self.folder.trials() {
            let is_known = self.with(|progress| {
                progress.ends.get(index).is_none_or(|end| matches!(end, Some(TrialEnd::Ran { .. })))
            });
            if let Some(end) = ended(&folder).filter(|_| !is_known) {
                let exit = exit_of(&end);
                self.set(index, end, exit);
            }
        }
    }

    /// Trials whose owners died after this process had looked for the last time. Successive halving leaves none.
    fn left(&self) -> Vec<usize> {
        let is_left = |trial: &usize| {
            matches!(self.prepared[*trial], Prepared::Run(_))
                && self.with(|progress| progress.ends[*trial].is_none())
        };
        let trials = 0..self.prepared.len();
        if self.session.experiment.stop.is_none() { trials.filter(is_left).collect() } else { Vec::new() }
    }
}

/// How the trial of a folder ended, as far as that is known.
fn ended(folder: &RunDir) -> Option<TrialEnd> {
    Some(TrialEnd::Ran { status: folder.status()?, folder: folder.name(), reason: None })
}
