//! Groups items, in the order of first occurrence.

use std::hash::Hash;

use indexmap::{IndexMap, IndexSet};

/// The items of each key.
pub(super) fn grouped<K: Eq + Hash, T>(items: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: IndexMap<K, Vec<T>> = IndexMap::new();
    for (key, item) in items {
        groups.entry(key).or_default().push(item);
    }
    groups.into_iter().collect()
}

/// The items without duplicates.
pub(super) fn distinct<T: Eq + Hash>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    items.into_iter().collect::<IndexSet<T>>().into_iter().collect()
}

/// The different values of an axis, numbers by size.
pub(super) fn levels<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut levels = distinct(values);
    let number = |value: &str| value.parse::<f64>().unwrap_or(f64::INFINITY);
    levels.sort_by(|a, b| number(a).total_cmp(&number(b)).then_with(|| a.cmp(b)));
    levels
}
