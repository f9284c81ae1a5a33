//! `[sweep]`: one spec, many trials.
//!
//! The points of a sweep are the product of its blocks: each axis of `grid`, then the rows of `zip`, then
//! `points`. A sampler makes one block of all axes. `exclude` removes points from the product; with `when`,
//! points that differ only in keys that do not vary there count once.

mod block;
mod conditions;
mod distinct;
mod drawn;
mod exclude;
mod file;
mod fit;
mod history;
mod point;
mod sampler;
mod sharing;
mod space;
mod stop;
mod tpe;

pub use drawn::SEEDS;
pub use history::History;
pub use point::Point;
pub use sharing::GpuSharing;
pub(super) use space::Space;
pub(super) use stop::Judged;
pub use stop::{Halving, Stop};

use std::collections::HashSet;

use block::Block;
use conditions::Conditions;
use sampler::Sampler;
use serde_json::json;
use tpe::Tpe;

use super::{
    key::{self, Key},
    problem::{Location, Problem},
    read_seed,
    reader::{Fields, Item, Read},
    tree::{Node, Span, Table, Value},
};

/// Schema text of the table.
pub(super) const DOC: &str = "many trials from one spec";

/// More trials than anyone waits for; a larger grid is taken for a mistake.
pub(super) const MAX_TRIALS: usize = 100_000;

/// The table `[sweep]`, including axes from the command line.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    blocks: Vec<Block>,
    /// The points of the product that run; `None` if all do.
    left: Option<Vec<usize>>,
    excluded: usize,
    conditions: Conditions,
    /// The sampler of the later trials, if it learns from results.
    tpe: Option<Tpe>,
    /// How many times each point runs (1).
    pub repeats: u32,
    /// Whether repeat r runs with seed + r (true).
    pub repeat_seeds: bool,
    pub stop: Option<Halving>,
    pub share: GpuSharing,
    /// The table as written, including axes from the command line.
    pub written: Table,
}

/// Rejects a sampler, a stop rule or conditions if there is only one trial.
fn refuse_without_axes(t: &mut Fields<'_>) {
    for name in ["sampler", "stop", "when"] {
        if t.has(name) {
            t.refuse(name, &[], "there is no axis", "name keys and their values in `sweep.grid`");
        }
    }
}

impl Sweep {
    pub(super) const NONE: Self = Self {
        blocks: Vec::new(),
        left: None,
        excluded: 0,
        conditions: Conditions::NONE,
        tpe: None,
        repeats: 1,
        repeat_seeds: true,
        stop: None,
        share: GpuSharing::Auto,
        written: Table { entries: Vec::new() },
    };

