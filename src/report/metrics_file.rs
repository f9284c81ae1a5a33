//! A `metrics.csv` of any length, also one that still grows: its curves, thinned, and where training stands.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use super::{
    ReportError,
    cells::{integer, number, wrong},
    series::Series,
};
use crate::{
    event::EpochLoss,
    host::{logical_cores, open_regular},
};

/// Bytes that are read at once.
const BLOCK: usize = 1 << 20;

/// A thread reads at least this many bytes.
const WORTH_A_THREAD: u64 = 16 << 20;

/// Blocks of a sample and their bytes.
const SAMPLES: (u64, u64) = (256, 32 << 10);

/// Bytes by which an end of reading is known again.
const KNOWN_AGAIN: u64 = 64;

/// Columns that are no metric.
pub(super) const NO_METRIC: [&str; 5] = ["step", "epoch", "split", "rows", "elapsed_s"];

/// A metric's name, with its values in training and in validation.
pub(super) type MetricCurves = (String, [Series; 2]);

/// What was read of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct MetricsFile {
    columns: Vec<String>,
    /// Where the columns of `NO_METRIC` stand.
    places: [Option<usize>; 5],
    /// Where those of metrics stand.
    metrics: Vec<usize>,
    pub(super) curves: Vec<MetricCurves>,
    /// The lowest and the highest validation of each metric.
    extremes: Vec<[Option<Validation>; 2]>,
    pub(super) last: Option<Row>,
    pub(super) last_loss: Option<f64>,
    pub(super) epoch_loss: EpochLoss,
    /// The last validation loss, as written.
    pub(super) last_validation: Option<String>,
    /// Bytes of the complete lines, and the last of them.
    end: u64,
    before_end: Vec<u8>,
    lines: u64,
}

/// The last row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) elapsed_s: Option<f64>,
    pub(super) is_validation: bool,
}

/// A value with its text, epoch and step.
#[derive(Clone, Debug)]
pub(super) struct Validation {
    value: f64,
    pub(super) text: String,
    pub(super) epoch: u64,
    pub(super) step: u64,
}

