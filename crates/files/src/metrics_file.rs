//! Reads a `metrics.csv` of any length, which may still be growing: thinned curves, and the current state of
//! training.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    path::Path,
    thread,
};

use csv::ByteRecord;

use crate::{
    FileError,
    csv_lines::{BLOCK, Fault, Position, find_columns, is_validation, parsed, wrong},
    host::{logical_cores, open_regular},
    metric_ends::{Ends, EpochValues, Validation, keep},
    series::Series,
};

/// Parameters for reading a long file; small in tests.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes read at a time.
    block: usize,
    /// Minimum bytes per thread.
    worth_a_thread: u64,
    threads: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        let threads = logical_cores().unwrap_or(1) as u64;
        Self { block: BLOCK, worth_a_thread: 16 << 20, threads }
    }
}

/// Columns that are not metrics.
pub const NO_METRIC: [&str; 5] = ["step", "epoch", "split", "rows", "elapsed_s"];

/// A metric's name, with its values in training and in validation, and its means over the rows of each training epoch.
pub type MetricCurves = (String, [Series; 3]);

/// What was read from the file.
#[derive(Clone, Debug, Default)]
pub struct MetricsFile {
    /// Number of cells per line.
    width: usize,
    /// Indices of the columns in `NO_METRIC`.
    places: [Option<usize>; 5],
    /// Indices of the metrics' columns.
    metrics: Vec<usize>,
    /// Each metric's values in training and in validation.
    curves: Vec<(String, [Series; 2])>,
    /// What is known of each metric besides.
    ends: Vec<Ends>,
    pub last: Option<Row>,
    /// The `elapsed_s` cell of the last row.
    elapsed_s: Vec<u8>,
    position: Position,
}

/// The last row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub step: u64,
    pub epoch: u64,
    pub is_validation: bool,
}

impl MetricsFile {
    /// Reads all complete lines, using several threads for a large file.
    pub fn read(path: &Path, sizes: Sizes) -> Result<Self, FileError> {
        let whole = || {
            let (mut file, length) = open_regular(path)?;
            let head = Self::head(&mut file)?;
            if head.width == 0 {
                return Ok(head);
            }
            let parts = head.parts(&mut file, length, sizes)?;
            let part = |range: &Range<u64>| -> Result<Self, Fault> {
                let mut part = head.clone();
                if range.start > head.position.end {
                    (part.position.end, part.position.lines) = (range.start, 0);
                }
                part.take(&mut open_regular(path)?.0, range.end, sizes)?;
                Ok(part)
            };
            if let [whole] = &parts[..] {
                return part(whole);
            }
            let parts: Vec<_> = thread::scope(|scope| {
                let started: Vec<_> =
                    parts.iter().map(|range| (range, scope.spawn(|| part(range)))).collect();
                started.into_iter().map(|(range, own)| own.join().unwrap_or_else(|_| part(range))).collect()
            });
            let mut joined: Option<Self> = None;
            for part in parts {
                match &mut joined {
                    None => joined = Some(part?),
                    // Count lines from the start of the file.
                    Some(joined) => joined.append(part.map_err(|e| e.after(joined.position.lines))?),
                }
            }
            Ok(joined.unwrap_or(head))
        };
        whole().map_err(|fault: Fault| fault.in_file(path))
    }

    /// Reads what was added since; everything if the file was cut or replaced.
    pub fn read_on(&mut self, path: &Path, sizes: Sizes) -> Result<(), FileError> {
        let mut further = || -> Result<bool, Fault> {
            let (mut file, length) = open_regular(path)?;
            let is_known = self.position.is_in(&mut file, length)?;
            if is_known {
                self.take(&mut file, length, sizes)?;
            }
            Ok(is_known)
        };
        if !further().map_err(|fault| fault.in_file(path))? {
            *self = Self::read(path, sizes)?;
        }
        Ok(())
    }

    /// Its curves, with the means of epochs.
    pub fn into_curves(self) -> Vec<MetricCurves> {
        let curves = self.curves.into_iter().zip(self.ends);
        let with_means = |((name, [train, validation]), ends): ((String, [Series; 2]), Ends)| {
            (name, [train, validation, ends.means()])
        };
        curves.map(with_means).collect()
    }

    /// The time of the last row.
    pub fn elapsed_s(&self) -> Option<f64> {
        parsed(&self.elapsed_s)
    }

    /// The best validation of a metric: the highest value, or the lowest.
    pub fn best(&self, metric: &str, is_highest: bool) -> Option<&Validation> {
        self.ends(metric)?.extremes[usize::from(is_highest)].as_ref()
    }

    /// The latest and extreme values of a metric.
    pub fn ends(&self, metric: &str) -> Option<&Ends> {
        self.all_ends().find(|(name, _)| *name == metric).map(|(_, ends)| ends)
    }

