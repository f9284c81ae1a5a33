//! The areas under the ROC curve and the precision-recall curve, as scikit-learn's `roc_auc_score` and
//! `average_precision_score` compute them from the softmax of the outputs: with two classes, that of the positive
//! one; with more, the mean of each class against the rest (`multi_class="ovr"`, `average="macro"`).

use std::ops::Range;

use super::decision::{softmax, top_and_sum};
use crate::plan::MOST_RANKED;

/// The outputs and classes of all rows. They are all kept, because areas depend on the ranks among them.
pub struct ScoredRows {
    classes: usize,
    /// The class that is ranked if there are two.
    positive: usize,
    /// `[rows, classes]`.
    outputs: Vec<f32>,
    labels: Vec<f32>,
    /// Set once there are more than [`MOST_RANKED`] outputs; the rows are dropped then.
    is_full: bool,
}

/// The rows in ascending order of their scores for a class.
pub struct Ranking(Vec<RankedRow>);

struct RankedRow {
    row: u32,
    /// Whether the row is of the class.
    is_inside: bool,
    /// Whether the row before has the same score.
    is_tied: bool,
}

/// The areas under the ROC curve and the precision-recall curve; `None` if the rows do not define them.
pub type Areas = [Option<f64>; 2];

impl ScoredRows {
    pub fn new(classes: usize, positive: usize) -> Self {
        Self { classes, positive, outputs: Vec::new(), labels: Vec::new(), is_full: false }
    }

    pub fn add(&mut self, outputs: &[f32], labels: impl Iterator<Item = f32>) {
        self.is_full |= self.outputs.len() + outputs.len() > MOST_RANKED;
        if self.is_full {
            (self.outputs, self.labels) = (Vec::new(), Vec::new());
        } else {
            self.outputs.extend_from_slice(outputs);
            self.labels.extend(labels);
        }
    }

    /// The mean over the classes whose areas are defined. NaN if there is no such class or an output is not finite; `None` if there
    /// were too many rows to rank.
    pub fn areas(&self) -> Areas {
        self.areas_of(self.ranked())
    }

    /// The classes whose areas count.
    fn ranked(&self) -> Range<usize> {
        if self.classes == 2 { self.positive..self.positive + 1 } else { 0..self.classes }
    }

    /// Those of some classes, each against the rest.
    pub fn areas_of(&self, classes: Range<usize>) -> Areas {
        match (self.is_full, self.outputs.iter().all(|y| y.is_finite())) {
            (true, _) => [None; 2],
            (false, false) => [Some(f64::NAN); 2],
            (false, true) => {
                mean_areas(self.rankings(classes).map(|ranking| ranking.areas(|_| 1.0))).map(Some)
            }
        }
    }

    /// The ranking of each class whose areas count; none if there were too many rows, or an output is not finite.
    pub fn all_rankings(&self) -> Vec<Ranking> {
        let is_finite = self.outputs.iter().all(|y| y.is_finite());
        let classes = if is_finite { self.ranked() } else { 0..0 };
        self.rankings(classes).collect()
    }

    /// The probability of the positive class, as it is printed, and whether the row is of it; `None` as for [`areas`](Self::areas).
    pub fn probabilities(&self) -> Option<Vec<(f32, bool)>> {
        let share = |row: &[f32]| softmax(row).nth(self.positive).map_or(f32::NAN, |share| share as f32);
        let rows = self.outputs.chunks_exact(self.classes).zip(&self.labels);
        let rows = rows.map(|(row, label)| (share(row), *label as usize == self.positive));
        (!self.is_full && self.outputs.iter().all(|y| y.is_finite())).then(|| rows.collect())
    }

    fn rankings(&self, classes: Range<usize>) -> impl Iterator<Item = Ranking> {
        let rows = || self.outputs.chunks_exact(self.classes);
        let shares: Vec<(f64, f64)> = rows().map(top_and_sum).collect();
        classes.map(move |class| {
            let scores = rows().zip(&shares).map(|(row, share)| log_odds(row, class, *share));
            Ranking::new(scores.zip(self.labels.iter().map(|label| *label as usize == class)))
        })
    }
}

/// `ln(p / (1 - p))` of a class's probability p: in the order of the probabilities, also where these round to 0 or 1.
fn log_odds(row: &[f32], class: usize, (top, sum): (f64, f64)) -> f64 {
    let own = f64::from(row[class]);
    if let [first, second] = *row {
        return own - f64::from(if class == 0 { second } else { first });
    }
    let part = (own - top).exp();
    // Where the others are a small part, a difference would lose them. Differences of outputs come first: rows that differ by a
    // constant are ties.
    match sum - part {
        rest if rest > 0.01 * sum => (own - top) - rest.ln(),
        _ => {
            let others = || row.iter().enumerate().filter(|(other, _)| *other != class);
            let highest = others().map(|(_, y)| f64::from(*y)).fold(f64::NEG_INFINITY, f64::max);
            (own - highest) - others().map(|(_, y)| (f64::from(*y) - highest).exp()).sum::<f64>().ln()
        }
    }
}

/// The mean of each area over the classes for which it is defined; NaN if there is none.
pub fn mean_areas(classes: impl Iterator<Item = Areas>) -> [f64; 2] {
    let mut sums = [[0.0; 2]; 2];
    for areas in classes {
        for ([sum, count], area) in sums.iter_mut().zip(areas) {
            (*sum, *count) = (*sum + area.unwrap_or(0.0), *count + f64::from(u8::from(area.is_some())));
        }
    }
    sums.map(|[sum, count]| sum / count)
}

