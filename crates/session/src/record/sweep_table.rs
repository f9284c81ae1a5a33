//! `sweep.csv`: one row per trial, added as each one ends.

use std::path::{Path, PathBuf};

use super::{
    RecordError,
    durable::{SyncQueue, sync_files},
    row_file::RowFile,
    summary::summary_columns,
};
use crate::event::Status;

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

/// The writer of `sweep.csv`. Every row is in the file before [`SweepTable::append`] returns.
pub struct SweepTable {
    file: RowFile,
    folder: PathBuf,
    axes: usize,
    queue: SyncQueue,
    /// The columns taken from a trial's `summary.csv`: those that the sweep's own do not name already.
    summary_columns: Vec<&'static str>,
}

impl SweepTable {
    /// Creates `sweep.csv` in a sweep's folder, with columns for these axes (dotted keys).
    pub fn create(sweep_folder: &Path, axes: &[String]) -> Result<Self, RecordError> {
        let mut columns = vec!["trial"];
        columns.extend(axes.iter().map(String::as_str));
        columns.extend(["status", "folder", "reason"]);
        let summary_columns: Vec<_> =
            summary_columns().into_iter().filter(|c| !columns.contains(c)).collect();
        columns.extend(&summary_columns);
        let file = RowFile::with_columns(&sweep_folder.join("sweep.csv"), columns)?;
        let (folder, queue) = (sweep_folder.to_owned(), SyncQueue::new());
        Ok(Self { file, folder, axes: axes.len(), queue, summary_columns })
    }

    /// Adds a trial's row: its number from 0, the values of its axes as the user would write them, and its end. The
    /// figures of a trial that ran are taken from its own `summary.csv`; those of other trials are empty.
    pub fn append(&mut self, trial: usize, axes: &[String], end: &TrialEnd) -> Result<(), RecordError> {
        let (status, folder, reason) = match end {
            TrialEnd::Ran { status, folder, reason } => {
                (status.name(), folder.as_str(), reason.clone().unwrap_or_default())
            }
            TrialEnd::Skipped { reason } => ("skipped", "", reason.clone()),
            TrialEnd::SameAs { trial, folder, note } => {
                let note = note.as_ref().map(|note| format!(": {}", note.replace('`', "")));
                let note = note.unwrap_or_default();
                ("same_as", folder.as_str(), format!("the same run as trial {trial}{note}"))
            }
        };
        let figures = match end {
            TrialEnd::Ran { folder, .. } => self.figures(folder)?,
            _ => vec![String::new(); self.summary_columns.len()],
        };
        let lines = &mut self.file.lines;
        lines.u64(trial as u64);
        for axis in 0..self.axes {
            lines.text(axes.get(axis).map_or("", String::as_str));
        }
        lines.text(status).text(folder).text(&reason);
        for figure in &figures {
            lines.text(figure);
        }
        self.file.end_line()?;
        self.file.flush()?;
        match end {
            TrialEnd::Ran { folder, .. } if !folder.is_empty() => self.queue.push(self.folder.join(folder)),
            _ => Ok(()),
        }
    }

    /// Waits until the disk holds all trials and this table.
    pub fn finish(mut self) -> Result<(), RecordError> {
        self.queue.sync()?;
        sync_files(&self.folder)
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
