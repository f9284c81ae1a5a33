//! Reads the fields of one table: required ones, those with a default, and those that exclude each other.

mod finish;

use std::fmt::Display;

use serde::Serialize;
use serde_json::json;

use super::{At, Choices, Item, Json, Reading, Rule, Segment, append_description, item::in_table, plain};
use crate::{
    problem::Problem,
    suggest,
    tree::{Entry, Node, Span, Value},
};

/// The end of the message about two fields of which a table may have one.
const EXCLUDE: &str = "exclude each other";

/// A table whose fields are being declared and read.
pub(crate) struct Fields<'a> {
    at: At<'a>,
    reading: &'a mut Reading,
    known: Vec<&'static str>,
    /// Those of which the table has one.
    choices: Vec<&'static str>,
    /// For each missing requirement: the names of which one is needed, the message and the hint. Reported at
    /// the end, unless a mistyped key explains it.
    missing: Vec<(Vec<&'static str>, String, Option<String>)>,
    /// Whether the table belongs to another kind of spec, so that unknown keys are not reported.
    opaque: bool,
}

impl<'a> Item<'a> {
    /// Reads a table with `read`, which declares its fields.
    pub fn table<T>(self, read: impl FnOnce(&mut Fields<'a>) -> T) -> T {
        let Self { at, doc, reading } = self;
        if let At::Node(Node { value: Value::Table(_), .. }) | At::Absent | At::Schema(_) = at {
            let mut fields = Fields::new(at, reading);
            let value = read(&mut fields);
            fields.finish();
            return value;
        }
        let mut fields = Fields::new(At::Absent, reading);
        let value = read(&mut fields);
        let Fields { reading, known, .. } = fields;
        let hint = match &at {
            At::Node(node) => in_table(&reading.path_to(None), &node.value, &known),
            _ => None,
        };
        Item { at, doc, reading }.custom_hinted("a table", serde_json::Value::Null, (), hint, |_| None);
        value
    }
}

impl<'a> Fields<'a> {
    fn new(at: At<'a>, reading: &'a mut Reading) -> Self {
        let mut fields =
            Self { at, reading, known: Vec::new(), choices: Vec::new(), missing: Vec::new(), opaque: false };
        if let At::Schema(schema) = &mut fields.at {
            schema.insert("type".into(), "object".into());
            schema.insert("properties".into(), json!({}));
            schema.insert("additionalProperties".into(), false.into());
        }
        fields
    }

