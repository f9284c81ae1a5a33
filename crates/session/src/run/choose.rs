//! Which trials of a sweep run next, where results say so: successive halving, and search.

use std::io;

use super::{
    exit::{Exit, print_stderr},
    planned::Planned,
    prepare::Prepared,
    rungs::{Rungs, longest},
    sweep::Sweep,
    sweep_progress::is_at_rung,
};
use crate::{
    plan::Machine,
    record::{RecordError, TrialEnd, Verbosity},
    spec::{GROUP, Halving, Proposer, STARTUP, TrialSpec},
    units,
};

impl<P: Planned> Sweep<'_, '_, P> {
    /// Runs the trials that are known, then the others in groups, each group chosen by the results of all trials before it.
    pub fn search(&self, mut proposer: Proposer, machine: &Machine) {
        let all: Vec<usize> = (0..self.prepared.len()).collect();
        let (first, later) = all.split_at(STARTUP.min(all.len()));
        self.phase(self.items(first), None);
        let mut told = 0;
        for group in later.chunks(GROUP) {
            if self.is_cut() {
                // They are listed as skipped.
                self.phase(self.items(group), None);
                continue;
            }
            (told..group[0]).for_each(|trial| proposer.tell(trial, self.cost(trial)));
            told = group[0];
            let propose = |&trial: &usize| proposer.propose(self.session.experiment, trial);
            let specs: Vec<TrialSpec<P::Spec>> = group.iter().filter_map(propose).collect();
            let prepared: Vec<Prepared<P>> =
                specs.iter().map(|spec| self.session.plan(spec, machine)).collect();
            specs.iter().for_each(|spec| self.with(|progress| progress.name(spec)));
            self.phase(specs.iter().zip(&prepared).collect(), None);
        }
    }

    /// The best value of a trial, as a cost; infinite where it has none.
    fn cost(&self, trial: usize) -> f64 {
        let Prepared::Run(planned) = &self.prepared[trial] else { return f64::INFINITY };
        let value = self.with(|progress| progress.reached[trial].value);
        planned.monitor().zip(value).map_or(f64::INFINITY, |(monitor, value)| monitor.cost(value))
    }

    /// Runs all trials to the first rung, the best of them to the next, and the last ones to their end.
    pub fn halve(&self, halving: Halving, mut trials: Vec<usize>) -> Result<(), RecordError> {
        let mut rungs = Rungs::new(halving, &self.folder);
        for epochs in halving.rungs(longest(self.prepared)) {
            let mut go_on = rungs.decided(epochs);
            if go_on.is_none() {
                self.phase(self.items(&trials), Some(epochs));
                if self.is_cut() {
                    return Ok(());
                }
                let at_rung = self.with(|progress| {
                    let value = |&trial: &usize| (trial, progress.reached[trial].value);
                    trials.iter().filter(|trial| progress.is_at_rung(**trial)).map(value).collect::<Vec<_>>()
                });
                if at_rung.is_empty() {
                    return Ok(());
                }
                let (count, decided) = (at_rung.len(), rungs.decide(epochs, at_rung)?);
                let [best, epochs] = [decided.len() as u64, epochs];
                let reason =
                    format!("not among the best {best} of {count} after {}", units::counted(epochs, "epoch"));
                trials
                    .iter()
                    .filter(|trial| !decided.contains(trial))
                    .for_each(|trial| self.leave(*trial, &reason));
                go_on = Some(decided);
            }
            let is_left = |trial: &usize| go_on.as_ref().is_some_and(|go_on| go_on.contains(trial));
            trials.iter().filter(|trial| !is_left(trial)).for_each(|_| self.line.stopped());
            trials.retain(is_left);
        }
        self.phase(self.items(&trials), None);
        self.report_epochs();
        Ok(())
    }

    /// A trial that is at a rung stays there.
    fn leave(&self, trial: usize, why: &str) {
        let end = self.with(|progress| progress.ends[trial].clone().filter(is_at_rung));
        if let Some(TrialEnd::Ran { status, folder, .. }) = end {
            self.set(trial, TrialEnd::Ran { status, folder, reason: Some(why.to_owned()) }, Exit::Done);
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
        let planned = units::count(self.prepared.iter().map(epochs).sum());
        let taken = self.with(|progress| progress.reached.iter().map(|reached| reached.epochs).sum());
        let text = format!("successive halving ran {} of {planned} epochs\n", units::count(taken));
        self.line.apart(&mut io::stderr(), |_| print_stderr(&text));
    }
}
