//! Positional overrides, in the style of Hydra: `key=value` sets, `key=1,2,4` and `key=0..5` sweep, `~key`
//! deletes. A file that extends another one deletes keys of it, and its own take their places, by the same rules.
//!
//! They change the tree before anything is read from it. So an override obeys the same rules as the file, and
//! its mistakes are shown at the argument. An index counts the items of the array as written, whatever other
//! arguments delete. Two arguments that contradict each other are an error, like a key that a TOML file sets
//! twice: nobody knows which one was meant.

use super::{
    alternatives::alternatives,
    delete::delete,
    gaps,
    key::{self, Key, Part},
    problem::Problem,
    suggest,
    sweep::Space,
    swept_keys::{AXES, Given, axes, axis_of, remove_axes, remove_axis},
    tree::{Entry, Node, Span, Table, Value},
    typed::{FORMS, is_swept, split_at_commas, value},
};

/// Applies `arguments` to `root` in order. Returns the keys that were set to one value, and all problems.
pub(super) fn apply(root: &mut Table, arguments: &[String]) -> (Vec<Key>, Vec<Problem>) {
    let (mut given, mut problems) = (Vec::new(), Vec::new());
    let mut words = arguments.iter().enumerate().peekable();
    while let Some((i, text)) = words.next() {
        let whole = Span::new(i + 1, 0..text.len());
        // `lr=0.1, 0.01`: after the space are more values.
        let is_value = |word: &String| !word.contains('=') && !word.starts_with('~');
        let mut joined = text.clone();
        while joined.ends_with(',')
            && !is_value(text)
            && let Some((_, more)) = words.next_if(|(_, word)| is_value(word))
        {
            joined.push_str(more);
        }
        if joined != *text {
            let joined = if joined.contains('(') { format!("'{joined}'") } else { joined };
            let hint = format!("leave out the space after the comma: `{joined}`");
            problems.push(Problem::new(whole.place(), format!("`{text}` ends at a space")).hint(hint));
            continue;
        }
        match apply_one(root, text, whole, &given) {
            Ok(new) => given.extend(new),
            Err(problem) => problems.push(*problem),
        }
    }
    remove_alternatives(root, &given);
    let set = given.into_iter().filter(|given| given.axes.is_none()).map(|given| given.key);
    let mut set: Vec<Key> = set.collect();
    problems.extend(gaps::close(root, &mut set));
    (set, problems)
}

/// The axes in a table that `key` is set to: `sweep`, or one of [`AXES`].
fn axes_in(key: &Key, value: &Value) -> Vec<Given> {
    let Value::Table(written) = value else { return Vec::new() };
    let name = key.dotted();
    let tables = AXES.into_iter().filter_map(|table| match written.get(table) {
        Some(entry) if name == "sweep" => Some((table, &entry.node.value)),
        _ => (name == format!("sweep.{table}")).then_some((table, value)),
    });
    let axes = tables
        .filter_map(|(table, value)| Some(value.as_table()?.entries.iter().map(move |axis| (table, axis))));
    // The reader reports what is no key.
    let given = |(table, axis): (&'static str, &Entry)| {
        Some(Given { key: Key::parse_at(&axis.key, axis.key_span).ok()?, axes: Some(table) })
    };
    axes.flatten().filter_map(given).collect()
}

/// The earlier argument that is taken back by one that deletes, sets or sweeps `key`.
pub(super) fn taken_back<'a>(given: &'a [Given], key: &Key, sweeps: bool) -> Option<&'a Key> {
    let name = key.dotted();
    let by = |given: &&Given| {
        let holds_axis = |table| name == "sweep" || name == format!("sweep.{table}");
        let is_below = key.is_above(&given.key) || given.axes.is_some_and(holds_axis);
        given.key.dotted() == name || (!sweeps && is_below)
    };
    given.iter().find(by).map(|given| &given.key)
}

fn refuse_twice(given: &[Given], key: &Key, sweeps: bool) -> Result<(), Box<Problem>> {
    let Some(earlier) = taken_back(given, key, sweeps) else { return Ok(()) };
    let (name, other) = (key.dotted(), earlier.dotted());
    let (message, hint) = if name == other {
        (format!("`{name}` is given twice"), "leave one of the two arguments out".to_owned())
    } else {
        (format!("`{name}` replaces what `{other}` sets"), format!("write `{name}` first"))
    };
    Err(clash(key, message, earlier, "first given here").hint(hint).into())
}

fn clash(key: &Key, message: String, earlier: &Key, words: &str) -> Problem {
    let mut problem = Problem::new(key.place(), message);
    problem.related.push((earlier.place(), words.to_owned()));
    problem
}

