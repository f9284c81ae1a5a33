//! Metrics computed from predictions alone, as scikit-learn defines them. For regressions: in the units of
//! the training file, averaged over the targets, and weighted as by `sample_weight` if rows have weights. For
//! classifications: averaged over the classes that occur (`macro`); rows count equally.

use super::{
    areas::{Areas, Ranking, ScoredRows},
    class_counts::ClassCounts,
    decision::DecisionRule,
};
use crate::{data::Scale, event::Confusion, spec::Metric};

/// Accumulators that are updated row by row.
pub enum Scores {
    /// A regression: one per target.
    Numbers(Vec<Errors>),
    Classes(Classes),
}

/// The errors of one target, and the spread of its true values.
pub struct Errors {
    scale: Scale,
    rows: usize,
    /// The sum of the rows' weights; their number if rows have none.
    weight: f64,
    absolute: f64,
    squared: f64,
    mean: f64,
    /// The sum of squared differences from the mean.
    spread: f64,
}

/// Sums over the rows of a resample, each row counted by its weight.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) weight: f64,
    /// Absolute and squared errors.
    pub(super) absolute: f64,
    pub(super) squared: f64,
    /// The differences of true values from a number near them, and their squares.
    pub(super) deviation: f64,
    pub(super) square_deviation: f64,
}

impl Sums {
    /// A row, its error, and the difference of its true value.
    pub(super) fn add(&mut self, weight: f64, error: f64, deviation: f64) {
        self.weight += weight;
        self.absolute += weight * error.abs();
        self.squared += weight * (error * error);
        self.deviation += weight * deviation;
        self.square_deviation += weight * (deviation * deviation);
    }

    /// Of units, each as often as it counts.
    pub(super) fn of_resample(counts: &[u32], units: &[Self]) -> Self {
        let mut sums = Self::default();
        for (count, own) in counts.iter().zip(units) {
            let count = f64::from(*count);
            sums.weight += count * own.weight;
            sums.absolute += count * own.absolute;
            sums.squared += count * own.squared;
            sums.deviation += count * own.deviation;
            sums.square_deviation += count * own.square_deviation;
        }
        sums
    }
}

pub struct Classes {
    /// Number of classes.
    pub classes: usize,
    /// The confusion matrix: counts by true class (row) and predicted class (column).
    pub counts: Vec<u64>,
    /// Which class the outputs predict.
    pub(super) rule: DecisionRule,
    /// Whether an output was NaN; then every metric is NaN.
    has_nan: bool,
    ranks: Ranks,
}

/// What the metrics that rank outputs are computed from.
enum Ranks {
    /// No metric ranks them.
    Unknown,
    /// The outputs of all rows.
    Rows(ScoredRows),
    /// The areas themselves, of a resample.
    Areas(Areas),
}

impl Scores {
    /// For a regression, with one scale per target.
    pub fn of_numbers(scales: &[Scale]) -> Self {
        Self::Numbers(scales.iter().copied().map(Errors::new).collect())
    }

    /// `ranks` says whether there is a metric that ranks outputs.
    pub fn of_classes(classes: usize, ranks: bool) -> Self {
        Self::of_classes_by(DecisionRule::default(), classes, ranks)
    }

    /// As [`of_classes`](Self::of_classes); the rule says which class outputs predict.
    pub fn of_classes_by(rule: DecisionRule, classes: usize, ranks: bool) -> Self {
        let ranks = if ranks { Ranks::Rows(ScoredRows::new(classes, rule.positive)) } else { Ranks::Unknown };
        Self::Classes(Classes { classes, counts: vec![0; classes * classes], rule, has_nan: false, ranks })
    }

    /// From a confusion matrix and the areas of the same rows.
    pub(super) fn of_counts(classes: usize, counts: Vec<u64>, areas: Areas) -> Self {
        let (rule, ranks) = (DecisionRule::default(), Ranks::Areas(areas));
        Self::Classes(Classes { classes, counts, rule, has_nan: false, ranks })
    }

    /// Adds rows. `predictions` is `[rows, outputs]`; `targets` is `[rows, outputs]` numbers or `[rows]`
    /// classes, each row perhaps followed by its weight; `width` counts its elements.
    pub fn add(&mut self, predictions: &[f32], targets: &[f32], width: usize) {
        let outputs = match self {
            Self::Numbers(errors) => errors.len(),
            Self::Classes(all) => all.classes,
        };
        let rows = predictions.chunks_exact(outputs).zip(targets.chunks_exact(width));
        match self {
            Self::Numbers(errors) => {
                for (predicted, actual) in rows {
                    let weight = actual.get(outputs).map_or(1.0, |weight| (*weight).into());
                    for ((errors, predicted), actual) in errors.iter_mut().zip(predicted).zip(actual) {
                        errors.add((*predicted).into(), (*actual).into(), weight);
                    }
                }
            }
            Self::Classes(all) => {
                all.has_nan |= predictions.iter().any(|y| y.is_nan());
                for (outputs, actual) in rows {
                    all.counts[actual[0] as usize * all.classes + all.rule.class(outputs)] += 1;
                }
                if let Ranks::Rows(ranked) = &mut all.ranks {
                    ranked.add(predictions, targets.iter().step_by(width).copied());
                }
            }
        }
    }

