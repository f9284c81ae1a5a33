//! `sweep.csv`: one row per trial, all of them from the start.
//!
//! The file is written anew, under a temporary name, when a trial ends, at most once a second and at the sweep's end. What a
//! row lags behind stands in the trial's own folder.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    RecordError,
    durable::{SyncQueue, sync_files},
    lines::Lines,
    summary::summary_columns,
};
use crate::{
    event::Status,
    host::{Durability, write_atomically},
};

/// How often the file is written at most, but for its end.
const INTERVAL: Duration = Duration::from_secs(1);

/// What became of a trial.
#[derive(Clone, Debug)]
pub enum TrialEnd {
    /// It ran, and its folder holds a summary, unless it failed too early for one.
    Ran { status: Status, folder: String, reason: Option<String> },
    /// It could not run.
    Skipped { reason: String },
    /// It would equal an earlier trial in all but the request, and was not run again. The note: what it asks for where that
    /// is not there, and what it would use instead.
    SameAs { trial: usize, folder: String, note: Option<String> },
}

/// The writer of `sweep.csv`.
pub struct SweepTable {
    folder: PathBuf,
    head: Vec<u8>,
    /// The lines of all trials, in order.
    rows: Vec<Vec<u8>>,
    /// The values of each trial's axes, as the user would write them.
    axes: Vec<Vec<String>>,
    queue: SyncQueue,
    /// The columns taken from a trial's `summary.csv`: those that the sweep's own do not name already.
    summary_columns: Vec<&'static str>,
    written: Instant,
    is_stale: bool,
}

impl SweepTable {
    /// Writes `sweep.csv` into a sweep's folder, with columns for these axes (dotted keys) and a row for each trial: the
    /// values of its axes, and its end where it ended before the sweep went on.
    pub fn create(
        sweep_folder: &Path,
        axes: &[String],
        trials: Vec<(Vec<String>, Option<TrialEnd>)>,
    ) -> Result<Self, RecordError> {
        let mut columns = vec!["trial"];
        columns.extend(axes.iter().map(String::as_str));
        columns.extend(["status", "folder", "reason"]);
        let summary_columns: Vec<_> =
            summary_columns().into_iter().filter(|c| !columns.contains(c)).collect();
        columns.extend(&summary_columns);
        let mut head = Lines::new();
        for column in columns {
            head.text(column);
        }
        head.end();
        let (axes, ends): (Vec<_>, Vec<_>) = trials.into_iter().unzip();
        let mut table = Self {
            folder: sweep_folder.to_owned(),
            head: head.bytes().to_vec(),
            rows: vec![Vec::new(); axes.len()],
            axes,
            queue: SyncQueue::new(),
            summary_columns,
            written: Instant::now(),
            is_stale: true,
        };
        for (trial, end) in ends.iter().enumerate() {
            table.rows[trial] = table.row(trial, end.as_ref())?;
        }
        table.write()?;
        Ok(table)
    }

    /// Sets the end of a trial, by its number from 0. The figures of one that ran are taken from its own `summary.csv`;
    /// those of others are empty.
    pub fn set(&mut self, trial: usize, end: &TrialEnd) -> Result<(), RecordError> {
        self.rows[trial] = self.row(trial, Some(end))?;
        self.is_stale = true;
        if self.written.elapsed() >= INTERVAL {
            self.write()?;
        }
        match end {
            TrialEnd::Ran { folder, .. } if !folder.is_empty() => self.queue.push(self.folder.join(folder)),
            _ => Ok(()),
        }
    }

    fn row(&self, trial: usize, end: Option<&TrialEnd>) -> Result<Vec<u8>, RecordError> {
        let (status, folder, reason) = match end {
            None => ("planned", "", String::new()),
            Some(TrialEnd::Ran { status, folder, reason }) => {
                (status.name(), folder.as_str(), reason.clone().unwrap_or_default())
            }
            Some(TrialEnd::Skipped { reason }) => ("skipped", "", reason.clone()),
            Some(TrialEnd::SameAs { trial, folder, note }) => {
                let note = note.as_ref().map(|note| format!(": {}", note.replace('`', "")));
                let note = note.unwrap_or_default();
                ("same_as", folder.as_str(), format!("the same run as trial {trial}{note}"))
            }
        };
        let figures = match end {
            Some(TrialEnd::Ran { folder, .. }) => self.figures(folder)?,
            _ => vec![String::new(); self.summary_columns.len()],
        };
        let mut line = Lines::new();
        line.u64(trial as u64);
        for value in &self.axes[trial] {
            line.text(value);
        }
        line.text(status).text(folder).text(&reason);
        for figure in &figures {
            line.text(figure);
        }
        line.end();
        Ok(line.bytes().to_vec())
    }

    /// Writes all rows now.
    pub fn write(&mut self) -> Result<(), RecordError> {
        let path = self.folder.join("sweep.csv");
        let write = write_atomically(&path, Durability::Process, |file| {
            file.write_all(&self.head)?;
            self.rows.iter().try_for_each(|row| file.write_all(row))
        });
        write.map_err(|e| RecordError::write(&path, e))?;
        (self.written, self.is_stale) = (Instant::now(), false);
        Ok(())
    }

    /// Writes what is left, and waits until the disk holds all trials and this table.
    pub fn finish(mut self) -> Result<(), RecordError> {
        if self.is_stale {
            self.write()?;
        }
        self.queue.sync()?;
        sync_files(&self.folder)
    }

    /// Leaves the table to another process; waits until the disk holds the trials of this one.
    pub fn leave(mut self) -> Result<(), RecordError> {
        self.queue.sync()
    }

    /// A trial's summary, by this table's columns; empty cells where it has none.
    fn figures(&self, folder: &str) -> Result<Vec<String>, RecordError> {
        let path = self.folder.join(folder).join("summary.csv");
        if !path.is_file() {
            return Ok(vec![String::new(); self.summary_columns.len()]);
        }
        let unreadable = |e: csv::Error| RecordError::read(&path, e.into());
        let mut reader = csv::Reader::from_path(&path).map_err(unreadable)?;
        let columns = reader.headers().map_err(unreadable)?.clone();
        let row = reader.records().next().transpose().map_err(unreadable)?.unwrap_or_default();
        let cell = |column: &&str| {
            let place = columns.iter().position(|c| c == *column)?;
            row.get(place).map(str::to_owned)
        };
        Ok(self.summary_columns.iter().map(|column| cell(column).unwrap_or_default()).collect())
    }
}