    /// Reads the table. Problems below the level of fields (in swept keys) go to `problems`.
    pub(super) fn read(t: &mut Fields<'_>, problems: &mut Vec<Problem>) -> Self {
        let doc = "dotted keys and the values that each takes: an array, a range such as `logspace(1e-4, 1e-1, 7)`, or, \
                   for a sampler, a distribution; the product of all, the first key slowest";
        let grid = t.optional("grid", doc, axes);
        let doc = "dotted keys whose values advance together: arrays or ranges of one length";
        let zip = t.optional("zip", doc, axes);
        let points = t.optional("points", "trials as tables of dotted keys, each with all of them", tables);
        let doc = "trials of the grid to leave out: tables of swept keys and the value, or the values, that they have";
        let exclude = t.optional("exclude", doc, tables);
        let doc = "keys of `grid` that vary only where others have given values: tables of swept keys and a value, or several";
        let when = t.optional("when", doc, conditions_of).unwrap_or_default();
        let doc = "how trials are chosen from the values in `grid`";
        let sampler = t.default("sampler", doc, Sampler::Grid, Sampler::read);
        let doc = "how many points a sampler draws";
        let trials = t.optional("trials", doc, |v| v.integer(1..=MAX_TRIALS as u64));
        let seed = t.default("sampler_seed", "the source of what a sampler draws", 0, read_seed);
        let doc = "how often each point runs; whole repeats follow each other";
        let repeats = t.default("repeats", doc, 1, |v| v.integer(1..=MAX_TRIALS as u64));
        let doc = "whether repeat r runs with seed + r";
        let repeat_seeds = t.default("repeat_seeds", doc, true, |v| v.boolean());
        let doc = "when trials that promise little end early";
        let stop = t.optional("stop", doc, Stop::read).map(|Stop::Asha(halving)| halving);
        let doc =
            "whether trials that run side by side may share a GPU; `auto`: those that take one block of it";
        let share = t.default("share", doc, GpuSharing::Auto, GpuSharing::read);
        refuse_repeats(t, sampler, repeats);
        let known = problems.len();
        let grid = block::read_axes(&grid.unwrap_or_default(), problems);
        let of_grid = grid.len();
        let mut sweep = Self { repeats: repeats as u32, repeat_seeds, stop, share, ..Self::NONE };
        if !t.is_sound("sweep.sampler") {
            return sweep; // what the axes may be depends on it
        }
        sweep.blocks = if sampler == Sampler::Grid {
            if trials.is_some() {
                let hint = "set `sampler = \"random\"`, `\"sobol\"` or `\"tpe\"`, or leave `trials` out";
                t.refuse("trials", &["sampler"], "a grid has as many trials as it has points", hint);
            }
            let grid: Vec<Block> =
                grid.into_iter().filter_map(|axis| Block::of_axis(axis, problems)).collect();
            let zip = Block::zipped(block::read_axes(&zip.unwrap_or_default(), problems), problems);
            let points = Block::of_points(&points.unwrap_or_default(), problems);
            grid.into_iter().chain(zip).chain(points).collect()
        } else {
            check_drawn(t, sampler, trials.is_some());
            let trials = trials.filter(|_| problems.len() == known).unwrap_or(1) as usize;
            sweep.draw_blocks(grid, &when, (sampler, trials, seed), problems)
        };
        sweep.refuse_unlike(sampler, problems);
        if sweep.blocks.is_empty() && problems.len() == known {
            refuse_without_axes(t);
        }
        block::check_keys(&sweep.blocks, problems);
        if sampler == Sampler::Grid {
            let keys: Vec<&Key> = sweep.keys().collect();
            let of_grid = of_grid.min(keys.len());
            let can_be = |axis: usize, value: &Value| sweep.column(axis).any(|own| space::same(value, own));
            sweep.conditions = Conditions::read((&keys, of_grid), &when, can_be, problems);
            sweep.leave_out(exclude.as_deref(), problems);
        }
        sweep
    }

    /// The values that a key has in the rows of its block.
    fn column(&self, axis: usize) -> impl Iterator<Item = &Value> {
        let places =
            self.blocks.iter().flat_map(|block| (0..block.keys.len()).map(move |place| (block, place)));
        places
            .skip(axis)
            .take(1)
            .flat_map(|(block, place)| block.rows.iter().map(move |row| &row[place].value))
    }

    /// If a value of the key is a table or a list: all of the key's values as displayed. Otherwise empty.
    pub(super) fn texts(&self, axis: usize) -> HashSet<String> {
        let drawn = self.tpe.as_ref().and_then(|tpe| tpe.spaces.get(axis));
        let values: Vec<&Value> = match drawn {
            Some(Space::Values(values)) => values.iter().collect(),
            _ => self.column(axis).collect(),
        };
        let is_large = values.iter().any(|value| matches!(value, Value::Table(_) | Value::Array(_)));
        values.into_iter().filter(|_| is_large).map(Value::display).collect()
    }

