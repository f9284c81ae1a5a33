//! One definition of each table, for reading it and for describing it.
//!
//! A table is read by a function that declares its fields in turn: `t.required("lr", "the learning rate", |v|
//! ...)`. The same function runs in three modes ([`At`]): over a table in the spec, over an absent one (every
//! field takes its default), and over no value at all to write the JSON Schema. So the reader and the
//! documentation cannot disagree.
//!
//! **Reading never stops at an error.** A wrong value is reported and replaced by a stand-in, so that all
//! problems of a spec are reported at once. The result is used only if nothing was reported.

mod choice;
mod declare;
mod fields;
mod item;
mod range;
mod read;

use std::path::Path;

pub(super) use choice::{Choice, Choices, How, Word, Words};
pub(super) use declare::{choices, table, words};
pub(super) use fields::Fields;
pub(super) use item::{Fault, IN_BRACKETS, Item};
pub(super) use range::Rule;
pub(super) use read::*;

use super::{folders::Folders, key, problem::Problem, tree::Node};

/// A JSON object under construction.
pub(super) type Json = serde_json::Map<String, serde_json::Value>;

/// The number of problems to report; a person will not read more. Reading goes on beyond it.
pub(super) const MAX_PROBLEMS: usize = 100;

/// What the reader functions run over.
pub(super) enum At<'a> {
    /// A value in the spec.
    Node(&'a Node),
    /// An absent value: every field takes its default.
    Absent,
    /// No value: the definition is written to this schema.
    Schema(&'a mut Json),
}

/// State shared by all parts of one reading.
pub(super) struct Reading {
    problems: Vec<Problem>,
    /// Dotted keys with a reported problem.
    reported: Vec<String>,
    /// Dotted unknown keys that resemble no declared key of their table, each with the index of its problem.
    unknown: Vec<(usize, String)>,
    path: Vec<Segment>,
    folders: Folders,
}

#[derive(Clone, Copy)]
enum Segment {
    Key(&'static str),
    Index(usize),
}

impl Reading {
    /// A reading of a spec whose relative paths start at these folders.
    pub fn new(folders: &Folders) -> Self {
        let (problems, reported, unknown, path) = Default::default();
        Self { problems, reported, unknown, path, folders: folders.clone() }
    }

    /// All reported problems.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Adds a hint to unknown keys that exist elsewhere; `find` takes a dotted one and returns its text.
    pub fn hint_elsewhere(&mut self, find: impl Fn(&str) -> Option<String>) {
        for (problem, key) in &self.unknown {
            if let (Some(problem), Some(hint)) = (self.problems.get_mut(*problem), find(key)) {
                let own = key.rsplit('.').next().unwrap_or(key);
                // Else the hint would name the very word that is unknown.
                let at_the_top = hint == format!("did you mean `{own}`?");
                problem.hint = Some(match problem.hint.take() {
                    Some(known) if at_the_top => format!("`{own}` stands outside of tables; {known}"),
                    _ => hint,
                });
            }
        }
    }

    /// Reports a problem of the dotted key.
    pub fn report(&mut self, key: String, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
            self.reported.push(key);
        }
    }

    /// Whether nothing was reported at, above or below a dotted key, so that its value may be used to check
    /// another.
    pub fn is_sound(&self, key: &str) -> bool {
        let above =
            |a: &str, b: &str| b.strip_prefix(a).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        !self
            .reported
            .iter()
            .any(|reported| reported.is_empty() || above(reported, key) || above(key, reported))
    }

    fn path_to(&self, last: Option<&str>) -> String {
        let indexes: Vec<String> = self.path.iter().map(|s| s.to_string()).collect();
        key::dotted(indexes.iter().map(String::as_str).chain(last))
    }
}

impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => f.write_str(key),
            Self::Index(index) => write!(f, "{index}"),
        }
    }
}

/// Reads a whole document with `read`.
pub(super) fn read<T>(root: &Node, reading: &mut Reading, read: impl FnOnce(Item<'_>) -> T) -> T {
    read(Item { at: At::Node(root), doc: "", reading })
}

/// The JSON Schema of a document that `read` reads.
pub(super) fn describe<T>(read: impl FnOnce(Item<'_>) -> T) -> Json {
    let mut schema = Json::new();
    let mut reading = Reading::new(&Folders::new(Path::new("/")));
    read(Item { at: At::Schema(&mut schema), doc: "", reading: &mut reading });
    schema
}

/// A doc comment as part of a sentence: without a capital and a period.
fn plain(doc: &str) -> String {
    let doc = doc.trim();
    let doc = doc.strip_suffix('.').unwrap_or(doc);
    let mut letters = doc.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() && !second.is_ascii_digit() => {
            first.to_lowercase().chain(doc.chars().skip(1)).collect()
        }
        _ => doc.to_owned(),
    }
}

/// Appends a sentence to a schema's description.
fn append_description(schema: &mut Json, more: &str) {
    let text = match schema.get("description").and_then(|d| d.as_str()) {
        Some(text) if !text.is_empty() => format!("{text}. {more}"),
        _ => more.to_owned(),
    };
    schema.insert("description".into(), text.into());
}
