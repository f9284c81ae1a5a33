//! What the trials of a sweep share while they run.

use std::{collections::BTreeMap, sync::atomic::AtomicUsize};

use super::{exit::Exit, planned::Planned, prepare::Prepared, rungs::Reached};
use crate::{
    event::Status,
    record::{RecordError, RunDir, SweepTable, TrialEnd},
    spec::TrialSpec,
};

/// Why trials that have not begun are not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The disk takes no more: a trial could not be recorded.
    Full,
    /// `sweep.csv` cannot be written.
    Unlisted,
    /// A trial failed, and `--fail-fast` was given.
    Failed,
}

/// What trials that run side by side share.
pub(super) struct Progress {
    pub table: SweepTable,
    pub ends: Vec<Option<TrialEnd>>,
    /// How far each trial came.
    pub reached: Vec<Reached>,
    /// Folders of trials that were begun: before the sweep went on, or up to a rung.
    pub begun: BTreeMap<usize, RunDir>,
    pub worst: Exit,
    pub stopped: Option<Stopped>,
    /// The first error of the table.
    pub fault: Option<RecordError>,
}

impl Progress {
    /// Lists the values of a trial that were chosen only now.
    pub fn name<S>(&mut self, trial: &TrialSpec<S>) {
        let values = trial.axes.iter().map(|(_, value)| value.clone()).collect();
        if let Err(fault) = self.table.set_axes(trial.index, values, self.ends[trial.index].as_ref()) {
            self.stopped.get_or_insert(Stopped::Unlisted);
            self.fault.get_or_insert(fault);
        }
    }

    pub fn is_at_rung(&self, trial: usize) -> bool {
        self.ends[trial].as_ref().is_some_and(is_at_rung)
    }

    /// Whether a trial is where the phase ends.
    pub fn is_done(&self, trial: usize, stop_after: Option<u64>) -> bool {
        match stop_after {
            Some(epochs) if self.is_at_rung(trial) => self.reached[trial].epochs >= epochs,
            _ => self.ends[trial].is_some() && !self.is_at_rung(trial),
        }
    }
}

/// A trial, and the decision about it.
pub(super) type Item<'t, P> = (&'t TrialSpec<<P as Planned>::Spec>, &'t Prepared<P>);

/// Trials that run up to a rung, or to their end.
pub(super) struct Phase<'t, P: Planned> {
    pub trials: Vec<Item<'t, P>>,
    pub next: AtomicUsize,
    /// The epochs of the rung.
    pub stop_after: Option<u64>,
}

pub(super) fn is_failure(end: &TrialEnd) -> bool {
    matches!(end, TrialEnd::Ran { status: Status::Failed | Status::Diverged, .. })
}

/// Whether a trial was stopped at a rung, and may go on.
pub(super) fn is_at_rung(end: &TrialEnd) -> bool {
    matches!(end, TrialEnd::Ran { status: Status::Stopped, .. })
}
