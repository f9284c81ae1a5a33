//! The spec as written: a tree of values in which every node has its location in a text.
//!
//! The file and the overrides are parsed into the same tree, so any reader can point at what the user typed.

use std::{collections::HashSet, ops::Range};

use toml::de::{DeTable, DeValue};

use super::problem::{Location, Problem};

/// The number of the first text that the file extends; the next ones follow it.
pub(super) const FIRST_BASE: usize = usize::MAX / 2;

/// Bytes of one of the texts: 0 is the file, then one per override in the order given; from [`FIRST_BASE`] on the files that it extends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub source: usize,
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub fn new(source: usize, range: Range<usize>) -> Self {
        Self { source, start: range.start, end: range.end }
    }

    /// Whether it is in an argument of the command line.
    pub fn is_argument(self) -> bool {
        (1..FIRST_BASE).contains(&self.source)
    }

    /// Whether it is in a file that another one extends.
    pub fn is_of_base(self) -> bool {
        self.source >= FIRST_BASE
    }

    /// Where it stands in the order in which texts take each other's place: the last file that is extended, up to the spec, arguments.
    pub fn order(self) -> (bool, usize, usize) {
        match self.source.checked_sub(FIRST_BASE) {
            Some(base) => (false, usize::MAX - base, self.start),
            None => (true, self.source, self.start),
        }
    }

    /// The span as a public [`Location`].
    pub fn place(self) -> Location {
        Location::Span { source: self.source, range: self.start..self.end }
    }
}

/// A value and its location. The location of a table with a key is its key: the text between braces or below
/// a header is too long to point at.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub span: Span,
    pub value: Value,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// Dates are not used in specs; the text is kept for error messages.
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
    /// An array item that was deleted; see [`super::gaps`].
    Deleted,
}

/// The entries of a table, in the order written.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub entries: Vec<Entry>,
}

/// One `key = value`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub key_span: Span,
    pub node: Node,
}

impl Table {
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.key == key)
    }

    /// Sets a key, replacing an existing value.
    pub fn insert(&mut self, key: &str, key_span: Span, node: Node) {
        match self.get_mut(key) {
            Some(entry) => (entry.key_span, entry.node) = (key_span, node),
            None => self.entries.push(Entry { key: key.to_owned(), key_span, node }),
        }
    }

    /// See [`Value::close_gaps`].
    pub fn close_gaps(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.node.value.close_gaps());
    }

    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|e| e.key == key)?;
        Some(self.entries.remove(at))
    }
}

impl Value {
    /// Removes deleted items from arrays, at any depth.
    pub fn close_gaps(&mut self) {
        match self {
            Self::Array(items) => {
                items.retain(|item| !matches!(item.value, Self::Deleted));
                items.iter_mut().for_each(|item| item.value.close_gaps());
            }
            Self::Table(table) => table.close_gaps(),
            _ => {}
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub fn as_table(&self) -> Option<&Table> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }

    pub fn as_items(&self) -> Option<&[Node]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub fn as_table_mut(&mut self) -> Option<&mut Table> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }

    /// Converts to the toml crate's value.
    pub fn to_toml(&self) -> toml::Value {
        match self {
            Self::String(s) | Self::Datetime(s) => toml::Value::String(s.clone()),
            Self::Integer(i) => toml::Value::Integer(*i),
            Self::Float(x) => toml::Value::Float(*x),
            Self::Boolean(b) => toml::Value::Boolean(*b),
            Self::Array(items) => toml::Value::Array(items.iter().map(|n| n.value.to_toml()).collect()),
            // Unreachable in practice: gaps are closed before anything is written.
            Self::Deleted => toml::Value::String(String::new()),
            Self::Table(t) => toml::Value::Table(
                t.entries.iter().map(|e| (e.key.clone(), e.node.value.to_toml())).collect(),
            ),
        }
    }

    /// As displayed in tables of trials: TOML on one line, strings without quotes.
    pub fn display(&self) -> String {
        match self {
            Self::String(s) | Self::Datetime(s) => s.clone(),
            // Unlike the toml crate's format this keeps an exponent, so tiny numbers stay short.
            Self::Float(x) => format!("{x:?}").to_lowercase(),
            other => other.to_toml().to_string(),
        }
    }

    /// TOML on one line; different values give different texts.
    pub fn literal(&self) -> String {
        match self {
            Self::Float(_) => self.display(),
            other => other.to_toml().to_string(),
        }
    }

    /// Describes the value in messages, after the word "found".
    pub fn found(&self) -> String {
        match self {
            Self::String(s) if s.is_empty() => "an empty string".to_owned(),
            Self::String(s) if s.chars().count() > 40 => "a string".to_owned(),
            Self::String(s) => format!("the string `{s}`"),
            Self::Integer(i) => format!("`{i}`"),
            Self::Float(_) => format!("`{}`", self.display()),
            Self::Boolean(b) => format!("`{b}`"),
            Self::Datetime(_) => "a date".to_owned(),
            Self::Array(_) => "an array".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Deleted => "nothing".to_owned(),
        }
    }
}

const MAX_SYNTAX_PROBLEMS: usize = 5;

/// Parses a whole document; `source` is the number of its text.
pub(super) fn parse_document(text: &str, source: usize) -> Result<Table, Vec<Problem>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // One typo can cause many errors; a path of Windows has one for each of its backslashes.
        let line = |e: &toml::de::Error| {
            let start = e.span().map_or(text.len(), |range| range.start.min(text.len()));
            text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count()
        };
        let mut escapes = HashSet::new();
        return Err(errors
            .iter()
            .filter(|e| !is_escape(e) || escapes.insert(line(e)))
            .take(MAX_SYNTAX_PROBLEMS)
            .map(|e| syntax_problem(e, text, source))
            .collect());
    }
    let mut problems = Vec::new();
    let table = Converter { source, offset: 0, problems: &mut problems }.table(table.get_ref());
    if problems.is_empty() { Ok(table) } else { Err(problems) }
}

