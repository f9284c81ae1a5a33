//! `[sweep]`: one spec, many trials.

use serde_json::json;

use super::{
    key::{self, Key},
    problem::{Location, Problem},
    reader::Fields,
    tree::{Node, Span, Table, Value},
};

/// What the table is for.
pub(super) const DOC: &str = "many trials from one spec";

/// More trials than anyone waits for; a larger grid is a slip.
pub(super) const MAX_TRIALS: usize = 100_000;

/// The table `[sweep]`, joined with the axes of the command line.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    /// The first varies slowest.
    pub axes: Vec<GridAxis>,
    /// How often each point runs (1).
    pub repeats: u32,
    /// Whether repeat r runs with seed + r (true).
    pub repeat_seeds: bool,
}

/// A key and the values it takes, where they were written.
#[derive(Clone, Debug)]
pub(super) struct GridAxis {
    pub key: Key,
    pub values: Vec<Node>,
}

impl Sweep {
    pub(super) const NONE: Self = Self { axes: Vec::new(), repeats: 1, repeat_seeds: true };

    /// Reads the table. What is wrong within the grid goes to `problems`: its keys are no fields.
    pub(super) fn read(t: &mut Fields<'_>, problems: &mut Vec<Problem>) -> Self {
        let doc = "dotted keys and the values each takes; the product of all, the first key slowest";
        let grid = t.optional("grid", doc, |v| {
            let values = json!({ "type": "array", "minItems": 1 });
            let schema = json!({ "type": "object", "additionalProperties": values });
            v.custom("a table of keys and arrays", schema, Table::default(), |v| match v {
                Value::Table(table) => Some(table.clone()),
                _ => None,
            })
        });
        let repeats =
            t.default("repeats", "how often each point runs; whole repeats follow each other", 1, |v| {
                v.integer(1..=MAX_TRIALS as u64)
            });
        let doc = "whether repeat r runs with seed + r";
        let repeat_seeds = t.default("repeat_seeds", doc, true, |v| v.boolean());
        t.later(&["zip", "points", "exclude"]);
        let axes = read_axes(&grid.unwrap_or_default(), problems);
        Self { axes, repeats: repeats as u32, repeat_seeds }
    }

    /// Points of the grid.
    pub(super) fn points(&self) -> usize {
        self.axes.iter().fold(1, |n, axis| n.saturating_mul(axis.values.len()))
    }

    /// Which value of each axis a point takes.
    pub(super) fn values_at(&self, mut point: usize) -> Vec<&Node> {
        let mut values: Vec<&Node> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            values.push(&axis.values[point % axis.values.len()]);
            point /= axis.values.len();
        }
        values.reverse();
        values
    }

    /// Sets the axes of a point in a copy of the spec, and only then closes the gaps of what was deleted; an axis that cannot
    /// be set is reported and left out.
    pub(super) fn apply(&self, base: &Table, point: usize) -> (Table, Vec<Problem>) {
        let (mut tree, mut problems) = (base.clone(), Vec::new());
        for (axis, value) in self.axes.iter().zip(self.values_at(point)) {
            if let Err(problem) = key::set(&mut tree, &axis.key, value.clone()) {
                problems.push(*problem);
            }
        }
        tree.close_gaps();
        (tree, problems)
    }

    /// Whether a place lies in a key or a value of the grid, so that it tells by itself in which trials it matters.
    fn holds(&self, place: &Location) -> bool {
        let Location::Span { source, range } = place else { return false };
        let holds = |s: Span| s.source == *source && s.start <= range.start && range.end <= s.end;
        self.axes.iter().any(|a| a.key.span().is_some_and(holds) || a.values.iter().any(|v| holds(v.span)))
    }

    /// The axes of a point as they are shown.
    pub(super) fn pairs(&self, point: usize) -> Vec<(String, String)> {
        let shown = |(axis, value): (&GridAxis, &Node)| (axis.key.dotted(), value.value.display());
        self.axes.iter().zip(self.values_at(point)).map(shown).collect()
    }

    /// Says in which trial a problem was found, unless it stands at a value of the grid.
    pub(super) fn name_trial(&self, mut problem: Problem, point: usize) -> Problem {
        if !self.holds(&problem.place) {
            let pairs = self.pairs(point);
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("`{key}` = `{value}`")).collect();
            problem.related.push((Location::Nowhere, format!("in the trial where {}", pairs.join(", "))));
        }
        problem
    }

    /// An axis whose values are whole tables would silently replace what the command line sets below it.
    pub(super) fn check_overrides(&self, keys: &[Key], problems: &mut Vec<Problem>) {
        for key in keys {
            if let Some(axis) = self.axes.iter().find(|axis| axis.key.is_above(key)) {
                let (name, axis) = (key.dotted(), axis.key.dotted());
                let message = format!("`{name}` would be replaced by every value of the axis `{axis}`");
                let hint = format!("set `{axis}` instead, or change the values of the axis");
                problems.push(Problem::new(key.place(), message).hint(hint));
            }
        }
    }
}

