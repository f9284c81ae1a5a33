//! `record`: events into a run folder, one sink per file, on a thread of its own.
//!
//! May use [`crate::spec`], [`crate::plan`]'s pure types and [`crate::event`]. A file is opened with its header before the work starts and grows by
//! whole lines; files that only make sense whole are written under a temporary name and renamed. So a kill at any
//! moment leaves every finished row readable and nothing half-written under its final name.
//!
//! ```text
//! RunDir::create -> open_sinks -> Recorder::start -> sender().send(event) ... -> finish
//! ```

mod checkpoint;
mod claims;
mod command;
mod console;
mod deaths;
mod durable;
mod environment;
mod error;
mod event_lines;
mod git;
mod held_rows;
mod lab;
mod lines;
mod messages;
mod metrics;
mod model_file;
mod plan_messages;
mod recorder;
mod remarks;
mod row_file;
mod run_dir;
mod run_log;
#[cfg(test)]
mod sample;
mod summary;
mod sweep_table;
mod system;
mod tables;
mod tensorboard;
pub mod text_table;
mod trace;

use std::{sync::Arc, time::Instant};

use self::{
    checkpoint::Checkpoints, durable::DiskSync, event_lines::EventLines, run_log::RunLog,
    summary::SummaryCsv, tables::EventCsv, tensorboard::TensorBoard, trace::TraceJson,
};
use crate::{event::Event, plan::Trial, spec::Kind};

pub use metrics::{MetricColumns, MetricsCsv};
pub use summary::summary_columns;

pub use checkpoint::{
    CheckpointIdentity, Found, checkpoint_weights, has_checkpoints, newest, newest_step, remove_remnants,
};
pub use claims::{CLAIMS_FILE, Claim, Claims, SWEEP_FILE};
pub use command::command_line;
pub use console::{Console, ConsoleOptions, LineMode, SweepLine, TrialOfSweep, Verbosity, Warned};
pub use deaths::{count_death, forget_deaths, has_deaths};
pub use environment::{
    Cpu, DataFacts, Devices, Environment, EnvironmentFile, GpuFacts, HostOptions, Memory, Os, StepFacts,
    Versions, now, rfc3339,
};
pub use error::RecordError;
pub use git::GitQuery;
use lab::LabTable;
pub use lab::VIRTUAL;
pub use lines::{Lines, confusion_csv};
pub use messages::{cause, devices_in_words, of_build, others_used};
pub use model_file::write_model;
pub use plan_messages::{all_reduce, engine, weak_scaling};
pub use recorder::{EventSender, Recorder};
pub use remarks::{large_targets, remarks};
pub use run_dir::RunDir;
pub use run_log::RunLock;
pub use sweep_table::{SweepTable, TrialEnd};
pub use system::{Findings, GpuProbe, SystemSampler};

/// Consumes events.
pub trait Sink: Send {
    /// Takes one event. What it means for a file may wait in memory until [`Sink::flush`], in whole lines.
    ///
    /// # Errors
    /// Where it cannot be kept; the sink then gets no more events.
    fn event(&mut self, event: &Event) -> Result<(), RecordError>;

    /// Writes what waits. Called whenever no more events do.
    ///
    /// # Errors
    /// As [`Sink::event`].
    fn flush(&mut self) -> Result<(), RecordError> {
        Ok(())
    }

    /// The last step whose row is in the file, of one that has rows of steps; asked once it has failed.
    fn last_step(&self) -> Option<u64> {
        None
    }
}

/// The files that are a kind's own.
pub enum RunFiles<'a> {
    Training(TrainingFiles<'a>),
    /// Another kind; whether norms reach the host.
    Lab(Kind, bool),
}

/// What the files of a training are made of.
pub struct TrainingFiles<'a> {
    pub trial: &'a Trial,
    pub identity: CheckpointIdentity,
    /// Where the run goes on from a checkpoint: its folder's log, which is locked, and the rows of `metrics.csv` that stay.
    pub resumed: Option<(RunLock, u64)>,
    /// Numbers, in the file, of the rows that validate and of those of a test.
    pub apart: Arc<[Vec<u32>; 2]>,
}

/// Opens every file of a run folder that events fill, and the console. `wall_s` is counted from `begun`.
pub fn open_sinks(
    run: &RunDir,
    files: RunFiles<'_>,
    begun: Instant,
    console: ConsoleOptions,
) -> Result<Vec<Box<dyn Sink>>, RecordError> {
    // A sink gets the end once those before it have written everything: a row in `summary.csv` says that all other files
    // are complete, and the console names the folder once the summary is there.
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    let mut lock = None;
    let is_alone = console.trial.is_none();
    match files {
        RunFiles::Training(TrainingFiles { trial, identity, resumed, apart }) => {
            let logging = &trial.spec.logging;
            let path = run.file("metrics.csv");
            let rows = resumed.as_ref().map(|(_, rows)| *rows);
            let columns = MetricColumns::new(&logging.metrics, trial.target_names());
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
            // A checkpoint stands behind the rows that come before it, in the files above.
            sinks.push(Box::new(Checkpoints::new(run.path(), trial, identity, rows.unwrap_or(0), is_alone)));
            sinks.push(Box::new(EventCsv::timing(&run.file("timing.csv"))?));
            if logging.trace {
                sinks.push(Box::new(TraceJson::new(&run.file("trace.json"))));
            }
        }
        RunFiles::Lab(kind, logs_norms) => sinks.extend(lab::sinks(run, kind, logs_norms)?),
    }
    sinks.push(Box::new(EventCsv::transfers(&run.file("transfers.csv"))?));
    sinks.push(Box::new(match lock {
        Some(lock) => RunLog::resume(lock),
        None => RunLog::create(&run.file("run.log"))?,
    }));
    let summary = run.file("summary.csv");
    if is_alone {
        sinks.push(Box::new(DiskSync::Folder(run.path().to_owned())));
    }
    sinks.push(Box::new(SummaryCsv::create(&summary, run.name(), begun)?));
    if is_alone {
        sinks.push(Box::new(DiskSync::File(summary)));
    }
    if console.json {
        sinks.push(Box::new(EventLines::new(run.path(), console.trial.as_ref().map(|trial| trial.number))));
    }
    sinks.push(Box::new(Console::new(run.path(), begun, console)));
    Ok(sinks)
}
