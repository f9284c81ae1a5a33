//! Trials that a sampler draws, at once or from the results of earlier ones.

use super::{
    super::{
        folders::Folders,
        key::Key,
        problem::Problem,
        tree::{Entry, Node, Table, Value},
    },
    Sampler, Space, Sweep,
    block::{Axis, Block},
    conditions::Conditions,
    file::literal,
    history::History,
    point::Point,
    tpe::{EXPLORE, STARTUP, Tpe},
};

/// Keys that choose rows and random numbers. No sampler draws them: each point runs with every value, and a setting is averaged
/// over them.
pub const SEEDS: [&str; 5] = ["seed", "data.fold", "model.init_seed", "data.shuffle_seed", "data.split.seed"];

impl Sweep {
    /// The points that a sampler draws, and the seeds and folds that each of them runs with.
    pub(super) fn draw_blocks(
        &mut self,
        grid: Vec<Axis>,
        when: &Table,
        (sampler, trials, seed): (Sampler, usize, u64),
        problems: &mut Vec<Problem>,
    ) -> Vec<Block> {
        // `tpe` takes none: see `refuse_unlike`.
        let is_seed = |axis: &Axis| sampler != Sampler::Tpe && SEEDS.contains(&axis.key.dotted().as_str());
        let (seeds, grid): (Vec<Axis>, Vec<Axis>) = grid.into_iter().partition(is_seed);
        let misuse = seeds.iter().find_map(|axis| Some((axis.key.place(), misused(axis, &grid, when)?)));
        if let Some((place, [message, hint])) = misuse {
            // No other key varies, either, where one of those that would was not read.
            if problems.is_empty() || !grid.is_empty() {
                problems.push(Problem::new(place, message).hint(hint));
            }
            // What else is wrong with the spec is found with one value of each.
            let one = (Sampler::Random, 1, seed);
            return Block::drawn(seeds, &Conditions::NONE, one, problems).into_iter().collect();
        }
        let keys: Vec<&Key> = grid.iter().map(|axis| &axis.key).collect();
        let can_be = |axis: usize, value: &Value| grid[axis].space.can_be(value);
        self.conditions = Conditions::read((&keys, keys.len()), when, can_be, problems);
        let spaces = grid.iter().map(|axis| axis.space.clone()).collect();
        self.tpe = (sampler == Sampler::Tpe).then_some(Tpe { spaces, seed });
        let drawn = Block::drawn(grid, &self.conditions, (sampler, trials, seed), problems);
        let seeds: Vec<Block> = seeds.into_iter().filter_map(|axis| Block::of_axis(axis, problems)).collect();
        drawn.into_iter().chain(seeds).collect()
    }

    /// Refuses axes that make the results of trials unlike each other.
    pub(super) fn refuse_unlike(&self, sampler: Sampler, problems: &mut Vec<Problem>) {
        let (who, way_out) = match (sampler, self.stop) {
            (Sampler::Tpe, _) => ("`tpe` cannot learn from", "or set another sampler"),
            (_, Some(_)) => ("successive halving cannot judge", "or leave `sweep.stop` out"),
            _ => return,
        };
        let hint = format!("give it one value, {way_out}");
        let hint = hint.as_str();
        let cross_validate = format!(
            "give it one value and cross-validate the best trials afterwards (`runner TRIAL/spec.toml data.fold=0..5 name=folds`), \
             {way_out}"
        );
        let (learns, stops) = (sampler == Sampler::Tpe, self.stop.is_some());
        for key in self.keys() {
            let name = key.dotted();
            let (why, hint) = match name.as_str() {
                "data.fold" => ("folds of one point would compete", cross_validate.as_str()),
                name if SEEDS.contains(&name) => (
                    "seeds of one point would compete",
                    "give it one value, and repeat the best trial afterwards: `runner TRIAL/spec.toml seed=1..6 name=repeats`",
                ),
                "trainer.max_epochs" if learns && stops => {
                    ("trials of different lengths have different rungs", hint)
                }
                "trainer.monitor" => ("values of different metrics cannot be compared", hint),
                "model.loss" => ("values of different losses cannot be compared", hint),
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
    pub(in super::super) fn cells(&self, point: &Point, folders: &Folders) -> Vec<String> {
        let cell = |(key, value): (&Key, &Option<Value>)| match value {
            Some(value) => literal(key, value, folders),
            None => String::new(),
        };
        self.keys().zip(point.values()).map(cell).collect()
    }

    /// Parses [`Sweep::cells`], which another process may have written with other spellings of paths.
    pub(in super::super) fn read_point(&self, cells: &[String], folders: &Folders) -> Option<Point> {
        let spaces = &self.tpe.as_ref()?.spaces;
        let own = |((key, space), cell): ((&Key, &Space), &String)| match space {
            Space::Values(values) => {
                let own = values.iter().find(|value| literal(key, value, folders) == *cell);
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

    /// Draws a later trial from the costs of the others. The points that were drawn at random stand in where there are too few
    /// results, where nothing new comes up, and now and then: what lies far from the best is found no other way.
    pub(in super::super) fn draw(
        &self,
        trial: usize,
        history: &History,
        costs: &[Option<f64>],
    ) -> Option<Point> {
        let results = costs.iter().flatten().count();
        let learns = results >= STARTUP && !trial.is_multiple_of(EXPLORE);
        let tpe = self.tpe.as_ref().filter(|_| learns);
        let at_random = || {
            let points = (trial..self.points()).chain(0..trial).filter_map(|trial| self.point(trial));
            points.into_iter().find(|point| !history.has(point))
        };
        tpe.and_then(|tpe| tpe.draw(trial, &self.conditions, history, costs)).or_else(at_random)
    }
}

/// What is wrong with an axis of seeds or folds beside the axes that a sampler draws, and the way out.
fn misused(own: &Axis, drawn: &[Axis], when: &Table) -> Option<[String; 2]> {
    let name = own.key.dotted();
    let noun = if name == "data.fold" { "folds" } else { "seeds" };
    let names_it = |table: &Table| table.get(&name).is_some();
    let is_in_condition = |entry: &Entry| matches!(&entry.node.value, Value::Table(table) if names_it(table));
    if !own.is_listed() {
        let message = format!("the axis `{name}`: {noun} are listed, not drawn");
        return Some([message, "write `0..5`: every point runs with each of them".to_owned()]);
    }
    if drawn.is_empty() {
        let message =
            format!("a sampler draws the values of other keys than `{name}`, and no other key varies");
        let hint =
            format!("leave `sampler` and `trials` out, which runs all {noun}, or give other keys values");
        return Some([message, hint]);
    }
    let is_conditional = names_it(when) || when.entries.iter().any(is_in_condition);
    is_conditional.then(|| {
        let message = format!("`sweep.when`: every point of a sampler runs with every `{name}`");
        [message, format!("leave `{name}` out of the conditions")]
    })
}