/// Parses one TOML value at `span` of an argument; `None` if the text is not TOML.
///
/// # Errors
/// A TOML value that cannot be represented: an integer that is too large.
pub(super) fn parse_value(text: &str, span: Span) -> Result<Option<Node>, Box<Problem>> {
    let Ok(value) = DeValue::parse(text) else { return Ok(None) };
    let mut problems = Vec::new();
    let mut converter = Converter { source: span.source, offset: span.start, problems: &mut problems };
    let node = Node { span, value: converter.value(value.get_ref()) };
    match problems.into_iter().next() {
        Some(problem) => Err(problem.into()),
        None => Ok(Some(node)),
    }
}

/// Whether an error is that of a backslash which begins no escape sequence.
fn is_escape(error: &toml::de::Error) -> bool {
    ["missing escaped value", "too few unicode value digits"]
        .iter()
        .any(|own| error.message().starts_with(own))
}

/// What a text processor makes of straight quotes.
const CURLY: [char; 6] = ['“', '”', '„', '‘', '’', '‚'];

fn syntax_problem(error: &toml::de::Error, text: &str, source: usize) -> Problem {
    let range = error.span().unwrap_or(text.len()..text.len());
    let found = text.get(range.clone()).unwrap_or_default().trim();
    let place = Location::Span { source, range: range.clone() };
    if is_escape(error) {
        return Problem::new(place, "not TOML: within `\"...\"` a backslash begins an escape sequence")
            .hint("write `'...'`, where it is a letter as any other, or `/` in a path");
    }
    if error.message().starts_with("string values must be quoted") {
        return match found {
            "" => Problem::new(place, "not TOML: a value is missing"),
            _ if found.contains(CURLY) => {
                Problem::new(place, format!("not TOML: `{found}` has curly quotes"))
                    .hint(format!("write straight ones: `\"{}\"`", found.trim_matches(CURLY)))
            }
            _ => Problem::new(place, format!("not TOML: `{found}` is not a value"))
                .hint(format!("strings stand in quotes: `\"{found}\"`")),
        };
    }
    match error.message() {
        "duplicate key" => Problem::new(place, format!("not TOML: duplicate key `{found}`")),
        message => Problem::new(place, format!("not TOML: {message}")),
    }
}

/// Converts the toml crate's values into nodes.
struct Converter<'a> {
    source: usize,
    /// Offset of the parsed text within its source.
    offset: usize,
    problems: &'a mut Vec<Problem>,
}

impl Converter<'_> {
    fn span(&self, range: Range<usize>) -> Span {
        Span::new(self.source, range.start + self.offset..range.end + self.offset)
    }

    fn table(&mut self, table: &DeTable<'_>) -> Table {
        let entries = table.iter().map(|(key, value)| {
            let key_span = self.span(key.span());
            let is_table = value.get_ref().is_table();
            let span = if is_table { key_span } else { self.span(value.span()) };
            Entry {
                key: key.get_ref().to_string(),
                key_span,
                node: Node { span, value: self.value_at(value.get_ref(), span) },
            }
        });
        Table { entries: entries.collect() }
    }

    fn value(&mut self, value: &DeValue<'_>) -> Value {
        let whole = Span { source: self.source, start: self.offset, end: self.offset };
        self.value_at(value, whole)
    }

    fn value_at(&mut self, value: &DeValue<'_>, span: Span) -> Value {
        match value {
            DeValue::String(s) => Value::String(s.to_string()),
            DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
                Ok(i) => Value::Integer(i),
                Err(_) => {
                    let message = format!(
                        "the integer `{i}` is out of range: TOML has those from {} to {}",
                        i64::MIN,
                        i64::MAX
                    );
                    self.problems.push(Problem::new(span.place(), message));
                    Value::Integer(0)
                }
            },
            // A number that overflows becomes infinite, which no field accepts.
            DeValue::Float(x) => Value::Float(x.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(b) => Value::Boolean(*b),
            DeValue::Datetime(d) => Value::Datetime(d.to_string()),
            DeValue::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| {
                        let span = self.span(item.span());
                        Node { span, value: self.value_at(item.get_ref(), span) }
                    })
                    .collect(),
            ),
            DeValue::Table(table) => Value::Table(self.table(table)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_knows_its_place() {
        let text = "a = 1\n[b.c]\nd = [true, { e = 'x' }]\n";
        let table = parse_document(text, 3).unwrap();
        let at = |s: Span| (s.source, &text[s.start..s.end]);
        assert_eq!(at(table.get("a").unwrap().node.span), (3, "1"));
        let b = table.get("b").unwrap();
        assert_eq!(at(b.node.span), (3, "b"));
        let Value::Table(b) = &b.node.value else { panic!() };
        let Value::Table(c) = &b.get("c").unwrap().node.value else { panic!() };
        let Value::Array(d) = &c.get("d").unwrap().node.value else { panic!() };
        assert_eq!(at(d[0].span), (3, "true"));
        assert_eq!(at(d[1].span), (3, "{ e = 'x' }"));
    }

    #[test]
    fn syntax_errors_are_problems_with_places() {
        let table = "a,b\n".repeat(50);
        assert_eq!(parse_document(&table, 0).unwrap_err().len(), MAX_SYNTAX_PROBLEMS);
        let problems = parse_document("a = \nb = 1\nb = 2", 0).unwrap_err();
        assert!(problems.len() >= 2, "{problems:?}");
        assert!(
            parse_document("a = 99999999999999999999", 0).unwrap_err()[0].message.contains("is out of range")
        );
    }
}
