//! Successive halving: which trials of a sweep continue, and what becomes of the others.

use std::{io, sync::PoisonError, thread, time::Duration};

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    rungs::{Reached, Rung, Rungs, longest},
    sweep::Sweep,
    sweep_progress::{Phase, is_at_rung},
};
use crate::{
    event::Status,
    record::{RecordError, RunDir, TrialEnd, Verbosity},
    units,
};

/// How long a process waits before it checks the trials of other processes again.
const PAUSE: Duration = Duration::from_millis(50);

impl<P: Planned> Sweep<'_, '_, P> {
    /// Runs all trials to the first rung, the best of them to the next, and the last ones to their end.
    pub fn halve(&self, mut rungs: Rungs, mut trials: Vec<usize>) -> Result<(), RecordError> {
        for epochs in rungs.halving.rungs(longest(self.prepared)) {
            rungs.read();
            if rungs.decided(epochs).is_none() && self.reach(&mut rungs, trials.clone(), epochs)? {
                let at_rung = self.with(|progress| {
                    let value = |&trial: &usize| (trial, progress.reached[trial].value);
                    trials.iter().filter(|trial| progress.is_at_rung(**trial)).map(value).collect()
                });
                // Trials that did not reach the rung do not run again, so first record what became of them.
                self.with(|progress| progress.table.write())?;
                let is_cut = || self.session.process.stop.signal().is_some();
                self.claims.with_choice(is_cut, || rungs.decide(epochs, at_rung))?.transpose()?;
            }
            // There is no decision if no trial reached the rung or the sweep was interrupted.
            let Some(rung) = rungs.decided(epochs) else { return Ok(()) };
            self.take_ends(true);
            self.bring_back(&rung, epochs);
            let [best, count] = [rung.go_on.len(), rung.trials.len()];
            let why =
                format!("not among the best {best} of {count} after {}", units::counted(epochs, "epoch"));
            for trial in trials.iter().filter(|trial| !rung.go_on.contains(trial)) {
                if rung.trials.contains(trial) { self.leave(*trial, &why) } else { self.take_end(*trial) }
            }
            trials.retain(|trial| rung.go_on.contains(trial));
        }
        self.phase(trials, None);
        Ok(())
    }

    /// Runs trials to a rung and waits for those that other processes run. Returns true once all of them are
    /// there, false if another process decided the rung meanwhile or the sweep is interrupted.
    fn reach(&self, rungs: &mut Rungs, mut trials: Vec<usize>, epochs: u64) -> Result<bool, RecordError> {
        let mut is_told = self.session.process.verbosity == Verbosity::Quiet;
        loop {
            let phase = self.run_phase(Phase::new(trials, Some(epochs)));
            trials = phase.elsewhere.into_inner().unwrap_or_else(PoisonError::into_inner);
            if self.is_cut() || trials.is_empty() {
                return Ok(!self.is_cut());
            }
            // The other processes may be waiting for trials that failed here, so publish those.
            self.with(|progress| {
                progress.has_progress = true;
                progress.table.write_stale()
            })?;
            if !std::mem::replace(&mut is_told, true) {
                let others = units::counted(trials.len() as u64, "trial");
                let text =
                    format!("waiting at {}: other processes run {others}\n", units::counted(epochs, "epoch"));
                self.line.apart(&mut io::stderr(), |_| print_stderr(&text));
            }
            thread::sleep(PAUSE);
            rungs.read();
            if rungs.decided(epochs).is_some() {
                return Ok(false);
            }
        }
    }

    /// Somebody removed the folders of trials that had reached a decided rung, or damaged them: runs them to it again.
    fn bring_back(&self, rung: &Rung, epochs: u64) {
        let is_lost = |trial: &usize| {
            let is_ours = matches!(self.own(*trial).1, Prepared::Run(_));
            is_ours && self.with(|progress| progress.ends[*trial].is_none())
        };
        let mut lost: Vec<usize> = rung.trials.difference(&rung.go_on).copied().filter(is_lost).collect();
        if lost.is_empty() || self.is_cut() {
            return;
        }
        let is_gone = |trial: &&usize| self.folder.trial_of(**trial).is_none();
        lost.iter().filter(is_gone).for_each(|trial| self.say_gone(*trial));
        // Trials claimed by other processes are left to them, unless those processes die.
        loop {
            let phase = self.run_phase(Phase::new(lost, Some(epochs)));
            lost = phase.elsewhere.into_inner().unwrap_or_else(PoisonError::into_inner);
            if lost.is_empty() || self.is_cut() {
                return;
            }
            self.with(|progress| progress.has_progress = true);
            thread::sleep(PAUSE);
        }
    }

    /// Marks a trial that waits at a rung as stopped there.
    fn leave(&self, trial: usize, why: &str) {
        let end = self.with(|progress| progress.ends[trial].clone());
        if let Some(TrialEnd::Ran { folder, .. }) = end.filter(is_at_rung) {
            self.line.stopped(trial);
            let own = RunDir::existing(self.folder.file(&folder));
            own.say_stopped().unwrap_or_else(|fault| self.with(|progress| progress.unlisted(fault)));
            let reason = Some(why.to_owned());
            self.set(trial, TrialEnd::Ran { status: Status::Stopped, folder, reason }, Exit::Done);
        }
    }

    /// Prints what successive halving saved.
    pub fn report_epochs(&self) {
        let Some(halving) = self.session.experiment.stop else { return };
        if self.session.process.verbosity == Verbosity::Quiet || self.is_cut() {
            return;
        }
        let epochs = |own: &Prepared<P>| match own {
            Prepared::Run(planned) => planned.epochs().unwrap_or(0),
            _ => 0,
        };
        let planned = units::count((0..self.prepared.len()).map(|index| epochs(self.own(index).1)).sum());
        let trials = self.folder.trials();
        let taken = trials.values().map(|folder| Reached::in_folder(folder, halving.metric).epochs).sum();
        let text = format!("successive halving ran {} of {planned} epochs\n", units::count(taken));
        self.line.apart(&mut io::stderr(), |_| print_stderr(&text));
    }
}
