//! The resolved spec as one text in which each value that the file does not give names its origin: `runner check --spec`.
//!
//! That of a sweep has what all trials share, what the spec says of the rest, and `[sweep]`. So it gives the same trials.

use std::collections::HashSet;

use serde::Serialize;
use toml::{Table, Value};

use super::{
    Loaded,
    experiment::Experiment,
    key::{self, Key},
    reader::{self, Item},
    resolved::{table, text},
    sweep::Sweep,
    tree::{self, Node, Span},
};

/// The origin of what neither the file nor an override gives.
const DEFAULT: &str = "default";

impl Loaded {
    /// The spec with every default and override filled in, and absolute paths, as TOML that gives the same trials from any folder. The
    /// keys stand in the order of the schema. A comment names the origin of each value that the file does not give.
    pub fn to_toml_with_origins(&self) -> String {
        match self {
            Self::Train(experiment) => experiment.to_toml_with_origins(),
            Self::Lab(experiment) => experiment.to_toml_with_origins(),
        }
    }
}

impl<S: Serialize> Experiment<S> {
    fn to_toml_with_origins(&self) -> String {
        let note = |path: &[&str], value: &Value| comment(&self.origins(path, value));
        let mut out = text(&self.resolved(), &note);
        if self.is_sweep() {
            let note =
                |span: Span| self.sources.origin(span).map_or_else(String::new, |own| format!("  # {own}"));
            out += &format!("\n[sweep]\n{}{}", self.sweep_defaults(), self.sweep_as_written(&note));
        }
        out + &text(&self.launcher_table().into_iter().collect(), &note)
    }

    /// The resolved spec of all trials, without what only some have. Repeats differ in their seeds alone.
    fn resolved(&self) -> Table {
        let mut trials = self.trials.iter().filter(|trial| trial.repeat == 0).map(|trial| table(&trial.spec));
        let first = trials.next().unwrap_or_default();
        if !self.is_sweep() {
            return first;
        }
        let shared = trials.fold(first.clone(), |shared, other| in_both(shared, &other));
        let swept = self.points.sweep.keys().map(Key::dotted).collect();
        let [first, shared, written] = &[first, shared, self.base_as_written()].map(Value::Table);
        let values = Values { first: Some(first), shared: Some(shared), written: Some(written) };
        merge(&mut Vec::new(), values, &swept).and_then(|merged| merged.try_into().ok()).unwrap_or_default()
    }

