//! Successive halving: which trials of a sweep go on, and what becomes of the others.

use std::io;

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    rungs::{Rungs, longest},
    sweep::Sweep,
};
use crate::{
    event::Status,
    record::{RecordError, TrialEnd, Verbosity},
    units,
};

impl<P: Planned> Sweep<'_, '_, P> {
    /// Runs all trials to the first rung, the best of them to the next, and the last ones to their end.
    pub fn halve(&self, mut rungs: Rungs, mut trials: Vec<usize>) -> Result<(), RecordError> {
        for epochs in rungs.halving.rungs(longest(self.prepared)) {
            if rungs.decided(epochs).is_none() {
                self.phase(trials.clone(), Some(epochs));
                if self.is_cut() {
                    return Ok(());
                }
                let at_rung = self.with(|progress| {
                    let value = |&trial: &usize| (trial, progress.reached[trial].value);
                    trials.iter().filter(|trial| progress.is_at_rung(**trial)).map(value).collect()
                });
                // Trials that did not get here do not run again: what became of them is written first.
                self.with(|progress| progress.table.write())?;
                rungs.decide(epochs, at_rung)?;
            }
            // None is decided where no trial got here.
            let Some(rung) = rungs.decided(epochs) else { return Ok(()) };
            let [best, count] = [rung.go_on.len(), rung.count];
            let why =
                format!("not among the best {best} of {count} after {}", units::counted(epochs, "epoch"));
            trials
                .iter()
                .filter(|trial| !rung.go_on.contains(trial))
                .for_each(|trial| self.leave(*trial, &why));
            trials.retain(|trial| rung.go_on.contains(trial));
        }
        self.phase(trials, None);
        self.report_epochs();
        Ok(())
    }

    /// A trial that is at a rung stays there.
    fn leave(&self, trial: usize, why: &str) {
        let end = self.with(|progress| progress.ends[trial].clone());
        if let Some(TrialEnd::Ran { status: Status::Stopped, folder, .. }) = end {
            self.line.stopped(trial);
            let reason = Some(why.to_owned());
            self.set(trial, TrialEnd::Ran { status: Status::Stopped, folder, reason }, Exit::Done);
        }
    }

    /// Says what successive halving saved.
    fn report_epochs(&self) {
        if self.session.process.verbosity == Verbosity::Quiet || self.is_cut() {
            return;
        }
        let epochs = |own: &Prepared<P>| match own {
            Prepared::Run(planned) => planned.epochs().unwrap_or(0),
            _ => 0,
        };
        let planned = units::count((0..self.prepared.len()).map(|index| epochs(self.own(index).1)).sum());
        let taken = self.with(|progress| progress.reached.iter().map(|reached| reached.epochs).sum());
        let text = format!("successive halving ran {} of {planned} epochs\n", units::count(taken));
        self.line.apart(&mut io::stderr(), |_| print_stderr(&text));
    }
}
