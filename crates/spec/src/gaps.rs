//! The gaps that deleted items leave in lists. They stay until all keys of a file or of the command line are deleted and set, so
//! that indexes mean the lists as they are written. Then they close, and swept keys get the indexes that their items have from then on.

use super::{
    key::Key,
    problem::Problem,
    tree::{Entry, Table, Value},
};

/// Closes all gaps. The keys of `[sweep]`, and `keys`, name the same items as before.
///
/// Returns a problem for each swept key of a deleted item, which is left out.
pub(super) fn close(root: &mut Table, keys: &mut [Key]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let with_gaps = root.clone();
    let mut is_kept = |entry: &mut Entry| renumber(entry, &with_gaps, &mut problems);
    if let Some(Value::Table(sweep)) = root.get_mut("sweep").map(|entry| &mut entry.node.value) {
        for Entry { key, node, .. } in &mut sweep.entries {
            let tables: Vec<&mut Table> = match &mut node.value {
                Value::Table(table) => vec![table],
                Value::Array(items) => {
                    items.iter_mut().filter_map(|item| item.value.as_table_mut()).collect()
                }
                _ => Vec::new(),
            };
            for table in tables {
                table.entries.retain_mut(&mut is_kept);
                let conditions = table.entries.iter_mut().filter(|_| key == "when");
                let conditions = conditions.filter_map(|entry| entry.node.value.as_table_mut());
                conditions.for_each(|condition| condition.entries.retain_mut(&mut is_kept));
            }
        }
    }
    for key in keys {
        *key = moved(key, &with_gaps).unwrap_or_else(|| key.clone());
    }
    root.close_gaps();
    problems
}

/// Gives a swept key the indexes that it has without gaps. Returns whether its item is there.
fn renumber(entry: &mut Entry, with_gaps: &Table, problems: &mut Vec<Problem>) -> bool {
    // The reader reports what is no key.
    let Ok(key) = Key::parse_at(&entry.key, entry.key_span) else { return true };
    let Some(moved) = moved(&key, with_gaps) else {
        let message = format!("`{}` has been deleted already", key.dotted());
        let hint = "leave it out; indexes mean the spec as it is written";
        problems.push(Problem::new(key.place(), message).hint(hint));
        return false;
    };
    let [before, after] = [&key, &moved].map(Key::dotted);
    if before != after {
        entry.key = after;
    }
    true
}

/// The key without gaps; `None` if it is in one.
fn moved(key: &Key, with_gaps: &Table) -> Option<Key> {
    let mut moved = key.clone();
    let (first, rest) = moved.parts.split_first_mut()?;
    let mut here = with_gaps.get(&first.text).map(|entry| &entry.node.value);
    for part in rest {
        here = match here {
            Some(Value::Table(table)) => table.get(&part.text).map(|entry| &entry.node.value),
            Some(Value::Array(items)) => {
                let is_gap = |value: &Value| matches!(value, Value::Deleted);
                let index = part.text.parse::<usize>().ok().filter(|index| *index < items.len());
                let Some(index) = index else { break };
                if is_gap(&items[index].value) {
                    return None;
                }
                let gaps = items[..index].iter().filter(|item| is_gap(&item.value)).count();
                part.text = (index - gaps).to_string();
                Some(&items[index].value)
            }
            _ => break,
        };
    }
    Some(moved)
}
