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
    sweep::{GpuSharing, Halving, History, Point, Sweep},
};

/// A spec and all its trials; a spec without a sweep has one trial.
#[derive(Clone, Debug)]
pub struct Experiment<S = Spec> {
    /// The path of the spec file, as given.
    pub path: PathBuf,
    /// The swept keys (dotted), slowest first. `repeat` comes last if there are repeats. Empty for a single
    /// run.
    pub axes: Vec<String>,
    /// Points of the grid that `exclude` removes.
    pub excluded: usize,
    /// How many times each point runs.
    pub repeats: u32,
    /// Number of trials whose values are known from the start. A sampler that learns draws the others from
    /// earlier results.
    pub known: usize,
    /// The rule that stops trials early.
    pub stop: Option<Halving>,
    /// Which concurrent trials may share a GPU.
    pub share: GpuSharing,
    /// How the trials are submitted to a cluster.
    pub launcher: Launcher,
    /// All trials in the order they run: repeat 0 of every point, then repeat 1, and so on.
    pub trials: Vec<TrialSpec<S>>,
    pub(super) points: Points<S>,
    pub(super) sources: Sources,
}

/// One trial of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialSpec<S = Spec> {
    /// Its number in the order of execution, from 0.
    pub index: usize,
    /// Which repeat it belongs to, from 0.
    pub repeat: u32,
    /// The number of its point in the sweep.
    pub(super) point: usize,
    /// Its value on each axis, if a sampler drew it from results.
    pub(super) drawn: Option<Box<[String]>>,
    /// What it runs.
    pub spec: S,
}

impl<S> Experiment<S> {
    /// Whether this needs a sweep folder: it has an axis or repeats.
    pub fn is_sweep(&self) -> bool {
        !self.axes.is_empty()
    }

    /// Problems that later layers found in trials (given by index), resolved to their locations in the texts.
    /// A problem that several trials share is reported once.
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

    /// The point of a trial whose values do not depend on results; `None` unless the sampler learns from
    /// results.
    pub fn point(&self, trial: usize) -> Option<Point> {
        self.points.sweep.point(self.trials.get(trial)?.point)
    }

    /// A point as one text per axis, the form that processes exchange.
    pub fn cells(&self, point: &Point) -> Vec<String> {
        self.points.sweep.cells(point, &self.points.folders)
    }

    /// Parses [`Experiment::cells`]; `None` if the texts are not values of these axes.
    pub fn read_point(&self, cells: &[String]) -> Option<Point> {
        self.points.sweep.read_point(cells, &self.points.folders)
    }

    /// Draws a later trial from all trials that were drawn or listed before, and how bad each was; `None` for one that
    /// failed, or that still runs.
    pub fn draw(&self, trial: usize, history: &History, costs: &[Option<f64>]) -> Option<Point> {
        self.points.sweep.draw(trial, history, costs)
    }

    /// Builds the trial of a drawn point.
    pub fn drawn(&self, index: usize, point: &Point) -> Result<TrialSpec<S>, Failure> {
        let nodes = self.points.sweep.nodes_of(point);
        let read = self.points.read(&nodes.iter().map(Option::as_ref).collect::<Vec<_>>());
        let spec = read.map_err(|problems| Failure::from_problems(problems, self.sources.clone()))?;
        Ok(TrialSpec { index, repeat: 0, point: index, drawn: Some(point.shown().into()), spec })
    }

    /// Problems that later layers found in the trial of a drawn point.
    pub fn failure_at(&self, point: &Point, problems: Vec<Problem>) -> Failure {
        let nodes = self.points.sweep.nodes_of(point);
        let values: Vec<_> = nodes.iter().map(Option::as_ref).collect();
        let (tree, _) = self.points.sweep.apply(&self.points.base, &values);
        let problems = problems.into_iter().map(|problem| locate(problem, &tree, &self.path)).collect();
        Failure::from_problems(problems, self.sources.clone())
    }

    /// For each axis, short display names of those values that are tables.
    pub fn short_values(&self) -> Vec<HashMap<String, String>> {
        let texts = |axis| self.points.sweep.texts(axis);
        (0..self.axes.len()).map(|axis| short_values(texts(axis).iter().map(String::as_str))).collect()
    }

    /// A trial's value on each axis, as displayed: empty where the axis does not vary, or where it is not drawn yet. Computed
    /// when it is asked for: a sweep may have very many trials.
    pub fn values(&self, trial: &TrialSpec<S>) -> Vec<String> {
        match &trial.drawn {
            Some(values) => values.to_vec(),
            None if trial.index >= self.known => vec![String::new(); self.axes.len()],
            None => {
                let repeat = (self.repeats > 1).then(|| trial.repeat.to_string());
                self.points.sweep.shown(trial.point).chain(repeat).collect()
            }
        }
    }

    /// Each axis of a point with its value as displayed.
    pub fn pairs(&self, point: &Point) -> Vec<(String, String)> {
        self.axes.iter().cloned().zip(point.shown()).collect()
    }
}

/// Collects the problems of a sweep's points, each with the points that have it.
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

    /// The problems. If only some points have a problem, its message names the first of them.
    pub fn into_problems(self, sweep: &Sweep) -> Vec<Problem> {
        let name_trial =
            |(problem, points): (Problem, BTreeSet<usize>)| match (&problem.place, points.first()) {
                // A problem in a data file, or in all trials, does not depend on the trial.
                (Location::File { line: Some(_), .. } | Location::Row { .. }, _) => problem,
                (_, Some(first)) if points.len() < sweep.points() => sweep.name_trial(problem, *first),
                _ => problem,
            };
        self.0.into_iter().map(name_trial).collect()
    }
}

impl<S: Serialize> Experiment<S> {
    /// First 8 hex digits of SHA-256 over the resolved spec, or over those of all trials.
    pub fn hash8(&self) -> String {
        let mut hash = Sha256::new();
        self.trials.iter().for_each(|trial| hash.update(hashed(&trial.spec)));
        if self.known < self.trials.len() {
            hash.update("drawn"); // a sweep that learns draws later trials that random search would not
        }
        hex8(hash)
    }
}

/// The swept keys as displayed.
pub(super) fn axes(sweep: &Sweep) -> Vec<String> {
    let repeat = (sweep.repeats > 1).then(|| "repeat".to_owned());
    sweep.keys().map(Key::dotted).chain(repeat).collect()
}
