//! What the samples of a setting have in common: that decides which intervals hold.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    grouping::grouped,
    judging_rows::{FoldRows, JudgingRows, RowsId},
    metric::Metric,
    run::{FOLD, Run, mean},
};
use crate::run::{Sample, SampleUnit, SeedsAndFold, sample_unit};

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
            // They have a part of their training rows in common, for which no formula allows.
            "fold" if !rows.are_lacking => Self::Independent,
            "fold" => Self::Unknown,
            // Seeds are of other times.
            _ if !are_of_one(&folds) => Self::InOrder,
            _ => {
                Self::from_rows(rows, &samples.iter().map(|own| own.of.iter().collect()).collect::<Vec<_>>())
            }
        }
    }

    /// What samples of these seeds and folds have in common.
    pub(super) fn from_rows(rows: &JudgingRows, samples: &[Vec<&SeedsAndFold>]) -> Self {
        if samples.len() < 2 {
            return Self::Independent;
        }
        if rows.are_lacking {
            return Self::Unknown;
        }
        let by_sample: Vec<Vec<FoldRows<'_>>> = samples.iter().map(|of| rows.of_sample(of)).collect();
        let ids: Vec<BTreeSet<_>> =
            by_sample.iter().map(|own| own.iter().map(|(_, (id, _))| *id).collect()).collect();
        if ids.iter().any(BTreeSet::is_empty) {
            return Self::Independent;
        }
        if are_of_one(&ids) {
            return Self::SameRows;
        }
        if rows.are_made {
            return Self::Independent;
        }
        let shares: Option<Vec<f64>> = by_sample.iter().map(|own| share(own)).collect();
        // All folds together validate on all rows, however each seed divides them.
        shares.map_or(Self::SameRows, |shares| Self::Redrawn(mean(&shares)))
    }
}

/// Whether the sets are equal, but for what some of them lack: a seed of which a fold failed is of the same rows as others.
fn are_of_one<T: Ord>(sets: &[BTreeSet<T>]) -> bool {
    let largest = sets.iter().max_by_key(|set| set.len());
    largest.is_none_or(|largest| sets.iter().all(|set| set.is_subset(largest)))
}

/// The number of rows on which a sample validates, in all of its folds together, over that of the others; `None` if there are no others.
/// The n samples' training rows overlap as those of one split with as many validation rows.
fn share(rows: &[FoldRows<'_>]) -> Option<f64> {
    let mut by_fold: BTreeMap<&str, BTreeMap<&RowsId, [f64; 2]>> = BTreeMap::new();
    for (fold, (id, counts)) in rows {
        by_fold.entry(fold).or_default().insert(*id, counts.map(|count| count as f64));
    }
    let mean_of = |part: usize| {
        by_fold.values().map(move |own| mean(&own.values().map(|counts| counts[part]).collect::<Vec<_>>()))
    };
    let (validation, all): (f64, Vec<f64>) = (mean_of(0).sum(), mean_of(1).collect());
    let others = mean(&all) - validation;
    (others > 0.0).then(|| validation / others)
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
