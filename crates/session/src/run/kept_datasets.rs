//! The data sets that an experiment keeps for later trials, and which of them give way to others. A sweep may have very many, so
//! each is found by its key, and none is looked through.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::data::Dataset;

/// Maximum number of large data sets in memory. Trials share a data set if everything that determines it is equal.
const MOST: usize = 2;

/// More are kept as long as all together are no larger than this: trials often differ in a few seeds.
const SMALL_BYTES: u64 = 64 << 20;

pub(super) struct KeptDatasets {
    /// See [`SMALL_BYTES`].
    pub(super) small_bytes: u64,
    /// By what determines them.
    by_key: HashMap<String, Kept>,
    /// The keys, the one used longest ago first.
    by_use: BTreeMap<u64, String>,
    /// How often any was used.
    uses: u64,
    /// Bytes of all in memory.
    bytes: u64,
}

struct Kept {
    dataset: Arc<Dataset>,
    /// Its bytes in memory; 0 if it is in its file.
    bytes: u64,
    /// Its place in `by_use`.
    used: u64,
}

impl Default for KeptDatasets {
    fn default() -> Self {
        let (by_key, by_use) = (HashMap::new(), BTreeMap::new());
        Self { small_bytes: SMALL_BYTES, by_key, by_use, uses: 0, bytes: 0 }
    }
}

impl KeptDatasets {
    /// The data set of a key, which stays longest from now on.
    pub(super) fn get(&mut self, key: &str) -> Option<Arc<Dataset>> {
        let kept = self.by_key.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.by_use.remove(&std::mem::replace(&mut kept.used, self.uses)) {
            self.by_use.insert(self.uses, key);
        }
        Some(Arc::clone(&kept.dataset))
    }

    /// Keeps a data set of a key that has none.
    pub(super) fn insert(&mut self, key: String, dataset: Arc<Dataset>) {
        let bytes = bytes(&dataset);
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, key.clone());
        self.by_key.insert(key, Kept { dataset, bytes, used: self.uses });
    }

    /// Evicts before another is loaded, so that memory never holds more than `MOST` large data sets, and `memory` has room for one
    /// more that is as large as the largest of them.
    pub(super) fn make_room(&mut self, memory: u64) {
        while self.bytes > self.small_bytes && self.is_full(memory) {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            self.bytes -= self.by_key.remove(&oldest).map_or(0, |kept| kept.bytes);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self { small_bytes: self.small_bytes, ..Self::default() };
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Bytes of all in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_full(&self, memory: u64) -> bool {
        let mut sizes = self.by_key.values().map(|kept| kept.bytes).filter(|bytes| *bytes > 0);
        // Few are left where it depends on the largest.
        self.len() >= 2 * MOST
            || sizes.clone().nth(MOST - 1).is_some()
            || self.bytes + sizes.next().unwrap_or(0) > memory
    }
}

/// Bytes of a data set in memory; 0 for one in its file.
fn bytes(dataset: &Dataset) -> u64 {
    let facts = dataset.facts();
    let bytes = 4 * (facts.train_rows + facts.validation_rows) * (facts.features + facts.target_width());
    if dataset.train.in_memory() { bytes as u64 } else { 0 }
}