fn read_axes(grid: &Table, problems: &mut Vec<Problem>) -> Vec<GridAxis> {
    let mut axes: Vec<GridAxis> = Vec::new();
    for entry in &grid.entries {
        let key = match Key::parse_at(&entry.key, entry.key_span) {
            Ok(key) => key,
            Err(problem) => {
                problems.push(*problem);
                continue;
            }
        };
        if let Some(values) = check_axis(&key, &entry.node, &axes, problems) {
            axes.push(GridAxis { key, values });
        }
    }
    axes
}

/// The values of an axis, and reports what is wrong with it.
fn check_axis(key: &Key, node: &Node, axes: &[GridAxis], problems: &mut Vec<Problem>) -> Option<Vec<Node>> {
    let name = key.dotted();
    let mut refuse = |place: Location, message: String, hint: String| {
        problems.push(Problem::new(place, message).hint(hint));
    };
    let Value::Array(values) = &node.value else {
        let hint = match &node.value {
            Value::Table(_) => format!("write the whole key in quotes: `\"{name}...\" = [...]`"),
            _ => format!("one value needs no axis: set `{name}` itself"),
        };
        let found = node.value.found();
        let message = format!("the axis `{name}`: expected an array of values, found {found}");
        refuse(node.span.place(), message, hint);
        return None;
    };
    let no_axis = match key.parts.first().map_or("", |part| &part.text) {
        "name" | "sweep" => "trials are named by their axes",
        "kind" => "a sweep has trials of one kind: write a spec for each",
        _ => "",
    };
    if !no_axis.is_empty() {
        refuse(key.place(), format!("`{name}` cannot be an axis"), no_axis.to_owned());
        return None;
    }
    if let Some(below) = axes.iter().find(|a| key.is_above(&a.key)) {
        let below = below.key.dotted();
        let message = format!("the axis `{name}` replaces what the axis `{below}` sets");
        refuse(key.place(), message, format!("write `{name}` first"));
    }
    if axes.iter().any(|a| a.key.dotted() == name) {
        refuse(key.place(), format!("`{name}` is an axis twice"), "write one list".to_owned());
    }
    if values.is_empty() {
        let hint = format!("give it values, or delete it: `~sweep.grid.\"{name}\"`");
        refuse(node.span.place(), format!("the axis `{name}` has no values"), hint);
        return None;
    }
    if values.len() > MAX_TRIALS {
        let message = format!("the axis `{name}` has {} values, more than {MAX_TRIALS} trials", values.len());
        refuse(node.span.place(), message, "run it in parts".to_owned());
        return None;
    }
    report_repeated(&name, values, &mut refuse);
    Some(values.clone())
}

fn report_repeated(name: &str, values: &[Node], refuse: &mut impl FnMut(Location, String, String)) {
    let mut seen = std::collections::HashSet::new();
    for value in values {
        let shown = value.value.to_toml().to_string();
        if !seen.insert(shown.clone()) {
            let hint = "to run every point more than once, set `sweep.repeats`".to_owned();
            refuse(value.span.place(), format!("the axis `{name}` has the value `{shown}` twice"), hint);
        }
    }
}