    pub fn required<T>(
        &mut self,
        name: &'static str,
        doc: &'static str,
        read: impl FnOnce(Item<'_>) -> T,
    ) -> T {
        if let At::Schema(schema) = &mut self.at {
            push(schema, "required", name.into());
        }
        if let (At::Node(_), None) = (&self.at, self.entry(name)) {
            let message = format!("`{}` is missing", self.reading.path_to(Some(name)));
            self.missing.push((
                vec![name],
                message,
                Some(given(&self.reading.path_to(None), name, &plain(doc))),
            ));
        }
        self.read(name, doc, None, read)
    }

    /// Reads an optional field; `None` if it is absent.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        doc: &'static str,
        read: impl FnOnce(Item<'_>) -> T,
    ) -> Option<T> {
        let is_given = self.entry(name).is_some();
        if is_given || matches!(self.at, At::Schema(_)) {
            let value = self.read_omissible(name, doc, None, read);
            return is_given.then_some(value);
        }
        self.known.push(name);
        None
    }

    pub fn default<T: Serialize>(
        &mut self,
        name: &'static str,
        doc: &'static str,
        default: T,
        read: impl FnOnce(Item<'_>) -> T,
    ) -> T {
        let is_given = self.entry(name).is_some();
        if is_given || matches!(self.at, At::Schema(_)) {
            let shown = serde_json::to_value(&default).ok().filter(|shown| !shown.is_null());
            return self.read_omissible(name, doc, shown, read);
        }
        self.known.push(name);
        default
    }

    /// Reads an optional table, all of whose fields have defaults.
    pub fn section<T>(
        &mut self,
        name: &'static str,
        doc: &'static str,
        read: impl FnOnce(Item<'_>) -> T,
    ) -> T {
        self.read_omissible(name, doc, None, read)
    }

    /// Reads a field that may be left out, and says so if it was refused as other programs' word for that.
    fn read_omissible<T>(
        &mut self,
        name: &'static str,
        doc: &'static str,
        default: Option<serde_json::Value>,
        read: impl FnOnce(Item<'_>) -> T,
    ) -> T {
        let problems = self.reading.problems.len();
        let value = self.read(name, doc, default, read);
        let is_none = self.entry(name).is_some_and(|entry| match &entry.node.value {
            Value::Boolean(false) => true,
            Value::String(word) => ["null", "none", "None"].contains(&word.as_str()),
            _ => false,
        });
        let path = self.reading.path_to(Some(name));
        if let Some(problem) = self.reading.problems.get_mut(problems).filter(|_| is_none) {
            problem.hint.get_or_insert_with(|| format!("leave `{name}` out, or delete it with `~{path}`"));
        }
        value
    }

    /// Rejects a key that belongs to another kind of spec, with a message that names the kind. It is not in
    /// the schema.
    pub fn foreign(&mut self, name: &'static str, its_kind: &str, kind: &str) {
        let Some(entry) = self.entry(name) else { return };
        let message =
            format!("`{name}` belongs to `kind = \"{its_kind}\"`, and this spec's kind is `{kind}`");
        let hint = format!("remove it, or set `kind = \"{its_kind}\"`");
        self.reading.report(name.to_owned(), Problem::new(entry.key_span.place(), message).hint(hint));
        self.known.push(name);
    }

    /// Does not report unknown keys: the table's kind is not known to this version.
    pub fn ignore_the_rest(&mut self) {
        self.opaque = true;
    }

    /// Reads exactly one of the choices of a type; `default` if none is given.
    pub fn one_of<T: Choices + Clone + 'static>(&mut self, default: Option<T>) -> T {
        let choices = T::choices();
        let names: Vec<&'static str> = choices.iter().map(|c| c.name).collect();
        self.choices.extend(&names);
        let mut one_of = Vec::new();
        let mut given: Vec<(Entry, T)> = Vec::new();
        for choice in &choices {
            if matches!(self.at, At::Schema(_)) {
                self.read(choice.name, choice.doc, None, |v| choice.read(v));
                one_of.push(json!({ "required": [choice.name] }));
            } else if let Some(entry) = self.entry(choice.name).cloned() {
                let value = self.read(choice.name, choice.doc, None, |v| choice.read(v));
                given.push((entry, value));
            }
            self.known.push(choice.name);
        }
        if let At::Schema(schema) = &mut self.at {
            if default.is_some() {
                one_of.push(json!({ "not": { "anyOf": one_of.clone() } }));
            }
            push(schema, "allOf", json!({ "oneOf": one_of }));
        }
        given.sort_by_key(|(entry, _)| entry.key_span.order());
        if let Some(((first, _), later)) = given.split_first() {
            for (other, _) in later {
                self.exclude(&[&first.key], &[&other.key], EXCLUDE);
            }
        } else if default.is_none() && matches!(self.at, At::Node(_)) {
            let listing = suggest::listing(names.iter().copied(), "and");
            let table = self.reading.path_to(None);
            self.missing.push((names, format!("`{table}` needs exactly one of {listing}"), None));
        }
        let stand_in = || choices[0].read(Item { at: At::Absent, doc: "", reading: self.reading });
        given.into_iter().next().map(|(_, value)| value).or(default).unwrap_or_else(stand_in)
    }

    /// Checks a rule between declared fields.
    pub fn rule(&mut self, rule: Rule) {
        let (Rule::Exclude(a, b) | Rule::Together(a, b) | Rule::Either(a, b)) = rule;
        match (&mut self.at, rule) {
            (At::Schema(schema), Rule::Exclude(..)) => {
                push(schema, "allOf", json!({ "not": { "required": [a, b] } }));
            }
            (At::Schema(schema), Rule::Together(..)) => {
                push(schema, "allOf", json!({ "dependentRequired": { a: [b], b: [a] } }));
            }
            (At::Schema(schema), Rule::Either(..)) => {
                push(schema, "allOf", json!({ "anyOf": [{ "required": [a] }, { "required": [b] }] }));
            }
            (At::Node(_), Rule::Exclude(..)) => self.exclude(&[a], &[b], EXCLUDE),
            (At::Node(_), _) => match (self.entry(a).cloned(), self.entry(b).cloned(), rule) {
                (Some(entry), None, Rule::Together(_, absent))
                | (None, Some(entry), Rule::Together(absent, _)) => {
                    let (path, other) =
                        (self.reading.path_to(Some(&entry.key)), self.reading.path_to(Some(absent)));
                    let problem =
                        Problem::new(entry.key_span.place(), format!("`{path}` needs `{other}` beside it"));
                    self.reading.report(path, problem);
                }
                (None, None, Rule::Either(..)) => {
                    let message = format!("`{}` needs `{a}` or `{b}`", self.reading.path_to(None));
                    self.missing.push((vec![a, b], message, None));
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Rejects the fields of one list beside those of the other, with a message that ends with `why`. Those of a list go together; a
    /// dotted name leads into tables.
    pub fn exclude(&mut self, a: &[&str], b: &[&str], why: &str) {
        let given = |names: &[&str]| -> Vec<(Span, String)> {
            names.iter().filter_map(|name| Some((self.entry(name)?.key_span, self.path_of(name)))).collect()
        };
        let mut both = [given(a), given(b)];
        if both.iter().any(Vec::is_empty) {
            return;
        }
        both.sort_by_key(|fields| fields[0].0.order());
        let [first, later] = &both;
        let ((there, other), (here, own)) = (&first[0], &later[0]);
        let keys = |mark: &str, end: &str| {
            first.iter().map(|(_, key)| format!("{mark}{key}{end}")).collect::<Vec<_>>()
        };
        let hint = if there.is_argument() {
            "leave one of the two arguments out".to_owned()
        } else if here.is_argument() || here.source == there.source {
            format!("remove one of them; on the command line: `{}`", keys("~", "").join(" "))
        } else {
            format!("keep one of them: `delete = [{}]` deletes the other", keys("\"", "\"").join(", "))
        };
        let mut problem = Problem::new(here.place(), format!("`{own}` and `{other}` {why}")).hint(hint);
        problem.related.push((there.place(), "the other is here".to_owned()));
        self.reading.report(own.clone(), problem);
    }

    /// The dotted key of a field, counted from the root of the spec.
    fn path_of(&self, name: &str) -> String {
        let above = self.reading.path_to(None);
        if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
    }

    /// Whether the spec sets a field; a dotted name leads into tables.
    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Rejects a field's value because of another field; a dotted name leads into tables. Reported only if the
    /// field itself and `because`, the fields of this table that the verdict depends on, have no problem of
    /// their own.
    pub fn refuse(&mut self, name: &str, because: &[&str], message: impl Into<String>, hint: &str) {
        let At::Node(table) = self.at else { return };
        if [name].iter().chain(because).any(|name| !self.is_sound(&self.path_of(name))) {
            return;
        }
        let (path, span) = (self.path_of(name), self.entry(name).map_or(table.span, |e| e.node.span));
        let problem = Problem::new(span.place(), format!("`{path}`: {}", message.into())).hint(hint);
        self.reading.report(path, problem);
    }

    /// Like [`Fields::refuse`], for one element of an array.
    pub fn refuse_item(&mut self, name: &str, index: usize, message: impl Into<String>, hint: &str) {
        let item = match self.entry(name).map(|e| &e.node.value) {
            Some(Value::Array(items)) => items.get(index),
            _ => None,
        };
        let Some(span) = item.map(|n| n.span) else { return };
        let path = self.reading.path_to(Some(name));
        let path = format!("{path}.{index}");
        if self.reading.is_sound(&path) {
            let problem = Problem::new(span.place(), format!("`{path}`: {}", message.into())).hint(hint);
            self.reading.report(path, problem);
        }
    }

    /// Rejects elements of a list that equal an earlier one.
    pub fn refuse_repeated<T: PartialEq + Display>(&mut self, name: &str, items: &[T], hint: &str) {
        for (i, item) in items.iter().enumerate() {
            if items[..i].contains(item) {
                self.refuse_item(name, i, format!("`{item}` is named twice"), hint);
            }
        }
    }

    /// Whether nothing was reported at, above or below a dotted key, counted from the root of the spec.
    pub fn is_sound(&self, dotted: &str) -> bool {
        self.reading.is_sound(dotted)
    }

    /// Reports a problem at a dotted key, counted from the root of the spec.
    pub fn report(&mut self, key: &str, message: impl Into<String>, hint: &str) {
        if matches!(self.at, At::Node(_)) {
            let message = format!("`{key}`: {}", message.into());
            self.reading.report(key.to_owned(), Problem::at_key(key, message).hint(hint));
        }
    }

    fn entry(&self, name: &str) -> Option<&'a Entry> {
        let At::Node(Node { value: Value::Table(table), .. }) = &self.at else { return None };
        let mut parts = name.split('.');
        let field = table.get(parts.next()?)?;
        parts.try_fold(field, |entry, part| match &entry.node.value {
            Value::Table(table) => table.get(part),
            _ => None,
        })
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        doc: &'static str,
        default: Option<serde_json::Value>,
        read: impl FnOnce(Item<'_>) -> T,
    ) -> T {
        let mut schema = Json::new();
        let value = read(self.enter(name, doc, default, &mut schema));
        self.leave(name, schema);
        value
    }

    /// The part of [`Fields::read`] before the value. It is separate so that it is not compiled once per
    /// type.
    fn enter<'b>(
        &'b mut self,
        name: &'static str,
        doc: &'static str,
        default: Option<serde_json::Value>,
        schema: &'b mut Json,
    ) -> Item<'b> {
        self.known.push(name);
        self.reading.path.push(Segment::Key(name));
        let at = if let At::Schema(_) = self.at {
            if let Some(default) = default {
                schema.insert("default".into(), default);
            }
            append_description(schema, &plain(doc));
            At::Schema(schema)
        } else {
            self.entry(name).map_or(At::Absent, |e| At::Node(&e.node))
        };
        Item { at, doc, reading: self.reading }
    }

    /// The part of [`Fields::read`] after the value.
    fn leave(&mut self, name: &'static str, field: Json) {
        if let At::Schema(schema) = &mut self.at
            && let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut())
        {
            properties.insert(name.to_owned(), field.into());
        }
        self.reading.path.pop();
    }
}

/// The hint for a missing field.
fn given(table: &str, name: &str, doc: &str) -> String {
    match doc.starts_with("what ") || doc.starts_with("how ") {
        true if table.is_empty() => format!("`[{name}]` says {doc}"),
        _ => format!("it must be given: {doc}"),
    }
}

fn push(schema: &mut Json, list: &str, value: serde_json::Value) {
    if let serde_json::Value::Array(items) = schema.entry(list).or_insert_with(|| json!([])) {
        items.push(value);
    }
}
