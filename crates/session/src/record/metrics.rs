//! `metrics.csv`: one row per step and split, append-only, with a header fixed before step 0.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
};

use super::{RecordError, Sink, last_lines::find_in_last_lines, lines::Lines, row_file::RowFile};
use crate::{
    event::{Event, Recorded, TrainRows, ValidationRow},
    host::open_regular,
    plan::Trial,
    spec::Metric,
};

/// A value of a training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TrainCell {
    Measured(f32),
    /// The learning rate.
    Rate(f64),
}

/// All metrics for one row of a block (from 0), with their values; metrics that only validations have get
/// none.
pub(super) fn train_cells<'a>(
    block: &'a TrainRows,
    row: usize,
    metrics: &'a [Metric],
) -> impl Iterator<Item = (Metric, Option<TrainCell>)> {
    let mut values = block.values.get(row * block.width..).unwrap_or_default().iter();
    metrics.iter().map(move |&metric| {
        let value = match metric {
            Metric::Lr => block.lr.get(row).copied().map(TrainCell::Rate),
            _ if metric.is_logged() => values.next().copied().map(TrainCell::Measured),
            _ => None,
        };
        (metric, value)
    })
}

/// The metric columns of a run; metrics of numeric targets have an additional column per target if there are
/// several.
pub struct MetricColumns {
    metrics: Vec<Metric>,
    /// Those that only validations have, since they are monitored and not logged.
    monitored: Vec<Metric>,
    /// The names of the targets, if there are several.
    targets: Vec<String>,
}

impl MetricColumns {
    pub fn new(logged: &[Metric], monitored: &[Metric], targets: Vec<String>) -> Self {
        Self { metrics: logged.to_vec(), monitored: monitored.to_vec(), targets }
    }

    /// The columns of a trial.
    pub fn from_trial(trial: &Trial) -> Self {
        Self::new(&trial.spec.logging.metrics, &trial.spec.monitored(), trial.target_names())
    }

    pub(super) fn header_bytes(&self) -> u64 {
        self.header().bytes().len() as u64
    }

    /// How many numbers a row of validation has.
    pub(super) fn numbers(&self) -> usize {
        self.all().map(|metric| 1 + self.of_targets(metric).count()).sum()
    }

    fn all(&self) -> impl Iterator<Item = Metric> + '_ {
        self.metrics.iter().chain(&self.monitored).copied()
    }

    fn header(&self) -> Lines {
        let mut lines = Lines::new();
        lines.text("step").text("epoch").text("split").text("rows");
        for metric in self.all() {
            lines.text(metric.name());
            for name in self.of_targets(metric) {
                // A line break within a name would end the header.
                lines.text(&name.replace(['\n', '\r'], " "));
            }
        }
        lines.text("elapsed_s").end();
        lines
    }

    /// The metric's column names, one per target.
    fn of_targets(&self, metric: Metric) -> impl Iterator<Item = String> + '_ {
        let targets = if metric.is_of_numbers() { &self.targets[..] } else { &[] };
        targets.iter().map(move |target| metric.of_target(target))
    }

    /// Length in bytes of the header and the first `rows` rows of an existing file. `steps` are those that it has a row of, if it has
    /// one of each step.
    ///
    /// # Errors
    /// The file cannot be read, has fewer or other rows, or has other columns.
    pub fn length_of(&self, path: &Path, rows: u64, steps: Option<u64>) -> Result<u64, RecordError> {
        let unreadable = |e| RecordError::read(path, e);
        let mut file = BufReader::new(open_regular(path).map_err(unreadable)?.0);
        let mut line = Vec::new();
        file.read_until(b'\n', &mut line).map_err(unreadable)?;
        if line != self.header().bytes() {
            return Err(RecordError::unusable(
                path,
                "its columns are not those of `logging.metrics` and of monitored metrics",
            ));
        }
        let mut length = line.len() as u64;
        let (mut trained, mut last) = (0, None);
        for _ in 0..rows {
            line.clear();
            length += file.read_until(b'\n', &mut line).map_err(unreadable)? as u64;
            if line.last() != Some(&b'\n') {
                return Err(RecordError::unusable(path, "it has fewer rows than the checkpoint counted"));
            }
            let mut cells = line.split(|&byte| byte == b',');
            last = cells.next().and_then(|cell| str::from_utf8(cell).ok()?.parse().ok());
            trained += u64::from(cells.nth(1) == Some(b"train"));
        }
        if steps.is_some_and(|steps| rows > 0 && (trained, last) != (steps, Some(steps))) {
            return Err(RecordError::unusable(path, "its rows are not those that the checkpoint counted"));
        }
        Ok(length)
    }
}

