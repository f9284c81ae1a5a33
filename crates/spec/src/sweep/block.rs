//! Keys that vary together: one axis of the grid, or the rows of `zip`, `points` or a sampler.

use std::collections::HashSet;

use super::{
    super::{
        key::Key,
        problem::{Location, Problem},
        tree::{Entry, Node, Span, Table, Value},
    },
    MAX_TRIALS,
    conditions::Conditions,
    fit::read_key,
    sampler::{self, SOBOL_AXES, SOBOL_POINTS, Sampler},
    space::Space,
};

/// Keys, and rows with one value per key.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub keys: Vec<Key>,
    pub rows: Vec<Vec<Node>>,
}

/// A swept key, its space of values, and where that was written.
pub(super) struct Axis {
    pub key: Key,
    pub space: Space,
    span: Span,
    /// The values of an array, each with its own location.
    nodes: Option<Vec<Node>>,
}

impl Axis {
    /// Whether it is a list or a range.
    pub fn is_listed(&self) -> bool {
        matches!(self.space, Space::Values(_))
    }

    /// The values of a list or range; a distribution has none to list.
    fn into_values(self, problems: &mut Vec<Problem>) -> Option<(Key, Vec<Node>)> {
        let span = self.span;
        let values = match (self.nodes, self.space) {
            (Some(nodes), _) => nodes,
            (None, Space::Values(values)) => values.into_iter().map(|value| Node { span, value }).collect(),
            (None, _) => {
                let message = format!("the axis `{}`: a distribution needs a sampler", self.key.dotted());
                let hint = "set `sweep.sampler = \"random\"`, `\"sobol\"` or `\"tpe\"`, and `sweep.trials`";
                problems.push(Problem::new(span.place(), message).hint(hint));
                return None;
            }
        };
        Some((self.key, values))
    }
}

impl Block {
    /// The block of one grid axis.
    pub fn of_axis(axis: Axis, problems: &mut Vec<Problem>) -> Option<Self> {
        let (key, values) = axis.into_values(problems)?;
        Some(Self { keys: vec![key], rows: values.into_iter().map(|value| vec![value]).collect() })
    }

    /// The block of axes that advance together.
    pub fn zipped(axes: Vec<Axis>, problems: &mut Vec<Problem>) -> Option<Self> {
        let spans: Vec<Span> = axes.iter().map(|axis| axis.span).collect();
        let columns: Option<Vec<_>> = axes.into_iter().map(|axis| axis.into_values(problems)).collect();
        let columns = columns?;
        let (first, first_values) = columns.first()?;
        let n = first_values.len();
        for ((key, values), span) in columns.iter().zip(spans).skip(1).filter(|((_, v), _)| v.len() != n) {
            let [own, first] = [key, first].map(Key::dotted);
            let message =
                format!("`sweep.zip`: `{own}` has {}, and `{first}` has {n}", counted(values.len()));
            problems.push(
                Problem::new(span.place(), message)
                    .hint("keys that advance together have as many values each"),
            );
        }
        let n = columns.iter().map(|(_, values)| values.len()).min()?;
        let (keys, columns): (Vec<Key>, Vec<Vec<Node>>) = columns.into_iter().unzip();
        let rows = (0..n).map(|row| columns.iter().map(|values| values[row].clone()).collect()).collect();
        Self { keys, rows }.without_repetition("sweep.zip", problems)
    }

    /// The block of trials that were written as tables.
    pub fn of_points(points: &[Node], problems: &mut Vec<Problem>) -> Option<Self> {
        let mut keys: Vec<Key> = Vec::new();
        let (mut rows, known) = (Vec::new(), problems.len());
        for (i, point) in points.iter().enumerate() {
            let Value::Table(table) = &point.value else { continue };
            let mut row: Vec<Option<Node>> = vec![None; keys.len()];
            for entry in &table.entries {
                let key = read_key(entry, problems)?;
                if is_dotted(entry) {
                    let message = format!("`sweep.points`: `{}` would be replaced as a whole", key.dotted());
                    let hint = format!("write the whole key in quotes: `\"{}...\" = ...`", key.dotted());
                    problems.push(Problem::new(key.place(), message).hint(hint));
                    return None;
                }
                let name = key.dotted();
                match keys.iter().position(|known| known.dotted() == name) {
                    Some(place) => row[place] = Some(entry.node.clone()),
                    None if i == 0 => {
                        keys.push(key);
                        row.push(Some(entry.node.clone()));
                    }
                    None => {
                        let message =
                            format!("`sweep.points`: `{name}` is not among the keys of the first point");
                        problems.push(Problem::new(key.place(), message).hint("give every point every key"));
                    }
                }
            }
            let missing = keys.iter().zip(&row).find(|(_, value)| value.is_none());
            if let Some((key, _)) = missing {
                let message = format!("`sweep.points.{i}` lacks `{}`", key.dotted());
                problems.push(Problem::new(point.span.place(), message).hint("give every point every key"));
            }
            rows.extend(row.into_iter().collect::<Option<Vec<Node>>>());
        }
        let block = Self { keys, rows };
        if problems.len() > known { Some(block) } else { block.without_repetition("sweep.points", problems) }
    }

