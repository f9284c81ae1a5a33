//! Tables of swept keys and the values that must match, in `exclude` and `when`.

use super::{
    super::{
        key::Key,
        problem::Problem,
        suggest,
        tree::{Entry, Table, Value},
    },
    Space,
};

/// What must match: indexes of axes, each with the values that match.
pub(super) type Fit = Vec<(usize, Vec<Value>)>;

/// Reads swept keys, each with one value or several. A key that is not swept is reported; `so` says what
/// follows from that, and `of` is the key of all such tables.
pub(super) fn read_fit(
    keys: &[&Key],
    table: &Table,
    (so, of): (&str, &str),
    problems: &mut Vec<Problem>,
) -> Option<Fit> {
    let mut fit = Vec::new();
    for entry in &table.entries {
        let key = read_key(entry, problems)?;
        let name = key.dotted();
        let Some(axis) = keys.iter().position(|axis| axis.dotted() == name) else {
            let axes: Vec<String> = keys.iter().map(|axis| axis.dotted()).collect();
            let listed = suggest::listing(axes.iter().map(String::as_str), "and");
            let message = format!("`{name}` is not swept, {so}");
            let near = suggest::nearest(&name, axes.iter().map(String::as_str));
            let way = match entry.key_span.is_of_base() {
                true => format!("`delete = ['{of}']`"),
                false => format!("`~{of}`"),
            };
            let swept = format!("swept: {listed}; {way} deletes all of these tables");
            let hint = near.map_or(swept, |near| format!("did you mean `{near}`?"));
            problems.push(Problem::new(key.place(), message).hint(hint));
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

/// The dotted key of an entry; reports one that cannot be swept.
pub(super) fn read_key(entry: &Entry, problems: &mut Vec<Problem>) -> Option<Key> {
    let key = Key::parse_at(&entry.key, entry.key_span).map_err(|problem| problems.push(*problem)).ok()?;
    let hint = match key.parts.first().map_or("", |part| &part.text) {
        "name" => "trials are named by their axes",
        "sweep" => "it says which trials there are, not what they are",
        "launcher" => "it says how a cluster takes the trials, not what they are",
        "kind" => "a sweep has trials of one kind: write a spec for each",
        _ => return Some(key),
    };
    let message = format!("`{}` cannot be an axis", key.dotted());
    problems.push(Problem::new(key.place(), message).hint(hint));
    None
}
