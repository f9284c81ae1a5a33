//! The interface between a session and a kind of trial.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

use super::{extension::Extension, samples::SeedsAndFold};
use crate::{
    device::DeviceError,
    event::{Closed, Outcome},
    host::load::Watch,
    plan::{Machine, PlanError, ResolvedDevices},
    record::{DataFacts, EventSender, GitQuery, RecordError, RunDir, RunFiles, StepFacts, Verbosity},
    spec::{Halving, Monitor},
    train::StopFlag,
};

/// When a run began, on both clocks.
#[derive(Clone, Copy)]
pub struct Start {
    pub begun: Instant,
    pub at: DateTime<Utc>,
}

/// Options and state that all runs of the process share.
pub struct Process {
    pub start: Start,
    /// The command line as typed.
    pub command: String,
    /// Where run folders are made.
    pub runs_dir: PathBuf,
    pub resume: Resume,
    /// What a sweep that goes on is given, where that is more than it had.
    pub extension: Option<Extension>,
    pub verbosity: Verbosity,
    /// Whether standard output shows the events as JSON.
    pub json: bool,
    /// Whether standard error is a terminal.
    pub terminal: bool,
    /// `--threads`, where given.
    pub threads: Option<u32>,
    /// Threads that may compute.
    pub available_threads: usize,
    /// `--virtual-gpus`, where given.
    pub virtual_gpus: Option<u32>,
    /// The pending git query about the spec's folder.
    pub git: GitQuery,
    pub stop: StopFlag,
    /// Number of trials of a sweep that run side by side.
    pub jobs: usize,
    /// Whether a sweep ends when a trial fails.
    pub fail_fast: bool,
    /// How this process takes part in a sweep.
    pub role: Role,
    /// Measures how much CPU time other processes use.
    pub load: Watch,
}

/// How a process takes part in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs trials; if no other process is at work, it also repeats those that failed.
    Runs,
    /// One of many processes that come and go, so it leaves failed trials as they are.
    RunsOneOfMany,
    /// Leaves all trials to others.
    Plans,
}

/// Which run to resume from its newest checkpoint.
#[derive(Clone, Debug)]
pub enum Resume {
    /// None: a new run begins.
    No,
    /// The newest run of the spec; if it has no checkpoint, a new run begins.
    Auto,
    Run(RunDir),
    /// The trials of this sweep that are not done.
    Sweep(RunDir),
}

/// What the files of a run folder say about a planned trial.
pub struct RunFacts<'a> {
    /// The name used for the run folder.
    pub name: &'a str,
    /// The resolved spec.
    pub toml: String,
    /// Comments above the resolved spec.
    pub notes: Vec<String>,
    /// Threads that compute.
    pub threads: usize,
    /// The number format of the products.
    pub precision: &'static str,
    /// The CPU unit that multiplies bfloat16, if the run does that on the CPU.
    pub bf16_unit: Option<&'static str>,
    /// How finely steps are timed, and by which clock.
    pub timed_by: &'static str,
    /// The engine of a training, and why.
    pub engine: Option<String>,
    /// After which step a training was resumed.
    pub resumed_after: Option<u64>,
    /// The work of a step; for training only.
    pub step: Option<StepFacts>,
    /// What the data are known by; of training alone.
    pub data: Option<DataFacts>,
    /// How gradients are summed, and why; only with several devices that include GPUs.
    pub sums: Option<String>,
    /// Whether cuBLASLt and NCCL are used.
    pub libraries: [bool; 2],
    /// Outer option: whether the machine is sampled at all. Inner option: the interval of the rows in
    /// `system.csv`.
    pub system: Option<Option<Duration>>,
    /// Files that are specific to the kind.
    pub files: RunFiles<'a>,
}

/// Why a run did not reach its recorded end.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The run folder cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A device cannot be used, or cannot hold the run.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Data that was read during planning is now unreadable or different.
    #[error("the data have changed since the start: {0}")]
    Data(String),
    /// No checkpoint is intact.
    #[error("no checkpoint of `{folder}` can be used: {why}")]
    NoCheckpoint { folder: String, why: String },
    /// Several processes that ran a trial died, one after the other, none of them getting further than the
    /// one before.
    #[error(
        "{0} processes in a row died before its next checkpoint: killed, or their machine failed; none could record why"
    )]
    Deadly(u32),
    /// A run cannot be resumed from its checkpoints.
    #[error("{message}")]
    Resume { message: String, hint: &'static str },
}

impl ExecuteError {
    pub(super) fn under_way(folder: &RunDir) -> Self {
        let message = format!("`{}` is under way in another process", folder.path().display());
        Self::Resume { message, hint: "wait for its end, or end it" }
    }
}

/// A planned trial of any kind.
pub trait Planned: Sized + Send + Sync {
    /// Whether trials may run side by side. Kinds that measure the machine may not.
    const SIDE_BY_SIDE: bool;
    type Spec: serde::Serialize + Send + Sync;
    /// State that the trials of an experiment share, such as loaded data sets.
    type Shared: Send;
    /// The opened data of a trial.
    type Opened;
    /// Resources acquired before the run folder is made, because acquiring them (memory, threads, rows) can
    /// fail.
    type Ready<'a>
    where
        Self: 'a;

