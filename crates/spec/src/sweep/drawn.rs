//! Trials of a sweep whose sampler learns from results.

use std::path::Path;

use super::{
    super::{
        key::Key,
        problem::Problem,
        trainer::Monitor,
        tree::{Node, Value},
    },
    Sampler, Space, Sweep,
    file::literal,
    point::Point,
    tpe::{Observed, STARTUP},
};

impl Sweep {
    /// Rejects axes that make the trials' results incomparable.
    pub(super) fn refuse_unlike(&self, sampler: Sampler, problems: &mut Vec<Problem>) {
        let (who, hint) = match (sampler, self.stop) {
            (Sampler::Tpe, _) => ("`tpe` cannot learn from", "give it one value, or set another sampler"),
            (_, Some(_)) => {
                ("successive halving cannot judge", "give it one value, or leave `sweep.stop` out")
            }
            _ => return,
        };
        let is_judged_by_loss = self.stop.is_none_or(|halving| halving.metric == Monitor::ValidationLoss);
        let (learns, stops) = (sampler == Sampler::Tpe, self.stop.is_some());
        for key in self.keys() {
            let name = key.dotted();
            let why = match name.as_str() {
                "trainer.max_epochs" if learns && stops => "trials of different lengths have different rungs",
                "trainer.monitor" if !stops => "values of different metrics cannot be compared",
                "model.loss" if is_judged_by_loss => "values of different losses cannot be compared",
                _ => continue,
            };
            problems.push(Problem::new(key.place(), format!("{who} the axis `{name}`: {why}")).hint(hint));
        }
    }

    /// The point of a trial whose values do not depend on results; `None` unless the sampler learns.
    pub(in super::super) fn point(&self, trial: usize) -> Option<Point> {
        let (tpe, row) = (self.tpe.as_ref()?, self.blocks.first()?.rows.get(trial)?);
        let values = row.iter().map(|node| node.value.clone()).collect();
        Some(Point::new(&tpe.spaces, &self.conditions, values))
    }

    /// One text per key of a point: its value in TOML, empty if it does not vary. Paths are absolute.
    pub(in super::super) fn cells(&self, point: &Point, folder: &Path) -> Vec<String> {
        let cell = |(key, value): (&Key, &Option<Value>)| match value {
            Some(value) => literal(&key.dotted(), value, folder),
            None => String::new(),
        };
        self.keys().zip(point.values()).map(cell).collect()
    }

    /// Parses [`Sweep::cells`], which another process may have written with other spellings of paths.
    pub(in super::super) fn read_point(&self, cells: &[String], folder: &Path) -> Option<Point> {
        let spaces = &self.tpe.as_ref()?.spaces;
        let own = |((key, space), cell): ((&Key, &Space), &String)| match space {
            Space::Values(values) => {
                let own = values.iter().find(|value| literal(&key.dotted(), value, folder) == *cell);
                own.map_or_else(|| cell.clone(), Value::literal)
            }
            _ => cell.clone(),
        };
        let own: Vec<String> = self.keys().zip(spaces).zip(cells).map(own).collect();
        (own.len() == cells.len()).then(|| Point::read(spaces, &self.conditions, &own)).flatten()
    }

    /// The values of a drawn point, each with the location of its axis.
    pub(in super::super) fn nodes_of(&self, point: &Point) -> Vec<Option<Node>> {
        let first = self.blocks.first().and_then(|block| block.rows.first()).into_iter().flatten();
        let node =
            |(value, at): (&Option<Value>, &Node)| value.clone().map(|value| Node { span: at.span, value });
        point.values().iter().zip(first).map(node).collect()
    }

    /// Draws a later trial. With too few results, or if nothing new comes up, takes the next unused point
    /// that was drawn at random.
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