    /// The latest and extreme values of all metrics, with their names.
    pub fn all_ends(&self) -> impl Iterator<Item = (&str, &Ends)> {
        self.curves.iter().zip(&self.ends).map(|((name, _), ends)| (name.as_str(), ends))
    }

    fn head(file: &mut File) -> Result<Self, Fault> {
        let (columns, position) = Position::head(file)?;
        if columns.is_empty() {
            return Ok(Self::default());
        }
        find_columns(&columns, ["step", "epoch", "split"])
            .map_err(|message| Fault::Line(position.lines, message))?;
        let places = NO_METRIC.map(|name| columns.iter().position(|column| column == name));
        let metrics: Vec<usize> =
            (0..columns.len()).filter(|&at| !NO_METRIC.contains(&&columns[at])).collect();
        let curves = metrics.iter().map(|&place| (columns[place].to_owned(), <[Series; 2]>::default()));
        Ok(Self {
            curves: curves.collect(),
            ends: vec![Ends::default(); metrics.len()],
            places,
            metrics,
            width: columns.len(),
            position,
            ..Self::default()
        })
    }

    /// Ranges of complete lines, one per thread.
    fn parts(&self, file: &mut File, length: u64, sizes: Sizes) -> io::Result<Vec<Range<u64>>> {
        let end = self.position.end;
        let count = ((length - end.min(length)) / sizes.worth_a_thread).clamp(1, sizes.threads);
        let mut borders = vec![end];
        let mut block = vec![0; 4096];
        for number in 1..count {
            let at = end.max(length / count * number);
            file.seek(SeekFrom::Start(at))?;
            let read = file.read(&mut block)?;
            borders.extend(memchr::memchr(b'\n', &block[..read]).map(|newline| at + newline as u64 + 1));
        }
        borders.push(length);
        Ok(borders.windows(2).map(|ends| ends[0]..ends[1]).collect())
    }

    /// Reads the complete lines from the current position up to `until`.
    fn take(&mut self, file: &mut File, until: u64, sizes: Sizes) -> Result<(), Fault> {
        let mut position = std::mem::take(&mut self.position);
        let sizes = [sizes.block, self.width];
        let taken = position.read(file, until, sizes, "", &mut |cells| self.take_row(cells));
        self.position = position;
        taken
    }

    fn take_row(&mut self, cells: &ByteRecord) -> Result<(), String> {
        let whole = |number: usize| {
            let Some(place) = self.places[number] else { return Ok(0) };
            parsed(&cells[place]).ok_or_else(|| wrong(&cells[place], NO_METRIC[number], "is not an integer"))
        };
        let (step, epoch) = (whole(0)?, whole(1)?);
        let split = self.places[2].map_or(&b"train"[..], |place| &cells[place]);
        let is_validation = is_validation(split)?;
        let rows = if is_validation { 0 } else { whole(3)? };
        // A plain loop: this crate is optimized for size, so each step of an iterator would be a call.
        let mut metric = 0;
        while metric < self.metrics.len() {
            let (cell, (name, splits)) = (&cells[self.metrics[metric]], &mut self.curves[metric]);
            let ends = &mut self.ends[metric];
            metric += 1;
            let text = || String::from_utf8_lossy(cell).into_owned();
            if is_validation {
                ends.validation = Some(text());
            }
            if cell.is_empty() {
                // Discard the sums of an earlier epoch.
                if !is_validation {
                    ends.add(EpochValues { epoch, ..EpochValues::default() });
                }
                continue;
            }
            let value = parsed::<f64>(cell).ok_or_else(|| wrong(cell, name, "is not a number"))?;
            splits[usize::from(is_validation)].push(step as f64, value);
            if is_validation {
                let found = || Validation { value, text: text(), epoch, step };
                ends.extremes
                    .iter_mut()
                    .enumerate()
                    .for_each(|(side, known)| keep(side, known, value, found));
                continue;
            }
            ends.add(EpochValues { epoch, step, rows, sum: value * rows as f64, only: Some(value) });
            ends.train = Some(value);
        }
        self.elapsed_s.clear();
        if let Some(place) = self.places[4] {
            self.elapsed_s.extend_from_slice(&cells[place]);
        }
        self.last = Some(Row { step, epoch, is_validation });
        Ok(())
    }

    /// Adds what another thread read from the lines that follow.
    fn append(&mut self, later: Self) {
        for ((_, own), (_, later)) in self.curves.iter_mut().zip(later.curves) {
            own.iter_mut().zip(later).for_each(|(own, later)| own.append(later));
        }
        for (own, later) in self.ends.iter_mut().zip(later.ends) {
            own.append(later);
        }
        if later.last.is_some() {
            (self.last, self.elapsed_s) = (later.last, later.elapsed_s);
        }
        let lines = self.position.lines;
        self.position = later.position;
        self.position.lines += lines;
    }
}

#[cfg(test)]
#[path = "metrics_file_tests.rs"]
mod tests;
