//! Metrics of rows that are drawn again with replacement: the bootstrap of Efron and Tibshirani, *An Introduction to the Bootstrap*
//! (1993). Rows are sorted and summed once; a resample then is a count for each unit, a row or a group of rows, and a pass over these
//! counts.

use super::{
    Scores,
    areas::{Areas, Ranking, mean_areas},
    scores::{Errors, Sums},
};
use crate::{
    data::Scale,
    op::{Loss, LossKind, Slice},
    random::{Purpose, below, below_two, fast_stream},
};

/// All resamples of an evaluation are drawn by this seed: those of several models draw the same rows.
const SEED: u64 = 0;

/// Of more rows or groups, random groups of equal size are drawn: their means vary as those of rows drawn alone. Which rows come together
/// gives the width of an interval of n groups a standard error of 1 / sqrt(2 n), at most 1 %.
const MOST_UNITS: usize = 10_000;

/// Rows to draw from, as what their metrics are sums of.
pub struct Resamples {
    /// The number of rows or groups.
    drawn: usize,
    /// As many, or the number of random groups of them.
    units: u32,
    /// The sums of weights and of weighted losses, for each unit.
    losses: Vec<[f64; 2]>,
    figures: Figures,
}

enum Figures {
    /// A regression: the sums of each unit, for each target.
    Numbers(Vec<Vec<Sums>>),
    Classes {
        classes: usize,
        /// The rows of each unit in each cell of the confusion matrix, where there are any: the unit, the cell, their number.
        cells: Vec<[u32; 3]>,
        rankings: Vec<Ranking>,
        /// The areas of all rows. If there are no rankings, because there are too many rows or outputs are not finite, they are those
        /// of each resample.
        areas: Areas,
    },
}

/// What a resample gives.
pub struct Drawn {
    /// The mean loss.
    pub loss: f64,
    /// The share of correct predictions; only for classes.
    pub accuracy: Option<f64>,
    /// For the other metrics.
    pub scores: Scores,
}

impl Resamples {
    /// `predictions` is `[rows, outputs]`, `targets` and their `width` as for [`Scores::add`], and `scores` has the same rows. Targets of numbers have
    /// `scales`. `groups` are numbered from 0.
    pub fn new(
        kind: LossKind,
        scores: &Scores,
        (predictions, targets, width): (&[f32], &[f32], usize),
        scales: &[Scale],
        groups: Option<Vec<u32>>,
    ) -> Self {
        Self::with_most_units(kind, scores, (predictions, targets, width), scales, (groups, MOST_UNITS))
    }

    fn with_most_units(
        kind: LossKind,
        scores: &Scores,
        (predictions, targets, width): (&[f32], &[f32], usize),
        scales: &[Scale],
        (groups, most): (Option<Vec<u32>>, usize),
    ) -> Self {
        let outputs = match scores {
            Scores::Numbers(errors) => errors.len(),
            Scores::Classes(all) => all.classes,
        };
        let rows = predictions.len() / outputs.max(1);
        let of_target = if kind.classifies() { 1 } else { outputs };
        let weights: Vec<f64> = targets
            .chunks_exact(width)
            .map(|row| row.get(of_target).map_or(1.0, |weight| (*weight).into()))
            .collect();
        let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        let losses = losses_of_rows(kind, &wide(predictions), &wide(targets), (outputs, width > of_target));
        let unit_of = groups.unwrap_or_else(|| (0..rows as u32).collect());
        let drawn = unit_of.iter().max().map_or(0, |last| *last as usize + 1);
        let (unit_of, units) = merged(unit_of, drawn, most);
        let mut sums = vec![[0.0; 2]; units];
        for ((unit, weight), loss) in unit_of.iter().zip(&weights).zip(&losses) {
            let [all, weighted] = &mut sums[*unit as usize];
            (*all, *weighted) = (*all + weight, *weighted + weight * loss);
        }
        let figures = match scores {
            Scores::Numbers(_) => {
                let of = |(target, scale): (usize, &Scale)| {
                    let column = |values: &[f32], width| -> Vec<f64> {
                        let own = values.iter().skip(target).step_by(width);
                        own.map(|value| scale.original((*value).into())).collect()
                    };
                    let (predicted, actual) = (column(predictions, outputs), column(targets, width));
                    let mean = actual.iter().sum::<f64>() / rows as f64;
                    let mut sums = vec![Sums::default(); units];
                    for ((unit, weight), (predicted, actual)) in
                        unit_of.iter().zip(&weights).zip(predicted.iter().zip(&actual))
                    {
                        sums[*unit as usize].add(*weight, predicted - actual, actual - mean);
                    }
                    sums
                };
                Figures::Numbers(scales.iter().enumerate().map(of).collect())
            }
            Scores::Classes(all) => {
                let rows = predictions.chunks_exact(outputs).zip(targets.chunks_exact(width));
                let cell = |(row, actual): (&[f32], &[f32])| {
                    actual[0] as u32 * outputs as u32 + all.rule.class(row) as u32
                };
                Figures::Classes {
                    classes: outputs,
                    cells: counted(unit_of.iter().copied().zip(rows.map(cell)).collect()),
                    rankings: all.rankings().into_iter().map(|ranking| ranking.of_units(&unit_of)).collect(),
                    areas: all.areas(),
                }
            }
        };
        Self { drawn, units: units as u32, losses: sums, figures }
    }

