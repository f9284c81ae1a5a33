//! Dotted keys: parsing them, and using them to find, set and remove values in the tree.

use std::collections::{HashMap, HashSet};

use super::{
    problem::{Location, Problem},
    tree::{Node, Span, Table, Value},
};

/// Far deeper than any key of a spec.
const MAX_DEPTH: usize = 32;

/// A dotted key; each part has its location.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub parts: Vec<Part>,
}

/// A key of a table, or the index into an array.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub text: String,
    pub span: Span,
}

impl Key {
    /// Parses `model.layers.0."x"`; its first byte is at `span.start`.
    pub fn parse(text: &str, span: Span) -> Result<Self, Box<Problem>> {
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let start = span.start + (text.len() - rest.len());
            let (part, length) = part(rest);
            let part_span = Span { source: span.source, start, end: start + length };
            rest = &rest[length..];
            let valid =
                part.as_ref().is_some_and(|p| !p.is_empty()) && (rest.is_empty() || rest.starts_with('.'));
            match part {
                Some(text) if valid && parts.len() < MAX_DEPTH => parts.push(Part { text, span: part_span }),
                _ => {
                    let hint = "a key is names joined by dots, such as `trainer.max_epochs`";
                    return Err(Problem::new(span.place(), format!("`{text}` is not a key"))
                        .hint(hint)
                        .into());
                }
            }
            match rest.strip_prefix('.') {
                Some(after) => rest = after,
                None => return Ok(Self { parts }),
            }
        }
    }

    /// Like [`Key::parse`], for a text whose parts have no exact location, such as a string with escapes:
    /// every part gets `span`.
    pub fn parse_at(text: &str, span: Span) -> Result<Self, Box<Problem>> {
        let mut key = Self::parse(text, span).map_err(|mut p| {
            p.place = span.place();
            p
        })?;
        key.parts.iter_mut().for_each(|p| p.span = span);
        Ok(key)
    }

    /// The key in canonical form: parts joined by dots, quoted only where TOML needs it.
    pub fn dotted(&self) -> String {
        dotted(self.parts.iter().map(|p| p.text.as_str()))
    }

    /// Whether `self` names a table or list that contains `other`.
    pub fn is_above(&self, other: &Key) -> bool {
        self.parts.len() < other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(a, b)| a.text == b.text)
    }

    /// Where the key was written.
    pub fn place(&self) -> Location {
        self.span().map_or(Location::Nowhere, Span::place)
    }

    /// The span from the first part to the last.
    pub fn span(&self) -> Option<Span> {
        let (first, last) = (self.parts.first()?, self.parts.last()?);
        Some(Span { end: last.span.end, ..first.span })
    }
}

fn part(text: &str) -> (Option<String>, usize) {
    let quoted = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    if let Some(quote) = quoted {
        return match text[1..].find(quote) {
            Some(end) => (Some(text[1..=end].to_owned()), end + 2),
            None => (None, text.len()),
        };
    }
    let end =
        text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))).unwrap_or(text.len());
    (Some(text[..end].to_owned()), end)
}

/// Joins names with dots and quotes those that are not bare keys in TOML.
pub(super) fn dotted<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let bare =
        |p: &str| !p.is_empty() && p.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let parts: Vec<String> = parts.map(|p| if bare(p) { p.to_owned() } else { format!("\"{p}\"") }).collect();
    parts.join(".")
}

/// Sets `key` to `node` and creates missing tables on the way. The last part's location becomes that of the
/// new key.
pub(super) fn set(root: &mut Table, key: &Key, node: Node) -> Result<(), Box<Problem>> {
    let Some((last, way)) = key.parts.split_last() else { return Ok(()) };
    let mut here = Spot::Table(root);
    for (depth, part) in way.iter().enumerate() {
        let next = match here {
            Spot::Table(table) => {
                if table.get(&part.text).is_none() {
                    let empty = Node { span: part.span, value: Value::Table(Table::default()) };
                    table.insert(&part.text, part.span, empty);
                }
                table.get_mut(&part.text).map(|e| &mut e.node)
            }
            Spot::Array(items) => Some(item(items, part, &key.parts[..depth])?),
        };
        here = match next.map(|n| &mut n.value) {
            Some(Value::Table(table)) => Spot::Table(table),
            Some(Value::Array(items)) => Spot::Array(items),
            Some(Value::Deleted) => {
                let name = dotted(key.parts[..=depth].iter().map(|p| p.text.as_str()));
                let message = format!("`{name}` has been deleted already");
                return Err(Problem::new(part.span.place(), message)
                    .hint("indexes mean the spec as it is written")
                    .into());
            }
            Some(other) => return Err(not_a_table(other, &key.parts[..=depth], part.span)),
            None => return Ok(()),
        };
    }
    match here {
        Spot::Table(table) => table.insert(&last.text, last.span, node),
        Spot::Array(items) => *item(items, last, way)? = node,
    }
    Ok(())
}

