//! What the values of a setting, one for each seed or fold, have in common: that decides which intervals hold.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    grouping::grouped,
    metric::Metric,
    run::{FOLD, Run, mean},
};
use crate::files::Leaves;

/// The environment's number of rows that validate.
const VALIDATION_ROWS: &str = "data.rows_to_validate_on";

/// That of the rows that train.
const TRAINING_ROWS: &str = "data.rows_to_train_on";

/// What the values of a setting have in common.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Dependence {
    Independent,
    /// All seeds validate on the same rows, at once or in folds. Their values vary as far as what seeds draw makes them; other rows are another matter.
    SameRows,
    /// Each is of another random split of the same rows: the number of validation rows over that of training rows, the mean over
    /// the splits. With few groups of unequal size that differs from split to split, and is far from the fractions of the spec.
    Redrawn(f64),
    /// They are of folds in the order of rows. Each fold trains on the rows of those before it and on more, at a later time, so their
    /// values are neither independent nor of one distribution: no formula for an interval holds. In its place is their range.
    InOrder,
}

impl Dependence {
    /// The stronger of two.
    pub(super) fn or(self, other: Self) -> Self {
        if self < other { other } else { self }
    }

    /// What is added to 1/n, n the number of values, in the squared error of their mean, in variances of a value.
    pub(super) fn shared(self) -> f64 {
        if let Self::Redrawn(share) = self { share } else { 0.0 }
    }

    /// What the samples of the runs of a setting have in common; `each` says what a sample is.
    pub(super) fn new(each: &str, runs: &[Run], places: &[usize]) -> Self {
        let in_order = places.iter().filter_map(|&place| {
            let [seed, _] = runs[place].seeds()?;
            Some((seed, runs[place].fold_in_order()?))
        });
        let folds: Vec<BTreeSet<_>> =
            grouped(in_order).into_iter().map(|(_, folds)| folds.into_iter().collect()).collect();
        match each {
            "fold" if !folds.is_empty() => Self::InOrder,
            // Seeds are of other times.
            "seed" if !are_of_one(&folds) => Self::InOrder,
            "seed" => Self::of_seeds(runs, places),
            _ => Self::Independent,
        }
    }

    fn of_seeds(runs: &[Run], places: &[usize]) -> Self {
        let rows_of = if record_rows(runs, places) { Run::validation_rows } else { Run::drawn_by };
        let of_folds = by_fold(runs, places, rows_of).into_iter();
        let of_folds =
            of_folds.flat_map(|([seed, _], rows)| rows.into_iter().map(move |own| (seed.clone(), own)));
        let by_seed: Vec<BTreeSet<_>> =
            grouped(of_folds).into_iter().map(|(_, rows)| rows.into_iter().collect()).collect();
        let is_alike = are_of_one(&by_seed);
        let have_own_rows = places.iter().any(|&place| runs[place].draws_rows());
        let folds = |place: &usize| runs[*place].axis("data.folds")?.parse().ok();
        let folds: Option<usize> = places.iter().find_map(folds);
        // All folds together validate on all rows, however each seed divides them.
        let have_all_rows = folds.is_some_and(|folds| by_seed.iter().any(|rows| rows.len() == folds));
        match by_seed.len() {
            0 | 1 => Self::Independent,
            _ if is_alike => Self::SameRows,
            _ if have_own_rows => Self::Independent,
            _ if have_all_rows => Self::SameRows,
            _ => {
                let own = places.iter().map(|&place| &runs[place]);
                let rows = own.map(|run| Some((rows_of(run)?, run)));
                let of_splits = grouped(rows.flatten());
                let shares = of_splits.iter().filter_map(|(_, runs)| runs[0].validation_share());
                Self::Redrawn(mean(&shares.collect::<Vec<_>>()))
            }
        }
    }
}

/// Whether the sets are equal, but for what some of them lack: a seed of which a fold failed is of the same rows as others.
fn are_of_one<T: Ord>(sets: &[BTreeSet<T>]) -> bool {
    let largest = sets.iter().max_by_key(|set| set.len());
    largest.is_none_or(|largest| sets.iter().all(|set| set.is_subset(largest)))
}

/// What a sample of these runs is.
pub(super) fn sample_of(runs: &[Run], places: &[usize], metric: &Metric) -> &'static str {
    let seeds = || places.iter().filter_map(|&place| runs[place].seeds());
    let are_several =
        |part: usize| seeds().any(|own| seeds().next().is_some_and(|first| own[part] != first[part]));
    match metric.is_learned {
        false => "run",
        true if are_several(1) && !are_several(0) => "fold",
        true => "seed",
    }
}

/// What the validation rows of a run are known by, among the runs of a task.
type ValidationRows<'a> = [&'a str; 2];

/// Validation rows by seed and fold.
type ByFold<Rows> = BTreeMap<[String; 2], BTreeSet<Rows>>;

/// Whether all runs that divide their rows record which of them validate. Otherwise all of them are known by seed and fold of their
/// specs, since a record cannot be compared with these.
fn record_rows(runs: &[Run], places: &[usize]) -> bool {
    !places.iter().any(|&place| runs[place].lacks_rows())
}

/// The validation rows of each seed and fold by `rows_of`, without runs of which it knows none.
fn by_fold<'a, Rows: Ord>(
    runs: &'a [Run],
    places: &[usize],
    rows_of: impl Fn(&'a Run) -> Option<Rows>,
) -> ByFold<Rows> {
    let mut found = ByFold::new();
    for run in places.iter().map(|&place| &runs[place]) {
        if let Some((of, rows)) = run.seeds().zip(rows_of(run)) {
            found.entry(of).or_default().insert(rows);
        }
    }
    found
}