    /// The number of rows, or of groups, that each resample draws.
    pub fn drawn(&self) -> usize {
        self.drawn
    }

    /// As many, or the number of random groups that they are drawn in.
    pub fn units(&self) -> usize {
        self.units as usize
    }

    /// The resample of this number: always the same one.
    pub fn draw(&self, number: u64) -> Drawn {
        let counts = self.counts(number);
        let (mut weight, mut loss) = (0.0, 0.0);
        for (count, [all, weighted]) in counts.iter().zip(&self.losses) {
            let count = f64::from(*count);
            weight += count * all;
            loss += count * weighted;
        }
        let loss = loss / weight;
        match &self.figures {
            Figures::Numbers(targets) => {
                let errors = targets.iter().map(|own| Errors::from_sums(Sums::of_resample(&counts, own)));
                Drawn { loss, accuracy: None, scores: Scores::Numbers(errors.collect()) }
            }
            Figures::Classes { classes, cells, rankings, areas } => {
                let mut confusion = vec![0; classes * classes];
                for [unit, cell, rows] in cells {
                    confusion[*cell as usize] += u64::from(counts[*unit as usize]) * u64::from(*rows);
                }
                let drawn = rankings.iter().map(|ranking| ranking.areas(|unit| counts[unit as usize].into()));
                let areas = if rankings.is_empty() { *areas } else { mean_areas(drawn).map(Some) };
                let scores = Scores::of_counts(*classes, confusion, areas);
                Drawn { loss, accuracy: scores.accuracy(), scores }
            }
        }
    }

    /// How often each unit is in a resample.
    fn counts(&self, number: u64) -> Vec<u32> {
        let mut rng = fast_stream(SEED, Purpose::Bootstrap, number);
        let mut counts = vec![0; self.units as usize];
        for _ in 0..self.units / 2 {
            let (first, second) = below_two(&mut rng, self.units, self.units);
            counts[first as usize] += 1;
            counts[second as usize] += 1;
        }
        if self.units % 2 == 1 {
            counts[below(&mut rng, self.units) as usize] += 1;
        }
        counts
    }
}

/// The unit of each row, and their number. Of more units than `most` they are random groups of them, of equal size.
fn merged(mut unit_of: Vec<u32>, units: usize, most: usize) -> (Vec<u32>, usize) {
    let size = units.div_ceil(most);
    if size < 2 {
        return (unit_of, units);
    }
    // Fisher and Yates.
    let mut rng = fast_stream(SEED, Purpose::Bootstrap, u64::MAX);
    let mut places: Vec<u32> = (0..units as u32).collect();
    for place in (1..units).rev() {
        places.swap(place, below(&mut rng, place as u32 + 1) as usize);
    }
    unit_of.iter_mut().for_each(|unit| *unit = places[*unit as usize] / size as u32);
    (unit_of, units.div_ceil(size))
}

/// Units and cells, each pair once and with its number.
fn counted(mut pairs: Vec<(u32, u32)>) -> Vec<[u32; 3]> {
    pairs.sort_unstable();
    pairs.chunk_by(|a, b| a == b).map(|all| [all[0].0, all[0].1, all.len() as u32]).collect()
}