/// The key and the values of `key=value`.
fn assignment(text: &str, whole: Span) -> Result<(&str, &str), Box<Problem>> {
    let bare = text.trim_start_matches('+');
    let hint = match text.split_once('=') {
        _ if !bare.is_empty() && bare.len() < text.len() => {
            format!("leave `+` out: `{bare}` sets a key, be it in the file or not")
        }
        Some(parts) => return Ok(parts),
        None => "write `key=value` to set a key, `key=1,2,4` to sweep it, `~key` to delete it".to_owned(),
    };
    Err(Problem::new(whole.place(), format!("`{text}` is not an override")).hint(hint).into())
}

fn apply_one(root: &mut Table, text: &str, whole: Span, given: &[Given]) -> Result<Vec<Given>, Box<Problem>> {
    if let Some(name) = text.strip_prefix('~') {
        return delete_given(root, name, Span { start: whole.start + 1, ..whole }, given)
            .map(|()| Vec::new());
    }
    let (name, values) = assignment(text, whole)?;
    let key = Key::parse(name.trim_end(), Span { end: whole.start + name.trim_end().len(), ..whole })?;
    let start = whole.start + name.len() + 1;
    if let Some((function, meant)) = Space::misspelled(values) {
        let span = Span { start, ..whole };
        let hint = match &meant {
            Some(meant) => {
                let quote = if meant.contains('\'') { '"' } else { '\'' };
                format!("did you mean `{quote}{name}={meant}{quote}`?")
            }
            None => {
                let forms = suggest::listing(FORMS.into_iter(), "or");
                format!("write `0..5`, {forms}; quote a string that holds a comma: `'{name}=\"{values}\"'`")
            }
        };
        if let Some(meant) = meant.filter(|_| axis_of(&key).is_none()) {
            // Read as what was meant: a sweep without this axis would be a second error.
            let axis = Given { axes: Some(table_of(root, &key.dotted())), key };
            sweep(root, &axis, Node { span, value: Value::String(meant) });
        }
        return Err(Problem::new(span.place(), format!("no function `{function}`")).hint(hint).into());
    }
    let (pieces, new) = split(root, &key, values, given)?;
    let span_of = |piece: &str| {
        let start = start + (piece.as_ptr() as usize - values.as_ptr() as usize);
        Span { start, end: start + piece.len(), ..whole }
    };
    if let Some(range) = pieces.iter().copied().find(|piece| Space::is_meant_by(piece)) {
        if pieces.len() > 1 {
            let message = format!("`{range}` stands among other values of `{}`", new.key.dotted());
            let hint = "a range is the whole axis; a list has its values";
            return Err(Problem::new(span_of(range).place(), message).hint(hint).into());
        }
        let axis = Node { span: span_of(range), value: Value::String(range.to_owned()) };
        set_or_sweep(root, &new, axis)?;
        return Ok(vec![new]);
    }
    if let [piece] = pieces[..] {
        let node = value(piece, span_of(piece))?;
        let axes = axes_in(&key, &node.value);
        axes.iter().try_for_each(|axis| refuse_twice(given, &axis.key, true))?;
        key::set(root, &key, node)?;
        // One value for a swept key: it is swept no more.
        remove_axis(root, &key.dotted());
        return Ok(std::iter::once(new).chain(axes).collect());
    }
    if let Some(empty) = pieces.iter().find(|p| p.is_empty()) {
        let message = format!("a value of `{}` is empty", key.dotted());
        let hint = "quote a string that holds a comma: `'key=\"a, b\"'`";
        return Err(Problem::new(span_of(empty).place(), message).hint(hint).into());
    }
    let values = pieces.iter().map(|p| value(p, span_of(p))).collect::<Result<_, _>>()?;
    let axis = Node { span: Span { start, ..whole }, value: Value::Array(values) };
    set_or_sweep(root, &new, axis)?;
    Ok(vec![new])
}

/// The values of an argument, and what it gives. A key of `[sweep]` is never swept, but set to what an axis would have: its reader says
/// what is meant.
fn split<'a>(
    root: &mut Table,
    key: &Key,
    values: &'a str,
    given: &[Given],
) -> Result<(Vec<&'a str>, Given), Box<Problem>> {
    let pieces = split_at_commas(values);
    let is_of_sweep = key.parts.first().is_some_and(|part| part.text == "sweep");
    let (meant, table) = match axis_of(key) {
        Some((axis, table)) => (axis, Some(table)),
        None => (key.clone(), (is_swept(&pieces) && !is_of_sweep).then(|| table_of(root, &key.dotted()))),
    };
    refuse_twice(given, &meant, table.is_some())?;
    Ok((pieces, Given { key: meant, axes: table }))
}

