//! `sweep.csv`: one row per trial, all of them from the start.
//!
//! The file is rewritten, under a temporary name, when a trial ends (at most once a second) and at the end of
//! the sweep. Until then, the trial's own folder has what its row lacks. If several processes share a sweep,
//! each writes its own rows and keeps those rows of others that know more than its own. Only rows that changed
//! since the last write are in memory; the others are copied from the file.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Claims, RecordError, SweepLock,
    durable::{SyncQueue, sync_files},
    lines::Lines,
    summary::summary_columns,
    table_lines::TableLines,
};
use crate::{
    event::Status,
    host::{Durability, open_regular, read_text, write_atomically},
};

/// Minimum time between two writes of the file, except at its end.
const INTERVAL: Duration = Duration::from_secs(1);

/// After a write that took time t, the next one waits at least `SHARE` x t, so a long table is written less
/// often.
const SHARE: u32 = 20;

/// The reason shown for a planned trial whose values are not drawn yet.
const LATER: &str = "drawn later from the results of earlier trials";

#[derive(Clone, Debug)]
pub enum TrialEnd {
    /// It ran, and its folder holds a summary, unless it failed too early for one.
    Ran { status: Status, folder: String, reason: Option<String> },
    /// It could not run.
    Skipped { reason: String },
    /// The sweep was interrupted before it began: `--resume` runs it.
    Planned,
    /// It would equal an earlier trial except for the requested devices, and was not run again. The note is
    /// present if those devices are missing: it names them and what it would use instead.
    SameAs { trial: usize, folder: String, note: Option<String> },
}

impl TrialEnd {
    pub const SKIPPED: &str = "skipped";
    pub const PLANNED: &str = "planned";
    pub const SAME_AS: &str = "same_as";

