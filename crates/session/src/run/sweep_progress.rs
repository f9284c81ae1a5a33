//! The state shared by the trials of a sweep while they run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, atomic::AtomicUsize},
    time::Instant,
};

use super::{best_setting::Settings, exit::Exit, rungs::Reached};
use crate::{
    event::Status,
    record::{RecordError, RunDir, SweepTable, TrialEnd},
};

/// Why trials that have not begun are not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The disk is full: a trial could not be recorded.
    Full,
    /// `sweep.csv` cannot be written, or trials cannot be claimed.
    Unlisted,
    /// A trial failed, and `--fail-fast` was given.
    Failed,
    /// Another process trains on other data.
    Mixed,
}

impl Stopped {
    /// The reason recorded for skipped trials.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Full | Self::Unlisted => "an earlier trial could not be recorded",
            Self::Failed => "an earlier trial failed",
            Self::Mixed => "another process trains on other data",
        }
    }
}

/// The state shared by trials that run side by side.
pub(super) struct Progress {
    pub table: SweepTable,
    pub ends: Vec<Option<TrialEnd>>,
    /// How far each trial has come.
    pub reached: Vec<Reached>,
    /// The trials that finished, with their best values.
    pub settings: Settings,
    /// How bad each trial was for the sampler and the rungs, as far as that is known.
    pub costs: Vec<Option<f64>>,
    /// Folders of trials that were begun: before the sweep was resumed, or up to a rung.
    pub begun: BTreeMap<usize, RunDir>,
    /// Trials that this process has claimed.
    pub own: BTreeSet<usize>,
    /// When this process next checks the trials of others.
    pub next_look: Option<Instant>,
    /// Whether a trial got further in this process, or it waited at a rung for those of others.
    pub has_progress: bool,
    pub worst: Exit,
    pub stopped: Option<Stopped>,
    /// The first error from writing the table or claiming trials.
    pub fault: Option<RecordError>,
}

impl Progress {
    /// Starts from the trials that ended (`ends`) or were begun earlier.
    pub fn new(table: SweepTable, ends: Vec<Option<TrialEnd>>, begun: BTreeMap<usize, RunDir>) -> Self {
        Self {
            table,
            reached: vec![Reached::default(); ends.len()],
            settings: Settings::default(),
            costs: vec![None; ends.len()],
            ends,
            begun,
            own: BTreeSet::new(),
            next_look: None,
            has_progress: false,
            worst: Exit::Done,
            stopped: None,
            fault: None,
        }
    }

    /// Stops the sweep, because trials can no longer be listed or claimed.
    pub fn unlisted(&mut self, fault: RecordError) {
        self.stopped.get_or_insert(Stopped::Unlisted);
        self.fault.get_or_insert(fault);
    }

    /// How many trials have each status.
    pub fn statuses(&self) -> BTreeMap<&'static str, usize> {
        let mut statuses = BTreeMap::new();
        for end in &self.ends {
            *statuses.entry(end.as_ref().map_or("planned", TrialEnd::status)).or_default() += 1;
        }
        statuses
    }

    pub fn is_at_rung(&self, trial: usize) -> bool {
        self.ends[trial].as_ref().is_some_and(is_at_rung)
    }

    /// Whether a trial has reached the end of the phase.
    pub fn is_done(&self, trial: usize, phase: &Phase) -> bool {
        match phase.stop_after {
            Some(epochs) if self.is_at_rung(trial) => self.reached[trial].epochs >= epochs,
            _ => self.ends[trial].is_some() && !self.is_at_rung(trial),
        }
    }
}

/// Trials to run up to a rung, or to their end.
pub(super) struct Phase {
    pub trials: Vec<usize>,
    pub next: AtomicUsize,
    /// The epochs of the rung.
    pub stop_after: Option<u64>,
    /// Trials that another process had already claimed.
    pub elsewhere: Mutex<Vec<usize>>,
    /// Whether no other process is left to run the trials that this one does not run.
    pub is_last: bool,
}

impl Phase {
    pub fn new(trials: Vec<usize>, stop_after: Option<u64>) -> Self {
        Self { trials, next: AtomicUsize::new(0), stop_after, elsewhere: Mutex::default(), is_last: false }
    }
}

pub(super) fn is_failure(end: &TrialEnd) -> bool {
    matches!(end, TrialEnd::Ran { status: Status::Failed | Status::Diverged, .. })
}

/// Whether a trial is at a rung: it waits there, or was stopped there. (Older versions called both
/// `stopped`.)
pub(super) fn is_at_rung(end: &TrialEnd) -> bool {
    matches!(end, TrialEnd::Ran { status: Status::Waiting | Status::Stopped, .. })
}
