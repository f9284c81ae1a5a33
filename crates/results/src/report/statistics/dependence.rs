//! What the samples of a setting have in common: that decides which intervals hold.

use std::collections::BTreeSet;

use super::judging_rows::{JudgingRows, Rows};
use crate::{
    report::{
        grouping::grouped,
        metric::Metric,
        run::{FOLD, Run, mean},
    },
    run::{Sample, SampleUnit, SeedsAndFold, sample_unit},
};

/// What the samples of a setting have in common.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(in crate::report) enum Dependence {
    Independent,
    /// All seeds validate on the same rows, at once or in folds that are the same for all of them. Their values vary as far as what
    /// seeds draw makes them; other rows are another matter.
    SameRows,
    /// Each split or fold validates on another random part of the same rows: the number of these over that of the rows that train,
    /// the mean over all. With few groups of unequal size that differs from split to split, and is far from the fractions of the spec.
    Redrawn(f64),
    /// Which rows some of the runs validate on is not recorded, so that no interval is known to hold.
    Unknown,
    /// They are of folds in the order of rows. Each fold trains on the rows of those before it and on more, at a later time, so their
    /// values are neither independent nor of one distribution: no formula for an interval holds. In its place is their range.
    InOrder,
}

impl Dependence {
    /// The stronger of two.
    pub(in crate::report) fn or(self, other: Self) -> Self {
        if self < other { other } else { self }
    }

    /// What is added to 1/n, n the number of splits or folds, in the squared error of their mean, in variances of one of them.
    pub(in crate::report) fn shared(self) -> f64 {
        if let Self::Redrawn(share) = self { share } else { 0.0 }
    }

    /// Whether Student's formulas give an interval and a p-value.
    pub(in crate::report) fn has_interval(self) -> bool {
        !matches!(self, Self::Unknown | Self::InOrder)
    }

    /// What the samples of the runs of a setting have in common; `unit` says what a sample is.
    pub(in crate::report) fn new(
        unit: SampleUnit,
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
        match unit {
            SampleUnit::Run => Self::Independent,
            SampleUnit::Fold if !folds.is_empty() => Self::InOrder,
            // Seeds are of other times.
            SampleUnit::Seed | SampleUnit::Split if !are_of_one(&folds) => Self::InOrder,
            _ => {
                let of_samples = samples.iter().map(|own| own.of.iter().collect());
                Self::from_rows(unit, rows, &of_samples.collect::<Vec<_>>())
            }
        }
    }

    /// What samples of these seeds and folds have in common; `unit` says what a sample is.
    pub(in crate::report) fn from_rows(
        unit: SampleUnit,
        rows: &JudgingRows,
        samples: &[Vec<&SeedsAndFold>],
    ) -> Self {
        if samples.len() < 2 {
            return Self::Independent;
        }
        if rows.are_lacking {
            return Self::Unknown;
        }
        if unit == SampleUnit::Fold {
            let folds: Vec<Vec<Rows<'_>>> = samples.iter().flatten().map(|fold| rows.of_fold(fold)).collect();
            return Self::from_shares(&folds);
        }
        let by_sample: Vec<Vec<Rows<'_>>> = samples.iter().map(|of| rows.of_sample(of)).collect();
        let ids: Vec<BTreeSet<_>> =
            by_sample.iter().map(|own| own.iter().map(|(id, _)| *id).collect()).collect();
        if ids.iter().any(BTreeSet::is_empty) {
            return Self::Independent;
        }
        if are_of_one(&ids) {
            return Self::SameRows;
        }
        if rows.are_made { Self::Independent } else { Self::from_shares(&by_sample) }
    }

    /// Of validation rows of each sample that are drawn from the same ones.
    fn from_shares(samples: &[Vec<Rows<'_>>]) -> Self {
        let share = |(_, [validation, training]): &Rows<'_>| *validation as f64 / *training as f64;
        let of_sample = |own: &Vec<Rows<'_>>| mean(&own.iter().map(share).collect::<Vec<_>>());
        match mean(&samples.iter().map(of_sample).collect::<Vec<_>>()) {
            share if share.is_finite() => Self::Redrawn(share),
            _ => Self::Unknown,
        }
    }
}

/// Whether the sets are equal, but for what some of them lack: a seed of which a fold failed is of the same rows as others.
fn are_of_one<T: Ord>(sets: &[BTreeSet<T>]) -> bool {
    let largest = sets.iter().max_by_key(|set| set.len());
    largest.is_none_or(|largest| sets.iter().all(|set| set.is_subset(largest)))
}

/// What a sample is: of a learned metric a fold, a seed or a split, by all runs at `places`, of which `settings` are ranked; of
/// another one a run.
pub(in crate::report) fn sample_of(
    runs: &[Run],
    places: &[usize],
    settings: &[Vec<usize>],
    metric: &Metric,
) -> SampleUnit {
    if !metric.is_learned {
        return SampleUnit::Run;
    }
    let of = |place: &usize| Some((runs[*place].seeds()?, runs[*place].rows_id()));
    // Runs without a result tell seeds from folds, too.
    let all = places.iter().filter_map(|place| Some((of(place)?.0, None))).collect();
    let ranked = settings.iter().map(|own| own.iter().filter_map(of).collect());
    sample_unit(&ranked.chain([all]).collect::<Vec<_>>())
}

impl Run {
    /// The fold that validates, if folds are in the order of rows.
    pub(in crate::report) fn fold_in_order(&self) -> Option<u32> {
        let is_in_order = self.axis("data.split.shuffle") == Some("false");
        self.axis(FOLD).filter(|_| is_in_order)?.parse().ok()
    }
}
