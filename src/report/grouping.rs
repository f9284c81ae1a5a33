//! Items grouped, in the order of first occurrence.

use std::{collections::HashMap, hash::Hash};

/// The items of each key.
pub(super) fn grouped<K: Eq + Hash, T>(items: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: HashMap<K, (usize, Vec<T>)> = HashMap::new();
    for (key, item) in items {
        let order = groups.len();
        groups.entry(key).or_insert_with(|| (order, Vec::new())).1.push(item);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by_key(|(_, (order, _))| *order);
    groups.into_iter().map(|(key, (_, items))| (key, items)).collect()
}

/// The items without duplicates.
pub(super) fn distinct<T: Eq + Hash>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    grouped(items.into_iter().map(|item| (item, ()))).into_iter().map(|(item, _)| item).collect()
}