    /// The word of `sweep.csv`.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Ran { status, .. } => status.name(),
            Self::Skipped { .. } => Self::SKIPPED,
            Self::Planned => Self::PLANNED,
            Self::SameAs { .. } => Self::SAME_AS,
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
    /// How much the line of each trial knows.
    known: Vec<Knowledge>,
    /// Lines that are not in the file yet.
    changed: BTreeMap<usize, Vec<u8>>,
    /// The file as this process wrote it last, whatever becomes of its name.
    written: Option<File>,
    /// The position of the status among the cells of a line.
    status: usize,
    claims: Arc<Claims>,
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
        ends: &[Option<TrialEnd>],
        values: impl Fn(usize) -> Vec<String>,
        claims: Arc<Claims>,
    ) -> Result<Self, RecordError> {
        let mut columns = vec!["trial"];
        columns.extend(axes.iter().map(String::as_str));
        columns.extend(["status", "folder", "reason"]);
        let summary_columns: Vec<_> =
            summary_columns().into_iter().filter(|c| !columns.contains(c)).collect();
        columns.extend(&summary_columns);
        let mut head = Lines::new();
        head.texts(columns).end();
        let is_first = claims.is_first();
        let mut table = Self {
            folder: sweep_folder.to_owned(),
            head: head.bytes().to_vec(),
            known: Vec::new(),
            changed: BTreeMap::new(),
            written: None,
            status: axes.len() + 1,
            claims: Arc::clone(&claims),
            queue: SyncQueue::new(sweep_folder),
            summary_columns,
            next: Instant::now() + INTERVAL,
            is_stale: true,
        };
        let knows = |(trial, end): (usize, &Option<TrialEnd>)| match end {
            Some(_) => Knowledge::Ended,
            None if is_open(&values(trial)) => Knowledge::Planned,
            None => Knowledge::Drawn,
        };
        table.known = ends.iter().enumerate().map(knows).collect();
        let own =
            |table: &Self, trial: usize| table.row(trial, &values(trial), ends[trial].as_ref()).map(Some);
        // The first process drops rows of an earlier part of the sweep, such as those of failed trials that
        // are to be repeated.
        claims.with_lock(SweepLock::Table, || false, || table.replace(!is_first, own))?.transpose()?;
        claims.go_on()?;
        Ok(table)
    }

    /// Sets the values of a trial that was drawn, unless the trial has ended.
    pub fn draw(&mut self, trial: usize, values: &[String]) -> Result<(), RecordError> {
        if self.known[trial] <= Knowledge::Drawn {
            self.known[trial] = Knowledge::Drawn;
            self.changed.insert(trial, self.row(trial, values, None)?);
        }
        self.write_soon()
    }

    /// Sets how a trial with these values ended (numbered from 0). For one that ran, the figures come from its
    /// own `summary.csv`; for others they are empty.
    pub fn set(&mut self, trial: usize, values: &[String], end: &TrialEnd) -> Result<(), RecordError> {
        let knowledge = match end {
            TrialEnd::Skipped { .. } => Knowledge::Skipped,
            // Its row stays as it is.
            TrialEnd::Planned => return Ok(()),
            // The process that ran it knows the reason.
            TrialEnd::Ran { status: Status::Failed | Status::Diverged, reason: None, .. } => Knowledge::Ended,
            _ => Knowledge::Own,
        };
        if knowledge >= self.known[trial] {
            self.known[trial] = knowledge;
            self.changed.insert(trial, self.row(trial, values, Some(end))?);
            self.write_soon()?;
        }
        match end {
            TrialEnd::Ran { folder, .. } if !folder.is_empty() => self.queue.push(self.folder.join(folder)),
            _ => Ok(()),
        }
    }

    fn row(&self, trial: usize, values: &[String], end: Option<&TrialEnd>) -> Result<Vec<u8>, RecordError> {
        let status = end.map_or(TrialEnd::PLANNED, TrialEnd::status);
        let (folder, reason) = match end {
            None | Some(TrialEnd::Planned) if is_open(values) => ("", LATER.to_owned()),
            None | Some(TrialEnd::Planned) => ("", String::new()),
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
        line.u64(trial as u64).texts(values).text(status).text(folder).text(&reason).texts(&figures).end();
        Ok(line.bytes().to_vec())
    }

    /// Writes changed rows, unless the file was written a moment ago.
    fn write_soon(&mut self) -> Result<(), RecordError> {
        self.is_stale = true;
        if Instant::now() >= self.next { self.write() } else { Ok(()) }
    }

    /// Writes all rows now, including those of other processes.
    pub fn write(&mut self) -> Result<(), RecordError> {
        let (claims, begun) = (Arc::clone(&self.claims), Instant::now());
        let own = |table: &Self, trial: usize| Ok(table.changed.get(&trial).cloned());
        let replace = || self.replace(claims.has_others(), own);
        claims.with_lock(SweepLock::Table, || false, replace)?.transpose()?;
        self.next = Instant::now() + INTERVAL.max(SHARE * begun.elapsed());
        Ok(())
    }

    fn columns(&self) -> usize {
        self.head.split(|byte| *byte == b',').count()
    }

    fn path(&self) -> PathBuf {
        self.folder.join("sweep.csv")
    }

    /// Replaces the file: by the lines that `own` has, and for other trials by those of the file. Where others write to it,
    /// their lines stay if they know as much.
    fn replace(
        &mut self,
        has_others: bool,
        own: impl Fn(&Self, usize) -> Result<Option<Vec<u8>>, RecordError>,
    ) -> Result<(), RecordError> {
        let path = self.path();
        let last = match &self.written {
            Some(file) if !has_others => Some(file.try_clone()),
            _ => match open_regular(&path) {
                Ok((file, _)) => Some(Ok(file)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => Some(Err(e)),
            },
        };
        let trials = self.known.len();
        let lines = last.map(|file| file.and_then(|file| TableLines::new(file, trials))).transpose();
        let mut lines = lines.map_err(|e| RecordError::read(&path, e))?;
        let (mut known, mut fault) = (self.known.clone(), None);
        let written = write_atomically(&path, Durability::Process, |file| {
            file.write_all(&self.head)?;
            for (trial, known) in known.iter_mut().enumerate() {
                let there = lines.as_mut().map(|lines| lines.line_of(trial)).transpose()?.flatten();
                let knows = there.filter(|_| has_others).map(|line| knowledge(line, self.status));
                let own = match own(self, trial) {
                    Ok(own) => own.filter(|_| knows.is_none_or(|knows| knows < *known)),
                    Err(e) => {
                        fault = Some(e);
                        return Err(io::Error::other("a summary cannot be read"));
                    }
                };
                *known = knows.map_or(*known, |knows| knows.max(*known));
                match (own, there) {
                    (Some(line), _) => file.write_all(&line)?,
                    (None, Some(line)) => file.write_all(line)?,
                    // Something else took the line away; the trial's own folder has more.
                    (None, None) => writeln!(file, "{trial}{}", ",".repeat(self.columns() - 1))?,
                }
            }
            Ok(())
        });
        match (fault, written) {
            (Some(fault), _) => return Err(fault),
            (None, written) => written.map_err(|e| RecordError::write(&path, e))?,
        }
        // Where it cannot be opened now, the next write opens it.
        self.written = open_regular(&path).ok().map(|(file, _)| file);
        self.known = known;
        self.changed.clear();
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

/// Whether the values of a trial are not known yet.
fn is_open(values: &[String]) -> bool {
    values.iter().all(String::is_empty)
}

/// How much a line knows, by the status in this cell.
fn knowledge(line: &[u8], status: usize) -> Knowledge {
    let plain = || line.split(|byte| *byte == b',').nth(status).map(<[u8]>::to_vec);
    let quoted = || {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
        Some(reader.byte_records().next()?.ok()?.get(status)?.to_vec())
    };
    let cell = if line.contains(&b'"') { quoted() } else { plain() };
    match cell.as_deref() {
        Some(b"planned" | b"") | None => Knowledge::Planned,
        Some(b"skipped") => Knowledge::Skipped,
        Some(_) => Knowledge::Ended,
    }
}

#[cfg(test)]
#[path = "sweep_table_tests.rs"]
mod tests;
