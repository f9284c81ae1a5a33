//! A sweep that several processes run together: each claims one trial after the other, and the last to end completes the
//! table.

use std::{io, sync::PoisonError, thread, time::Duration};

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    sweep::Sweep,
    sweep_folder::{end_in, has_other_data, print_other_data, rows},
    sweep_progress::{Phase, Stopped, exit_of, is_failure},
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
        let claim = self.claims.claim(trial.index);
        let begun = self.with(|progress| progress.begun.get(&trial.index).cloned());
        let begun = begun.or_else(|| self.folder.existing_trial(trial.index, self.short_axes(trial)));
        match (claim, begun.as_ref().filter(|folder| has_other_data(folder, planned))) {
            (Ok(true), None) => {}
            (Ok(_), Some(folder)) => {
                self.refuse_mixture(folder);
                return None;
            }
            (Ok(false), None) => {
                self.line.stopped(trial.index);
                return None;
            }
            (Err(fault), _) => {
                self.with(|progress| progress.unlisted(fault));
                return None;
            }
        }
        // A trial that failed before this process began is repeated, once.
        let is_new = |folder: &RunDir| folder.summarized().as_ref() != self.summaries.get(&trial.index);
        let end = begun.as_ref().and_then(|folder| match end_in(folder, None)? {
            TrialEnd::Ran { status: Status::Failed, .. } if !is_new(folder) => None,
            end @ TrialEnd::Ran { status: Status::Finished, .. } => Some(end),
            end if is_failure(&end) => end_in(folder, rows(&self.folder).get(&trial.index)),
            _ => None,
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
    fn take_ends(&self) {
        let rows = rows(&self.folder);
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
            if let Some(end) = end_in(&folder, rows.get(&index)) {
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