/// The sink of `metrics.csv`.
pub struct MetricsCsv {
    file: RowFile,
    columns: MetricColumns,
    /// The cells that all rows of a block share: `,<epoch>,train,<rows>`.
    shared: Lines,
}

impl MetricsCsv {
    /// Creates the file with its header.
    pub fn create(path: &Path, columns: MetricColumns) -> Result<Self, RecordError> {
        let file = RowFile::create(path, columns.header().bytes())?;
        Ok(Self { file, columns, shared: Lines::new() })
    }

    /// Writes the file nowhere, to see how long it gets.
    pub(super) fn discard(columns: MetricColumns) -> Result<Self, RecordError> {
        Ok(Self { file: RowFile::discard()?, columns, shared: Lines::new() })
    }

    /// Bytes of all rows so far.
    pub(super) fn written(&self) -> u64 {
        self.file.written()
    }

    /// Continues after the first `rows` rows of an existing file; later rows are cut off.
    ///
    /// # Errors
    /// The file cannot be read or written, has fewer rows, or has other columns.
    pub fn resume(path: &Path, columns: MetricColumns, rows: u64) -> Result<Self, RecordError> {
        let file = RowFile::open_at(path, columns.length_of(path, rows, None)?)?;
        Ok(Self { file, columns, shared: Lines::new() })
    }

    fn train(&mut self, block: &TrainRows) -> Result<(), RecordError> {
        let last = block.len().saturating_sub(1);
        self.share(block.epoch, block.rows);
        for (row, &elapsed_s) in block.elapsed_s.iter().enumerate() {
            if row == last {
                self.share(block.epoch, block.last_rows);
            }
            let lines = &mut self.file.lines;
            lines.u64(block.first_step + row as u64).cells(self.shared.bytes());
            let monitored = self.columns.monitored.iter().map(|metric| (*metric, None));
            for (metric, value) in train_cells(block, row, &self.columns.metrics).chain(monitored) {
                match value {
                    Some(TrainCell::Measured(value)) => lines.f32(value),
                    Some(TrainCell::Rate(lr)) => lines.f64(lr),
                    None => lines.empty(),
                };
                if metric.is_of_numbers() {
                    for _ in &self.columns.targets {
                        lines.empty();
                    }
                }
            }
            lines.seconds(elapsed_s);
            self.file.end_line()?;
        }
        Ok(())
    }

    fn share(&mut self, epoch: u64, rows: u32) {
        self.shared.clear();
        self.shared.u64(epoch).text("train").u64(rows.into());
    }

    fn validation(&mut self, row: &ValidationRow) -> Result<(), RecordError> {
        let lines = &mut self.file.lines;
        lines.u64(row.step).u64(row.epoch).text("validation").u64(row.rows);
        for metric in self.columns.all() {
            lines.option(row.measured(metric), Lines::f64);
            for name in self.columns.of_targets(metric) {
                lines.option(row.scores.get(&name).copied(), Lines::f64);
            }
        }
        lines.seconds(row.elapsed_s);
        self.file.end_line()
    }
}

/// The value of a metric in the last validation of a `metrics.csv`.
pub fn last_validated(path: &Path, column: &str) -> Option<f64> {
    last_validation(path)?.remove(column)
}