    /// The block of points that a sampler draws.
    pub fn drawn(
        axes: Vec<Axis>,
        conditions: &Conditions,
        (sampler, trials, seed): (Sampler, usize, u64),
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let at = axes.first()?.key.place();
        let mut refuse =
            |message: String, hint: &str| problems.push(Problem::new(at.clone(), message).hint(hint));
        let most = [SOBOL_POINTS, SOBOL_AXES];
        let is_sobol = sampler == Sampler::Sobol;
        if is_sobol && (trials > most[0] || axes.len() > most[1]) {
            let message = format!("a Sobol sequence has at most {} points and {} axes", most[0], most[1]);
            refuse(message, "set `sweep.sampler = \"random\"`");
            return None;
        }
        let spaces: Vec<&Space> = axes.iter().map(|axis| &axis.space).collect();
        let points = sampler::draw(sampler, &spaces, conditions, trials, seed);
        if points.len() < trials {
            let message = format!("only {} different points come of these values", points.len());
            refuse(message, "set fewer `sweep.trials`, or leave `sampler` out to run all of them");
        }
        let row = |point: Vec<Value>| {
            let node = |(value, axis): (Value, &Axis)| Node { span: axis.span, value };
            point.into_iter().zip(&axes).map(node).collect()
        };
        let rows = points.into_iter().map(row).collect();
        Some(Self { keys: axes.into_iter().map(|axis| axis.key).collect(), rows })
    }

    fn without_repetition(self, name: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut seen = HashSet::new();
        for (i, row) in self.rows.iter().enumerate() {
            let shown: Vec<String> = row.iter().map(|node| node.value.to_toml().to_string()).collect();
            if !seen.insert(shown) {
                let place = row.first().map_or(Location::Nowhere, |node| node.span.place());
                let message = format!("`{name}`: row {i} repeats an earlier one; rows are counted from 0");
                problems.push(Problem::new(place, message).hint(REPEATS));
            }
        }
        (!self.rows.is_empty()).then_some(self)
    }
}

const REPEATS: &str = "to run every point more than once, set `sweep.repeats`";

fn counted(n: usize) -> String {
    runner_base::units::counted(n as u64, "value")
}

/// Whether `a.b = 1` was written without quotes, which TOML reads as a table: its inner key then follows
/// right after the dot, unlike with braces or a header.
fn is_dotted(entry: &Entry) -> bool {
    let first = entry.node.value.as_table().and_then(|table| table.entries.first());
    first.is_some_and(|inner| inner.key_span.start == entry.key_span.end + 1)
}

pub(super) fn read_axes(table: &Table, problems: &mut Vec<Problem>) -> Vec<Axis> {
    let read = |entry: &Entry| read_axis(read_key(entry, problems)?, &entry.node, problems);
    table.entries.iter().filter_map(read).collect()
}

/// Reads an axis and reports what is wrong with it; `None` if it has no usable values.
fn read_axis(key: Key, node: &Node, problems: &mut Vec<Problem>) -> Option<Axis> {
    let (name, span) = (key.dotted(), node.span);
    let mut refuse = |message: String, hint: String| {
        problems.push(Problem::new(span.place(), message).hint(hint));
        None
    };
    let (values, nodes) = match &node.value {
        Value::String(text) => match Space::parse(text) {
            Ok(Space::Values(values)) => (values, None),
            Ok(space) => return Some(Axis { key, space, span, nodes: None }),
            Err(e) => return refuse(format!("the axis `{name}`: {}", e.message), e.hint),
        },
        Value::Array(nodes) => (nodes.iter().map(|node| node.value.clone()).collect(), Some(nodes.clone())),
        other => {
            let hint = match other {
                Value::Table(_) => format!("write the whole key in quotes: `\"{name}...\" = [...]`"),
                _ => format!("one value needs no axis: set `{name}` itself"),
            };
            let found = other.found();
            return refuse(format!("the axis `{name}`: expected an array of values, found {found}"), hint);
        }
    };
    if values.is_empty() {
        let hint = format!("give it values, or delete it: `~sweep.grid.\"{name}\"`");
        return refuse(format!("the axis `{name}` has no values"), hint);
    }
    if values.len() > MAX_TRIALS {
        let message = format!("the axis `{name}` has {} values, more than {MAX_TRIALS} trials", values.len());
        return refuse(message, "run it in parts".to_owned());
    }
    let mut seen = HashSet::new();
    for (i, value) in values.iter().enumerate() {
        let shown = value.to_toml().to_string();
        if !seen.insert(shown.clone()) {
            let place = nodes.as_ref().map_or(span, |nodes| nodes[i].span).place();
            let message = format!("the axis `{name}` has the value `{shown}` twice");
            problems.push(Problem::new(place, message).hint(REPEATS));
        }
    }
    Some(Axis { key, space: Space::Values(values), span, nodes })
}

/// Reports keys that vary twice, and keys whose values would replace those of others.
pub(super) fn check_keys(blocks: &[Block], problems: &mut Vec<Problem>) {
    let keys: Vec<&Key> = blocks.iter().flat_map(|block| &block.keys).collect();
    for (i, key) in keys.iter().enumerate() {
        let name = key.dotted();
        let mut refuse =
            |message: String, hint: String| problems.push(Problem::new(key.place(), message).hint(hint));
        if let Some(below) = keys[..i].iter().find(|earlier| key.is_above(earlier)) {
            let below = below.dotted();
            let message = format!("the axis `{name}` replaces what the axis `{below}` sets");
            refuse(message, format!("write `{name}` first"));
        }
        if keys[..i].iter().any(|earlier| earlier.dotted() == name) {
            refuse(format!("`{name}` is an axis twice"), "write one list".to_owned());
        }
    }
}
