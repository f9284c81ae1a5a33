//! What a kind of trial does for a session.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

use crate::{
    device::DeviceError,
    event::{Closed, Outcome},
    host::load::Watch,
    plan::{Machine, PlanError, ResolvedDevices},
    record::{DataFacts, EventSender, GitQuery, RecordError, RunDir, RunFiles, StepFacts, Verbosity},
    spec::Monitor,
    train::StopFlag,
};

/// When a run began.
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
    /// Whether a run goes on.
    pub resume: Resume,
    pub verbosity: Verbosity,
    /// Whether standard output has the events as JSON.
    pub json: bool,
    /// Whether standard error is a terminal.
    pub terminal: bool,
    /// `--threads`, where given.
    pub threads: Option<u32>,
    /// Threads that may compute.
    pub available_threads: usize,
    /// `--virtual-gpus`, where given.
    pub virtual_gpus: Option<u32>,
    /// The pending query about the spec's folder.
    pub git: GitQuery,
    pub stop: StopFlag,
    /// Trials of a sweep that run side by side.
    pub jobs: usize,
    /// Whether they may share a GPU.
    pub share: bool,
    /// Whether a sweep ends with its first trial that fails.
    pub fail_fast: bool,
    /// How it takes part in a sweep.
    pub role: Role,
    /// Measures how much CPU time other processes use.
    pub load: Watch,
}

/// How a process takes part in a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs trials; one that finds no other at work repeats those that failed.
    Runs,
    /// It is one of many that come and go, and so leaves failed trials as they are.
    RunsOneOfMany,
    /// It leaves all trials to others.
    Plans,
}

/// Which run goes on from its newest checkpoint.
#[derive(Clone, Debug)]
pub enum Resume {
    /// None: one begins.
    No,
    /// The newest one of the spec; where that has no checkpoint, one begins.
    Auto,
    Run(RunDir),
    /// The trials of a sweep that are not done.
    Sweep(RunDir),
}

/// What the files of a run folder say about a planned trial.
pub struct RunFacts<'a> {
    /// Names the folder of the runs.
    pub name: &'a str,
    /// The resolved spec.
    pub toml: String,
    /// Comments above the resolved spec.
    pub notes: Vec<String>,
    /// Threads that compute.
    pub threads: usize,
    /// The number format of the products.
    pub precision: &'static str,
    /// What multiplies bfloat16 on the CPU, where the run does that.
    pub bf16_unit: Option<&'static str>,
    /// How finely steps are timed, and why.
    pub timed_by: &'static str,
    /// The engine of a training, and why.
    pub engine: Option<String>,
    /// The work of a step; of training alone.
    pub step: Option<StepFacts>,
    /// What the data are known by; of training alone.
    pub data: Option<DataFacts>,
    /// How gradients are summed, and why; only with several devices that include GPUs.
    pub sums: Option<String>,
    /// Whether cuBLASLt and NCCL are used.
    pub libraries: [bool; 2],
    /// The outer option: sample the machine at all. The inner one: the interval of the rows in `system.csv`.
    pub system: Option<Option<Duration>>,
    /// The kind's own files.
    pub files: RunFiles<'a>,
}

/// Why a run did not come to its recorded end.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The run folder cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A device cannot be used, or cannot hold the run.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Data that was read during planning is unreadable or different now.
    #[error("the data have changed since the start: {0}")]
    Data(String),
    /// None of the checkpoints is whole.
    #[error("no checkpoint of `{folder}` can be used: {why}")]
    NoCheckpoint { folder: String, why: String },
    /// Processes that ran a trial died, one after the other, none of them further than the one before.
    #[error(
        "{0} processes that ran it died, one after the other, before its next checkpoint; it may take more memory than there is"
    )]
    Deadly(u32),
    /// A run cannot go on from its checkpoints.
    #[error("{message}")]
    Resume { message: String, hint: &'static str },
}

/// A planned trial of any kind.
pub trait Planned: Sized + Send + Sync {
    /// Whether trials may run side by side: others measure the machine.
    const SIDE_BY_SIDE: bool;
    type Spec: serde::Serialize + Send + Sync;
    /// State that the trials of an experiment share, such as loaded data sets.
    type Shared: Send;
    /// What it trains on.
    type Opened;
    /// Resources acquired before the run folder exists, since acquiring them can fail: memory, threads, rows.
    type Ready<'a>
    where
        Self: 'a;

    fn name(spec: &Self::Spec) -> &str;

    /// First 8 hex digits of SHA-256 of the resolved spec.
    fn hash8(&self) -> String;

    /// Trials that may go on in one of these folders, the newest first, keep what was chosen by trial there.
    fn goes_on(_: &mut Self::Shared, _: Vec<RunDir>) {}

    /// The digest of its data, as a run's environment has it; `None` where it has no data.
    fn data_digest(&self) -> Option<String> {
        None
    }

    /// Plans a trial.
    ///
    /// # Errors
    /// Problems of the spec or its data, or a missing device.
    fn plan(
        spec: &Self::Spec,
        shared: &mut Self::Shared,
        machine: &Machine,
        threads: usize,
    ) -> Result<Self, PlanError>;

    /// Whether running it would only repeat `earlier`.
    fn repeats(&self, earlier: &Self) -> bool;

    /// Requested and used devices.
    fn devices(&self) -> &ResolvedDevices;

    /// The same trial on devices like its own, where it can run on others.
    fn on(&self, _: ResolvedDevices) -> Option<Self> {
        None
    }

    /// Bytes that it takes on the device that holds the most.
    fn device_bytes(&self) -> u64 {
        0
    }

    /// The number of folds of its data, and the fold that it validates on.
    fn fold(&self) -> Option<[u32; 2]> {
        None
    }

    /// Planned steps and the engine, for the table of trials.
    fn steps_and_engine(&self) -> Option<(u64, &'static str)> {
        None
    }

    /// Planned epochs, where there are any.
    fn epochs(&self) -> Option<u64> {
        None
    }

    /// The metric that chooses its best weights.
    fn monitor(&self) -> Option<Monitor> {
        None
    }

    /// Warnings besides the note on its devices.
    fn remarks(&self) -> Vec<String>;

    /// Brings a process to the speed that it keeps, before the first trial of a sweep is timed.
    fn warm_up(&self) {}

    /// Opens its data.
    ///
    /// # Errors
    /// They changed since the trial was planned.
    fn open(&self, shared: &mut Self::Shared) -> Result<Self::Opened, ExecuteError>;

    /// Acquires its resources, while other trials may do the same.
    ///
    /// # Errors
    /// A resource is missing.
    fn ready(&self, opened: Self::Opened) -> Result<Self::Ready<'_>, ExecuteError>;

    /// Whether the run of a folder is of this very spec and data.
    fn is_of(&self, ready: &Self::Ready<'_>, folder: &RunDir) -> bool;

    /// Puts the newest checkpoint of a run's folder in the place of the start, and locks the folder.
    ///
    /// # Errors
    /// There is none that it could go on from.
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