    /// The metric's value; `None` if it is not defined for these rows.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match self {
            Self::Numbers(errors) => {
                let values: Option<Vec<f64>> = errors.iter().map(|errors| errors.value(metric)).collect();
                Some(mean(values?.into_iter()))
            }
            Self::Classes(all) => {
                let value = match metric {
                    Metric::F1 => all.mean(ClassCounts::f1),
                    Metric::F1Weighted => all.weighted_f1(),
                    Metric::Precision => all.mean(ClassCounts::precision),
                    Metric::Recall => all.mean(ClassCounts::recall),
                    Metric::Auc => all.areas()[0]?,
                    Metric::AveragePrecision => all.areas()[1]?,
                    _ => return None,
                };
                Some(if all.has_nan { f64::NAN } else { value })
            }
        }
    }

    /// The share of rows whose class is predicted; `None` for a regression.
    pub fn accuracy(&self) -> Option<f64> {
        let Self::Classes(all) = self else { return None };
        let hits: u64 = all.counts.iter().step_by(all.classes + 1).sum();
        Some(hits as f64 / all.counts.iter().sum::<u64>() as f64)
    }

    /// The average precision of a class against the rest; `None` if there were too many rows to rank, or no classes.
    pub fn average_precision_of(&self, class: usize) -> Option<f64> {
        match self {
            Self::Classes(Classes { ranks: Ranks::Rows(ranked), .. }) => ranked.areas_of(class..class + 1)[1],
            _ => None,
        }
    }

    /// The probability of the positive one of two classes, and whether the row is of it, for each row; `None` if there were too many
    /// rows to rank, or an output is not finite.
    pub fn probabilities(&self) -> Option<Vec<(f32, bool)>> {
        match self {
            Self::Classes(Classes { classes: 2, ranks: Ranks::Rows(ranked), .. }) => ranked.probabilities(),
            _ => None,
        }
    }

    /// Those of a model without features that is fitted to the same rows, as scikit-learn's `DummyRegressor`, which gives the mean,
    /// and `DummyClassifier(strategy="prior")`, which gives the shares of the classes. `targets` and `width` are as for
    /// [`add`](Self::add); without the targets mae is NaN.
    pub fn baseline(&self, targets: &[f32], width: usize) -> Self {
        match self {
            Self::Numbers(errors) => {
                let weight = errors.len();
                let of = |(target, errors): (usize, &Errors)| {
                    let own = targets.chunks_exact(width);
                    errors.baseline(own.map(|row| (row[target], row.get(weight).copied())))
                };
                Self::Numbers(errors.iter().enumerate().map(of).collect())
            }
            Self::Classes(all) => {
                let most = all.most_frequent();
                let mut counts = vec![0; all.counts.len()];
                let shares: Vec<f64> = all.shares().collect();
                for (rows, actual) in counts.chunks_exact_mut(all.classes).zip(all.rows_of_classes()) {
                    rows[most] = actual;
                }
                // All scores are equal: each class has one threshold, at which every row is taken for it.
                let ranked = if all.classes == 2 { &shares[all.rule.positive..][..1] } else { &shares };
                let occurring = ranked.iter().copied().filter(|share| *share > 0.0);
                Self::of_counts(all.classes, counts, [Some(0.5), Some(mean(occurring))])
            }
        }
    }

    /// The metric of each target separately, named `mae_NAME`; empty for classes.
    pub fn of_targets(&self, metric: Metric, names: &[String]) -> Vec<(String, f64)> {
        let Self::Numbers(errors) = self else { return Vec::new() };
        let targets = errors.iter().zip(names);
        targets.filter_map(|(errors, name)| Some((metric.of_target(name), errors.value(metric)?))).collect()
    }

    /// The nonzero cells of the confusion matrix; empty for a regression.
    pub fn confusion(&self) -> Confusion {
        let Self::Classes(all) = self else { return Vec::new() };
        let cells = (0..).zip(&all.counts);
        cells.filter(|(_, count)| **count > 0).map(|(cell, count)| [cell, *count]).collect()
    }
}

impl Errors {
    fn new(scale: Scale) -> Self {
        Self { scale, rows: 0, weight: 0.0, absolute: 0.0, squared: 0.0, mean: 0.0, spread: 0.0 }
    }

    fn add(&mut self, predicted: f64, actual: f64, weight: f64) {
        self.rows += 1;
        if weight == 0.0 {
            return;
        }
        let [predicted, actual] = [predicted, actual].map(|value| self.scale.original(value));
        let error = predicted - actual;
        self.absolute += weight * error.abs();
        self.squared += weight * (error * error);
        // Welford's algorithm stays accurate where values are large and their spread is small.
        self.weight += weight;
        let from_mean = actual - self.mean;
        self.mean += from_mean * weight / self.weight;
        self.spread += weight * (from_mean * (actual - self.mean));
    }