    /// The swept keys, slowest first.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.blocks.iter().flat_map(|block| &block.keys)
    }

    /// Number of points of the product, including excluded ones.
    pub(super) fn product(&self) -> usize {
        self.blocks.iter().fold(1, |n, block| n.saturating_mul(block.rows.len()))
    }

    pub(super) fn points(&self) -> usize {
        self.left.as_ref().map_or_else(|| self.product(), Vec::len)
    }

    /// Whether duplicates under `when` were not removed, because there are too many points.
    pub(super) fn is_uncut(&self) -> bool {
        !self.conditions.is_empty() && self.left.is_none()
    }

    /// Number of points that `exclude` removes.
    pub(super) fn excluded(&self) -> usize {
        self.excluded
    }

    /// The value of each key at a point; `None` where it does not vary.
    pub(super) fn values_at(&self, point: usize) -> Vec<Option<&Node>> {
        self.values_of(self.left.as_ref().map_or(point, |left| left[point]))
    }

    /// Like [`Sweep::values_at`], but takes the point's number in the product.
    fn values_of(&self, point: usize) -> Vec<Option<&Node>> {
        let values = self.nodes_at(&self.rows_of(point));
        let active = self.active(&values);
        values.into_iter().zip(active).map(|(value, is_active)| is_active.then_some(value)).collect()
    }

    fn nodes_at(&self, rows: &[usize]) -> Vec<&Node> {
        self.blocks.iter().zip(rows).flat_map(|(block, row)| &block.rows[*row]).collect()
    }

    /// For a point of the product, the row of each block.
    fn rows_of(&self, mut point: usize) -> Vec<usize> {
        let mut rows = vec![0; self.blocks.len()];
        for (row, block) in rows.iter_mut().zip(&self.blocks).rev() {
            *row = point % block.rows.len();
            point /= block.rows.len();
        }
        rows
    }

    fn active(&self, values: &[&Node]) -> Vec<bool> {
        match self.conditions.is_empty() {
            true => vec![true; values.len()],
            false => self.conditions.active(&values.iter().map(|node| &node.value).collect::<Vec<_>>()),
        }
    }

    /// How many of these trials have values that do not depend on results.
    pub(super) fn known(&self, trials: usize) -> usize {
        if self.tpe.is_some() { trials.min(tpe::STARTUP) } else { trials }
    }

    /// Sets the values of a point in a copy of the spec. A value that cannot be set is reported and skipped.
    pub(super) fn apply(&self, base: &Table, values: &[Option<&Node>]) -> (Table, Vec<Problem>) {
        let (mut tree, mut problems) = (base.clone(), Vec::new());
        for (key, value) in self.keys().zip(values) {
            if let Some(value) = value
                && let Err(problem) = key::set(&mut tree, key, (*value).clone())
            {
                problems.push(*problem);
            }
        }
        (tree, problems)
    }

    /// The values of a point as displayed; empty where a key does not vary.
    pub(super) fn shown(&self, point: usize) -> impl Iterator<Item = String> {
        let values = self.values_at(point).into_iter();
        values.map(|value| value.map_or_else(String::new, |node| node.value.display()))
    }

    /// Adds the trial's values to a problem, unless its location is in the sweep and shows them already.
    pub(super) fn name_trial(&self, mut problem: Problem, point: usize) -> Problem {
        let Location::Span { source, range } = &problem.place else { return self.with_pairs(problem, point) };
        let holds = |s: Span| s.source == *source && s.start <= range.start && range.end <= s.end;
        let is_said = self.keys().filter_map(Key::span).any(holds)
            || self.values_at(point).into_iter().flatten().any(|value| holds(value.span));
        if !is_said {
            problem = self.with_pairs(problem, point);
        }
        problem
    }

    fn with_pairs(&self, mut problem: Problem, point: usize) -> Problem {
        let pairs = self.keys().zip(self.shown(point)).filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> =
            pairs.map(|(key, value)| format!("`{}` = `{value}`", key.dotted())).collect();
        problem.related.push((Location::Nowhere, format!("in the trial where {}", pairs.join(", "))));
        problem
    }

    /// Reports keys of the command line, or of a file that extends the sweep's, which the sweep would silently replace: by an axis
    /// whose values are whole tables, or by `points`; or, as `root` has it, by an axis of a key in a table or list that they set whole.
    pub(super) fn check_overrides(&self, keys: &[Key], root: &Table, problems: &mut Vec<Problem>) {
        for key in keys {
            let name = key.dotted();
            let is_argument = key.span().is_some_and(Span::is_argument);
            let is_earlier = |axis: &Key| {
                let [axis, key] = [axis, key].map(Key::span);
                axis.zip(key)
                    .is_some_and(|(axis, key)| axis.order() < key.order() && axis.source != key.source)
            };
            let is_lost = |axis: &&Key| {
                (axis.is_above(key) || axis.dotted() == name) && (is_argument || is_earlier(axis))
            };
            if let Some(axis) = self.keys().find(is_lost) {
                let axis = axis.dotted();
                let message = format!("`{name}` would be replaced by every value of the axis `{axis}`");
                let hint = match (is_argument, axis == name) {
                    (true, true) => {
                        format!("leave the argument out, or end the axis by `~{name}` before it")
                    }
                    (true, false) => format!("set `{axis}` instead, or change the values of the axis"),
                    (false, _) => "leave it out, or give the axis anew in this file's `[sweep]`".to_owned(),
                };
                problems.push(Problem::new(key.place(), message).hint(hint));
            }
            // A table of a file merges.
            let found = key::find(root, key.parts.iter().map(|part| part.text.as_str()));
            let is_table = found.is_some_and(|(node, _)| matches!(node.value, Value::Table(_)));
            let is_within = |axis: &&Key| key.is_above(axis) && is_earlier(axis);
            if let Some(axis) = self.keys().find(is_within).filter(|_| is_argument || !is_table) {
                let own = axis.dotted();
                let message = format!("`{name}` is set as a whole, and the axis `{own}` would change it");
                let hint = match is_argument {
                    true => format!("leave it out, or end the axis by `~{own}` before it"),
                    false => format!("leave it out, or end the axis by `delete = [\"{own}\"]`"),
                };
                let mut problem = Problem::new(key.place(), message).hint(hint);
                problem.related.push((axis.place(), "swept here".to_owned()));
                problems.push(problem);
            }
        }
    }
}

