//! Successive halving in a sweep: trials that waited at a rung come back as soon as they can be judged.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use super::{
    exit::print_stderr,
    planned::Planned,
    rungs::{epochs, epochs_in},
    sweep::Sweep,
    sweep_progress::Phase,
};
use crate::{
    event::Status,
    host::lock,
    record::{TrialEnd, Verbosity},
    train::Judge,
    units,
};

/// How long a worker without a trial waits before it looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl<P: Planned> Sweep<'_, '_, P> {
    /// The next trial: one that waited at a rung and can be judged, else one whose turn has not come. While trials of this
    /// process wait for one of another, that is tried again: its process may have died.
    pub fn next(&self, phase: &Phase) -> Option<usize> {
        loop {
            let due = self.rungs.as_ref().and_then(|rungs| rungs.take_due());
            let new = || phase.trials.get(phase.next.fetch_add(1, Ordering::Relaxed)).copied();
            if let Some(trial) = due.or_else(new) {
                return Some(trial);
            }
            if self.rungs.as_ref().is_none_or(|rungs| !rungs.has_waiting()) || self.is_cut() {
                return None;
            }
            thread::sleep(POLL_INTERVAL);
            let mut elsewhere = lock(&phase.elsewhere);
            let others = elsewhere.len();
            let first = self.rungs.as_ref().and_then(|rungs| rungs.awaited(&elsewhere));
            if let Some(first) = first.map(|place| elsewhere.swap_remove(place)) {
                drop(elsewhere);
                self.say_waiting(phase, others);
                return Some(first);
            }
        }
    }

    fn say_waiting(&self, phase: &Phase, others: usize) {
        self.with(|progress| progress.has_progress = true);
        let is_reported = phase.is_reported.swap(true, Ordering::Relaxed);
        if !is_reported && self.session.process.verbosity != Verbosity::Quiet {
            let others = units::counted(others as u64, "trial");
            let text = format!("waiting at a rung: other processes run {others}\n");
            self.line.apart(&mut io::stderr(), |_| print_stderr(&text));
        }
    }

    /// What judges a trial while it runs.
    pub fn judge(&self, trial: usize) -> Option<Judge> {
        let rungs = Arc::clone(self.rungs.as_ref()?);
        let metric = rungs.monitor;
        Some(Arc::new(move |epochs, row| rungs.judge(trial, epochs, row.and_then(|row| row.value(metric)))))
    }

    /// No other trial waits for one that has ended: also not for one that was stopped, if its row was lost.
    pub fn leave_rungs_at(&self, trial: usize, end: &TrialEnd) {
        if matches!(end, TrialEnd::Ran { status, .. } if !matches!(status, Status::Waiting | Status::Interrupted))
        {
            self.leave_rungs(trial);
        }
    }

    /// No other trial waits for this one.
    pub fn leave_rungs(&self, trial: usize) {
        if let Some(Err(fault)) = self.rungs.as_ref().map(|rungs| rungs.ended(trial)) {
            self.with(|progress| progress.unlisted(fault));
        }
    }

    /// Prints what successive halving saved.
    pub fn report_epochs(&self) {
        if self.session.experiment.stop.is_none()
            || self.session.process.verbosity == Verbosity::Quiet
            || self.is_cut()
        {
            return;
        }
        let all = (0..self.prepared.len()).map(|index| epochs(self.own(index).1));
        let planned = units::count(all.sum());
        let trials = self.folder.trials();
        let taken = trials.values().map(epochs_in).sum();
        let text = format!("successive halving ran {} of {planned} epochs\n", units::count(taken));
        self.line.apart(&mut io::stderr(), |_| print_stderr(&text));
    }
}