    fn name(spec: &Self::Spec) -> &str;

    /// The seeds of a trial, and the fold that it validates on.
    fn seeds_and_fold(spec: &Self::Spec) -> SeedsAndFold;

    /// What draws the validation rows of a trial in each fold: trials of a setting with the same have the same rows.
    fn drawn_by(spec: &Self::Spec) -> String {
        let [seeds, _] = Self::seeds_and_fold(spec);
        seeds
    }

    /// First 8 hex digits of SHA-256 of the resolved spec.
    fn hash8(&self) -> String;

    /// Tells the kind which folders may be resumed, newest first, so that their trials keep the engine chosen
    /// there.
    fn goes_on(_: &mut Self::Shared, _: Vec<RunDir>) {}

    /// The digest of its data as recorded in a run's environment; `None` if it has no data.
    fn data_digest(&self) -> Option<String> {
        None
    }

    /// Whether a run was begun with different data than it would have now.
    fn has_other_data(&self, run: &RunDir) -> bool {
        let digests = run.data_digest().zip(self.data_digest());
        digests.is_some_and(|(was, is)| was != is)
    }

    /// Tells the kind how many trials are planned next.
    fn begin_planning(_: &mut Self::Shared, _trials: usize) {}

    /// Plans a trial.
    fn plan(
        spec: &Self::Spec,
        shared: &mut Self::Shared,
        machine: &Machine,
        threads: usize,
    ) -> Result<Self, PlanError>;

    /// Reconsiders what the trials of a sweep have to share, once all of them are planned.
    fn settle_together(_: Vec<&mut Self>, _: &mut Self::Shared, _: &Machine, _threads: usize) {}

    /// Whether running it would only repeat the trial `earlier`.
    fn repeats(&self, earlier: &Self) -> bool;

    /// Requested and used devices.
    fn devices(&self) -> &ResolvedDevices;

    /// The same trial on equivalent devices, if it can run on others.
    fn on(&self, _: ResolvedDevices) -> Option<Self> {
        None
    }

    /// Bytes needed on the device that holds the most, and whether its steps take one block of a GPU.
    fn gpu_need(&self) -> (u64, bool) {
        (0, false)
    }

    /// The number of folds of its data, and the fold used for validation.
    fn fold(&self) -> Option<[u32; 2]> {
        None
    }

    /// Planned steps and the engine, for the table of trials.
    fn steps_and_engine(&self) -> Option<(u64, &'static str)> {
        None
    }

    fn epochs(&self) -> Option<u64> {
        None
    }

    /// Why its first rung has no validation, and a hint, if it has none.
    fn unjudged(&self, _: Halving) -> Option<[String; 2]> {
        None
    }

    /// The metric that selects its best weights.
    fn monitor(&self) -> Option<Monitor> {
        None
    }

    /// Warnings other than the note on its devices; `axes` are the keys that its sweep sweeps.
    fn remarks(&self, axes: &[String]) -> Vec<String>;

    /// Brings a process to the speed that it keeps, before the first trial of a sweep is timed.
    fn warm_up(&self) {}

    /// Opens its data.
    ///
    /// # Errors
    /// They changed since the trial was planned.
    fn open(&self, shared: &mut Self::Shared) -> Result<Self::Opened, ExecuteError>;

    /// Acquires its resources. Other trials may do so at the same time.
    fn ready(&self, opened: Self::Opened) -> Result<Self::Ready<'_>, ExecuteError>;

    /// Whether a run folder has exactly this spec.
    fn has_spec_of(&self, folder: &RunDir) -> bool;

    /// What is wrong with the spec in the folder of this trial of a sweep with these axes, in words: it is another's, or was cut.
    fn foreign_spec(&self, _folder: &RunDir, _axes: &[String]) -> Option<String> {
        None
    }

    /// What has changed in the spec since the run of a folder, in words, if any.
    ///
    /// # Errors
    /// Why that run does not go on as this one, unless its user names it.
    fn changes_since(&self, _folder: &RunDir) -> Result<Option<String>, String> {
        Err("only a training can go on".to_owned())
    }

    /// What has changed in the spec since the run of a folder, in words, and the overrides with which that run goes on as this one,
    /// if any do. `None` if a run cannot go on with such changes.
    fn allowed_changes(&self, _folder: &RunDir) -> Option<(String, Vec<String>)> {
        None
    }

    /// Replaces the initial state with the newest checkpoint of a run folder, and locks the folder.
    fn resume(&self, ready: &mut Self::Ready<'_>, folder: &RunDir) -> Result<(), ExecuteError>;

    fn facts<'a>(&'a self, ready: &mut Self::Ready<'_>) -> RunFacts<'a>;

    /// Does the work and sends its events, except [`crate::event::Event::Finished`].
    fn run(
        &self,
        ready: Self::Ready<'_>,
        folder: &RunDir,
        stop: &StopFlag,
        sender: &EventSender,
    ) -> Result<Outcome, Closed>;
}
