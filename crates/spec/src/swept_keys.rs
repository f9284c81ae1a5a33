//! The keys that `[sweep]` sweeps.

use super::{
    key::{Key, dotted},
    points::is_chosen,
    reader::Json,
    schema::keys_named,
    suggest,
    sweep::Space,
    tree::{Node, Table, Value},
};

/// A key that an argument set or swept.
pub(super) struct Given {
    pub key: Key,
    /// The table of `[sweep]` that holds its axis, where it is swept.
    pub axes: Option<&'static str>,
}

/// The tables of `[sweep]` that hold axes.
pub(super) const AXES: [&str; 2] = ["grid", "zip"];

/// The key that an axis sweeps, and its table: `seed` and `grid` for `sweep.grid.seed`.
pub(super) fn axis_of(key: &Key) -> Option<(Key, &'static str)> {
    let [sweep, table, axis @ ..] = &key.parts[..] else { return None };
    let table = AXES.into_iter().find(|name| sweep.text == "sweep" && table.text == *name)?;
    match axis {
        [] => None,
        [axis] => Some((Key::parse_at(&axis.text, key.span()?).ok()?, table)),
        axis => Some((Key { parts: axis.to_vec() }, table)),
    }
}

/// The hint at the unknown key `path` of `[sweep]`, given as `written`, if it is meant as an axis: `sweep.lr=0.1,0.2`. `root` is the spec
/// without `[sweep]`, and `schema` that of its kind.
pub(super) fn at_axis(path: &str, written: &Table, root: &Table, schema: &Json) -> Option<String> {
    let is_it = |name: &str| dotted(["sweep", name].into_iter()) == path;
    let entry = written.entries.iter().find(|entry| is_it(&entry.key))?;
    let (mut name, mut value) = (entry.key.clone(), &entry.node.value);
    while let Value::Table(inner) = value
        && let [entry] = &inner.entries[..]
    {
        name = format!("{name}.{}", entry.key);
        value = &entry.node.value;
    }
    let (table, last) = name.rsplit_once('.').unwrap_or(("", &name));
    let first = name.split('.').next().unwrap_or(&name);
    // The schema has no path to an item of a list.
    let meant = match name.split('.').any(|part| part.parse::<usize>().is_ok()) {
        true => root.get(first).map(|_| name.clone())?,
        false => {
            let mut keys = keys_named(schema, (table, last), |table| is_chosen(root, table));
            let key = keys.pop().filter(|_| keys.is_empty())?;
            let found = key.rsplit('.').next().unwrap_or(&key);
            let is_it = found == last || suggest::called_here(last).any(|here| here == found);
            // Only one key that stands outside of a table can be swept.
            (is_it && (key.contains('.') || key == "seed")).then_some(key)?
        }
    };
    let is_plain = |item: &Node| item.value.as_str().is_none_or(|text| !text.contains([',', '"', '\'']));
    let typed = match value {
        Value::Table(_) => return None,
        Value::Array(items) if items.is_empty() || !items.iter().all(is_plain) => return None,
        Value::Array(items) => items.iter().map(|item| item.value.display()).collect::<Vec<_>>().join(","),
        Value::String(text) if Space::is_meant_by(text) => text.clone(),
        _ => return Some(format!("one value needs no axis: set `{meant}` itself")),
    };
    let quote = if typed.contains(['(', '[', '{', ' ']) { "'" } else { "" };
    let value = value.to_toml();
    Some(format!(
        "an axis is the key itself, `{quote}{meant}={typed}{quote}`, or stands in `[sweep.grid]`: `\"{meant}\" = {value}`"
    ))
}

/// A table of `[sweep]`.
pub(super) fn axes<'a>(root: &'a mut Table, name: &str) -> Option<&'a mut Table> {
    let Value::Table(sweep) = &mut root.get_mut("sweep")?.node.value else { return None };
    let Value::Table(axes) = &mut sweep.get_mut(name)?.node.value else { return None };
    Some(axes)
}

/// The keys of the axes in a table.
fn keys_in(root: &mut Table, table: &str) -> Vec<String> {
    axes(root, table).map_or_else(Vec::new, |axes| axes.entries.iter().map(|axis| axis.key.clone()).collect())
}

/// Removes the axis of a key and its condition. Returns whether there was one.
pub(super) fn remove_axis(root: &mut Table, name: &str) -> bool {
    let removed = AXES.map(|table| axes(root, table).and_then(|axes| axes.remove(name)));
    let is_removed = removed.iter().any(Option::is_some);
    if let Some(when) = axes(root, "when").filter(|_| is_removed)
        && when.remove(name).is_some()
        && when.entries.is_empty()
        && let Some(Value::Table(sweep)) = root.get_mut("sweep").map(|entry| &mut entry.node.value)
    {
        sweep.remove("when");
    }
    is_removed
}

/// Removes the axes of a key and of those in it, with their conditions, and these keys from `points`. Returns whether there were some.
pub(super) fn remove_axes(root: &mut Table, name: &str) -> bool {
    let below = format!("{name}.");
    let swept: Vec<String> = AXES.iter().flat_map(|table| keys_in(root, table)).collect();
    let is_in = |key: &String| *key == name || key.starts_with(&below);
    let removed = swept.iter().filter(|key| is_in(key) && remove_axis(root, key)).count();
    remove_from_points(root, is_in) || removed > 0
}

/// Removes keys from `points`, which end with their last key. Returns whether there were some.
fn remove_from_points(root: &mut Table, is_removed: impl Fn(&String) -> bool) -> bool {
    let Some(sweep) = root.get_mut("sweep").and_then(|entry| entry.node.value.as_table_mut()) else {
        return false;
    };
    let points = sweep.get_mut("points").map(|entry| &mut entry.node.value);
    let Some(Value::Array(points)) = points else { return false };
    let (mut before, mut left) = (0, 0);
    for point in points.iter_mut().filter_map(|point| point.value.as_table_mut()) {
        before += point.entries.len();
        point.entries.retain(|entry| !is_removed(&entry.key));
        left += point.entries.len();
    }
    if left == 0 && before > 0 {
        sweep.remove("points");
    }
    left < before
}
