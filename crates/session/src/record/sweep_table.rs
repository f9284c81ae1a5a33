//! `sweep.csv`: one row per trial, all of them from the start.
//!
//! The file is rewritten, under a temporary name, when a trial ends (at most once a second) and at the end of
//! the sweep. Until then, the trial's own folder has what its row lacks. If several processes share a sweep,
//! each writes its own rows and keeps those rows of others that know more than its own.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Claims, RecordError,
    durable::{SyncQueue, sync_files},
    lines::Lines,
    summary::summary_columns,
};
use crate::{
    event::Status,
    host::{Durability, read_regular, read_text, write_atomically},
};

/// Minimum time between two writes of the file, except at its end.
const INTERVAL: Duration = Duration::from_secs(1);

/// After a write that took time t, the next one waits at least `SHARE` x t, so a long table is written less
/// often.
const SHARE: u32 = 20;

/// The reason shown for a planned trial whose values are not drawn yet.
const LATER: &str = "drawn later from the results of earlier trials";

/// How a trial ended.
#[derive(Clone, Debug)]
pub enum TrialEnd {
    /// It ran, and its folder holds a summary, unless it failed too early for one.
    Ran { status: Status, folder: String, reason: Option<String> },
    /// It could not run.
    Skipped { reason: String },
    /// It would equal an earlier trial except for the requested devices, and was not run again. The note is
    /// present if those devices are missing: it names them and what it would use instead.
    SameAs { trial: usize, folder: String, note: Option<String> },
}

impl TrialEnd {
    /// The word of `sweep.csv`.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Ran { status, .. } => status.name(),
            Self::Skipped { .. } => "skipped",
            Self::SameAs { .. } => "same_as",
        }
    }
}

/// How much a row knows of its trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Knowledge {
    #[default]
    Planned,
    /// Its values are known.
    Drawn,
    Skipped,
    /// It ended, according to a folder or another process.
    Ended,
    /// It ended in this process.
    Own,
}

/// The writer of `sweep.csv`.
pub struct SweepTable {
    folder: PathBuf,
    head: Vec<u8>,
    /// The line of each trial, in order, with how much it knows.
    rows: Vec<(Knowledge, Vec<u8>)>,
    claims: Arc<Claims>,
    /// The values of each trial's axes, as the user would write them.
    axes: Vec<Vec<String>>,
    queue: SyncQueue,
    /// The columns copied from a trial's `summary.csv`: those that the sweep does not have already.
    summary_columns: Vec<&'static str>,
    /// The earliest time of the next write.
    next: Instant,
    is_stale: bool,
}