/// The loss of each row in f64, without weights: a mean over the row's outputs. `prediction` is `[rows, width]`; `target` is
/// `[rows, width]` or `[rows]` class indices, or, if rows have weights, one wider.
pub fn losses_of_rows(
    kind: LossKind,
    prediction: &[f64],
    target: &[f64],
    (width, weighted): (usize, bool),
) -> Vec<f64> {
    let rows = prediction.len() / width;
    let none = Slice::default();
    let loss = Loss {
        kind,
        prediction: none,
        target: none,
        weighted,
        per_row: none,
        hits: None,
        gradient: None,
        rows,
        first: 0,
        total_rows: rows,
        width,
    };
    let (mut losses, ..) = loss.unweighted(prediction, target);
    let terms = if kind.classifies() { 1 } else { width };
    losses.iter_mut().for_each(|loss| *loss /= terms as f64);
    losses
}

#[cfg(test)]
mod tests {
    use super::{super::decision::largest, *};
    use crate::spec::Metric;

    const NUMBERS: [Metric; 3] = [Metric::Mae, Metric::Rmse, Metric::R2];
    const CLASSES: [Metric; 6] = [
        Metric::F1,
        Metric::F1Weighted,
        Metric::Precision,
        Metric::Recall,
        Metric::Auc,
        Metric::AveragePrecision,
    ];

    /// Three outputs and a class for each of 40 rows, some of them with equal scores.
    fn classified() -> (Vec<f32>, Vec<f32>) {
        let output = |i: u32| (i * 37 % 11) as f32 / 4.0;
        ((0..120).map(output).collect(), (0..40_u32).map(|row| (row * 7 % 3) as f32).collect())
    }

    /// The rows of a resample of units, one after the other; `unit` is that of each row.
    fn drawn(counts: &[u32], unit: impl Fn(usize) -> usize, (values, width): (&[f32], usize)) -> Vec<f32> {
        let rows = values.chunks(width).enumerate();
        rows.flat_map(|(row, values)| values.repeat(counts[unit(row)] as usize)).collect()
    }

