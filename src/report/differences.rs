//! TOML tables as dotted keys, and the differences between several tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use toml::Value;

use super::{ReportError, grouping::grouped};
use crate::host;

/// A table's leaves by dotted key; indices are keys for arrays that hold tables.
pub(super) type Leaves = BTreeMap<String, String>;

/// Reads a TOML file's leaves; `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Leaves>, ReportError> {
    let text = match host::read_text(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ReportError::read(path, e)),
    };
    let table: toml::Table = toml::from_str(&text).map_err(|e| {
        let before = e.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
        let line = before.bytes().filter(|&byte| byte == b'\n').count() as u64 + 1;
        ReportError::malformed(path, line, e.message().to_owned())
    })?;
    let mut leaves = Leaves::new();
    for (key, value) in &table {
        add(key.clone(), value, &mut leaves);
    }
    Ok(Some(leaves))
}

fn add(key: String, value: &Value, leaves: &mut Leaves) {
    match value {
        Value::Table(table) => {
            for (inner, value) in table {
                add(format!("{key}.{inner}"), value, leaves);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_table) => {
            for (place, value) in values.iter().enumerate() {
                add(format!("{key}.{place}"), value, leaves);
            }
        }
        leaf => {
            let text = match leaf {
                Value::String(text) => text.clone(),
                // Very small or large values get an exponent, which TOML allows.
                Value::Float(number) => format!("{number:?}"),
                other => other.to_string(),
            };
            leaves.insert(key, text);
        }
    }
}

/// Writes a `data.split` that divides rows as a source's `validation_fraction` does in that key's words: they are one task.
pub(super) fn with_plain_split(mut spec: Leaves) -> Leaves {
    const SPLIT: [&str; 3] = ["data.split.test", "data.split.stratify", "data.split.validation"];
    let is = |key: &str, value: &str| spec.get(key).is_none_or(|own| own == value);
    if is(SPLIT[0], "0.0") && is(SPLIT[1], "false") {
        let [_, _, validation] = SPLIT.map(|key| spec.remove(key));
        let source = ["csv", "idx", "npy"].into_iter().find(|source| {
            let prefix = format!("data.{source}.");
            spec.range(prefix.clone()..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
        });
        if let (Some(validation), Some(source)) = (validation, source) {
            spec.insert(format!("data.{source}.validation_fraction"), validation);
        }
    }
    spec
}

/// A path's last part, which does not depend on where a project lies; other values as they are.
pub(super) fn file_name(value: &str) -> &str {
    let name = if value.starts_with('/') { Path::new(value).file_name() } else { None };
    name.and_then(|name| name.to_str()).unwrap_or(value)
}

/// A key with different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) key: String,
    /// Each value with the numbers of the tables that have it, ordered by first use; `None` if the key is absent.
    pub(super) values: Vec<(Option<String>, Vec<usize>)>,
}

/// The keys that differ among the present tables, of those that are `wanted`.
pub(super) fn differences(tables: &[(usize, &Leaves)], wanted: impl Fn(&str) -> bool) -> Vec<Difference> {
    // Most keys are equal in all of many tables: only the others are grouped.
    let first = tables.first().map(|(_, first)| *first).into_iter();
    let keys = first.flat_map(|first| tables.iter().flat_map(|(_, other)| differing(first, other)));
    let keys: BTreeSet<&String> = keys.filter(|key| wanted(key)).collect();
    let difference = |key: &String| {
        let values = grouped(tables.iter().map(|(place, leaves)| (leaves.get(key), *place)));
        let values = values.into_iter().map(|(value, places)| (value.cloned(), places));
        Difference { key: key.clone(), values: values.collect() }
    };
    keys.into_iter().map(difference).collect()
}

/// The keys that are in one of two tables alone, or that have another value there.
fn differing<'a>(a: &'a Leaves, b: &'a Leaves) -> Vec<&'a String> {
    if a.len() == b.len() && a.keys().eq(b.keys()) {
        return a
            .iter()
            .zip(b.values())
            .filter(|((_, own), other)| own != other)
            .map(|((key, _), _)| key)
            .collect();
    }
    let of_a = a.iter().filter(|(key, value)| b.get(*key) != Some(value)).map(|(key, _)| key);
    of_a.chain(b.keys().filter(|key| !a.contains_key(*key))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn leaves(text: &str) -> Leaves {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, text).unwrap();
        read(&path).unwrap().unwrap()
    }

    #[test]
    fn keys_are_dotted_down_to_the_layers() {
        let found = leaves(
            "a = 'x'\nb = [1, 2]\ne = 0.00000001\nf = 3.0\nlayers = ['relu', { linear = { out_features = 3 } }]\n[c]\nd = 0.5\n",
        );
        let expected = [
            ("a", "x"),
            ("b", "[1, 2]"),
            ("c.d", "0.5"),
            ("e", "1e-8"),
            ("f", "3.0"),
            ("layers.0", "relu"),
            ("layers.1.linear.out_features", "3"),
        ];
        assert_eq!(found, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn values_are_grouped_by_place() {
        let (a, b, c) = (leaves("x = 1\ny = 1"), leaves("x = 2\ny = 1"), leaves("x = 1\ny = 1\nz = 1"));
        let found = differences(&[(1, &a), (2, &b), (4, &c)], |key| key != "y");
        let value = |text: &str| Some(text.to_owned());
        let x =
            Difference { key: "x".to_owned(), values: vec![(value("1"), vec![1, 4]), (value("2"), vec![2])] };
        let z = Difference { key: "z".to_owned(), values: vec![(None, vec![1, 2]), (value("1"), vec![4])] };
        assert_eq!(found, [x, z]);
    }
}