fn set_or_sweep(root: &mut Table, given: &Given, values: Node) -> Result<(), Box<Problem>> {
    match given.axes {
        Some(_) => sweep(root, given, values),
        None => key::set(root, &given.key, values)?,
    }
    Ok(())
}

/// Removes the alternatives to what arguments set or sweep, unless an argument gives them, too: the reader reports those.
fn remove_alternatives(root: &mut Table, given: &[Given]) {
    for other in given.iter().flat_map(|own| alternatives(&own.key)) {
        let name = other.dotted();
        if given.iter().any(|given| given.key.dotted() == name || other.is_above(&given.key)) {
            continue;
        }
        remove_axes(root, &name);
        key::remove(root, &other);
    }
}

/// Puts the keys of a file in the place of those of `root`, the file that it extends. Returns those that have a value.
pub(super) fn replace(root: &mut Table, own: Table) -> Vec<Key> {
    let mut given = Vec::new();
    list_given(&own, &[], &mut given);
    remove_alternatives(root, &given);
    let mut values = Vec::new();
    for Given { key, axes: table } in &given {
        let name = key.dotted();
        match table {
            // A table merges with what is there, and is no value.
            None if given.iter().any(|other| key.is_above(&other.key)) => {}
            None => {
                remove_axis(root, &name);
                values.push(key.clone());
            }
            // An axis that stays in its table keeps its condition.
            Some(table) => AXES.iter().filter(|other| *other != table).for_each(|other| {
                axes(root, other).and_then(|axes| axes.remove(&name));
            }),
        }
    }
    merge(root, own);
    values
}

/// The keys, tables and axes that a file gives.
fn list_given(table: &Table, above: &[Part], given: &mut Vec<Given>) {
    for entry in &table.entries {
        let part = Part { text: entry.key.clone(), span: entry.key_span };
        let key = Key { parts: [above, &[part]].concat() };
        if key.dotted() == "sweep" {
            given.extend(axes_in(&key, &entry.node.value));
            continue;
        }
        if let Value::Table(inner) = &entry.node.value {
            list_given(inner, &key.parts, given);
        }
        given.push(Given { key, axes: None });
    }
}

/// Tables merge; all else is replaced.
fn merge(root: &mut Table, own: Table) {
    for Entry { key, key_span, node } in own.entries {
        match (root.get_mut(&key), node.value) {
            (
                Some(Entry { key_span: place, node: Node { value: Value::Table(table), .. }, .. }),
                Value::Table(own),
            ) => {
                *place = key_span;
                merge(table, own);
            }
            (_, value) => root.insert(&key, key_span, Node { value, ..node }),
        }
    }
}

/// Deletes a key, unless an earlier argument sets it.
fn delete_given(root: &mut Table, name: &str, span: Span, given: &[Given]) -> Result<(), Box<Problem>> {
    let key = Key::parse(name, span)?;
    let axis = axis_of(&key);
    let swept = |axis: &Key| given.iter().find(|g| g.axes.is_some() && g.key.dotted() == axis.dotted());
    let earlier = axis.as_ref().map_or(taken_back(given, &key, false), |(axis, _)| Some(&swept(axis)?.key));
    if let Some(earlier) = earlier {
        let message = format!("`~{}` deletes what `{}` sets", key.dotted(), earlier.dotted());
        return Err(clash(&key, message, earlier, "set here")
            .hint("leave one of the two arguments out, or delete first")
            .into());
    }
    delete(root, &key)
}

/// The table with the axis of a key; the grid where it has none.
fn table_of(root: &mut Table, name: &str) -> &'static str {
    if axes(root, "zip").is_some_and(|zip| zip.get(name).is_some()) { "zip" } else { "grid" }
}

/// Replaces the axis of a key, or adds one. The reader reports a `[sweep]` that is no table.
fn sweep(root: &mut Table, given: &Given, axis: Node) {
    let (Some(span), Some(table)) = (given.key.span(), given.axes) else { return };
    let empty = || Node { span, value: Value::Table(Table::default()) };
    if root.get("sweep").is_none() {
        root.insert("sweep", span, empty());
    }
    let sweep = root.get_mut("sweep").map(|e| &mut e.node.value);
    if let Some(Value::Table(sweep)) = sweep
        && sweep.get(table).is_none()
    {
        sweep.insert(table, span, empty());
    }
    if let Some(axes) = axes(root, table) {
        axes.insert(&given.key.dotted(), span, axis);
    }
}
