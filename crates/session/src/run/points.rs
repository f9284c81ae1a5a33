//! `points.csv`: the points that a sampler drew, a row each. A row is added before its trial begins, so that `--resume` finds
//! its values again.

use std::{
    fs::OpenOptions,
    io::{self, Read, Seek, SeekFrom, Write},
};

use crate::{
    host::{check_regular, open_regular},
    record::{Lines, RecordError, RunDir},
    spec::{Experiment, History, Point},
};

const FILE: &str = "points.csv";

/// The points known so far, of a sweep with a sampler that learns from results.
pub(super) struct Points<'e, S> {
    experiment: &'e Experiment<S>,
    folder: RunDir,
    all: History,
    /// Bytes and lines of the file that are known here.
    bytes: u64,
    lines: u64,
    /// Trials whose points came up since [`Points::take_new`].
    new: Vec<usize>,
}

/// The number of a line that does not hold a point of the sweep.
pub(super) struct BadLine(pub u64);

impl<'e, S> Points<'e, S> {
    /// Reads the points that do not depend on results and those that an earlier part of the sweep drew.
    pub fn read(experiment: &'e Experiment<S>, folder: &RunDir) -> Result<Self, BadLine> {
        let (all, new) = (History::default(), Vec::new());
        let mut points = Self { experiment, folder: folder.clone(), all, bytes: 0, lines: 0, new };
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
        let text = self.unread().unwrap_or_default();
        // A writer that was cut short leaves no end of its line.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(whole.as_bytes());
        let before = self.lines;
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
        self.count(whole);
        Ok(())
    }

    /// The text after what is known.
    fn unread(&self) -> io::Result<String> {
        let (mut file, _) = open_regular(&Self::path(&self.folder))?;
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn count(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.lines += text.matches('\n').count() as u64;
    }

    /// Takes over what other processes have drawn.
    pub fn read_others(&mut self) -> Result<(), RecordError> {
        let path = Self::path(&self.folder);
        self.read_drawn()
            .map_err(|BadLine(_)| RecordError::unusable(&path, "it holds points of another sweep"))
    }

    /// The trials whose points have come up since this was last asked.
    pub fn take_new(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.new)
    }

    pub fn path(folder: &RunDir) -> std::path::PathBuf {
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
        if self.bytes == 0 {
            lines.text("trial");
            for axis in &self.experiment.axes {
                lines.text(axis);
            }
            lines.end();
        }
        lines.u64(trial as u64);
        for cell in self.experiment.cells(&point) {
            lines.text(&cell);
        }
        lines.end();
        let text = String::from_utf8_lossy(lines.bytes()).into_owned();
        let path = Self::path(&self.folder);
        self.append(&text).map_err(|e| RecordError::write(&path, e))?;
        self.count(&text);
        self.all.insert(trial, point);
        self.new.push(trial);
        Ok(())
    }

    /// Writes after what is known, in the place of a line that was cut short.
    fn append(&self, text: &str) -> io::Result<()> {
        let path = Self::path(&self.folder);
        check_regular(&path)?;
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() < self.bytes {
            return Err(io::Error::other("it is shorter than it was: something else writes to it"));
        }
        file.set_len(self.bytes)?;
        file.seek(SeekFrom::Start(self.bytes))?;
        file.write_all(text.as_bytes())
    }
}