impl Ranking {
    /// From each row's score, and whether it is of the class.
    fn new(rows: impl Iterator<Item = (f64, bool)>) -> Self {
        let mut scored: Vec<(f64, u32, bool)> =
            (0..).zip(rows).map(|(row, (score, is_inside))| (score, row, is_inside)).collect();
        scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut before = f64::NAN;
        let ranked = scored.into_iter().map(|(score, row, is_inside)| {
            let is_tied = score == std::mem::replace(&mut before, score);
            RankedRow { row, is_inside, is_tied }
        });
        Self(ranked.collect())
    }

    /// With the unit of each row in place of the row, so that [`areas`](Self::areas) counts units.
    pub fn of_units(mut self, units: &[u32]) -> Self {
        self.0.iter_mut().for_each(|row| row.row = units[row.row as usize]);
        self
    }

    /// The areas, each row counted as often as `count` says. That under the ROC curve is the share of pairs, one row of the class and one of
    /// another, in which the first has the higher score; a tie counts half. That under the precision-recall curve is the mean
    /// precision at each distinct score, as a threshold, weighted by the recall that it adds.
    pub fn areas(&self, count: impl Fn(u32) -> f64) -> Areas {
        // Rows with higher scores, and those with the same one. Sums of counts are exact: there are at most 2^27 rows.
        let (mut inside, mut others, mut own, mut beside) = (0.0, 0.0, 0.0, 0.0);
        let (mut halves, mut precisions) = (0.0, 0.0);
        for row in self.0.iter().rev() {
            let rows = count(row.row);
            // Without branches, which chance would decide.
            let part = f64::from(u8::from(row.is_inside)) * rows;
            (own, beside) = (own + part, beside + (rows - part));
            if row.is_tied {
                continue;
            }
            halves += beside * (2.0 * inside + own);
            (inside, others) = (inside + own, others + beside);
            precisions += own * (inside / f64::max(inside + others, 1.0));
            (own, beside) = (0.0, 0.0);
        }
        [
            (inside > 0.0 && others > 0.0).then(|| halves / (2.0 * inside * others)),
            (inside > 0.0).then(|| precisions / inside),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities that round to 1 have an order, the same for either class of two.
    #[test]
    fn saturated_outputs_are_ranked() {
        let rows = [[0.0, 20.0], [0.0, 60.0], [0.0, 50.0], [0.0, 40.0]];
        let labels = [0.0, 1.0, 0.0, 1.0];
        let areas = |positive, more: &[f32]| {
            let mut scored = ScoredRows::new(2 + more.len(), positive);
            rows.iter().for_each(|row| scored.add(&[row, more].concat(), [].into_iter()));
            scored.labels = labels.to_vec();
            scored.areas_of(positive..positive + 1)[0]
        };
        // Of four pairs, the one of 40 and 50 is the wrong way round.
        for (positive, more) in [(0, &[][..]), (1, &[]), (1, &[-80.0])] {
            assert_eq!(areas(positive, more), Some(0.75), "{positive} {more:?}");
        }
    }

    fn areas(rows: &[(f64, bool)]) -> Areas {
        Ranking::new(rows.iter().copied()).areas(|_| 1.0)
    }

    fn scored(scores: [f64; 4]) -> Vec<(f64, bool)> {
        scores.into_iter().zip([false, false, true, true]).collect()
    }

    #[test]
    fn ties_count_half() {
        // roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) = 0.75
        assert_eq!(areas(&scored([0.1, 0.4, 0.35, 0.8]))[0], Some(0.75));
        assert_eq!(areas(&scored([0.5; 4]))[0], Some(0.5));
        assert_eq!(areas(&[(0.2, true), (0.5, true)])[0], None);
    }

    /// scikit-learn's `average_precision_score` of each class: [0, 1, 0, 0] with [0.1, 0.4, 0.35, 0.8], and the reverse.
    #[test]
    fn each_of_two_classes_has_its_own() {
        let mut ranked = ScoredRows::new(2, 1);
        let outputs: Vec<f32> =
            [0.1_f32, 0.4, 0.35, 0.8].iter().flat_map(|p| [(1.0 - p).ln(), p.ln()]).collect();
        ranked.add(&outputs, [0.0, 1.0, 0.0, 0.0].into_iter());
        assert_eq!([0, 1].map(|class| ranked.areas_of(class..class + 1)[1]), [Some(2.75 / 3.0), Some(0.5)]);
        assert_eq!(ranked.areas()[1], Some(0.5));
    }

    #[test]
    fn ties_are_one_threshold() {
        // average_precision_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) = 0.8333333333333333
        assert_eq!(areas(&scored([0.1, 0.4, 0.35, 0.8]))[1], Some(0.8333333333333333));
        // average_precision_score([0, 0, 1, 1], [0.1, 0.5, 0.5, 0.8]) = 0.8333333333333333
        assert_eq!(areas(&scored([0.1, 0.5, 0.5, 0.8]))[1], Some(0.8333333333333333));
        assert_eq!(areas(&scored([0.5; 4]))[1], Some(0.5));
        assert_eq!(areas(&[(0.2, true), (0.5, true)])[1], Some(1.0));
        assert_eq!(areas(&[(0.2, false)])[1], None);
    }

    /// A row that counts twice is two rows, and one that counts 0 is none.
    #[test]
    fn rows_count_several_times() {
        let all = [(0.1, false), (0.4, true), (0.35, true), (0.8, true), (0.4, false), (0.2, true)];
        let counts = [2, 1, 3, 0, 2, 1];
        let rows: Vec<_> =
            all.iter().zip(counts).flat_map(|(row, count)| std::iter::repeat_n(*row, count)).collect();
        let counted = Ranking::new(all.into_iter()).areas(|row| counts[row as usize] as f64);
        assert_eq!(counted, areas(&rows));
    }
}