enum Spot<'a> {
    Table(&'a mut Table),
    Array(&'a mut Vec<Node>),
}

fn item<'a>(items: &'a mut [Node], part: &Part, above: &[Part]) -> Result<&'a mut Node, Box<Problem>> {
    let name = dotted(above.iter().map(|p| p.text.as_str()));
    let count = items.len();
    let entries = if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
    match part.text.parse::<usize>() {
        Ok(index) if index < count => Ok(&mut items[index]),
        Ok(index) => {
            let message = format!("`{name}` has {entries}, so there is no `{index}`");
            Err(Problem::new(part.span.place(), message).hint("entries are counted from 0").into())
        }
        Err(_) => {
            let message = format!("`{name}` is an array, so `{}` cannot follow it", part.text);
            Err(Problem::new(part.span.place(), message)
                .hint(format!("use an index, such as `{name}.0`"))
                .into())
        }
    }
}

fn not_a_table(value: &Value, parts: &[Part], span: Span) -> Box<Problem> {
    let name = dotted(parts.iter().map(|p| p.text.as_str()));
    Problem::new(span.place(), format!("`{name}` is not a table: it holds {}", value.found())).into()
}

/// Removes the value at `key`; `None` if it is not there. An array item leaves a gap so that later items keep
/// their indexes; see [`super::gaps`]. What its table lacks from then on is missing since `key` removed it, which becomes the
/// table's place.
pub(super) fn remove(root: &mut Table, key: &Key) -> Option<Node> {
    let (last, way) = key.parts.split_last()?;
    let (mut here, mut place) = (Spot::Table(root), None);
    for part in way {
        let next = match here {
            Spot::Table(table) => &mut table.get_mut(&part.text)?.node,
            Spot::Array(items) => items.get_mut(part.text.parse::<usize>().ok()?)?,
        };
        place = Some(&mut next.span);
        here = match &mut next.value {
            Value::Table(table) => Spot::Table(table),
            Value::Array(items) => Spot::Array(items),
            _ => return None,
        };
    }
    match here {
        Spot::Table(table) => {
            let removed = table.remove(&last.text)?.node;
            if let (Some(place), Some(span)) = (place, key.span()) {
                *place = span;
            }
            Some(removed)
        }
        Spot::Array(items) => {
            let item = items.get_mut(last.text.parse::<usize>().ok()?)?;
            let gap = Node { span: item.span, value: Value::Deleted };
            Some(std::mem::replace(item, gap)).filter(|item| !matches!(item.value, Value::Deleted))
        }
    }
}

/// The node of the longest prefix of a key that the spec has, and whether that prefix is the whole key.
pub(super) fn find<'a, 'k>(
    root: &'a Table,
    mut parts: impl Iterator<Item = &'k str>,
) -> Option<(&'a Node, bool)> {
    let mut node = &root.get(parts.next()?)?.node;
    for part in parts {
        let next = match &node.value {
            Value::Table(table) => table.get(part).map(|e| &e.node),
            Value::Array(items) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
            _ => None,
        };
        match next {
            Some(next) => node = next,
            None => return Some((node, false)),
        }
    }
    Some((node, true))
}

/// Whether `key` names an array item that an override deleted.
pub(super) fn is_gap(root: &Table, key: &Key) -> bool {
    let found = find(root, key.parts.iter().map(|part| part.text.as_str()));
    found.is_some_and(|(node, is_whole)| is_whole && matches!(node.value, Value::Deleted))
}

