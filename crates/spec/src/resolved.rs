//! The resolved spec as text: every default filled in, no sweep, absolute paths, keys always in the same
//! order.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::Path,
};

use serde::Serialize;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::Spec;

/// Tables whose subtables get their own header, as in `[optimizer.sgd]`; others are written inline.
const WITH_HEADERS: [&str; 4] = ["data", "optimizer", "schedule", "launcher"];

impl Spec {
    /// The spec as TOML that reads back the same, from any folder.
    pub fn to_toml(&self) -> String {
        to_toml(self)
    }

    /// The keys whose values differ, with the value here and in `other`; `None` where a key is absent.
    pub fn changes(&self, other: &Self) -> Vec<(String, Option<String>, Option<String>)> {
        changes(self, other)
    }

    /// The first 8 hex digits of the spec's SHA-256, as in names of run folders. A path counts by its
    /// file name only.
    pub fn hash8(&self) -> String {
        hash8(self)
    }

    /// The same of some keys alone.
    pub fn hash8_of(&self, is_meant: impl Fn(&str) -> bool) -> String {
        let mut table = table(self);
        name_all_files(&mut table);
        let leaves = leaves(&table);
        let meant = leaves.iter().filter(|(key, _)| is_meant(key));
        hex8(meant.fold(Sha256::new(), |hash, (key, value)| hash.chain_update(format!("{key} = {value}\n"))))
    }

    /// [`Self::to_toml`] and [`Self::hash8`] in one pass.
    pub fn to_toml_and_hash8(&self) -> (String, String) {
        let mut table = table(self);
        let toml = text(&table, NO_NOTE);
        let hash = Sha256::new();
        let hash = if name_all_files(&mut table) {
            hash.chain_update(text(&table, NO_NOTE))
        } else {
            hash.chain_update(&toml)
        };
        (toml, hex8(hash))
    }
}

/// A key, with its value here and there; `None` where it is absent.
pub(super) type Change = (String, Option<String>, Option<String>);

/// The keys in which specs of any kind differ.
pub(super) fn changes<S: Serialize>(own: &S, other: &S) -> Vec<Change> {
    let [own, other] = [own, other].map(|spec| leaves(&table(spec)));
    let keys: BTreeSet<_> = own.keys().chain(other.keys()).collect();
    let changed = keys.into_iter().filter(|key| own.get(*key) != other.get(*key));
    changed.map(|key| (key.clone(), own.get(key).cloned(), other.get(key).cloned())).collect()
}

/// A spec of any kind as TOML that reads back the same.
pub(super) fn to_toml(spec: &impl Serialize) -> String {
    text(&table(spec), NO_NOTE)
}

/// Every spec can be represented in TOML: paths were checked to be UTF-8 when they were read, and no number exceeds its integers.
pub(super) fn table(spec: &impl Serialize) -> Table {
    Table::try_from(spec).unwrap_or_default()
}

/// All values by dotted key; an array counts as one value.
fn leaves(table: &Table) -> BTreeMap<String, String> {
    let mut leaves = BTreeMap::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                leaves.extend(self::leaves(inner).into_iter().map(|(k, v)| (format!("{key}.{k}"), v)));
            }
            value => {
                leaves.insert(key.clone(), value.to_string());
            }
        }
    }
    leaves
}

/// What stands at the end of a value's line, by the value's path.
pub(super) type Note<'a> = &'a dyn Fn(&[&str], &Value) -> String;

/// No line has a note.
pub(super) const NO_NOTE: Note<'static> = &|_, _| String::new();

/// A table of a spec as TOML.
pub(super) fn text(table: &Table, note: Note<'_>) -> String {
    let mut out = String::new();
    let (tables, scalars): (Vec<_>, Vec<_>) = table.iter().partition(|(_, v)| v.is_table());
    for (key, value) in scalars {
        line(&mut out, &[key], value, note);
    }
    for (name, value) in tables {
        let Value::Table(table) = value else { continue };
        let has_headers = WITH_HEADERS.contains(&name.as_str());
        let (inner, fields): (Vec<_>, Vec<_>) = table.iter().partition(|(_, v)| has_headers && v.is_table());
        if !fields.is_empty() {
            let _ = write!(out, "\n[{name}]\n");
        }
        for (key, value) in fields {
            line(&mut out, &[name, key], value, note);
        }
        for (key, value) in inner {
            let _ = write!(out, "\n[{name}.{key}]\n");
            for (field, value) in value.as_table().into_iter().flatten() {
                line(&mut out, &[name, key, field], value, note);
            }
        }
    }
    out
}

/// The text that a spec's hash is computed from: its TOML, with paths reduced to file names. So the hash
/// depends neither on the spelling of a path nor on where the project is. The data's digest tells different
/// files of the same name apart.
pub(super) fn hashed(spec: &impl Serialize) -> String {
    let mut table = table(spec);
    name_all_files(&mut table);
    text(&table, NO_NOTE)
}

/// Replaces absolute paths by file names; returns whether there are any.
fn name_all_files(table: &mut Table) -> bool {
    table.iter_mut().map(|(_, value)| name_files(value)).filter(|named| *named).count() > 0
}

fn name_files(value: &mut Value) -> bool {
    match value {
        Value::String(path) if path.starts_with('/') => {
            if let Some(name) = Path::new(path.as_str()).file_name() {
                *path = name.to_string_lossy().into_owned();
            }
            true
        }
        Value::Table(table) => name_all_files(table),
        Value::Array(items) => items.iter_mut().map(name_files).filter(|named| *named).count() > 0,
        _ => false,
    }
}

/// The first 8 hex digits of SHA-256 over [`hashed`].
pub(super) fn hash8(spec: &impl Serialize) -> String {
    hex8(Sha256::new().chain_update(hashed(spec)))
}

/// The first 8 hex digits of a hash.
pub(super) fn hex8(hash: Sha256) -> String {
    hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn line(out: &mut String, path: &[&str], value: &Value, note: Note<'_>) {
    let Some(key) = path.last() else { return };
    match value {
        // Layers, stages of a chain and steps of a tour get one line each.
        Value::Array(items) if matches!(*key, "layers" | "chain" | "step") => {
            let _ = writeln!(out, "{key} = [");
            for (index, item) in items.iter().enumerate() {
                let place = index.to_string();
                let _ = writeln!(out, "    {item},{}", note(&[path, &[&place]].concat(), item));
            }
            out.push_str("]\n");
        }
        _ => {
            let _ = writeln!(out, "{key} = {value}{}", note(path, value));
        }
    }
}
