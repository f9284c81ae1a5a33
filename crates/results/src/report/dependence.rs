//! What the values of a setting, one for each seed or fold, have in common: that decides which intervals hold.

use std::collections::BTreeSet;

use super::{
    grouping::{distinct, grouped},
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
        let recorded = rows_by_seed(runs, places);
        let by_seed = if recorded.is_empty() { drawn_by_seed(runs, places) } else { recorded };
        let is_alike = are_of_one(&by_seed.iter().map(|(_, rows)| rows.clone()).collect::<Vec<_>>());
        let have_own_rows = places.iter().any(|&place| runs[place].draws_rows());
        let folds = |place: &usize| runs[*place].axis("data.folds")?.parse().ok();
        let folds: Option<usize> = places.iter().find_map(folds);
        // All folds together validate on all rows, however each seed divides them.
        let have_all_rows = folds.is_some_and(|folds| by_seed.iter().any(|(_, rows)| rows.len() == folds));
        match by_seed.len() {
            0 | 1 => Self::Independent,
            _ if is_alike => Self::SameRows,
            _ if have_own_rows => Self::Independent,
            _ if have_all_rows => Self::SameRows,
            _ => {
                let own = places.iter().map(|&place| &runs[place]);
                let rows = own.map(|run| Some((run.validation_rows().or_else(|| run.drawn_by())?, run)));
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

/// The validation rows of each seed, where they are known: several of one with several folds.
fn rows_by_seed<'a>(runs: &'a [Run], places: &[usize]) -> Vec<(String, BTreeSet<ValidationRows<'a>>)> {
    let own = places.iter().map(|&place| &runs[place]);
    let known = own.filter_map(|run| {
        let [seed, _] = run.seeds()?;
        Some((seed, run.validation_rows()?))
    });
    grouped(known).into_iter().map(|(seed, rows)| (seed, rows.into_iter().collect())).collect()
}

/// What draws the validation rows of each seed, of runs that do not record them.
fn drawn_by_seed<'a>(runs: &'a [Run], places: &[usize]) -> Vec<(String, BTreeSet<ValidationRows<'a>>)> {
    let own = places.iter().map(|&place| &runs[place]);
    let known = own.filter_map(|run| {
        let [seed, _] = run.seeds()?;
        Some((seed, run.drawn_by()?))
    });
    grouped(known).into_iter().map(|(seed, rows)| (seed, rows.into_iter().collect())).collect()
}

/// The validation rows by which a setting is judged, by seed; empty where they are not known, or do not judge it.
#[derive(Clone, Debug, Default)]
pub(super) struct JudgingRows(Vec<(String, BTreeSet<[String; 2]>)>);

impl JudgingRows {
    /// Those of the runs of a setting. The rows that train say how well a model fits them, and times are of no rows.
    pub(super) fn new(runs: &[Run], places: &[usize], metric: &Metric) -> Self {
        if !metric.is_learned || metric.is_fit() {
            return Self::default();
        }
        let owned =
            |rows: BTreeSet<ValidationRows<'_>>| rows.iter().map(|own| own.map(str::to_owned)).collect();
        Self(rows_by_seed(runs, places).into_iter().map(|(seed, rows)| (seed, owned(rows))).collect())
    }

    /// Whether two settings are judged by different rows, so that these may make their difference. Seeds that both have must have
    /// the same rows in both. If they share no seed, each may have splits of its own, of which its values are a sample; one split
    /// is none.
    pub(super) fn differ(&self, other: &Self) -> bool {
        let differ = |own: &BTreeSet<_>, other: &BTreeSet<_>| !own.is_subset(other) && !other.is_subset(own);
        let rows_of = |seed: &str| other.0.iter().find(|(own, _)| own == seed).map(|(_, rows)| rows);
        let mut shared = self.0.iter().filter_map(|(seed, rows)| Some((rows, rows_of(seed)?))).peekable();
        if shared.peek().is_some() {
            return shared.any(|(own, other)| differ(own, other));
        }
        let are_one = |own: &Self| distinct(own.0.iter().map(|(_, rows)| rows)).len() == 1;
        let all = |own: &Self| own.0.iter().flat_map(|(_, rows)| rows).cloned().collect();
        (are_one(self) || are_one(other)) && differ(&all(self), &all(other))
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