/// Why a line or the file cannot be read.
enum Fault {
    Read(io::Error),
    Line(u64, String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl Fault {
    fn in_file(self, path: &Path) -> ReportError {
        match self {
            Self::Read(source) => ReportError::read(path, source),
            Self::Line(line, message) => ReportError::malformed(path, line, message),
        }
    }
}

impl MetricsFile {
    /// Reads all complete lines, those of a large file on several threads; adds the bytes to `read` as it goes.
    pub(super) fn read(path: &Path, read: &AtomicU64) -> Result<Self, ReportError> {
        let whole = || {
            let (mut file, length) = open_regular(path)?;
            let head = Self::head(&mut file)?;
            let parts = head.parts(&mut file, length)?;
            let part = |range: &Range<u64>| -> Result<Self, Fault> {
                let mut part = Self { end: range.start, ..head.clone() };
                part.take(&mut open_regular(path)?.0, range.end, read)?;
                Ok(part)
            };
            let parts: Vec<_> = thread::scope(|scope| {
                let started: Vec<_> =
                    parts.iter().map(|range| (range, scope.spawn(|| part(range)))).collect();
                started.into_iter().map(|(range, own)| own.join().unwrap_or_else(|_| part(range))).collect()
            });
            let mut joined: Option<Self> = None;
            for part in parts {
                match &mut joined {
                    None => joined = Some(part?),
                    // Lines are counted from the start of the file.
                    Some(joined) => joined.append(part.map_err(|e| e.after(joined.lines - 1))?),
                }
            }
            Ok(joined.unwrap_or(head))
        };
        whole().map_err(|fault: Fault| fault.in_file(path))
    }

    /// Reads some blocks from all over the file and its end: at once, however long the file is.
    pub(super) fn sample(path: &Path) -> Result<Self, ReportError> {
        let sample = || -> Result<Self, Fault> {
            let (mut file, length) = open_regular(path)?;
            let mut sample = Self::head(&mut file)?;
            let (count, size) = SAMPLES;
            let mut block = Vec::new();
            for number in 0..count {
                let at = sample.end.max(length.saturating_sub(size) / (count - 1) * number);
                let at = if number + 1 == count { length.saturating_sub(size) } else { at };
                block.clear();
                file.seek(SeekFrom::Start(at))?;
                Read::by_ref(&mut file).take(size).read_to_end(&mut block)?;
                let newlines = [memchr::memchr(b'\n', &block), memchr::memrchr(b'\n', &block)];
                if let [Some(first), Some(last)] = newlines {
                    sample.take_lines(&block[(first + 1).min(last)..last])?;
                }
            }
            Ok(sample)
        };
        sample().map_err(|fault| fault.in_file(path))
    }

    /// Reads what was added since; everything where the file was cut or replaced.
    pub(super) fn read_on(&mut self, path: &Path) -> Result<(), ReportError> {
        let mut further = || -> Result<bool, Fault> {
            let (mut file, length) = open_regular(path)?;
            let begin = self.end - self.before_end.len() as u64;
            let mut known = vec![0; self.before_end.len()];
            file.seek(SeekFrom::Start(begin))?;
            let is_known = length >= self.end && self.end > 0 && {
                file.read_exact(&mut known)?;
                known == self.before_end
            };
            if is_known {
                self.take(&mut file, length, &AtomicU64::default())?;
            }
            Ok(is_known)
        };
        if !further().map_err(|fault| fault.in_file(path))? {
            *self = Self::read(path, &AtomicU64::default())?;
        }
        Ok(())
    }

    /// The best validation of a metric: the highest value, or the lowest.
    pub(super) fn best(&self, metric: &str, is_highest: bool) -> Option<&Validation> {
        let place = self.curves.iter().position(|(name, _)| name == metric)?;
        self.extremes[place][usize::from(is_highest)].as_ref()
    }

    /// The columns. A run that was killed at its start may have left none.
    fn head(file: &mut File) -> Result<Self, Fault> {
        let mut text = vec![0; BLOCK];
        let length = file.read(&mut text)?;
        let Some(end) = memchr::memchr(b'\n', &text[..length]) else { return Ok(Self::default()) };
        let line = String::from_utf8_lossy(&text[..end]);
        let columns: Vec<String> = line.trim_end_matches('\r').split(',').map(str::to_owned).collect();
        let places = NO_METRIC.map(|name| columns.iter().position(|column| column == name));
        for (name, place) in NO_METRIC.iter().zip(places).take(3) {
            if place.is_none() {
                return Err(Fault::Line(1, format!("there is no column `{name}`")));
            }
        }
        let is_metric = |place: &usize| !NO_METRIC.contains(&columns[*place].as_str());
        let metrics: Vec<usize> = (0..columns.len()).filter(is_metric).collect();
        let curves = metrics.iter().map(|&place| (columns[place].clone(), <[Series; 2]>::default()));
        Ok(Self {
            curves: curves.collect(),
            extremes: vec![[None, None]; metrics.len()],
            places,
            metrics,
            columns,
            end: end as u64 + 1,
            before_end: text[end.saturating_sub(KNOWN_AGAIN as usize)..=end].to_owned(),
            lines: 1,
            ..Self::default()
        })
    }

    /// Ranges of whole lines, one for each thread.
    fn parts(&self, file: &mut File, length: u64) -> io::Result<Vec<Range<u64>>> {
        let most = logical_cores().unwrap_or(1) as u64;
        let count = ((length - self.end.min(length)) / WORTH_A_THREAD).clamp(1, most);
        let mut borders = vec![self.end];
        let mut block = vec![0; 4096];
        for number in 1..count {
            let at = length / count * number;
            file.seek(SeekFrom::Start(at))?;
            let read = file.read(&mut block)?;
            borders.extend(memchr::memchr(b'\n', &block[..read]).map(|newline| at + newline as u64 + 1));
        }
        borders.push(length);
        Ok(borders.windows(2).map(|ends| ends[0]..ends[1]).collect())
    }

    /// Reads the complete lines from where reading ended up to `until`.
    fn take(&mut self, file: &mut File, until: u64, read: &AtomicU64) -> Result<(), Fault> {
        file.seek(SeekFrom::Start(self.end))?;
        let mut block = Vec::new();
        let mut left = until.saturating_sub(self.end);
        while left > 0 && !self.columns.is_empty() {
            let length = Read::by_ref(file).take(left.min(BLOCK as u64)).read_to_end(&mut block)? as u64;
            if length == 0 {
                break;
            }
            left -= length;
            read.fetch_add(length, Ordering::Relaxed);
            if let Some(newline) = memchr::memrchr(b'\n', &block) {
                self.take_lines(&block[..newline])?;
                self.end += newline as u64 + 1;
                self.before_end = block[newline.saturating_sub(KNOWN_AGAIN as usize)..=newline].to_owned();
                block.drain(..=newline);
            }
        }
        Ok(())
    }

    /// Takes complete lines, without the last one's newline.
    fn take_lines(&mut self, text: &[u8]) -> Result<(), Fault> {
        let mut cells: Vec<&[u8]> = Vec::with_capacity(self.columns.len());
        let mut elapsed_s = None;
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', text).chain([text.len()]) {
            let line = &text[start..end];
            start = end + 1;
            self.lines += 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            cells.clear();
            let mut from = 0;
            // Cells are short: a search for each takes longer than a look at each byte.
            for (at, &byte) in line.iter().enumerate() {
                if byte == b',' {
                    cells.push(&line[from..at]);
                    from = at + 1;
                }
            }
            cells.push(&line[from..]);
            self.take_row(&cells).map_err(|message| Fault::Line(self.lines, message))?;
            elapsed_s = self.places[4].map(|place| cells[place]);
        }
        if let (Some(row), Some(text)) = (&mut self.last, elapsed_s) {
            row.elapsed_s = number(text);
        }
        Ok(())
    }

    fn take_row(&mut self, cells: &[&[u8]]) -> Result<(), String> {
        if cells.len() != self.columns.len() {
            return Err(format!("expected {} cells, got {}", self.columns.len(), cells.len()));
        }
        let whole = |number: usize| {
            let Some(place) = self.places[number] else { return Ok(0) };
            integer(cells[place]).ok_or_else(|| wrong(cells[place], NO_METRIC[number], "is not an integer"))
        };
        let (step, epoch) = (whole(0)?, whole(1)?);
        let split = self.places[2].map_or(&b"train"[..], |place| cells[place]);
        let is_validation = split == b"validation";
        if !is_validation && split != b"train" {
            return Err(wrong(split, "split", "is neither `train` nor `validation`"));
        }
        let rows = if is_validation { 0 } else { whole(3)? };
        let metrics = self.metrics.iter().zip(&mut self.curves).zip(&mut self.extremes);
        for ((&place, (name, splits)), extremes) in metrics {
            let cell = cells[place];
            if cell.is_empty() {
                continue;
            }
            let value = number(cell).ok_or_else(|| wrong(cell, name, "is not a number"))?;
            splits[usize::from(is_validation)].push(step as f64, value);
            match (is_validation, name.as_str()) {
                (true, name) => {
                    let text = || String::from_utf8_lossy(cell).into_owned();
                    let found = || Validation { value, text: text(), epoch, step };
                    extremes.iter_mut().enumerate().for_each(|(side, known)| keep(side, known, value, found));
                    if name == "loss" {
                        self.last_validation = Some(text());
                    }
                }
                (false, "loss") => {
                    self.last_loss = Some(value);
                    self.epoch_loss.add(epoch, rows, value as f32);
                }
                (false, _) => {}
            }
        }
        self.last = Some(Row { step, epoch, elapsed_s: None, is_validation });
        Ok(())
    }

    /// Adds what another thread read of the lines that follow.
    fn append(&mut self, later: Self) {
        for ((_, own), (_, later)) in self.curves.iter_mut().zip(later.curves) {
            own.iter_mut().zip(later).for_each(|(own, later)| own.append(later));
        }
        for (own, later) in self.extremes.iter_mut().zip(later.extremes) {
            for (side, (known, found)) in own.iter_mut().zip(later).enumerate() {
                if let Some(found) = found {
                    keep(side, known, found.value, || found);
                }
            }
        }
        let mut epoch_loss = later.epoch_loss;
        if epoch_loss.rows == 0 {
            epoch_loss = self.epoch_loss;
        } else if epoch_loss.epoch == self.epoch_loss.epoch {
            epoch_loss.rows += self.epoch_loss.rows;
            epoch_loss.sum += self.epoch_loss.sum;
        }
        self.epoch_loss = epoch_loss;
        self.last = later.last.or(self.last);
        self.last_loss = later.last_loss.or(self.last_loss);
        self.last_validation = later.last_validation.or(self.last_validation.take());
        (self.end, self.before_end) = (later.end, later.before_end);
        self.lines += later.lines - 1;
    }
}

impl Fault {
    /// The same, where the part that was read begins `lines` further down.
    fn after(self, lines: u64) -> Self {
        match self {
            Self::Line(line, message) => Self::Line(line + lines, message),
            read @ Self::Read(_) => read,
        }
    }
}

/// Keeps the lower value (side 0) or the higher one (side 1), the first of equal ones.
fn keep(side: usize, known: &mut Option<Validation>, value: f64, found: impl FnOnce() -> Validation) {
    let sign = if side == 0 { 1.0 } else { -1.0 };
    if !value.is_nan() && known.as_ref().is_none_or(|known| sign * value < sign * known.value) {
        *known = Some(found());
    }
}

#[cfg(test)]
#[path = "metrics_file_tests.rs"]
mod tests;
