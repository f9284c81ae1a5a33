//! Reads one value: a number in a range, a word of a list, a table, an array.

use std::{ops::RangeInclusive, path::PathBuf};

use serde_json::json;

use super::{At, Json, Reading, Segment, plain, range::Range};
use crate::{
    problem::Problem,
    tree::{self, Node, Span, Value},
};

/// A value to read, which may be absent; or a value to describe in the schema.
pub(crate) struct Item<'a> {
    pub(super) at: At<'a>,
    /// One line on what the value means.
    pub(super) doc: &'static str,
    pub(super) reading: &'a mut Reading,
}

/// What is wrong with a value within another, such as a number in nested arrays.
pub(crate) struct Fault {
    pub at: Vec<usize>,
    pub span: Span,
    pub words: String,
}

impl<'a> Item<'a> {
    /// A number in `range`; integers are accepted.
    pub fn float(self, range: Range) -> f64 {
        let as_float = |value: &Value| match value {
            Value::Float(x) => Some(*x),
            Value::Integer(i) => Some(*i as f64),
            _ => None,
        };
        let is_beyond_f32 = match &self.at {
            At::Node(node) => as_float(&node.value).is_some_and(Range::is_beyond_f32),
            _ => false,
        };
        let expected = if is_beyond_f32 { format!("{range:#}") } else { range.to_string() };
        let mut schema = Json::new();
        schema.insert("type".into(), "number".into());
        range.describe(&mut schema);
        // The stand-in after an error: 0.5 lies in every range.
        self.custom(&expected, schema.into(), 0.5, |v| as_float(v).filter(|x| range.contains(*x)))
    }

    /// An integer in `range`.
    pub fn integer(self, range: RangeInclusive<u64>) -> u64 {
        let (least, most) = (*range.start(), *range.end());
        let is_above = match &self.at {
            At::Node(Node { value: Value::Integer(i), .. }) => u64::try_from(*i).is_ok_and(|i| i > most),
            _ => false,
        };
        let expected = if is_above {
            format!("an integer from {least} to {most}")
        } else {
            format!("an integer of at least {least}")
        };
        let without_point = match &self.at {
            At::Node(Node { value: Value::Float(x), .. })
                if x.fract() == 0.0 && *x < 1e15 && *x >= least as f64 && *x <= most as f64 =>
            {
                Some(format!("write `{}`", *x as u64))
            }
            _ => None,
        };
        let schema = json!({ "type": "integer", "minimum": least, "maximum": most });
        self.custom_hinted(&expected, schema, least, without_point, |v| match v {
            Value::Integer(i) => u64::try_from(*i).ok().filter(|i| range.contains(i)),
            _ => None,
        })
    }

    /// A number of rows, columns or units. Such numbers are multiplied with each other, so they must be below
    /// 2^32.
    pub fn size(self, least: u32) -> usize {
        self.integer(u64::from(least)..=u64::from(u32::MAX)) as usize
    }

    /// `true` or `false`.
    pub fn boolean(self) -> bool {
        self.custom("`true` or `false`", json!({ "type": "boolean" }), false, |v| match v {
            Value::Boolean(b) => Some(*b),
            _ => None,
        })
    }

    /// The value, if it is a string.
    pub fn text(&self) -> Option<&str> {
        match &self.at {
            At::Node(Node { value: Value::String(text), .. }) => Some(text),
            _ => None,
        }
    }

    pub fn string(self) -> String {
        let quoted = match &self.at {
            At::Node(Node {
                value: v @ (Value::Integer(_) | Value::Float(_) | Value::Boolean(_)), ..
            }) => Some(format!("put it in quotes: `\"{}\"`", v.display())),
            _ => None,
        };
        let schema = json!({ "type": "string" });
        self.custom_hinted("a string", schema, String::new(), quoted, |v| v.as_str().map(str::to_owned))
    }

    /// A file's path, made absolute from the folder of the file that has it. Its reader finds out whether the file exists.
    pub fn path(self) -> PathBuf {
        let folders = self.reading.folders.clone();
        let span = match &self.at {
            At::Node(node) => Some(node.span),
            _ => None,
        };
        let absolute = |s: &str| span.map(|span| folders.absolute(span, s)).unwrap_or_default();
        self.custom("the path of a file", json!({ "type": "string", "minLength": 1 }), PathBuf::new(), |v| {
            // The resolved spec is text, so the folder's path must be valid UTF-8.
            let name = v.as_str().filter(|name| !name.is_empty() && !name.contains('\0'));
            name.map(absolute).filter(|path| path.to_str().is_some())
        })
    }

