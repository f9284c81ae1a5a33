//! `sweep.exclude`: points of the product that do not run.

use super::{
    super::{
        problem::Problem,
        suggest,
        tree::{Node, Table, Value},
    },
    MAX_TRIALS, Space, Sweep,
    block::read_key,
};

/// One exclusion: the place of a key among the axes, and the values that it excludes.
type Exclusion = Vec<(usize, Vec<Value>)>;

/// The points that no exclusion matches. One that matches none is a mistake. `None` where the product is refused as too large.
pub(super) fn left(sweep: &Sweep, exclude: &[Node], problems: &mut Vec<Problem>) -> Option<Vec<usize>> {
    let read = |node: &Node| match &node.value {
        Value::Table(table) => exclusion(sweep, table, problems),
        _ => None,
    };
    let exclusions: Vec<Option<Exclusion>> = exclude.iter().map(read).collect();
    let product = sweep.product();
    if product > MAX_TRIALS {
        return None;
    }
    if exclusions.iter().any(Option::is_none) {
        return Some((0..product.min(1)).collect());
    }
    let mut matched = vec![false; exclusions.len()];
    let mut is_left = |point: &usize| {
        let values = sweep.values_of(*point);
        let matches = |exclusion: &Exclusion| {
            exclusion
                .iter()
                .all(|(axis, excluded)| excluded.iter().any(|value| same(value, &values[*axis].value)))
        };
        let mut is_left = true;
        for (exclusion, matched) in exclusions.iter().flatten().zip(&mut matched) {
            if matches(exclusion) {
                (is_left, *matched) = (false, true);
            }
        }
        is_left
    };
    let left: Vec<usize> = (0..product).filter(|point| is_left(point)).collect();
    for (node, _) in exclude.iter().zip(&matched).filter(|(_, matched)| !**matched) {
        let message = "no trial has what this exclusion names";
        let hint = "`runner check` without it lists the trials";
        problems.push(Problem::new(node.span.place(), message).hint(hint));
    }
    if let (true, Some(last)) = (left.is_empty(), exclude.last()) {
        problems.push(Problem::new(last.span.place(), "every trial is excluded"));
    }
    Some(left)
}

fn exclusion(sweep: &Sweep, table: &Table, problems: &mut Vec<Problem>) -> Option<Exclusion> {
    let mut exclusion = Vec::new();
    for entry in &table.entries {
        let key = read_key(entry, problems)?;
        let name = key.dotted();
        let Some(axis) = sweep.keys().position(|axis| axis.dotted() == name) else {
            let axes: Vec<String> = sweep.keys().map(|axis| axis.dotted()).collect();
            let listed = suggest::listing(axes.iter().map(String::as_str), "and");
            let message = format!("`{name}` is not swept, so no trial can be excluded by it");
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
        exclusion.push((axis, values));
    }
    Some(exclusion)
}

/// Whether two values are equal; an integer equals the float of its value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Integer(i), Value::Float(x)) | (Value::Float(x), Value::Integer(i)) => *i as f64 == *x,
        _ => a.to_toml() == b.to_toml(),
    }
}