    fn close(found: f64, expected: f64, what: &str) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1.0), "{what}: {found}, {expected}");
    }

    #[test]
    fn draws_are_frozen() {
        // Computed from the papers' definitions of the generator, without this code.
        let (outputs, classes) = (vec![0.0; 10], vec![0.0, 1.0, 0.0, 1.0, 0.0]);
        let mut scores = Scores::of_classes(2, true);
        scores.add(&outputs, &classes, 1);
        let all = Resamples::new(LossKind::CrossEntropy, &scores, (&outputs, &classes, 1), &[], None);
        assert_eq!([0, 1].map(|number| all.counts(number)), [[1, 1, 0, 0, 3], [0, 0, 1, 2, 2]]);
        let groups = Some(vec![3, 0, 1, 2, 3]);
        let all = Resamples::new(LossKind::CrossEntropy, &scores, (&outputs, &classes, 1), &[], groups);
        assert_eq!((all.drawn(), all.counts(2)), (4, vec![1, 2, 0, 1]));
    }

    /// The metrics of a resample are those of its rows.
    #[test]
    fn metrics_are_those_of_the_drawn_rows() {
        let (outputs, classes) = classified();
        let scores = |outputs: &[f32], classes: &[f32]| {
            let mut scores = Scores::of_classes(3, true);
            scores.add(outputs, classes, 1);
            scores
        };
        for size in [1, 3] {
            let groups = (size > 1).then(|| (0..40).map(|row| row / size as u32).collect());
            let own = scores(&outputs, &classes);
            let all = Resamples::new(LossKind::CrossEntropy, &own, (&outputs, &classes, 1), &[], groups);
            for number in 0..20 {
                let [rows, labels] = [(&outputs[..], 3), (&classes[..], 1)]
                    .map(|values| drawn(&all.counts(number), |row| row / size, values));
                let (found, expected) = (all.draw(number), scores(&rows, &labels));
                for metric in CLASSES {
                    let [found, expected] =
                        [&found.scores, &expected].map(|scores| scores.value(metric).expect("a value"));
                    close(found, expected, metric.name());
                }
                let hits =
                    rows.chunks(3).zip(&labels).filter(|(row, label)| largest(row) == **label as usize);
                close(
                    found.accuracy.expect("classes"),
                    hits.count() as f64 / labels.len() as f64,
                    "accuracy",
                );
            }
        }
    }

    /// Weights stay with their rows.
    #[test]
    fn weighted_numbers_are_those_of_the_drawn_rows() {
        let scale = Scale::IDENTITY;
        let predictions: Vec<f32> = (0..31_u32).map(|row| (row * 13 % 17) as f32 / 8.0).collect();
        let targets: Vec<f32> =
            (0..31_u32).flat_map(|row| [(row * 13 % 17 + row % 4) as f32 / 8.0, (row % 5) as f32]).collect();
        let scores = |predictions: &[f32], targets: &[f32]| {
            let mut scores = Scores::of_numbers(&[scale]);
            scores.add(predictions, targets, 2);
            scores
        };
        let own = scores(&predictions, &targets);
        let all = Resamples::new(LossKind::Mse, &own, (&predictions, &targets, 2), &[scale], None);
        for number in 0..20 {
            let [rows, truth] = [(&predictions[..], 1), (&targets[..], 2)]
                .map(|values| drawn(&all.counts(number), |row| row, values));
            let (found, expected) = (all.draw(number), scores(&rows, &truth));
            for metric in NUMBERS {
                let [found, expected] =
                    [&found.scores, &expected].map(|scores| scores.value(metric).expect("a value"));
                close(found, expected, metric.name());
            }
            let errors = rows.iter().zip(truth.chunks(2)).map(|(y, row)| {
                let [error, weight] = [y - row[0], row[1]].map(f64::from);
                (weight * error * error, weight)
            });
            let (sum, weight) =
                errors.fold((0.0, 0.0), |(sum, all), (own, weight)| (sum + own, all + weight));
            close(found.loss, sum / weight, "loss");
        }
    }

    /// The accuracy of 100 rows, 80 of them right, is binomial: its quantiles are 72 and 88 rows.
    #[test]
    fn accuracy_is_binomial() {
        let outputs: Vec<f32> =
            (0..100).flat_map(|row| if row < 80 { [1.0, 0.0] } else { [0.0, 1.0] }).collect();
        let classes = vec![0.0; 100];
        let mut scores = Scores::of_classes(2, true);
        scores.add(&outputs, &classes, 1);
        let all = Resamples::new(LossKind::CrossEntropy, &scores, (&outputs, &classes, 1), &[], None);
        let mut drawn: Vec<f64> = (0..4000).flat_map(|number| all.draw(number).accuracy).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        assert_eq!([drawn[100], drawn[3900]], [0.72, 0.88]);
    }

    /// Random groups of three rows have the intervals of rows drawn alone, but for chance: a few percent of their width.
    #[test]
    fn random_groups_have_the_intervals_of_rows() {
        let (rows, mut rng) = (3000, fast_stream(7, Purpose::Bootstrap, 0));
        let mut uniform = || f64::from(below(&mut rng, 1 << 20)) / f64::from(1 << 20);
        let (mut outputs, mut classes) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            let (noise, chance) = (uniform(), uniform());
            let class = f64::from(u8::from(chance < 0.2));
            classes.push(class as f32);
            outputs.extend([0.0, (noise + 0.4 * class - 0.9) as f32]);
        }
        let mut scores = Scores::of_classes(2, true);
        scores.add(&outputs, &classes, 1);
        let ends = |most| {
            let of_rows = (&outputs[..], &classes[..], 1);
            let all = Resamples::with_most_units(LossKind::CrossEntropy, &scores, of_rows, &[], (None, most));
            assert_eq!([all.drawn(), all.units()], [rows, most]);
            let values = |number| {
                let Drawn { loss, accuracy, scores } = all.draw(number);
                let others = CLASSES.map(|metric| scores.value(metric).expect("a value"));
                [&[loss, accuracy.expect("classes")][..], &others].concat()
            };
            let drawn: Vec<Vec<f64>> = (0..1000).map(values).collect();
            (0..8).map(move |metric| {
                let mut own: Vec<f64> = drawn.iter().map(|values| values[metric]).collect();
                own.sort_unstable_by(f64::total_cmp);
                [own[25], own[975]]
            })
        };
        for (metric, (found, expected)) in ends(1000).zip(ends(rows)).enumerate() {
            for (found, end) in found.into_iter().zip(expected) {
                let off = (found - end) / (expected[1] - expected[0]);
                assert!(off.abs() < 0.08, "metric {metric}: {found}, {expected:?}");
            }
        }
    }
}
