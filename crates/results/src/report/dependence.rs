//! What the samples of a setting have in common: that decides which intervals hold.

use std::collections::BTreeSet;

use super::{
    grouping::grouped,
    judging_rows::JudgingRows,
    metric::Metric,
    run::{FOLD, Run},
};
use crate::run::{Sample, SampleUnit, sample_unit};

/// What the samples of a setting have in common.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Dependence {
    Independent,
    /// All seeds validate on the same rows, at once or in folds. Their values vary as far as what seeds draw makes them; other rows are another matter.
    SameRows,
    /// Each is of another random part of the same rows: the number of rows that a sample validates on, in all of its folds together,
    /// over that of the others, the mean over the samples. With few groups of unequal size that differs from split to split, and is
    /// far from the fractions of the spec.
    Redrawn(f64),
    /// Which rows some of the runs validate on is not recorded, so that no interval is known to hold.
    Unknown,
    /// They are of folds in the order of rows. Each fold trains on the rows of those before it and on more, at a later time, so their
    /// values are neither independent nor of one distribution: no formula for an interval holds. In its place is their range.
    InOrder,
}

impl Dependence {
    /// The stronger of two.
    pub(super) fn or(self, other: Self) -> Self {
        if self < other { other } else { self }
    }

    /// What is added to 1/n, n the number of samples, in the squared error of their mean, in variances of a sample.
    pub(super) fn shared(self) -> f64 {
        if let Self::Redrawn(share) = self { share } else { 0.0 }
    }

    /// Whether Student's formulas give an interval and a p-value.
    pub(super) fn has_interval(self) -> bool {
        !matches!(self, Self::Unknown | Self::InOrder)
    }

    /// What the samples of the runs of a setting have in common; `each` says what a sample is.
    pub(super) fn new(
        each: &str,
        (runs, places): (&[Run], &[usize]),
        rows: &JudgingRows,
        samples: &[Sample],
    ) -> Self {
        let in_order = places.iter().filter_map(|&place| {
            let [seed, _] = runs[place].seeds()?;
            Some((seed, runs[place].fold_in_order()?))
        });
        let folds: Vec<BTreeSet<_>> =
            grouped(in_order).into_iter().map(|(_, folds)| folds.into_iter().collect()).collect();
        match each {
            "run" => Self::Independent,
            "fold" if !folds.is_empty() => Self::InOrder,
            "fold" => rows.dependence_of_folds(samples.len()),
            // Seeds are of other times.
            _ if !are_of_one(&folds) => Self::InOrder,
            _ => rows.dependence(&samples.iter().map(|own| own.of.iter().collect()).collect::<Vec<_>>()),
        }
    }
}

/// Whether the sets are equal, but for what some of them lack: a seed of which a fold failed is of the same rows as others.
pub(super) fn are_of_one<T: Ord>(sets: &[BTreeSet<T>]) -> bool {
    let largest = sets.iter().max_by_key(|set| set.len());
    largest.is_none_or(|largest| sets.iter().all(|set| set.is_subset(largest)))
}

/// What a sample is: of a learned metric a fold, a seed or a split, by all runs at `places`, of which `settings` are ranked; of
/// another one a run.
pub(super) fn sample_of(
    runs: &[Run],
    places: &[usize],
    settings: &[Vec<usize>],
    metric: &Metric,
) -> &'static str {
    if !metric.is_learned {
        return "run";
    }
    let of = |place: &usize| Some((runs[*place].seeds()?, runs[*place].rows_id()));
    // Runs without a result tell seeds from folds, too.
    let all = places.iter().filter_map(|place| Some((of(place)?.0, None))).collect();
    let ranked = settings.iter().map(|own| own.iter().filter_map(of).collect());
    match sample_unit(&ranked.chain([all]).collect::<Vec<_>>()) {
        SampleUnit::Fold => "fold",
        SampleUnit::Seed => "seed",
        SampleUnit::Split => "split",
    }
}

impl Run {
    /// The fold that validates, if folds are in the order of rows.
    pub(super) fn fold_in_order(&self) -> Option<u32> {
        let is_in_order = self.axis("data.split.shuffle") == Some("false");
        self.axis(FOLD).filter(|_| is_in_order)?.parse().ok()
    }
}