    /// Those of the mean; `rows` are true values, perhaps with weights, in the order of [`add`](Self::add).
    fn baseline(&self, rows: impl ExactSizeIterator<Item = (f32, Option<f32>)>) -> Self {
        let is_known = rows.len() == self.rows;
        let absolute = rows
            .map(|(actual, weight)| {
                let weight = weight.map_or(1.0, f64::from);
                weight * (self.scale.original(actual.into()) - self.mean).abs()
            })
            .sum();
        let absolute = if is_known { absolute } else { f64::NAN };
        Self { absolute, squared: self.spread, ..*self }
    }

    /// From sums over rows, each counted by its weight: those of [`Sums`].
    pub(super) fn from_sums(Sums { weight, absolute, squared, deviation, square_deviation }: Sums) -> Self {
        let spread = square_deviation - deviation * deviation / weight;
        // What rounding leaves where all true values are equal.
        let spread = if spread > 1e-12 * square_deviation { spread } else { 0.0 };
        // Of their number it only matters whether there are several.
        let rows = if weight > 0.0 { 2 } else { 0 };
        Self { scale: Scale::IDENTITY, rows, weight, absolute, squared, mean: 0.0, spread }
    }

    /// The metric of this target alone.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Mae => Some(self.absolute / self.weight),
            Metric::Rmse => Some((self.squared / self.weight).sqrt()),
            Metric::R2 => Some(self.r2()),
            _ => None,
        }
    }

    /// If all true values are equal: 1 if every prediction is exact, else 0.
    fn r2(&self) -> f64 {
        match (self.squared > 0.0, self.spread > 0.0) {
            _ if self.rows < 2 || self.squared.is_nan() => f64::NAN,
            (_, true) => 1.0 - self.squared / self.spread,
            (is_wrong, false) => f64::from(u8::from(!is_wrong)),
        }
    }
}

impl Classes {
    /// The number of rows of each class.
    fn rows_of_classes(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.chunks_exact(self.classes).map(|row| row.iter().sum())
    }

    /// The share of each class in the rows.
    pub fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        let rows: u64 = self.counts.iter().sum();
        self.rows_of_classes().map(move |own| own as f64 / rows as f64)
    }

    /// The class of most rows; the first of equal ones.
    pub fn most_frequent(&self) -> usize {
        let rows: Vec<u64> = self.rows_of_classes().collect();
        (1..rows.len()).fold(0, |best, class| if rows[class] > rows[best] { class } else { best })
    }

    pub(super) fn areas(&self) -> Areas {
        match &self.ranks {
            Ranks::Unknown => [None; 2],
            Ranks::Rows(ranked) => ranked.areas(),
            Ranks::Areas(areas) => *areas,
        }
    }

    /// The rows in order of their scores for each class; none if that is not known.
    pub(super) fn rankings(&self) -> Vec<Ranking> {
        if let Ranks::Rows(ranked) = &self.ranks { ranked.all_rankings() } else { Vec::new() }
    }

    fn mean(&self, metric: fn(&ClassCounts) -> f64) -> f64 {
        mean(self.occurring().map(|class| metric(&class)))
    }

    /// The mean of the classes' F1 scores, each weighted by its rows.
    fn weighted_f1(&self) -> f64 {
        let rows: u64 = self.occurring().map(|class| class.rows).sum();
        self.occurring().map(|class| class.f1() * class.rows as f64).sum::<f64>() / rows as f64
    }

    /// The classes that occur among the rows or the predictions.
    fn occurring(&self) -> impl Iterator<Item = ClassCounts> + '_ {
        ClassCounts::all(&self.counts, self.classes).filter(|class| class.rows + class.predicted > 0)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r2(predictions: &[f32], targets: &[f32]) -> f64 {
        let mut scores = Scores::of_numbers(&[Scale::IDENTITY]);
        scores.add(predictions, targets, 1);
        scores.value(Metric::R2).unwrap()
    }

    #[test]
    fn r2_of_odd_rows() {
        // The values that sklearn.metrics.r2_score gives.
        assert_eq!(r2(&[1.0, 2.0, 4.0], &[1.0, 2.0, 3.0]), 0.5);
        assert_eq!([r2(&[5.0, 5.0], &[5.0, 5.0]), r2(&[5.0, 6.0], &[5.0, 5.0])], [1.0, 0.0]);
        assert!(r2(&[1.0], &[1.0]).is_nan());
        assert!(r2(&[f32::NAN, 5.0], &[5.0, 5.0]).is_nan(), "no prediction is no hit");
    }

    #[test]
    fn outputs_that_are_no_numbers_have_no_metrics() {
        let mut scores = Scores::of_classes(2, false);
        scores.add(&[0.1, 0.9, 0.8, 0.2], &[1.0, 0.0], 1);
        assert_eq!(scores.value(Metric::F1), Some(1.0));
        scores.add(&[f32::NAN, f32::NAN], &[0.0], 1);
        assert!(
            [Metric::F1, Metric::Precision, Metric::Recall].map(|m| scores.value(m).unwrap().is_nan())
                == [true; 3]
        );
    }
}
