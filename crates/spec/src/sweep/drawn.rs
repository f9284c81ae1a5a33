//! Trials of a sweep whose sampler learns from results.

use super::{
    super::{
        problem::Problem,
        tree::{Node, Value},
    },
    Sampler, Sweep,
    point::Point,
    tpe::{Observed, STARTUP},
};

impl Sweep {
    /// Refuses axes that make the results of trials unlike each other.
    pub(super) fn refuse_unlike(&self, sampler: Sampler, problems: &mut Vec<Problem>) {
        if sampler != Sampler::Tpe {
            return;
        }
        let unlike = match self.stop {
            Some(_) => ("trainer.max_epochs", "trials of different lengths have different rungs"),
            None => ("trainer.monitor", "values of different metrics cannot be compared"),
        };
        for key in self.keys().filter(|key| key.dotted() == unlike.0) {
            let message = format!("`tpe` cannot learn from the axis `{}`: {}", unlike.0, unlike.1);
            problems
                .push(Problem::new(key.place(), message).hint("give it one value, or set another sampler"));
        }
    }

    /// The point of a trial whose values do not depend on results.
    pub(in super::super) fn point(&self, trial: usize) -> Option<Point> {
        let (tpe, row) = (self.tpe.as_ref()?, self.blocks.first()?.rows.get(trial)?);
        let values = row.iter().map(|node| node.value.clone()).collect();
        Some(Point::new(&tpe.spaces, &self.conditions, values))
    }

    /// A point by its cells.
    pub(in super::super) fn read_point(&self, cells: &[String]) -> Option<Point> {
        Point::read(&self.tpe.as_ref()?.spaces, &self.conditions, cells)
    }

    /// The values of a point that was drawn, at the places of their axes.
    pub(in super::super) fn nodes_of(&self, point: &Point) -> Vec<Option<Node>> {
        let first = self.blocks.first().and_then(|block| block.rows.first()).into_iter().flatten();
        let node =
            |(value, at): (&Option<Value>, &Node)| value.clone().map(|value| Node { span: at.span, value });
        point.values().iter().zip(first).map(node).collect()
    }

    /// Draws a later trial; the points that were drawn at random stand in where there are too few results, or nothing new
    /// comes up.
    pub(in super::super) fn draw(&self, trial: usize, history: &[Observed<'_>]) -> Option<Point> {
        let results = history.iter().filter(|own| own.cost.is_some()).count();
        let tpe = self.tpe.as_ref().filter(|_| results >= STARTUP);
        let at_random = || {
            let is_new = |point: &Point| {
                let cells = point.cells();
                !history.iter().any(|own| own.point.cells() == cells)
            };
            (trial..self.points()).chain(0..trial).filter_map(|trial| self.point(trial)).find(is_new)
        };
        tpe.and_then(|tpe| tpe.draw(trial, &self.conditions, history)).or_else(at_random)
    }
}
