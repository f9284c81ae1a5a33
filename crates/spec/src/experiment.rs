//! A spec with all its trials.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    Launcher, Spec,
    diagnostic::{Failure, Sources},
    key::Key,
    points::{Points, locate},
    problem::{Location, Problem},
    reader::MAX_PROBLEMS,
    resolved::{hashed, hex8},
    short_values::short_values,
    sweep::{Halving, History, Point, Sweep},
};

/// A spec and all its trials; one trial where nothing is swept.
#[derive(Clone, Debug)]
pub struct Experiment<S = Spec> {
    /// The spec file as it was named.
    pub path: PathBuf,
    /// The dotted keys that are swept, the slowest first; `repeat` comes last where there are repeats. Empty for a single run.
    pub axes: Vec<String>,
    /// Points of the grid that do not run.
    pub excluded: usize,
    /// How often each point of the grid runs.
    pub repeats: u32,
    /// Trials whose values are known from the start; a sampler draws the later ones from the results of earlier ones.
    pub known: usize,
    /// How trials end early.
    pub stop: Option<Halving>,
    /// Whether trials that run side by side may share a GPU.
    pub share: bool,
    /// How a cluster takes its trials.
    pub launcher: Launcher,
    /// All trials in the order they run: a whole repeat before the next.
    pub trials: Vec<TrialSpec<S>>,
    pub(super) points: Points<S>,
    pub(super) sources: Sources,
}

/// One trial of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialSpec<S = Spec> {
    /// Its number, from 0, in the order they run.
    pub index: usize,
    /// Its value on each of the experiment's axes: dotted key and value as shown.
    pub axes: Vec<(String, String)>,
    /// Which repeat it belongs to, from 0.
    pub repeat: u32,
    /// The number of its point in the sweep.
    pub(super) point: usize,
    /// What it runs.
    pub spec: S,
}

impl<S> Experiment<S> {
    /// Whether there is a sweep folder to make: an axis or a repeat.
    pub fn is_sweep(&self) -> bool {
        !self.axes.is_empty()
    }

    /// Problems that later layers found in trials (by index), with their places found in the texts; those that several
    /// trials share are reported once.
    pub fn failure(&self, problems: impl IntoIterator<Item = (usize, Problem)>) -> Failure {
        let mut found = Found::default();
        for (trial, problem) in problems {
            // Repeats of a point share its tree.
            let point = self.trials.get(trial).map_or(0, |trial| trial.point);
            let (tree, _) = self.points.sweep.apply(&self.points.base, &self.points.sweep.values_at(point));
            found.add(locate(problem, &tree, &self.path), point);
        }
        Failure::from_problems(found.into_problems(&self.points.sweep), self.sources.clone())
    }
}

impl<S> Experiment<S> {
    /// The point of a trial whose values do not depend on results, where a sampler learns from it.
    pub fn point(&self, trial: usize) -> Option<Point> {
        self.points.sweep.point(self.trials.get(trial)?.point)
    }

    /// A text for each axis of a point, by which every process knows its value.
    pub fn cells(&self, point: &Point) -> Vec<String> {
        self.points.sweep.cells(point, &self.points.folder)
    }

    /// A point by its [`Experiment::cells`]; `None` where these are no values of the axes.
    pub fn read_point(&self, cells: &[String]) -> Option<Point> {
        self.points.sweep.read_point(cells, &self.points.folder)
    }

    /// Draws a later trial from all trials that were drawn or listed before, and how bad each was; `None` for one that
    /// failed, or that still runs.
    pub fn draw(&self, trial: usize, history: &History, costs: &[Option<f64>]) -> Option<Point> {
        self.points.sweep.draw(trial, history, costs)
    }

    /// A trial with values that were drawn.
    ///
    /// # Errors
    /// What is wrong with the spec there.
    pub fn drawn(&self, index: usize, point: &Point) -> Result<TrialSpec<S>, Failure> {
        let nodes = self.points.sweep.nodes_of(point);
        let read = self.points.read(&nodes.iter().map(Option::as_ref).collect::<Vec<_>>());
        let spec = read.map_err(|problems| Failure::from_problems(problems, self.sources.clone()))?;
        Ok(TrialSpec { index, axes: self.pairs(point), repeat: 0, point: index, spec })
    }

    /// What later layers found in a trial that was drawn.
    pub fn failure_at(&self, point: &Point, problems: Vec<Problem>) -> Failure {
        let nodes = self.points.sweep.nodes_of(point);
        let values: Vec<_> = nodes.iter().map(Option::as_ref).collect();
        let (tree, _) = self.points.sweep.apply(&self.points.base, &values);
        let problems = problems.into_iter().map(|problem| locate(problem, &tree, &self.path)).collect();
        Failure::from_problems(problems, self.sources.clone())
    }

    /// What the values of each axis are called where they are tables.
    pub fn short_values(&self) -> Vec<HashMap<String, String>> {
        let texts = |axis| self.points.sweep.texts(axis);
        (0..self.axes.len()).map(|axis| short_values(texts(axis).iter().map(String::as_str))).collect()
    }

    /// The axes of a point, each with its value as shown.
    pub fn pairs(&self, point: &Point) -> Vec<(String, String)> {
        self.axes.iter().cloned().zip(point.shown()).collect()
    }
}

/// Problems of a sweep's points, each with the points that have it.
#[derive(Default)]
pub(super) struct Found(Vec<(Problem, BTreeSet<usize>)>);

impl Found {
    pub fn add(&mut self, problem: Problem, point: usize) {
        let is_full = self.is_full();
        match self.0.iter_mut().find(|(known, _)| *known == problem) {
            Some((_, points)) => drop(points.insert(point)),
            None if is_full => {}
            None => self.0.push((problem, BTreeSet::from([point]))),
        }
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_PROBLEMS
    }

    /// The problems; one that not all points have names the first that does.
    pub fn into_problems(self, sweep: &Sweep) -> Vec<Problem> {
        let name_trial =
            |(problem, points): (Problem, BTreeSet<usize>)| match (&problem.place, points.first()) {
                // What is wrong in a data file, or in all trials, is wrong whatever the trial.
                (Location::File { line: Some(_), .. } | Location::Row { .. }, _) => problem,
                (_, Some(first)) if points.len() < sweep.points() => sweep.name_trial(problem, *first),
                _ => problem,
            };
        self.0.into_iter().map(name_trial).collect()
    }
}

impl<S: Serialize> Experiment<S> {
    /// First 8 hex digits of SHA-256: of the resolved spec, or of those of all trials.
    pub fn hash8(&self) -> String {
        let mut hash = Sha256::new();
        self.trials.iter().for_each(|trial| hash.update(hashed(&trial.spec)));
        if self.known < self.trials.len() {
            hash.update("drawn"); // the later trials are others than those drawn at random
        }
        hex8(hash)
    }
}

/// The keys that are swept, as they are shown.
pub(super) fn axes(sweep: &Sweep) -> Vec<String> {
    let repeat = (sweep.repeats > 1).then(|| "repeat".to_owned());
    sweep.keys().map(Key::dotted).chain(repeat).collect()
}
