//! `run`: the trials of an experiment, of whatever kind, from their plans to their last files.
//!
//! ```text
//! prepare every trial -> Session: one run, or every trial of a sweep -> execute -> Planned::run, which trains or measures
//! ```
//!
//! [`Planned`] is what a kind adds: [`training`] and [`lab`] say it of theirs. May use all layers but
//! [`crate::report`] and [`crate::cli`].

mod announce;
mod datasets;
mod device_group;
mod execute;
mod exit;
mod lab;
mod lab_sweep;
mod prepare;
mod session;
mod training;
mod warnings;

use std::{path::PathBuf, time::Duration, time::Instant};

use chrono::{DateTime, Utc};

pub use datasets::Datasets;
pub use device_group::{RankLink, executor};
pub use execute::ExecuteError;
pub use exit::{Exit, print, print_error, print_stderr, refuse};
pub use prepare::{Prepared, first_run, prepare, warnings};
pub use session::{Ended, Session, TrialEnded};
pub use warnings::Warnings;

use crate::{
    event::Outcome,
    host::load::Watch,
    plan::{Machine, PlanError, ResolvedDevices},
    record::{EventSender, GitQuery, RunDir, RunFiles, Stopped, Verbosity},
    spec::Experiment,
    train::StopFlag,
};

/// What all runs of a process share.
pub struct Process {
    pub begun: Instant,
    pub started: DateTime<Utc>,
    /// The command line as typed.
    pub command: String,
    /// Where run folders are made.
    pub runs_dir: PathBuf,
    pub verbosity: Verbosity,
    /// Whether standard error is a terminal.
    pub terminal: bool,
    /// `--threads`, where given.
    pub threads: Option<u32>,
    /// Threads that may compute.
    pub available_threads: usize,
    /// `--virtual-gpus`, where given.
    pub virtual_gpus: Option<u32>,
    /// What was asked of git about the spec's folder.
    pub git: GitQuery,
    pub stop: StopFlag,
    /// How busy others keep the machine.
    pub load: Watch,
}

/// What a session must know of a planned trial that is ready to run, for its folder.
pub struct RunFacts<'a> {
    /// Names the folder of the runs.
    pub name: &'a str,
    /// First 8 hex digits of SHA-256 of the resolved spec.
    pub hash8: String,
    pub toml: String,
    /// Comments above it.
    pub notes: Vec<String>,
    /// Names and UUIDs of the GPUs.
    pub gpus: &'a [(String, String)],
    /// Threads that compute.
    pub threads: usize,
    /// Of the CPU's products.
    pub instruction_set: &'a str,
    /// The number format of the products.
    pub precision: &'static str,
    /// How finely steps are timed, and why.
    pub timed_by: &'static str,
    /// How devices sum, and why, where GPUs are among several.
    pub sums: Option<String>,
    /// NVIDIA's libraries that are used: for large products, for sums over GPUs.
    pub libraries: [bool; 2],
    /// Whether the machine is looked at while the run goes on, and how often `system.csv` has a row.
    pub system: Option<Option<Duration>>,
    /// The files that are its kind's own.
    pub files: RunFiles<'a>,
}

/// A planned trial of any kind.
pub trait Planned: Sized {
    /// What the user wrote.
    type Spec: serde::Serialize;
    /// What the trials of an experiment share.
    type Shared;
    /// All that may be refused, taken before a folder is made: memory, threads, rows.
    type Ready<'a>
    where
        Self: 'a;

    fn name(spec: &Self::Spec) -> &str;

    /// Plans a trial.
    ///
    /// # Errors
    /// What is wrong with the spec or its data, or the device that is missing.
    fn plan(
        spec: &Self::Spec,
        shared: &mut Self::Shared,
        machine: &Machine,
        threads: usize,
    ) -> Result<Self, PlanError>;

    /// Whether it would only repeat that trial.
    fn repeats(&self, earlier: &Self) -> bool;

    /// What was asked and what is used.
    fn devices(&self) -> &ResolvedDevices;

    /// Planned steps and what runs them, where a table of trials tells them apart by those.
    fn steps_and_engine(&self) -> Option<(u64, &'static str)> {
        None
    }

    /// What is to be said beside the note on its devices.
    fn remarks(&self) -> Vec<String>;

    /// Takes what it needs.
    ///
    /// # Errors
    /// What is not there or has changed since it was planned.
    fn ready(&self, shared: &mut Self::Shared) -> Result<Self::Ready<'_>, ExecuteError>;

    /// For its folder.
    fn facts<'a>(&'a self, ready: &Self::Ready<'_>) -> RunFacts<'a>;

    /// Runs it. The last event is the caller's to send.
    fn run(
        &self,
        ready: Self::Ready<'_>,
        folder: &RunDir,
        stop: &StopFlag,
        sender: &EventSender,
    ) -> Result<Outcome, Stopped>;

    /// What the end of a sweep says; `None` where [`crate::report`] says it from the sweep's files.
    fn sweep_end(
        _: &Experiment<Self::Spec>,
        _: &[TrialEnded<'_, Self>],
        _folder: &std::path::Path,
    ) -> Option<String> {
        None
    }
}