/// The conditions, by key.
fn conditions_of(v: Item<'_>) -> Table {
    let table = json!({ "type": "object", "minProperties": 1 });
    let schema = json!({ "type": "object", "additionalProperties": table });
    v.custom("a table of keys and their conditions", schema, Table::default(), |v| v.as_table().cloned())
}

/// What judges single trials takes no repeats.
fn refuse_repeats(t: &mut Fields<'_>, sampler: Sampler, repeats: u64) {
    if repeats == 1 {
        return;
    }
    let hint = "leave `repeats` out, and repeat the best trial afterwards: `runner TRIAL/spec.toml seed=1..6 name=repeats`";
    if t.has("stop") {
        t.refuse("stop", &["repeats"], "successive halving judges single trials", hint);
    }
    if sampler == Sampler::Tpe {
        t.refuse("sampler", &["repeats"], "`tpe` learns from single trials", hint);
    }
}

/// Checks the settings that a sampler needs or excludes.
fn check_drawn(t: &mut Fields<'_>, sampler: Sampler, has_trials: bool) {
    for name in ["zip", "points", "exclude"] {
        if t.has(name) {
            let message = format!("the sampler `{}` draws from `sweep.grid` alone", sampler.name());
            t.refuse(name, &["sampler"], message, "leave it out, or leave `sampler` out");
        }
    }
    if !has_trials {
        let message = format!("the sampler `{}` needs a number of trials", sampler.name());
        t.refuse("sampler", &["trials"], message, "set `sweep.trials`");
    }
}

/// The axes by key: arrays, ranges, distributions.
fn axes(v: Item<'_>) -> Table {
    let values = json!({ "oneOf": [{ "type": "array", "minItems": 1 }, { "type": "string" }] });
    let schema = json!({ "type": "object", "additionalProperties": values });
    v.custom("a table of keys and their values", schema, Table::default(), |v| v.as_table().cloned())
}

fn tables(v: Item<'_>) -> Vec<Node> {
    let schema = json!({ "type": "array", "minItems": 1, "items": { "type": "object", "minProperties": 1 } });
    v.custom("an array of tables", schema, Vec::new(), |v| match v {
        Value::Array(items) if !items.is_empty() => {
            let is_table = |node: &Node| node.value.as_table().is_some_and(|table| !table.entries.is_empty());
            items.iter().all(is_table).then(|| items.clone())
        }
        _ => None,
    })
}
