//! A sweep that several processes run together: each claims one trial after the other, and the last to end completes the
//! table.

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    sweep::{Sweep, exit_of},
    sweep_progress::Phase,
};
use crate::{
    event::Status,
    record::{RunDir, TrialEnd, Verbosity},
    spec::TrialSpec,
};

impl<P: Planned> Sweep<'_, '_, P> {
    /// Runs a trial, unless another process has it (`None`) or has run it since this one began.
    pub fn claimed(
        &self,
        planned: &P,
        trial: &TrialSpec<P::Spec>,
        phase: &Phase,
    ) -> Option<(TrialEnd, Exit)> {
        if !self.claims.claim(trial.index) {
            self.line.stopped(trial.index);
            return None;
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
    pub fn complete(&self) -> bool {
        if !self.claims.leave() {
            if self.session.process.verbosity != Verbosity::Quiet {
                print_stderr(
                    "other processes go on with this sweep; the last to end completes `sweep.csv`\n",
                );
            }
            return false;
        }
        let trials = self.folder.trials();
        for (index, folder) in trials {
            let is_known = self.with(|progress| {
                progress.ends.get(index).is_none_or(|end| matches!(end, Some(TrialEnd::Ran { .. })))
            });
            if let Some(end) = ended(&folder).filter(|_| !is_known) {
                let exit = exit_of(&end);
                self.set(index, end, exit);
            }
        }
        // Their owners died after this process had looked for the last time.
        let is_left = |trial: &usize| {
            matches!(self.prepared[*trial], Prepared::Run(_))
                && self.with(|progress| progress.ends[*trial].is_none())
        };
        if self.session.experiment.stop.is_none() {
            self.run_phase(Phase::new((0..self.prepared.len()).filter(is_left).collect(), None));
        }
        self.repeat_ends();
        true
    }
}

/// How the trial of a folder ended, as far as that is known.
fn ended(folder: &RunDir) -> Option<TrialEnd> {
    Some(TrialEnd::Ran { status: folder.status()?, folder: folder.name(), reason: None })
}