/// The numbers of the last validation of a `metrics.csv`, by their columns. Reads its end, since the file may be long.
fn last_validation(path: &Path) -> Option<BTreeMap<String, f64>> {
    let (file, length) = open_regular(path).ok()?;
    let mut head = String::new();
    BufReader::new(&file).read_line(&mut head).ok()?;
    let mut head = csv::Reader::from_reader(head.as_bytes());
    let head = head.headers().ok()?;
    let split = head.iter().position(|cell| cell == "split")?;
    let last = |lines: &str| {
        let row = lines.lines().rev().find(|row| row.split(',').nth(split) == Some("validation"))?;
        let cells = head.iter().zip(row.split(','));
        Some(cells.filter_map(|(name, cell)| Some((name.to_owned(), cell.parse().ok()?))).collect())
    };
    find_in_last_lines(&file, length, last).ok()?
}

impl Sink for MetricsCsv {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Train(block) => self.train(block),
            Event::Validation(row) => self.validation(row),
            // A checkpoint counts the rows before it.
            Event::Checkpoint(_) => self.file.flush(),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.file.flush()
    }

    fn recorded(&self) -> Option<Recorded> {
        let last = self.file.last_line()?;
        let mut cells = last.split(',').map(|cell| cell.parse().unwrap_or(0));
        let [step, epoch] = [cells.next(), cells.next()].map(Option::unwrap_or_default);
        let mut validation = last_validation(self.file.path()).unwrap_or_default();
        let validated = validation.get("step").map_or(0, |step| *step as u64);
        validation.retain(|name, _| !["step", "epoch", "rows", "elapsed_s"].contains(&name.as_str()));
        Some(Recorded { step, epoch, validated, validation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{last_lines::TAIL_BYTES, sample};

    #[test]
    fn the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.csv");
        let columns = MetricColumns::new(&sample::header().metrics, &[Metric::F1], Vec::new());
        let mut sink = MetricsCsv::create(&path, columns).unwrap();
        for event in sample::events() {
            sink.event(&event).unwrap();
        }
        sink.flush().unwrap();
        insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap(), @r"
        step,epoch,split,rows,loss,lr,accuracy,grad_norm,f1,elapsed_s
        1,1,train,32,12.0,0.1,0.25,1.5,,0.0000015
        2,1,train,32,11.5,0.05,0.25,1.5,,0.000002
        3,1,train,16,12.0,1e-7,0.25,1.5,,0.0000024999999999999998
        3,1,validation,20,0.12345678901234568,,0.9,,,0.25
        4,2,train,32,2.0,0.1,0.25,1.5,,0.0000024999999999999998
        5,2,train,32,1.5,0.05,0.25,1.5,,0.000003
        6,2,train,16,2.0,1e-7,0.25,1.5,,0.0000035
        6,2,validation,20,0.1,,0.95,,,0.5
        ");
    }

    #[test]
    fn the_last_validation_is_found_from_the_end() {
        let path = tempfile::tempdir().unwrap().keep().join("metrics.csv");
        let head = "step,epoch,split,rows,loss,mae,elapsed_s\n";
        let train = |rows: u64| "7,1,train,32,0.25,,0.5\n".repeat((rows * TAIL_BYTES / 23 / 8) as usize);
        for (before, after) in [(0, 0), (9, 0), (3, 6), (7, 30), (30, 100)] {
            let rows = [train(before), "3,1,validation,20,0.1,0.75,0.2\n".to_owned(), train(after)];
            std::fs::write(&path, format!("{head}1,1,validation,20,0.1,0.5,0.1\n{}", rows.concat())).unwrap();
            let found = ["mae", "loss", "f1"].map(|column| last_validated(&path, column));
            assert_eq!(found, [Some(0.75), Some(0.1), None], "{before} {after}");
        }
        std::fs::write(&path, format!("{head}{}", train(9))).unwrap();
        assert_eq!(last_validated(&path, "mae"), None);
    }
}
