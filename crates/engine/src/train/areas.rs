//! The areas under the ROC curve and the precision-recall curve, as scikit-learn's `roc_auc_score` and
//! `average_precision_score` compute them from the softmax of the outputs: with two classes, that of the second
//! class; with more, the mean of each class against the rest (`multi_class="ovr"`, `average="macro"`).

use std::ops::Range;

use crate::plan::MOST_RANKED;

/// The area under a curve, from scores in ascending order with whether each is of the class.
type Area = fn(&[(f64, bool)]) -> Option<f64>;

/// The outputs and classes of all rows. They are all kept, because areas depend on the ranks among them.
pub struct ScoredRows {
    classes: usize,
    /// `[rows, classes]`.
    outputs: Vec<f32>,
    labels: Vec<f32>,
    /// Set once there are more than [`MOST_RANKED`] outputs; the rows are dropped then.
    is_full: bool,
}

impl ScoredRows {
    pub fn new(classes: usize) -> Self {
        Self { classes, outputs: Vec::new(), labels: Vec::new(), is_full: false }
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

    /// Under the ROC curve: the mean over the classes that have some rows but not all. NaN if there is no such
    /// class or an output is not finite; `None` if there were too many rows to rank.
    pub fn auc(&self) -> Option<f64> {
        self.mean(roc_area)
    }

    /// Under the precision-recall curve: the mean over the classes that have rows; else as [`ScoredRows::auc`].
    pub fn average_precision(&self) -> Option<f64> {
        self.mean(precision_recall_area)
    }

    /// That of a class against the rest.
    pub fn average_precision_of(&self, class: usize) -> Option<f64> {
        self.mean_of(class..class + 1, precision_recall_area)
    }

    fn mean(&self, area: Area) -> Option<f64> {
        self.mean_of(usize::from(self.classes == 2)..self.classes, area)
    }

    fn mean_of(&self, classes: Range<usize>, area: Area) -> Option<f64> {
        if self.is_full {
            return None;
        }
        if !self.outputs.iter().all(|y| y.is_finite()) {
            return Some(f64::NAN);
        }
        let rows = || self.outputs.chunks_exact(self.classes);
        let softmax = |row: &[f32]| {
            let top = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            (top, row.iter().map(|y| (f64::from(*y) - top).exp()).sum::<f64>())
        };
        let shares: Vec<(f64, f64)> = rows().map(softmax).collect();
        let (mut sum, mut count) = (0.0, 0.0);
        for class in classes {
            let scores =
                rows().zip(&shares).map(|(row, (top, sum))| (f64::from(row[class]) - top).exp() / sum);
            let mut scored: Vec<_> =
                scores.zip(&self.labels).map(|(score, label)| (score, *label as usize == class)).collect();
            scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            if let Some(area) = area(&scored) {
                (sum, count) = (sum + area, count + 1.0);
            }
        }
        Some(sum / count)
    }
}

/// The share of pairs, one row of the class and one of another, in which the first has the higher score; a
/// tie counts half. `scored` ascends, and says of each row whether it is of the class.
fn roc_area(scored: &[(f64, bool)]) -> Option<f64> {
    let (mut halves, mut below, mut inside) = (0_u128, 0_u128, 0_u128);
    for tied in scored.chunk_by(|a, b| a.0 == b.0) {
        let own = tied.iter().filter(|(_, is_inside)| *is_inside).count() as u128;
        let others = tied.len() as u128 - own;
        halves += own * (2 * below + others);
        (below, inside) = (below + others, inside + own);
    }
    (below > 0 && inside > 0).then(|| halves as f64 / (2 * below * inside) as f64)
}

/// The mean precision at each distinct score, as a threshold, weighted by the recall that it adds. `scored` ascends.
fn precision_recall_area(scored: &[(f64, bool)]) -> Option<f64> {
    let all = scored.iter().filter(|(_, is_inside)| *is_inside).count();
    let (mut sum, mut inside, mut rows) = (0.0, 0, 0);
    for tied in scored.chunk_by(|a, b| a.0 == b.0).rev() {
        let own = tied.iter().filter(|(_, is_inside)| *is_inside).count();
        (inside, rows) = (inside + own, rows + tied.len());
        sum += own as f64 * (inside as f64 / rows as f64);
    }
    (all > 0).then(|| sum / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(scores: [f64; 4]) -> Vec<(f64, bool)> {
        let mut scored: Vec<_> = scores.into_iter().zip([false, false, true, true]).collect();
        scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        scored
    }

    #[test]
    fn ties_count_half() {
        // roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) = 0.75
        assert_eq!(roc_area(&scored([0.1, 0.4, 0.35, 0.8])), Some(0.75));
        assert_eq!(roc_area(&scored([0.5; 4])), Some(0.5));
        assert_eq!(roc_area(&[(0.2, true), (0.5, true)]), None);
    }

    /// scikit-learn's `average_precision_score` of each class: [0, 1, 0, 0] with [0.1, 0.4, 0.35, 0.8], and the reverse.
    #[test]
    fn each_of_two_classes_has_its_own() {
        let mut ranked = ScoredRows::new(2);
        let outputs: Vec<f32> =
            [0.1_f32, 0.4, 0.35, 0.8].iter().flat_map(|p| [(1.0 - p).ln(), p.ln()]).collect();
        ranked.add(&outputs, [0.0, 1.0, 0.0, 0.0].into_iter());
        assert_eq!([0, 1].map(|class| ranked.average_precision_of(class)), [Some(2.75 / 3.0), Some(0.5)]);
        assert_eq!(ranked.average_precision(), Some(0.5));
    }

    #[test]
    fn ties_are_one_threshold() {
        // average_precision_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) = 0.8333333333333333
        assert_eq!(precision_recall_area(&scored([0.1, 0.4, 0.35, 0.8])), Some(0.8333333333333333));
        // average_precision_score([0, 0, 1, 1], [0.1, 0.5, 0.5, 0.8]) = 0.8333333333333333
        assert_eq!(precision_recall_area(&scored([0.1, 0.5, 0.5, 0.8])), Some(0.8333333333333333));
        assert_eq!(precision_recall_area(&scored([0.5; 4])), Some(0.5));
        assert_eq!(precision_recall_area(&[(0.2, true), (0.5, true)]), Some(1.0));
        assert_eq!(precision_recall_area(&[(0.2, false)]), None);
    }
}