    /// The lines of `[sweep]` that the spec leaves out. A sampler goes with axes.
    fn sweep_defaults(&self) -> String {
        let sweep = &self.points.sweep;
        let schema = reader::describe(|v: Item<'_>| v.table(|t| Sweep::read(t, &mut Vec::new())));
        let fields = schema.get("properties").and_then(|own| own.as_object()).into_iter().flatten();
        let fields = fields.filter(|(key, _)| sweep.written.get(key).is_none());
        let fields = fields.filter(|(key, _)| *key != "sampler" || sweep.keys().next().is_some());
        let line = |(key, field): (&String, &serde_json::Value)| {
            Some(format!("{key} = {}  # {DEFAULT}\n", field.get("default")?))
        };
        fields.filter_map(line).collect()
    }

    /// The values within the value at a path, each with its key and its origin; `None` if the file gives it.
    fn origins(&self, path: &[&str], value: &Value) -> Vec<(String, Option<String>)> {
        let found = key::find(&self.points.written, path.iter().copied());
        let node = found.and_then(|(node, is_whole)| is_whole.then_some(node));
        let mut origins = Vec::new();
        self.add_origins("", value, node, &mut origins);
        origins
    }

    fn add_origins(
        &self,
        name: &str,
        value: &Value,
        node: Option<&Node>,
        found: &mut Vec<(String, Option<String>)>,
    ) {
        match (value, node.map(|node| (&node.value, node.span))) {
            (_, None) => found.push((name.to_owned(), Some(DEFAULT.to_owned()))),
            (Value::Table(inner), Some((tree::Value::Table(written), _))) => {
                for (key, value) in inner {
                    self.add_origins(key, value, written.get(key).map(|entry| &entry.node), found);
                }
            }
            // A choice by its name alone: `"layer_norm"`.
            (Value::Table(choice), Some((tree::Value::String(_), _))) => {
                let settings = choice.values().filter_map(Value::as_table).flatten();
                settings.for_each(|(key, value)| self.add_origins(key, value, None, found));
            }
            // A list of one file has one origin, unless its items have defaults.
            (Value::Array(items), Some((tree::Value::Array(written), span)))
                if items.len() == written.len()
                    && (items.iter().any(Value::is_table)
                        || written.iter().any(|item| item.span.source != span.source)) =>
            {
                for (index, (item, node)) in items.iter().zip(written).enumerate() {
                    self.add_origins(&index.to_string(), item, Some(node), found);
                }
            }
            (_, Some((_, span))) => found.push((name.to_owned(), self.sources.origin(span))),
        }
    }
}

/// `  # default`, or where parts of the value differ `  # default: bias`; nothing for what the file gives.
fn comment(origins: &[(String, Option<String>)]) -> String {
    let mut others: Vec<&str> = Vec::new();
    for origin in origins.iter().filter_map(|(_, origin)| origin.as_deref()) {
        if !others.contains(&origin) {
            others.push(origin);
        }
    }
    let parts: Vec<String> = match &others[..] {
        [] => return String::new(),
        [one] if origins.iter().all(|(name, own)| own.is_some() && (*one != DEFAULT || name.is_empty())) => {
            vec![(*one).to_owned()]
        }
        _ => {
            let names = |other: &str| {
                let own = origins.iter().filter(|(_, origin)| origin.as_deref() == Some(other));
                own.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
            };
            others.iter().map(|other| format!("{other}: {}", names(other))).collect()
        }
    };
    format!("  # {}", parts.join("; "))
}

/// The values that two tables share.
fn in_both(own: Table, other: &Table) -> Table {
    own.into_iter().filter_map(|(key, value)| Some((key.clone(), shared(value, other.get(&key)?)?))).collect()
}

fn shared(own: Value, other: &Value) -> Option<Value> {
    match (own, other) {
        (Value::Table(own), Value::Table(other)) => Some(Value::Table(in_both(own, other))),
        (Value::Array(own), Value::Array(other)) if own.len() == other.len() => own
            .into_iter()
            .zip(other)
            .map(|(own, other)| shared(own, other))
            .collect::<Option<_>>()
            .map(Value::Array),
        (own, other) => (own == *other).then_some(own),
    }
}

/// The values at one place: in the first trial, in all trials, and in the spec as written.
#[derive(Clone, Copy)]
struct Values<'a> {
    first: Option<&'a Value>,
    shared: Option<&'a Value>,
    written: Option<&'a Value>,
}

impl<'a> Values<'a> {
    fn map(self, of: impl Fn(&'a Value) -> Option<&'a Value>) -> Self {
        let [first, shared, written] = [self.first, self.shared, self.written].map(|own| own.and_then(&of));
        Self { first, shared, written }
    }
}

/// What stands at `path`: what all trials share, else what is written. What is swept stays as written.
fn merge(path: &mut Vec<String>, values: Values<'_>, swept: &HashSet<String>) -> Option<Value> {
    let Values { first, shared, written } = values;
    if swept.contains(&key::dotted(path.iter().map(String::as_str))) {
        return written.cloned();
    }
    let mut below = |key: String, values: Values<'_>| {
        path.push(key);
        let merged = merge(path, values, swept);
        path.pop();
        merged
    };
    match (first, shared, written) {
        (Some(Value::Table(own)), Some(Value::Table(_)), None | Some(Value::Table(_))) => {
            let written = written.and_then(Value::as_table).into_iter().flat_map(Table::keys);
            let keys: Vec<&String> =
                own.keys().chain(written.filter(|key| !own.contains_key(*key))).collect();
            let values = keys.into_iter().filter_map(|key| {
                Some((key.clone(), below(key.clone(), values.map(|value| value.as_table()?.get(key)))?))
            });
            let table: Table = values.collect();
            (!table.is_empty()).then_some(Value::Table(table))
        }
        (Some(Value::Array(own)), Some(Value::Array(items)), Some(Value::Array(written)))
            if own != items && items.len() == written.len() =>
        {
            let items = 0..items.len();
            let items = items.map(|i| below(i.to_string(), values.map(|value| value.as_array()?.get(i))));
            items.collect::<Option<_>>().map(Value::Array)
        }
        _ if first == shared && shared.is_some() => shared.cloned(),
        _ => written.cloned(),
    }
}