    /// A file's path as written, and made absolute as by [`Item::path`].
    pub fn path_as_written(self) -> (String, PathBuf) {
        let text = self.text().unwrap_or_default().to_owned();
        (text, self.path())
    }

    /// An array whose length is in `length`; `read` reads each element.
    pub fn list<T>(self, length: RangeInclusive<usize>, mut read: impl FnMut(Item<'_>) -> T) -> Vec<T> {
        let Self { at, doc, reading } = self;
        let (least, most) = (*length.start(), *length.end());
        match at {
            At::Schema(schema) => {
                let mut items = Json::new();
                read(Item { at: At::Schema(&mut items), doc, reading });
                schema.insert("type".into(), "array".into());
                schema.insert("items".into(), items.into());
                schema.insert("minItems".into(), least.into());
                schema.insert("maxItems".into(), most.into());
                Vec::new()
            }
            At::Absent => Vec::new(),
            At::Node(Node { value: Value::Array(items), span }) if !length.contains(&items.len()) => {
                let path = reading.path_to(None);
                let message = match items.len() {
                    0 => format!("`{path}` is empty: it needs at least one entry"),
                    count => format!("`{path}` has {count} entries, more than the {most} it can have"),
                };
                reading.report(path, Problem::new(span.place(), message).label(plain(doc)));
                Vec::new()
            }
            At::Node(Node { value: Value::Array(items), .. }) => {
                let read_one = |(i, node)| {
                    reading.path.push(Segment::Index(i));
                    let value = read(Item { at: At::Node(node), doc, reading });
                    reading.path.pop();
                    value
                };
                items.iter().enumerate().map(read_one).collect()
            }
            At::Node(node) => {
                let hint = in_brackets(&node.value);
                let item = Item { at, doc, reading };
                item.custom_hinted("an array", serde_json::Value::Null, Vec::new(), hint, |_| None)
            }
        }
    }

    /// An array of exactly `N` elements, each read by `read`; `example` shows one in error messages.
    pub fn array<const N: usize, T: Clone>(
        self,
        example: &str,
        stand_in: [T; N],
        mut read: impl FnMut(Item<'_>) -> T,
    ) -> [T; N] {
        if let At::Node(Node { value: Value::Array(items), .. }) = &self.at
            && items.len() != N
        {
            let (path, count) = (self.reading.path_to(None), items.len());
            let entries = if count == 1 { "entry" } else { "entries" };
            let label = plain(self.doc);
            self.report(|p| {
                let message = format!("`{path}` has {count} {entries}, and it needs {N}: {example}");
                Problem { message, ..p }.label(label)
            });
            return stand_in;
        }
        if let At::Node(Node { value, .. }) = &self.at
            && !matches!(value, Value::Array(_))
        {
            return self.custom(example, serde_json::Value::Null, stand_in, |_| None);
        }
        <[T; N]>::try_from(self.list(N..=N, &mut read)).unwrap_or(stand_in)
    }

    /// A value that `read` accepts or rejects. A rejected one is reported with what was `expected`.
    pub fn custom<T>(
        self,
        expected: &str,
        schema: serde_json::Value,
        stand_in: T,
        read: impl Fn(&Value) -> Option<T>,
    ) -> T {
        self.custom_hinted(expected, schema, stand_in, None, read)
    }

    /// Like [`Item::custom`], but `judge` reports a problem within the value: its indexes, its location, and
    /// the rest of the sentence that begins with its name.
    pub fn judged<T>(
        self,
        schema: serde_json::Value,
        stand_in: T,
        judge: impl FnOnce(&Node) -> Result<T, Fault>,
    ) -> T {
        let At::Node(node) = self.at else { return self.custom("", schema, stand_in, |_| None) };
        judge(node).unwrap_or_else(|fault| {
            let inner: String = fault.at.iter().map(|index| format!(".{index}")).collect();
            let path = self.reading.path_to(None) + &inner;
            let message = format!("`{path}`{}", fault.words);
            let problem = Problem::new(fault.span.place(), message).label(plain(self.doc));
            self.reading.report(path, problem);
            stand_in
        })
    }

    /// Like [`Item::custom`], with a hint.
    pub fn custom_hinted<T>(
        self,
        expected: &str,
        schema: serde_json::Value,
        stand_in: T,
        hint: Option<String>,
        read: impl Fn(&Value) -> Option<T>,
    ) -> T {
        match self.at {
            At::Node(node) => read(&node.value).unwrap_or_else(|| {
                self.refuse(node, expected, hint, &|value| read(value).is_some());
                stand_in
            }),
            At::Schema(_) | At::Absent => {
                self.describe(schema);
                stand_in
            }
        }
    }

    /// When the schema is being written, adds this to it.
    fn describe(self, schema: serde_json::Value) {
        if let (At::Schema(into), serde_json::Value::Object(schema)) = (self.at, schema) {
            into.extend(schema);
        }
    }

    /// Separate from [`Item::custom_hinted`], which is compiled once per type.
    fn refuse(self, node: &Node, expected: &str, hint: Option<String>, is_accepted: &dyn Fn(&Value) -> bool) {
        let path = self.reading.path_to(None);
        let message = format!("`{path}`: expected {expected}, found {}", node.value.found());
        let label = plain(self.doc);
        let hint = hint
            .or_else(|| without_quotes(&node.value, is_accepted))
            .or_else(|| as_sweep(&path, &node.value, is_accepted));
        let problem = Problem { hint, ..Problem::new(node.span.place(), message) };
        let problem = if label.is_empty() { problem } else { problem.label(label) };
        self.reading.report(path, problem);
    }

    pub(super) fn report(self, make: impl FnOnce(Problem) -> Problem) {
        if let At::Node(node) = self.at {
            let key = self.reading.path_to(None);
            self.reading.report(key, make(Problem::new(node.span.place(), "")));
        }
    }
}

/// The beginning of the hint that a list needs brackets.
pub const IN_BRACKETS: &str = "a list stands in brackets";

/// The hint if an item should be a list of one, or if a string with commas should be a list.
fn in_brackets(value: &Value) -> Option<String> {
    let is_item = !matches!(value, Value::Array(_) | Value::Table(_));
    is_item.then(|| format!("{IN_BRACKETS}, be it of one: `[{}]`", value.to_toml()))
}

/// The hint if a list is given for a key that takes one value: sweep it.
fn as_sweep(path: &str, value: &Value, is_accepted: &dyn Fn(&Value) -> bool) -> Option<String> {
    let Value::Array(items) = value else { return None };
    let is_axis = !matches!(path, "name" | "kind") && !path.starts_with("sweep.");
    if items.len() < 2 || !is_axis || !items.iter().all(|item| is_accepted(&item.value)) {
        return None;
    }
    let values: Vec<String> = items.iter().map(|item| item.value.display()).collect();
    Some(format!("to try each value, write the override `{path}={}`, or `[sweep] grid`", values.join(",")))
}

/// The hint if a value is given in place of a table: a word for one of its keys, a layer's number for its
/// first key, `true` for what has keys of its own.
pub(super) fn in_table(path: &str, value: &Value, known: &[&'static str]) -> Option<String> {
    let name = path.rsplit('.').next().unwrap_or(path);
    match value {
        Value::String(word) if known.contains(&word.as_str()) => {
            Some(format!("write `{name} = {{ {word} = {{ ... }} }}`"))
        }
        Value::Integer(_) | Value::Float(_) if path.starts_with("model.layers.") => {
            Some(format!("write `{name} = {{ {} = {} }}`", known.first()?, value.display()))
        }
        Value::Boolean(true) if !known.is_empty() => {
            Some(format!("`{name}` has keys of its own: {}", known.join(", ")))
        }
        _ => None,
    }
}

/// The hint if a string contains the expected value in quotes.
fn without_quotes(value: &Value, is_accepted: &dyn Fn(&Value) -> bool) -> Option<String> {
    let Value::String(text) = value else { return None };
    let inner = tree::parse_value(text, Span { source: 0, start: 0, end: 0 }).ok()??;
    is_accepted(&inner.value).then(|| format!("write it without quotes: `{text}`"))
}
