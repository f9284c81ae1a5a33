//! The points of a sweep whose sampler learns, as far as they are known.

use std::collections::{BTreeMap, HashSet};

use super::point::Point;

/// Points by the numbers of their trials.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: BTreeMap<usize, Point>,
    /// The cells of all points: no point is drawn twice.
    cells: HashSet<Vec<String>>,
}

impl History {
    /// Adds the point of a trial.
    pub fn insert(&mut self, trial: usize, point: Point) {
        self.cells.insert(point.cells());
        self.points.insert(trial, point);
    }

    /// The point of a trial, where it is known.
    pub fn get(&self, trial: usize) -> Option<&Point> {
        self.points.get(&trial)
    }

    /// Trials and their points, by number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Point)> {
        self.points.iter().map(|(trial, point)| (*trial, point))
    }

    pub(super) fn has(&self, point: &Point) -> bool {
        self.cells.contains(&point.cells())
    }
}
