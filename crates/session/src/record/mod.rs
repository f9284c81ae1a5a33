//! `record`: writes events into a run folder, one sink per file, on a thread of its own.
//!
//! May use [`crate::spec`], [`crate::plan`]'s pure types and [`crate::event`]. A file is opened with its
//! header before the work starts and grows by complete lines. Files that only make sense as a whole are
//! written under a temporary name and renamed. So a kill at any moment leaves every finished row readable,
//! and no incomplete file under its final name.
//!
//! ```text
//! RunDir::create -> open_sinks -> Recorder::start -> sender().send(event) ... -> finish
//! ```

mod checkpoint;
mod claims;
mod command;
mod console;
mod damage;
mod deaths;
mod disk_space;
mod durable;
mod environment;
mod error;
mod event_lines;
mod folder_name;
mod git;
mod held_rows;
mod joint_lines;
mod lab;
mod last_lines;
mod lines;
mod messages;
mod metrics;
mod model_file;
mod own_files;
mod plan_messages;
pub mod protobuf;
mod recorder;
mod remarks;
mod row_file;
mod run_dir;
mod run_lock;
mod run_log;
#[cfg(test)]
mod sample;
mod schedule_remarks;
mod second_signal;
mod summary;
mod sweep_table;
mod system;
mod table_lines;
mod tables;
mod tensorboard;
mod terminal;
pub mod text_table;
mod trace;

use std::{sync::Arc, time::Instant};

use self::{
    checkpoint::Checkpoints, durable::DiskSync, event_lines::EventLines, run_log::RunLog,
    summary::SummaryCsv, tables::EventCsv, tensorboard::TensorBoard, trace::TraceJson,
};
use crate::{
    event::{Event, Recorded},
    plan::Trial,
    spec::Kind,
};

pub use metrics::{MetricColumns, MetricsCsv, last_validated};
pub use summary::{RUNNING, summary_columns};

pub use checkpoint::{
    CheckpointIdentity, CheckpointWeights, Found, checkpoint_weights, has_checkpoints, newest, newest_step,
    remove_remnants,
};
pub use claims::{CLAIMS_FILE, Claim, Claims, SWEEP_FILE, SweepLock};
pub use command::command_line;
pub use console::{Console, ConsoleOptions, LineMode, SweepLine, TrialOfSweep, Verbosity, Warned};
pub use damage::{damage, lost_summary};
pub use deaths::{count_death, forget_deaths, has_deaths};
pub use disk_space::{Extent, RowLengths, run_files};
pub use durable::make_folders;
pub use environment::{
    Cpu, DataFacts, Devices, Environment, EnvironmentFile, GpuFacts, HostOptions, Memory, Os, StepFacts,
    Versions, now, rfc3339,
};
pub use error::RecordError;
pub use folder_name::runs_dir;
pub use git::GitQuery;
pub use joint_lines::JointLines;
use lab::LabTable;
pub use lab::{PRODUCTS, Shown, VIRTUAL, in_words};
pub use lines::{Lines, confusion_csv};
pub use messages::{
    cause, devices_in_words, of_build, others_used, too_busy, waited_for_a_core, waited_too_long,
};
pub use model_file::write_model;
pub use own_files::not_its_own;
pub use plan_messages::{all_reduce, engine, weak_scaling};
pub use recorder::{EventSender, Recorder};
pub use remarks::{hardly_predicted, large_targets, one_class, remarks};
pub use run_dir::RunDir;
pub use run_lock::{LOCK_FILE, LockOwner, RunLock};
pub use second_signal::end_at_second_signal;
pub use sweep_table::{SweepTable, TrialEnd};
pub use system::{Findings, GpuProbe, SystemSampler};
pub use terminal::{folded, output_width, pass_output_width};

/// Consumes events.
pub trait Sink: Send {
    /// Takes one event. What it means for the file may be buffered until [`Sink::flush`], in complete lines.
    ///
    /// # Errors
    /// It cannot be recorded; the sink then gets no more events.
    fn event(&mut self, event: &Event) -> Result<(), RecordError>;

