//! `extends`: a spec that begins with another one, of which it deletes and replaces keys as overrides on the command line do.
//!
//! ```text
//! base.toml, whose base was read in the same way  ->  without `delete`  ->  the file's keys take their place  ->  overrides
//! ```

use std::path::{Path, PathBuf};

use serde_json::json;

use super::{
    delete::{self, DELETE},
    diagnostic::Sources,
    folders::{Folders, direct},
    key::Key,
    overrides,
    points::folder_of,
    problem::{Location, Problem},
    reader::Fields,
    spec_text::read_text,
    tree::{self, Entry, Span, Table, Value},
};

/// The key.
pub(super) const KEY: &str = "extends";

/// Schema text of the key.
pub(super) const DOC: &str = "another spec, of which this file replaces keys: tables key by key, lists as a whole; its path starts at this file's folder";

/// The keys that only files have.
pub const OF_FILES: [&str; 2] = [KEY, DELETE];

/// Schema text of `delete`.
pub(super) const DELETE_DOC: &str = "keys of the spec that this file extends, which are deleted before its own take their places; an index is the position in the list of that spec";

/// The texts and the folders of the files that a spec has been read from.
pub(super) struct Files {
    pub sources: Sources,
    pub folders: Folders,
    /// Keys that have taken the place of those of a file that was extended.
    pub given: Vec<Key>,
    /// What is wrong with lists of keys to delete.
    pub problems: Vec<Problem>,
}

/// Each file is held against all before it, so a long chain takes long.
const MOST_FILES: usize = 100;

impl Files {
    /// For a spec whose paths start at `folder`.
    pub fn new(sources: Sources, folder: &Path) -> Self {
        Self { sources, folders: Folders::new(folder), given: Vec::new(), problems: Vec::new() }
    }

    /// Puts the keys of a file, the last of `chain`, in place of those of the file that it extends.
    ///
    /// # Errors
    /// The other file cannot be read, is no TOML, or extends one of `chain`.
    pub fn extend(&mut self, mut own: Table, chain: &mut Vec<PathBuf>) -> Result<Table, Vec<Problem>> {
        refuse_out_of_place(&own)?;
        let Some(entry) = own.remove(KEY) else { return Ok(own) };
        let deleted = own.remove(DELETE);
        let span = entry.node.span;
        let name = match &entry.node.value {
            Value::String(name) => Some(name).filter(|name| !name.is_empty()),
            _ => None,
        };
        let Some(name) = name else {
            let message = format!("`{KEY}`: expected the path of a spec, found {}", entry.node.value.found());
            return Err(Problem::new(span.place(), message).into());
        };
        let path = chain.last().and_then(|path| path.parent()).unwrap_or(Path::new("")).join(name);
        let path = direct(path);
        chain.push(path.clone());
        refuse_circle(chain, span)?;
        if chain.len() > MOST_FILES {
            let message =
                format!("more than {MOST_FILES} files extend each other, the last `{}`", path.display());
            return Err(Problem::new(span.place(), message)
                .hint("put the keys of some of them into one")
                .into());
        }
        let text = read_text(&path, false).map_err(|problem| at(*problem, span))?;
        let root = tree::parse_document(&text, self.sources.next_base());
        self.sources.add_base(&path, text);
        self.folders.add_base(folder_of(&path));
        let mut root = self.extend(root?, chain)?;
        if let Some(list) = deleted {
            self.problems.extend(delete::delete_listed(&mut root, &list.node));
        }
        self.given.extend(overrides::replace(&mut root, own));
        Ok(root)
    }
}

/// Refuses one of the keys in a table, and `delete` alone: all of the spec that was meant is missing, which is not said, too.
fn refuse_out_of_place(own: &Table) -> Result<(), Vec<Problem>> {
    let within =
        |table: &Entry, key| Some((table.key.clone(), table.node.value.as_table()?.get(key)?.key_span));
    for key in OF_FILES {
        if let Some((table, span)) = own.entries.iter().find_map(|table| within(table, key)) {
            let message = format!("`{key}` is a key of the spec, not of `{table}`");
            return Err(Problem::new(span.place(), message).hint("write it before the first table").into());
        }
    }
    let alone = own.get(DELETE).filter(|_| own.get(KEY).is_none());
    let Some(entry) = alone else { return Ok(()) };
    let message = format!("`{DELETE}` needs `{KEY}` beside it");
    let hint = "it deletes keys of the spec that this file extends; on the command line `~KEY` deletes a key";
    Err(Problem::new(entry.key_span.place(), message).hint(hint).into())
}

/// The problem of a file at the key that names it.
fn at(problem: Problem, span: Span) -> Vec<Problem> {
    let place = match problem.place {
        Location::Nowhere => span.place(),
        place => place,
    };
    let hint =
        problem.hint.unwrap_or_else(|| "the path starts at the folder of the file that has it".to_owned());
    vec![Problem { place, hint: Some(hint), ..problem }]
}

fn refuse_circle(chain: &[PathBuf], span: Span) -> Result<(), Vec<Problem>> {
    let Some((last, others)) = chain.split_last() else { return Ok(()) };
    let real = |path: &PathBuf| path.canonicalize().ok();
    if real(last).is_none() || others.iter().all(|other| real(other) != real(last)) {
        return Ok(());
    }
    let names: Vec<String> = chain.iter().map(|path| format!("`{}`", path.display())).collect();
    let message = format!("files extend each other in a circle: {}", names.join(", then "));
    Err(Problem::new(span.place(), message).hint(format!("leave `{KEY}` out of one of them")).into())
}

/// Both keys in the schema. The loader has removed them from files; a trial has them by an override or an axis, or the second alone.
pub(super) fn refuse_elsewhere(t: &mut Fields<'_>) {
    let text = json!({ "type": "string", "minLength": 1 });
    let list = json!({ "type": "array", "items": text, "minItems": 1 });
    let place = "it in a spec file alone, neither as an override nor as an axis";
    t.optional(KEY, DOC, |v| v.custom(place, text, (), |_| None));
    let place = "it beside `extends` in a spec file; on the command line `~KEY` deletes a key";
    t.optional(DELETE, DELETE_DOC, |v| v.custom(place, list, (), |_| None));
}