/// Whether the values of any key of both differ, by `differ`; `None` if they share no key.
fn shared_differ<K: Ord, T>(
    own: &BTreeMap<K, T>,
    other: &BTreeMap<K, T>,
    differ: impl Fn(&T, &T) -> bool,
) -> Option<bool> {
    own.iter().filter_map(|(key, own)| Some(differ(own, other.get(key)?))).reduce(|any, own| any || own)
}

/// The validation rows by which a setting is judged; empty where they are not known, or do not judge it.
#[derive(Clone, Debug, Default)]
pub(super) struct JudgingRows {
    /// `None` if a run does not record them.
    recorded: Option<ByFold<[String; 2]>>,
    /// What draws them by the specs.
    drawn: ByFold<[String; 2]>,
}

impl JudgingRows {
    /// Those of the runs of a setting. The rows that train say how well a model fits them, and times are of no rows.
    pub(super) fn new(runs: &[Run], places: &[usize], metric: &Metric) -> Self {
        if !metric.is_learned || metric.is_fit() {
            return Self::default();
        }
        let owned = |rows: ValidationRows<'_>| rows.map(str::to_owned);
        let recorded = || by_fold(runs, places, |run| run.validation_rows().map(owned));
        Self {
            recorded: record_rows(runs, places).then(recorded),
            drawn: by_fold(runs, places, |run| run.drawn_by().map(owned)),
        }
    }

    /// Whether two settings are judged by different rows, so that these may make their difference. Folds of seeds that both have
    /// must have the same rows in both; either may lack others. If they share none, each may have splits of its own, of which its
    /// values are a sample; one split is none, and the other must have that one, too.
    pub(super) fn differ(&self, other: &Self) -> bool {
        let (own, other) = match (&self.recorded, &other.recorded) {
            (Some(own), Some(other)) => (own, other),
            _ => (&self.drawn, &other.drawn),
        };
        if own.is_empty() || other.is_empty() {
            return false;
        }
        let are_apart = |own: &BTreeSet<_>, other: &_| !own.is_subset(other) && !other.is_subset(own);
        if let Some(differ) = shared_differ(own, other, are_apart) {
            return differ;
        }
        let [own, other] = [own, other].map(|rows| {
            let mut of_all_seeds: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            rows.iter().for_each(|([_, fold], rows)| of_all_seeds.entry(fold).or_default().extend(rows));
            of_all_seeds
        });
        let is_one = [&own, &other].iter().any(|split| split.values().all(|rows| rows.len() == 1));
        is_one && shared_differ(&own, &other, |own, other| own != other).unwrap_or(true)
    }
}

impl Run {
    /// `None` if that is not recorded.
    fn validation_rows(&self) -> Option<ValidationRows<'_>> {
        self.fact(VALIDATION_ROWS)?;
        // Rows that seeds draw are known by their own digest.
        let drawn = self.digest().filter(|_| self.draws_rows());
        Some([drawn.unwrap_or_default(), self.fact("data.split_digest").unwrap_or_default()])
    }

    /// The number of validation rows over that of training rows; by its spec, if it does not record them.
    fn validation_share(&self) -> Option<f64> {
        let recorded = self.environment_number(VALIDATION_ROWS).zip(self.environment_number(TRAINING_ROWS));
        recorded.map(|(validate, train)| validate / train).or_else(|| self.share_in_spec())
    }

    /// The same by the fractions of its spec; `None` if it does not divide its rows.
    fn share_in_spec(&self) -> Option<f64> {
        let number = |key: &str| self.axis(key)?.parse::<f64>().ok();
        let test = number("data.split.test").unwrap_or(0.0);
        let of_source = || {
            let mut keys = self.spec.iter().flat_map(Leaves::iter);
            keys.find(|(key, _)| key.ends_with(".validation_fraction"))?.1.parse::<f64>().ok()
        };
        let validation = match number("data.folds") {
            Some(folds) => (1.0 - test) / folds,
            None => number("data.split.validation").or_else(of_source)?,
        };
        (validation > 0.0 && !self.draws_rows()).then(|| validation / (1.0 - validation - test))
    }

    /// The seed and the fold that choose its validation rows by its spec; `None` if it does not divide its rows.
    fn drawn_by(&self) -> Option<ValidationRows<'_>> {
        self.share_in_spec()?;
        let is_in_order = self.axis("data.split.shuffle") == Some("false");
        let seed = self.axis("data.split.seed").or_else(|| self.axis("seed")).filter(|_| !is_in_order);
        Some([seed.unwrap_or_default(), self.axis(FOLD).unwrap_or_default()])
    }

    /// Whether it divides its rows, and does not record how many it got.
    pub(super) fn lacks_rows(&self) -> bool {
        self.fact(VALIDATION_ROWS).is_none() && self.share_in_spec().is_some()
    }

    /// Whether its validation rows are some of the rows of its source.
    pub(super) fn is_split(&self) -> bool {
        self.fact("data.split_digest").is_some()
    }

    /// The fold that validates, if folds are in the order of rows.
    pub(super) fn fold_in_order(&self) -> Option<u32> {
        let is_in_order = self.axis("data.split.shuffle") == Some("false");
        self.axis(FOLD).filter(|_| is_in_order)?.parse().ok()
    }
}