    /// Writes what is buffered. Called whenever no more events are waiting, and now and then while none comes.
    ///
    /// # Errors
    /// Like [`Sink::event`].
    fn flush(&mut self) -> Result<(), RecordError> {
        Ok(())
    }

    /// What is in the file, for sinks with a row per step; asked once the sink has failed.
    fn recorded(&self) -> Option<Recorded> {
        None
    }
}

/// The files that are specific to a kind.
pub enum RunFiles<'a> {
    Training(TrainingFiles<'a>),
    /// Another kind, and whether norms reach the host.
    Lab(Kind, bool),
}

/// What the files of a training need.
pub struct TrainingFiles<'a> {
    pub trial: &'a Trial,
    pub identity: CheckpointIdentity,
    /// When resuming from a checkpoint: the lock of its folder, and the number of rows of `metrics.csv` to keep.
    pub resumed: Option<(RunLock, u64)>,
    /// Row numbers, in the source file, of the rows that do not train, as [`Dataset::apart`](crate::data::Dataset::apart) has them.
    pub apart: Arc<[Vec<u32>; 3]>,
}

/// Opens all files of a run folder that are written from events, and the console. `wall_s` is counted from
/// `begun`.
pub fn open_sinks(
    run: &RunDir,
    files: RunFiles<'_>,
    begun: Instant,
    console: ConsoleOptions,
) -> Result<Vec<Box<dyn Sink>>, RecordError> {
    // The order matters: a sink gets the end of the run once those before it have written everything. So a
    // row in `summary.csv` means that all other files are complete, and the console names the folder once the
    // summary is there.
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    let mut lock = None;
    let is_alone = console.trial.is_none();
    match files {
        RunFiles::Training(TrainingFiles { trial, identity, resumed, apart }) => {
            let logging = &trial.spec.logging;
            let path = run.file("metrics.csv");
            let rows = resumed.as_ref().map(|(_, rows)| *rows);
            let columns = MetricColumns::from_trial(trial);
            let metrics = match rows {
                Some(rows) => MetricsCsv::resume(&path, columns, rows)?,
                None => {
                    held_rows::write_held_rows(&run.file("rows.csv"), &apart)?;
                    MetricsCsv::create(&path, columns)?
                }
            };
            lock = resumed.map(|(lock, _)| lock);
            sinks.push(Box::new(metrics));
            if logging.tensorboard {
                sinks.push(Box::new(TensorBoard::create(run, &logging.metrics)?));
            }
            // A checkpoint must come after the sinks above, which write the rows that it counts.
            sinks.push(Box::new(Checkpoints::new(run.path(), trial, identity, rows.unwrap_or(0), is_alone)));
            sinks.push(Box::new(EventCsv::timing(&run.file("timing.csv"))?));
            if logging.trace {
                sinks.push(Box::new(TraceJson::new(&run.file("trace.json"))));
            }
        }
        RunFiles::Lab(kind, logs_norms) => sinks.extend(lab::sinks(run, kind, logs_norms)?),
    }
    sinks.push(Box::new(EventCsv::transfers(&run.file("transfers.csv"))?));
    let (log, taken) =
        (run.file("run.log"), || RecordError::unusable(run.path(), "another process has taken it"));
    let (log, lock) = match lock {
        Some(lock) => (RunLog::resume(&log)?, lock),
        None => (RunLog::create(&log)?, RunLock::take(run.path())?.ok_or_else(taken)?),
    };
    sinks.push(Box::new(log));
    let summary = run.file("summary.csv");
    if is_alone {
        sinks.push(Box::new(DiskSync::Folder(run.path().to_owned())));
    }
    sinks.push(Box::new(second_signal::shared(SummaryCsv::create(&summary, run.name(), begun)?)));
    if is_alone {
        sinks.push(Box::new(DiskSync::File(summary)));
    }
    if console.json {
        sinks.push(Box::new(EventLines::new(run.path(), console.trial.as_ref().map(|trial| trial.number))));
    }
    sinks.push(Box::new(Console::new(run.path(), begun, console)));
    sinks.push(Box::new(lock)); // the last to go
    Ok(sinks)
}