impl SweepTable {
    /// Writes `sweep.csv` into a sweep's folder, with columns for these axes (dotted keys) and a row per
    /// trial: the values of its axes, and how it ended if that was before the sweep was resumed.
    pub fn create(
        sweep_folder: &Path,
        axes: &[String],
        trials: Vec<(Vec<String>, Option<TrialEnd>)>,
        claims: Arc<Claims>,
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
            rows: vec![Default::default(); axes.len()],
            claims,
            axes,
            queue: SyncQueue::new(sweep_folder),
            summary_columns,
            next: Instant::now() + INTERVAL,
            is_stale: true,
        };
        for (trial, end) in ends.iter().enumerate() {
            let knowledge = match end {
                Some(_) => Knowledge::Ended,
                None if table.is_open(trial) => Knowledge::Planned,
                None => Knowledge::Drawn,
            };
            table.rows[trial] = (knowledge, table.row(trial, end.as_ref())?);
        }
        // The first process drops rows of an earlier part of the sweep, such as those of failed trials that
        // are to be repeated.
        let claims = Arc::clone(&table.claims);
        if claims.is_first() {
            claims.with_table(|| table.replace())??
        } else {
            table.write()?
        }
        claims.go_on()?;
        Ok(table)
    }

    /// Whether the values of a trial are not known yet.
    fn is_open(&self, trial: usize) -> bool {
        self.axes[trial].iter().all(String::is_empty)
    }

    /// Sets the values of a trial that was drawn, unless the trial has ended.
    pub fn draw(&mut self, trial: usize, values: Vec<String>) -> Result<(), RecordError> {
        self.axes[trial] = values;
        if self.rows[trial].0 <= Knowledge::Drawn {
            self.rows[trial] = (Knowledge::Drawn, self.row(trial, None)?);
        }
        self.write_soon()
    }

    /// Sets how a trial ended (numbered from 0). For one that ran, the figures come from its own
    /// `summary.csv`; for others they are empty.
    pub fn set(&mut self, trial: usize, end: &TrialEnd) -> Result<(), RecordError> {
        let knowledge = match end {
            TrialEnd::Skipped { .. } => Knowledge::Skipped,
            // The process that ran it knows the reason.
            TrialEnd::Ran { status: Status::Failed | Status::Diverged, reason: None, .. } => Knowledge::Ended,
            _ => Knowledge::Own,
        };
        if knowledge >= self.rows[trial].0 {
            self.rows[trial] = (knowledge, self.row(trial, Some(end))?);
            self.write_soon()?;
        }
        match end {
            TrialEnd::Ran { folder, .. } if !folder.is_empty() => self.queue.push(self.folder.join(folder)),
            _ => Ok(()),
        }
    }

    fn row(&self, trial: usize, end: Option<&TrialEnd>) -> Result<Vec<u8>, RecordError> {
        let status = end.map_or("planned", TrialEnd::status);
        let (folder, reason) = match end {
            None if self.is_open(trial) => ("", LATER.to_owned()),
            None => ("", String::new()),
            Some(TrialEnd::Ran { folder, reason, .. }) => {
                (folder.as_str(), reason.clone().unwrap_or_default())
            }
            Some(TrialEnd::Skipped { reason }) => ("", reason.clone()),
            Some(TrialEnd::SameAs { trial, folder, note }) => {
                let note = note.as_ref().map(|note| format!(": {}", note.replace('`', "")));
                let note = note.unwrap_or_default();
                (folder.as_str(), format!("the same run as trial {trial}{note}"))
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

    /// Writes changed rows, unless the file was written a moment ago.
    fn write_soon(&mut self) -> Result<(), RecordError> {
        self.is_stale = true;
        if Instant::now() >= self.next { self.write() } else { Ok(()) }
    }

    /// Writes all rows now, including those of other processes. Without others, the file is not read: it may
    /// be long.
    pub fn write(&mut self) -> Result<(), RecordError> {
        let (claims, begun) = (Arc::clone(&self.claims), Instant::now());
        claims.with_table(|| {
            if !claims.has_others() {
                return self.replace();
            }
            let text = read_regular(&self.path()).unwrap_or_default();
            for (row, (knowledge, line)) in self.rows.iter_mut().zip(lines_in(&text)) {
                if knowledge >= row.0 {
                    *row = (knowledge, line.to_vec());
                }
            }
            self.replace()
        })??;
        self.next = Instant::now() + INTERVAL.max(SHARE * begun.elapsed());
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.folder.join("sweep.csv")
    }

    fn replace(&mut self) -> Result<(), RecordError> {
        let path = self.path();
        let write = write_atomically(&path, Durability::Process, |file| {
            file.write_all(&self.head)?;
            self.rows.iter().try_for_each(|(_, row)| file.write_all(row))
        });
        write.map_err(|e| RecordError::write(&path, e))?;
        self.is_stale = false;
        Ok(())
    }

    /// Writes the file if rows have changed.
    pub fn write_stale(&mut self) -> Result<(), RecordError> {
        if self.is_stale { self.write() } else { Ok(()) }
    }

    /// Writes changed rows, and waits until all trials and this table are on the disk.
    pub fn finish(mut self) -> Result<(), RecordError> {
        self.write_stale()?;
        self.queue.sync()?;
        sync_files(&self.folder)
    }

    /// Leaves the table to another process; waits until this process's trials are on the disk.
    pub fn leave(mut self) -> Result<(), RecordError> {
        self.queue.sync()
    }

    /// A trial's summary in the order of this table's columns; empty cells if it has none.
    fn figures(&self, folder: &str) -> Result<Vec<String>, RecordError> {
        let path = self.folder.join(folder).join("summary.csv");
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(RecordError::read(&path, e)),
        };
        let unreadable = |e: csv::Error| RecordError::read(&path, e.into());
        let of_rows = |columns: &[&str], row: &[&str]| {
            let place = |column: &&str| columns.iter().position(|own| own == column);
            let cell = |column| place(column).and_then(|place| row.get(place)).copied().unwrap_or_default();
            self.summary_columns.iter().map(|column| cell(column).to_owned()).collect()
        };
        // Creating a CSV reader takes longer than reading these two lines by hand.
        if !text.contains('"') {
            let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let [columns, row] = [lines.next().unwrap_or_default(), lines.next().unwrap_or_default()];
            if columns.len() == row.len() {
                return Ok(of_rows(&columns, &row));
            }
        }
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let columns = reader.headers().map_err(unreadable)?.clone();
        let row = reader.records().next().transpose().map_err(unreadable)?.unwrap_or_default();
        Ok(of_rows(&columns.iter().collect::<Vec<_>>(), &row.iter().collect::<Vec<_>>()))
    }
}

/// The trial lines of a table, with how much each knows.
fn lines_in(text: &[u8]) -> Vec<(Knowledge, &[u8])> {
    let mut reader = csv::Reader::from_reader(text);
    let column = reader.headers().ok().and_then(|columns| columns.iter().position(|name| name == "status"));
    let Some(status) = column else { return Vec::new() };
    let rows: Vec<_> = reader.byte_records().map_while(Result::ok).collect();
    let start = |row: usize| {
        let start = rows.get(row).and_then(|row| row.position());
        start.map_or(text.len(), |position| position.byte() as usize)
    };
    let lines = rows.iter().enumerate().map(|(row, cells)| {
        let knowledge = match cells.get(status) {
            Some(b"planned") | None => Knowledge::Planned,
            Some(b"skipped") => Knowledge::Skipped,
            Some(_) => Knowledge::Ended,
        };
        (knowledge, text.get(start(row)..start(row + 1)).unwrap_or_default())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::record::SWEEP_FILE;

    #[test]
    fn each_process_writes_its_own_rows() {
        let sweep = tempfile::tempdir().unwrap();
        fs::write(sweep.path().join(SWEEP_FILE), "").unwrap();
        let table = || {
            let claims = Claims::new(sweep.path(), true, || false).unwrap().unwrap();
            let rows = ["1", "a \"quoted\"\nvalue", "3"].map(|value| (vec![value.to_owned()], None));
            SweepTable::create(sweep.path(), &["lr".to_owned()], rows.to_vec(), Arc::new(claims)).unwrap()
        };
        let ran = |reason: &str| {
            let (status, folder) = (Status::Diverged, String::new());
            TrialEnd::Ran { status, folder, reason: Some(reason.to_owned()) }
        };
        let skipped = |reason: &str| TrialEnd::Skipped { reason: reason.to_owned() };
        let [mut first, mut second] = [0, 1].map(|_| table());
        let set = |table: &mut SweepTable, trial, end| {
            table.set(trial, &end).unwrap();
            table.write().unwrap();
        };
        set(&mut first, 0, ran("by the first"));
        set(&mut second, 1, ran("by the\nsecond"));
        set(&mut first, 1, skipped("the first was interrupted"));
        set(&mut second, 2, skipped("the second lacks a GPU"));
        set(&mut first, 2, ran("the first has one"));
        second.write().unwrap();
        let mut rows = csv::Reader::from_path(sweep.path().join("sweep.csv")).unwrap();
        let rows: Vec<_> = rows.records().map(|row| row.unwrap()).collect();
        let cells = |place| rows.iter().map(|row| row[place].to_owned()).collect::<Vec<_>>();
        assert_eq!(cells(2), ["diverged"; 3]);
        assert_eq!(cells(4), ["by the first", "by the\nsecond", "the first has one"]);
        // A process that joins keeps the rows of the others.
        let third = table();
        assert_eq!(lines_in(&fs::read(third.path()).unwrap()).len(), 3);
        assert!(lines_in(&fs::read(third.path()).unwrap()).iter().all(|row| row.0 == Knowledge::Ended));
    }
}
