//! The state shared by the trials of a sweep while they run.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Instant,
};

use super::{best_setting::Settings, exit::Exit, sweep_time::SweepTime};
use crate::{
    event::Status,
    record::{RecordError, RunDir, SweepTable, TrialEnd},
};

/// Why trials that have not begun are not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// A trial could not be recorded, for a reason that others have, too, such as a full disk.
    Unrecorded,
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
            Self::Unrecorded | Self::Unlisted => "an earlier trial could not be recorded",
            Self::Failed => "an earlier trial failed",
            Self::Mixed => "another process trains on other data",
        }
    }
}

/// The state shared by trials that run side by side.
pub(super) struct Progress {
    pub table: SweepTable,
    /// How each trial ended; more is in the table.
    pub ends: Vec<Option<Ending>>,
    /// The trials that finished, with their best values.
    pub settings: Settings,
    /// How bad each trial was for a sampler that learns, as far as that is known.
    pub costs: Vec<Option<f64>>,
    /// Folders of trials that were begun: before the sweep was resumed, or up to a rung where they wait.
    pub begun: BTreeMap<usize, RunDir>,
    /// Which trials this process has claimed.
    pub own: Vec<bool>,
    /// When this process next checks the trials of others.
    pub next_look: Option<Instant>,
    /// When the best setting may be searched again.
    pub next_best: Option<Instant>,
    /// Whether a trial got further in this process, or it waited at a rung for those of others.
    pub has_progress: bool,
    /// What the trials of this process took their time for.
    pub time: SweepTime,
    pub worst: Exit,
    pub stopped: Option<Stopped>,
    /// The first error from writing the table or claiming trials.
    pub fault: Option<RecordError>,
}

impl Progress {
    /// Starts from the trials that ended (`ends`) or were begun earlier.
    pub fn new(
        table: SweepTable,
        ends: &[Option<TrialEnd>],
        begun: BTreeMap<usize, RunDir>,
        settings: Settings,
    ) -> Self {
        Self {
            table,
            settings,
            costs: Vec::new(),
            ends: ends.iter().map(|end| end.as_ref().map(Ending::from)).collect(),
            begun,
            own: vec![false; ends.len()],
            next_look: None,
            next_best: None,
            has_progress: false,
            time: SweepTime::default(),
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
            *statuses.entry(end.map_or(TrialEnd::PLANNED, Ending::name)).or_default() += 1;
        }
        statuses
    }

    pub fn is_waiting(&self, trial: usize) -> bool {
        self.ends[trial] == Some(Ending::Ran(Status::Waiting))
    }

    /// Whether a trial does not run any more.
    pub fn is_done(&self, trial: usize) -> bool {
        self.ends[trial].is_some() && !self.is_waiting(trial)
    }
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Ran(Status),
    Skipped,
    Planned,
    SameAs,
}

impl From<&TrialEnd> for Ending {
    fn from(end: &TrialEnd) -> Self {
        match end {
            TrialEnd::Ran { status, .. } => Self::Ran(*status),
            TrialEnd::Skipped { .. } => Self::Skipped,
            TrialEnd::Planned => Self::Planned,
            TrialEnd::SameAs { .. } => Self::SameAs,
        }
    }
}

impl Ending {
    /// The word of `sweep.csv`.
    fn name(self) -> &'static str {
        match self {
            Self::Ran(status) => status.name(),
            Self::Skipped => TrialEnd::SKIPPED,
            Self::Planned => TrialEnd::PLANNED,
            Self::SameAs => TrialEnd::SAME_AS,
        }
    }
}

/// Trials to run.
pub(super) struct Phase {
    pub trials: Vec<usize>,
    pub next: AtomicUsize,
    /// Trials that another process had already claimed.
    pub elsewhere: Mutex<Vec<usize>>,
    /// Whether it was printed that trials wait for those of other processes.
    pub is_reported: AtomicBool,
    /// Whether no other process is left to run the trials that this one does not run.
    pub is_last: bool,
}

impl Phase {
    pub fn new(trials: Vec<usize>) -> Self {
        let (next, elsewhere, is_reported) = Default::default();
        Self { trials, next, elsewhere, is_reported, is_last: false }
    }
}

pub(super) fn is_failure(end: &TrialEnd) -> bool {
    matches!(end, TrialEnd::Ran { status: Status::Failed | Status::Diverged, .. })
}

/// Whether a trial waits at a rung.
pub(super) fn is_waiting(end: &TrialEnd) -> bool {
    matches!(end, TrialEnd::Ran { status: Status::Waiting, .. })
}
