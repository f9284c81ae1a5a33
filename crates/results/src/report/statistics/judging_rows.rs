//! The validation rows by which a setting is judged, as its runs record them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use crate::{
    files::Leaves,
    report::{metric::Metric, run::Run},
    run::{SeedsAndFold, is_of_fold},
};

/// The environment's number of rows that validate.
const VALIDATION_ROWS: &str = "data.rows_to_validate_on";

/// That of the rows that train.
const TRAINING_ROWS: &str = "data.rows_to_train_on";

/// What the validation rows of a run are known by, among the runs of a task.
pub(in crate::report) type RowsId = [String; 2];

/// Validation rows: what they are known by, how many they are, and how many rows train beside them.
pub(in crate::report) type Rows<'a> = (&'a RowsId, &'a [u64; 2]);

/// The validation rows of each seed and fold, how many they are, and how many rows train. Runs that `--by` takes together may have
/// several.
type ByFold = BTreeMap<SeedsAndFold, BTreeMap<RowsId, [u64; 2]>>;

/// The validation rows of a setting.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct JudgingRows {
    /// Those that the runs record.
    of: Arc<ByFold>,
    /// Whether some runs do not record them.
    pub(in crate::report) are_lacking: bool,
    /// Whether each seed makes rows of its own, which share nothing.
    pub(in crate::report) are_made: bool,
    /// Whether they judge the setting: the rows that train say how well a model fits them, and times are of no rows.
    judge: bool,
}

impl JudgingRows {
    /// Those of the runs of a setting.
    pub(in crate::report) fn new(runs: &[Run], places: &[usize], metric: &Metric) -> Self {
        if !metric.is_learned {
            return Self::default();
        }
        let own = || places.iter().map(|&place| &runs[place]);
        let mut of = ByFold::new();
        for run in own() {
            if let Some((of_run, (id, counts))) = run.seeds().zip(run.validation_rows()) {
                of.entry(of_run).or_default().insert(id, counts);
            }
        }
        Self {
            of: Arc::new(of),
            are_lacking: own().any(Run::lacks_rows),
            are_made: own().any(Run::draws_rows),
            judge: !metric.is_fit(),
        }
    }

    /// Makes settings of equal rows share them: nearly all settings of a sweep have the same, and pairs of these need no comparison.
    pub(in crate::report) fn share<'a>(all: impl Iterator<Item = &'a mut Self>) {
        let mut known: HashSet<Arc<ByFold>> = HashSet::new();
        for own in all {
            match known.get(&own.of) {
                Some(same) => own.of = Arc::clone(same),
                None => _ = known.insert(Arc::clone(&own.of)),
            }
        }
    }

    /// A number that settings of the same rows have in common, once they share them.
    pub(in crate::report) fn class(&self) -> usize {
        Arc::as_ptr(&self.of).addr()
    }

    /// The rows of a sample of these seeds and folds.
    pub(in crate::report) fn of_sample(&self, of: &[&SeedsAndFold]) -> Vec<Rows<'_>> {
        of.iter().filter_map(|of| self.of.get(*of)).flatten().collect()
    }

    /// The rows of a sample that is a fold.
    pub(in crate::report) fn of_fold(&self, of: &SeedsAndFold) -> Vec<Rows<'_>> {
        self.of.iter().filter(|([_, fold], _)| is_of_fold(of, fold)).flat_map(|(_, rows)| rows).collect()
    }

    /// Whether two settings are judged by different rows, so that these may make their difference. Folds of seeds that both have
    /// must have the same rows in both; either may lack others. If they share none, each may have splits of its own, of which its
    /// values are a sample; one split is none, and the other must have that one, too.
    pub(in crate::report) fn differ(&self, other: &Self) -> bool {
        let [own, other] = match [self, other] {
            rows if Arc::ptr_eq(&self.of, &other.of) || !rows.iter().all(|rows| rows.judge) => return false,
            rows => rows.map(|rows| by_ids(&rows.of)),
        };
        if own.is_empty() || other.is_empty() {
            return false;
        }
        let are_apart = |own: &BTreeSet<_>, other: &_| !own.is_subset(other) && !other.is_subset(own);
        if let Some(differ) = shared_differ(&own, &other, are_apart) {
            return differ;
        }
        let [own, other] = [own, other].map(|rows| {
            let mut of_all_seeds: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            let folds = rows.into_iter().map(|([_, fold], rows)| (fold, rows));
            folds.for_each(|(fold, rows)| of_all_seeds.entry(fold).or_default().extend(rows));
            of_all_seeds
        });
        let is_one = [&own, &other].iter().any(|split| split.values().all(|rows| rows.len() == 1));
        is_one && shared_differ(&own, &other, |own, other| own != other).unwrap_or(true)
    }
}

/// What the rows are known by.
fn by_ids(rows: &ByFold) -> BTreeMap<[&str; 2], BTreeSet<&RowsId>> {
    rows.iter().map(|([seed, fold], ids)| ([&**seed, fold], ids.keys().collect())).collect()
}

/// Whether the values of any key of both differ, by `differ`; `None` if they share no key.
fn shared_differ<K: Ord, T>(
    own: &BTreeMap<K, T>,
    other: &BTreeMap<K, T>,
    differ: impl Fn(&T, &T) -> bool,
) -> Option<bool> {
    own.iter().filter_map(|(key, own)| Some(differ(own, other.get(key)?))).reduce(|any, own| any || own)
}

impl Run {
    /// Its validation rows, how many they are, and how many rows train; `None` if that is not recorded.
    fn validation_rows(&self) -> Option<(RowsId, [u64; 2])> {
        let count = |key: &str| self.fact(key)?.parse::<u64>().ok();
        let validation = count(VALIDATION_ROWS)?;
        let made = self.digest().filter(|_| self.draws_rows()).map(|_| self.made_rows());
        let id = [made, self.fact("data.split_digest").map(str::to_owned)].map(Option::unwrap_or_default);
        Some((id, [validation, count(TRAINING_ROWS).unwrap_or(0)]))
    }

    /// What rows that seeds make follow from. The number of those that train changes none that validates.
    fn made_rows(&self) -> String {
        let decides = |key: &str| key.starts_with("data.synthetic_") && !key.ends_with(".train_rows");
        let leaves = self.spec.iter().flat_map(Leaves::iter).filter(|(key, _)| decides(key));
        let leaves = leaves.map(|(key, value)| format!("{key}={value}"));
        leaves.chain(self.axis("seed").map(str::to_owned)).collect::<Vec<_>>().join(" ")
    }

    /// What its validation rows are known by.
    pub(in crate::report) fn rows_id(&self) -> Option<String> {
        Some(self.validation_rows()?.0.join(" "))
    }

    /// Whether it has data, and does not record which of their rows validate.
    fn lacks_rows(&self) -> bool {
        let mut keys = self.spec.iter().flat_map(Leaves::keys);
        self.fact(VALIDATION_ROWS).is_none() && keys.any(|key| key.starts_with("data."))
    }

    /// Whether its validation rows are some of the rows of its source.
    pub(in crate::report) fn is_split(&self) -> bool {
        self.fact("data.split_digest").is_some()
    }
}
