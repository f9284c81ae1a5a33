//! `points.csv`: the points that a sampler drew, one row each. The whole file is replaced before a trial
//! begins, so that `--resume` finds its values again.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    host::read_text,
    record::{Lines, RecordError, RunDir},
    spec::{Experiment, Observed, Point},
};

const FILE: &str = "points.csv";

/// The points known so far, of a sweep with a sampler that learns from results.
pub(super) struct Points<'e, S> {
    experiment: &'e Experiment<S>,
    folder: RunDir,
    all: BTreeMap<usize, Point>,
}

/// The number of a line that does not hold a point of the sweep.
pub(super) struct BadLine(pub u64);

impl<'e, S> Points<'e, S> {
    /// Reads the points that do not depend on results and those that an earlier part of the sweep drew.
    pub fn read(experiment: &'e Experiment<S>, folder: &RunDir) -> Result<Self, BadLine> {
        let mut points = Self { experiment, folder: folder.clone(), all: BTreeMap::new() };
        if experiment.known == experiment.trials.len() {
            return Ok(points);
        }
        points.all =
            (0..experiment.known).filter_map(|trial| Some((trial, experiment.point(trial)?))).collect();
        points.read_drawn()?;
        Ok(points)
    }

    /// Adds points drawn earlier or by other processes.
    fn read_drawn(&mut self) -> Result<(), BadLine> {
        let experiment = self.experiment;
        self.all.split_off(&experiment.known);
        let text = read_text(&self.folder.file(FILE)).unwrap_or_default();
        // Ignore a last line without its end: its writer was interrupted.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(whole.as_bytes());
        for (place, row) in reader.records().enumerate() {
            let row = row.map_err(|e| BadLine(e.position().map_or(0, csv::Position::line)))?;
            let line = row.position().map_or(0, csv::Position::line);
            let mut cells = row.iter().map(str::to_owned);
            let first = cells.next().unwrap_or_default();
            let cells: Vec<String> = cells.collect();
            if place == 0 {
                (cells == experiment.axes).then_some(()).ok_or(BadLine(line))?;
                continue;
            }
            let free = |trial: &usize| *trial < experiment.trials.len() && !self.all.contains_key(trial);
            let trial = first.parse().ok().filter(free).ok_or(BadLine(line))?;
            self.all.insert(trial, experiment.read_point(&cells).ok_or(BadLine(line))?);
        }
        Ok(())
    }

    /// Adds points that other processes have drawn.
    pub fn read_others(&mut self) -> Result<(), RecordError> {
        let path = Self::path(&self.folder);
        self.read_drawn()
            .map_err(|BadLine(_)| RecordError::unusable(&path, "it holds points of another sweep"))
    }

    /// The trials whose points are known.
    pub fn numbers(&self) -> BTreeSet<usize> {
        self.all.keys().copied().collect()
    }

    pub fn path(folder: &RunDir) -> std::path::PathBuf {
        folder.file(FILE)
    }

    pub fn get(&self, trial: usize) -> Option<&Point> {
        self.all.get(&trial)
    }

    /// Draws a trial given the costs of the others, and writes it to the file.
    pub fn draw(&mut self, trial: usize, costs: &[Option<f64>]) -> Result<(), RecordError> {
        let history: Vec<Observed<'_>> =
            self.all.iter().map(|(other, point)| Observed { point, cost: costs[*other] }).collect();
        let Some(point) = self.experiment.draw(trial, &history) else { return Ok(()) };
        self.all.insert(trial, point);
        self.write()
    }

    fn write(&self) -> Result<(), RecordError> {
        let mut lines = Lines::new();
        lines.text("trial");
        for axis in &self.experiment.axes {
            lines.text(axis);
        }
        lines.end();
        for (trial, point) in self.all.range(self.experiment.known..) {
            lines.u64(*trial as u64);
            for cell in self.experiment.cells(point) {
                lines.text(&cell);
            }
            lines.end();
        }
        self.folder.write(FILE, &String::from_utf8_lossy(lines.bytes()))
    }
}
