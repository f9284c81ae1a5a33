//! Deletes keys of a spec: those of `~KEY`, and those that a file lists of the one that it extends.

use super::{
    gaps,
    key::{self, Key},
    problem::Problem,
    suggest,
    swept_keys::{axes, axis_of, remove_axes, remove_axis},
    tree::{Node, Span, Table, Value},
};

/// The key of those that a file deletes of the one that it extends.
pub(super) const DELETE: &str = "delete";

/// Deletes the keys that a file lists of the one that it extends.
pub(super) fn delete_listed(root: &mut Table, list: &Node) -> Vec<Problem> {
    let expected = |node: &Node| {
        let found = match &node.value {
            Value::Array(items) if items.is_empty() => "an empty array".to_owned(),
            other => other.found(),
        };
        let message = format!("`{DELETE}`: expected a list of keys, found {found}");
        Problem::new(node.span.place(), message).hint("such as `delete = [\"schedule\"]`")
    };
    let Some(items) = list.value.as_items().filter(|items| !items.is_empty()) else {
        return vec![expected(list)];
    };
    let mut deleted: Vec<Key> = Vec::new();
    let delete = |item: &Node| {
        let Value::String(name) = &item.value else { return Err(Box::new(expected(item))) };
        let key = Key::parse_at(name, item.span)?;
        let above = deleted.iter().find(|own| own.is_above(&key) || own.dotted() == key.dotted());
        let hint = above.map(|own| format!("`{}` before it deletes it: leave it out", own.dotted()));
        let done = delete(root, &key);
        deleted.push(key);
        done.map_err(|problem| Box::new(Problem { hint: hint.or(problem.hint.clone()), ..*problem }))
    };
    let problems = items.iter().map(delete).filter_map(Result::err).map(|problem| *problem);
    let mut problems: Vec<Problem> = problems.collect();
    problems.extend(gaps::close(root, &mut []));
    problems
}

/// Deletes a key with the axes that sweep it, or a key in it.
pub(super) fn delete(root: &mut Table, key: &Key) -> Result<(), Box<Problem>> {
    let axis = axis_of(key)
        .filter(|(axis, table)| axes(root, table).is_some_and(|axes| axes.get(&axis.dotted()).is_some()));
    let was_swept = match axis {
        Some((axis, _)) => remove_axis(root, &axis.dotted()),
        None => remove_axes(root, &key.dotted()),
    };
    if key::remove(root, key).is_some() || was_swept {
        return Ok(());
    }
    let name = key.dotted();
    let place = key.place();
    if key::is_gap(root, key) {
        let message = format!("`{name}` has been deleted already");
        return Err(Problem::new(place, message).hint("indexes mean the spec as it is written").into());
    }
    let (mark, absent) = match key.span().is_some_and(Span::is_argument) {
        true => ("~", None),
        false => ("", Some("the spec that it extends does not set it: leave it out")),
    };
    let mut problem = Problem::new(place, format!("`{name}` is not there to be deleted"));
    let mut written = Vec::new();
    list_keys("", root, &mut written);
    // A table that contains the key is not a different spelling of it.
    let others = written.iter().map(String::as_str).filter(|other| !name.starts_with(&format!("{other}.")));
    let near = suggest::nearest(&name, others).map(|near| format!("did you mean `{mark}{near}`?"));
    problem.hint = near.or(absent.map(str::to_owned));
    Err(problem.into())
}

fn list_keys(above: &str, table: &Table, out: &mut Vec<String>) {
    for entry in &table.entries {
        let name = if above.is_empty() { entry.key.clone() } else { format!("{above}.{}", entry.key) };
        if let Value::Table(inner) = &entry.node.value {
            list_keys(&name, inner, out);
        }
        out.push(name);
    }
}
