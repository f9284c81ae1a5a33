//! `points.csv`: the points that a sampler drew, a row each. A row is added before its trial begins, so that `--resume` finds
//! its values again.

use std::path::PathBuf;

use crate::{
    record::{JointLines, Lines, RecordError, RunDir},
    spec::{Experiment, History, Point},
};

const FILE: &str = "points.csv";

/// The points known so far, of a sweep with a sampler that learns from results.
pub(super) struct Points<'e, S> {
    experiment: &'e Experiment<S>,
    file: JointLines,
    all: History,
    /// Trials whose points came up since [`Points::take_new`].
    new: Vec<usize>,
}

/// The number of a line that does not hold a point of the sweep.
pub(super) struct BadLine(pub u64);

impl<'e, S> Points<'e, S> {
    /// Reads the points that do not depend on results and those that an earlier part of the sweep drew.
    pub fn read(experiment: &'e Experiment<S>, folder: &RunDir) -> Result<Self, BadLine> {
        let file = JointLines::new(Self::path(folder));
        let mut points = Self { experiment, file, all: History::default(), new: Vec::new() };
        if experiment.known == experiment.trials.len() {
            return Ok(points);
        }
        for trial in 0..experiment.known {
            experiment.point(trial).into_iter().for_each(|point| points.all.insert(trial, point));
        }
        points.read_drawn()?;
        points.new.clear();
        Ok(points)
    }

    /// Takes over what was drawn before, or by other processes: the lines that are not known yet.
    fn read_drawn(&mut self) -> Result<(), BadLine> {
        let experiment = self.experiment;
        let before = self.file.lines();
        let text = self.file.read();
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(text.as_bytes());
        for (place, row) in reader.records().enumerate() {
            let line =
                |position: Option<&csv::Position>| BadLine(before + position.map_or(0, csv::Position::line));
            let row = row.map_err(|e| line(e.position()))?;
            let bad = || line(row.position());
            let mut cells = row.iter().map(str::to_owned);
            let first = cells.next().unwrap_or_default();
            let cells: Vec<String> = cells.collect();
            if before == 0 && place == 0 {
                (cells == experiment.axes).then_some(()).ok_or_else(bad)?;
                continue;
            }
            let free = |trial: &usize| *trial < experiment.trials.len() && self.all.get(*trial).is_none();
            let trial = first.parse().ok().filter(free).ok_or_else(bad)?;
            self.all.insert(trial, experiment.read_point(&cells).ok_or_else(bad)?);
            self.new.push(trial);
        }
        Ok(())
    }

    /// Takes over what other processes have drawn.
    pub fn read_others(&mut self) -> Result<(), RecordError> {
        self.read_drawn()
            .map_err(|BadLine(_)| RecordError::unusable(self.file.path(), "it holds points of another sweep"))
    }

    /// The trials whose points have come up since this was last asked.
    pub fn take_new(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.new)
    }

    pub fn path(folder: &RunDir) -> PathBuf {
        folder.file(FILE)
    }

    pub fn get(&self, trial: usize) -> Option<&Point> {
        self.all.get(trial)
    }

    /// Draws a trial from the costs of the others, and writes it down. No other process does so meanwhile, and what they have
    /// drawn is read.
    pub fn draw(&mut self, trial: usize, costs: &[Option<f64>]) -> Result<(), RecordError> {
        let Some(point) = self.experiment.draw(trial, &self.all, costs) else { return Ok(()) };
        let mut lines = Lines::new();
        if self.file.lines() == 0 {
            lines.text("trial").texts(&self.experiment.axes).end();
        }
        lines.u64(trial as u64).texts(self.experiment.cells(&point)).end();
        self.file.append(&String::from_utf8_lossy(lines.bytes()))?;
        self.all.insert(trial, point);
        self.new.push(trial);
        Ok(())
    }
}
