//! The differences between several tables of dotted keys.

use std::{collections::BTreeSet, path::Path};

use super::{grouping::grouped, leaves::Leaves};

/// Whether a value of a resolved spec is a path: these are absolute.
pub(super) fn is_path(value: &str) -> bool {
    value.starts_with('/')
}

/// A path's last part, which does not depend on where a project lies; other values as they are.
pub(super) fn file_name(value: &str) -> &str {
    let name = if is_path(value) { Path::new(value).file_name() } else { None };
    name.and_then(|name| name.to_str()).unwrap_or(value)
}

/// A key with different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) key: String,
    /// Each value with the numbers of the tables that have it, in order of first use; `None` stands for an
    /// absent key.
    pub(super) values: Vec<(Option<String>, Vec<usize>)>,
}

/// The keys that differ among tables. Most keys are equal in all of them.
pub(super) fn keys<'a>(tables: impl IntoIterator<Item = &'a Leaves>) -> BTreeSet<&'a str> {
    let mut tables = tables.into_iter();
    let Some(first) = tables.next() else { return BTreeSet::new() };
    tables.flat_map(|other| first.differing(other)).collect()
}

/// The `wanted` keys that differ among the tables.
pub(super) fn differences(tables: &[(usize, &Leaves)], wanted: impl Fn(&str) -> bool) -> Vec<Difference> {
    let keys = keys(tables.iter().map(|(_, table)| *table)).into_iter().filter(|key| wanted(key));
    let difference = |key: &str| {
        let values = grouped(tables.iter().map(|(place, leaves)| (leaves.get(key), *place)));
        let values = values.into_iter().map(|(value, places)| (value.map(str::to_owned), places));
        Difference { key: key.to_owned(), values: values.collect() }
    };
    keys.map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(leaves: &[(&str, &str)]) -> Leaves {
        leaves.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_are_grouped_by_place() {
        let (a, b, c) = (
            leaves(&[("x", "1"), ("y", "1")]),
            leaves(&[("x", "2"), ("y", "1")]),
            leaves(&[("x", "1"), ("y", "1"), ("z", "1")]),
        );
        let found = differences(&[(1, &a), (2, &b), (4, &c)], |key| key != "y");
        let value = |text: &str| Some(text.to_owned());
        let x =
            Difference { key: "x".to_owned(), values: vec![(value("1"), vec![1, 4]), (value("2"), vec![2])] };
        let z = Difference { key: "z".to_owned(), values: vec![(None, vec![1, 2]), (value("1"), vec![4])] };
        assert_eq!(found, [x, z]);
    }
}