/// Whether the spec sets this dotted key.
pub(super) fn is_written(root: &Table, key: &str) -> bool {
    find(root, key.split('.')).is_some_and(|(_, is_whole)| is_whole)
}

/// The location of a dotted key, or of the nearest existing table above it; `None` if there is no such table.
pub(super) fn nearest(root: &Table, key: &str) -> Option<Span> {
    find(root, key.split('.')).map(|(node, _)| node.span)
}

/// For each key the shortest suffix that identifies it and is not just a number: `lr`, `layers.1`,
/// `0.linear.out_features`.
pub fn short_keys<S: AsRef<str>>(keys: &[S]) -> Vec<&str> {
    let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
    fn endings(key: &str) -> impl Iterator<Item = &str> {
        key.rmatch_indices('.').map(|(at, _)| &key[at + 1..]).chain([key])
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    // Every spec has the key `seed`, which the end of another one must not be taken for.
    let all: HashSet<&str> = keys.iter().copied().chain(["seed"]).collect();
    for ending in all.into_iter().flat_map(endings) {
        *counts.entry(ending).or_default() += 1;
    }
    let is_short = |ending: &&str| counts[ending] == 1 && ending.parse::<u64>().is_err();
    keys.iter().map(|key| endings(key).find(is_short).unwrap_or(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::parse_document;

    const AT: Span = Span { source: 1, start: 0, end: 0 };

    fn key(text: &str) -> Key {
        Key::parse(text, AT).unwrap()
    }

    fn one() -> Node {
        Node { span: AT, value: Value::Integer(1) }
    }

    #[test]
    fn keys_are_split_at_dots_outside_quotes() {
        let parts = |t: &str| key(t).parts.into_iter().map(|p| (p.text, p.span.start)).collect::<Vec<_>>();
        assert_eq!(parts("a.b-c.0"), [("a".into(), 0), ("b-c".into(), 2), ("0".into(), 6)]);
        assert_eq!(parts("a.\"b.c\".d"), [("a".into(), 0), ("b.c".into(), 2), ("d".into(), 8)]);
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a.\"b", "\"a\"b", "ä", "\"\"", &"a.".repeat(99)] {
            assert!(Key::parse(bad, AT).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_are_shortened_as_far_as_they_differ() {
        let keys = ["optimizer.sgd.lr", "layers.0.width", "layers.2.width"];
        assert_eq!(short_keys(&keys), ["lr", "0.width", "2.width"]);
        assert_eq!(short_keys(&["data.split.seed", "sgd.lr"]), ["split.seed", "lr"]);
        assert_eq!(short_keys(&["seed", "model.init_seed"]), ["seed", "init_seed"]);
        assert_eq!(short_keys(&["lr", "optimizer.lr", "model.layers.1"]), ["lr", "optimizer.lr", "layers.1"]);
    }

    #[test]
    fn set_makes_tables_and_minds_arrays() {
        let mut root = parse_document("s = 1\nl = [{ a = 1 }]", 0).unwrap();
        set(&mut root, &key("x.y.z"), one()).unwrap();
        set(&mut root, &key("l.0.a"), one()).unwrap();
        assert_eq!(nearest(&root, "x.y.z"), Some(AT));
        let message = |r: &mut Table, k: &str| set(r, &key(k), one()).unwrap_err().message;
        assert_eq!(message(&mut root, "l.1.a"), "`l` has 1 entry, so there is no `1`");
        assert_eq!(message(&mut root, "l.b"), "`l` is an array, so `b` cannot follow it");
        assert_eq!(message(&mut root, "s.b"), "`s` is not a table: it holds `1`");
    }

    #[test]
    fn remove_takes_keys_tables_and_items() {
        let mut root = parse_document("[o.a]\nx = 1\n[l]\nm = [1, 2]", 0).unwrap();
        assert!(remove(&mut root, &key("o.a")).is_some());
        assert!(remove(&mut root, &key("o.a")).is_none());
        assert!(remove(&mut root, &key("l.m.1")).is_some());
        assert!(remove(&mut root, &key("l.m.1")).is_none());
    }
}
