//! `sweep.exclude`: points of the product that do not run.

use super::{
    super::{
        key::Key,
        problem::Problem,
        suggest,
        tree::{Node, Table, Value},
    },
    Space, Sweep,
    block::read_key,
};

/// What fits: the places of keys among the axes, each with the values that it may have.
pub(super) type Fit = Vec<(usize, Vec<Value>)>;

/// The points, of `all`, that no exclusion matches. One that matches none is a mistake.
pub(super) fn left(
    sweep: &Sweep,
    mut all: Vec<usize>,
    exclude: &[Node],
    problems: &mut Vec<Problem>,
) -> Vec<usize> {
    let keys: Vec<&Key> = sweep.keys().collect();
    let read = |node: &Node| match &node.value {
        Value::Table(table) => read_fit(&keys, table, "so no trial can be excluded by it", problems),
        _ => None,
    };
    let exclusions: Vec<Option<Fit>> = exclude.iter().map(read).collect();
    if exclusions.iter().any(Option::is_none) {
        all.truncate(1);
        return all;
    }
    let mut matched = vec![false; exclusions.len()];
    let mut is_left = |point: &usize| {
        let values = sweep.values_of(*point);
        let matches = |exclusion: &Fit| {
            exclusion.iter().all(|(axis, excluded)| {
                values[*axis].is_some_and(|own| excluded.iter().any(|value| same(value, &own.value)))
            })
        };
        let mut is_left = true;
        for (exclusion, matched) in exclusions.iter().flatten().zip(&mut matched) {
            if matches(exclusion) {
                (is_left, *matched) = (false, true);
            }
        }
        is_left
    };
    all.retain(|point| is_left(point));
    for (node, _) in exclude.iter().zip(&matched).filter(|(_, matched)| !**matched) {
        let message = "no trial has what this exclusion names";
        let hint = "`runner check` without it lists the trials";
        problems.push(Problem::new(node.span.place(), message).hint(hint));
    }
    if let (true, Some(last)) = (all.is_empty(), exclude.last()) {
        problems.push(Problem::new(last.span.place(), "every trial is excluded"));
    }
    all
}

/// Swept keys, each with a value or several; a key that is not swept is reported, with what follows from that.
pub(super) fn read_fit(keys: &[&Key], table: &Table, so: &str, problems: &mut Vec<Problem>) -> Option<Fit> {
    let mut fit = Vec::new();
    for entry in &table.entries {
        let key = read_key(entry, problems)?;
        let name = key.dotted();
        let Some(axis) = keys.iter().position(|axis| axis.dotted() == name) else {
            let axes: Vec<String> = keys.iter().map(|axis| axis.dotted()).collect();
            let listed = suggest::listing(axes.iter().map(String::as_str), "and");
            let message = format!("`{name}` is not swept, {so}");
            problems.push(Problem::new(key.place(), message).hint(format!("swept: {listed}")));
            return None;
        };
        let mut values = vec![entry.node.value.clone()];
        match &entry.node.value {
            Value::Array(items) => values.extend(items.iter().map(|item| item.value.clone())),
            Value::String(text) if Space::is_meant_by(text) => {
                if let Ok(Space::Values(of_range)) = Space::parse(text) {
                    values.extend(of_range);
                }
            }
            _ => {}
        }
        fit.push((axis, values));
    }
    Some(fit)
}

/// Whether two values are equal; an integer equals the float of its value, and a word a table with that key alone.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(word), Value::Table(table)) => {
            matches!(&table.entries[..], [only] if only.key == *word)
        }
        (Value::Integer(i), Value::Float(x)) | (Value::Float(x), Value::Integer(i)) => *i as f64 == *x,
        _ => a.to_toml() == b.to_toml(),
    }
}
