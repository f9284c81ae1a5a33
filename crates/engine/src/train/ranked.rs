//! The area under the ROC curve, as scikit-learn's `roc_auc_score` computes it from the softmax of the
//! outputs: with two classes, that of the second class; with more, the mean of each class against the rest
//! (`multi_class="ovr"`).

use crate::plan::MOST_RANKED;

/// The outputs and classes of all rows. They are all kept, because the area depends on the ranks among them.
pub struct RocPoints {
    classes: usize,
    /// `[rows, classes]`.
    outputs: Vec<f32>,
    labels: Vec<f32>,
    /// Set once there are more than [`MOST_RANKED`] outputs; the rows are dropped then.
    is_full: bool,
}

impl RocPoints {
    pub fn new(classes: usize) -> Self {
        Self { classes, outputs: Vec::new(), labels: Vec::new(), is_full: false }
    }

    pub fn add(&mut self, outputs: &[f32], labels: &[f32]) {
        self.is_full |= self.outputs.len() + outputs.len() > MOST_RANKED;
        if self.is_full {
            (self.outputs, self.labels) = (Vec::new(), Vec::new());
        } else {
            self.outputs.extend_from_slice(outputs);
            self.labels.extend_from_slice(labels);
        }
    }

    /// The mean over the classes that have some rows but not all. NaN if there is no such class or an output
    /// is not finite; `None` if there were too many rows to rank.
    pub fn area(&self) -> Option<f64> {
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
        for class in usize::from(self.classes == 2)..self.classes {
            let scores =
                rows().zip(&shares).map(|(row, (top, sum))| (f64::from(row[class]) - top).exp() / sum);
            let mut scored: Vec<_> =
                scores.zip(&self.labels).map(|(score, label)| (score, *label as usize == class)).collect();
            if let Some(area) = area(&mut scored) {
                (sum, count) = (sum + area, count + 1.0);
            }
        }
        Some(sum / count)
    }
}

/// The share of pairs, one row of the class and one of another, in which the first has the higher score; a
/// tie counts half.
fn area(scored: &mut [(f64, bool)]) -> Option<f64> {
    scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut halves, mut below, mut inside) = (0_u128, 0_u128, 0_u128);
    for tied in scored.chunk_by(|a, b| a.0 == b.0) {
        let own = tied.iter().filter(|(_, is_inside)| *is_inside).count() as u128;
        let others = tied.len() as u128 - own;
        halves += own * (2 * below + others);
        (below, inside) = (below + others, inside + own);
    }
    (below > 0 && inside > 0).then(|| halves as f64 / (2 * below * inside) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_count_half() {
        // roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) = 0.75
        let scored = |scores: [f64; 4]| {
            let rows = scores.into_iter().zip([false, false, true, true]);
            area(&mut rows.collect::<Vec<_>>())
        };
        assert_eq!(scored([0.1, 0.4, 0.35, 0.8]), Some(0.75));
        assert_eq!(scored([0.5; 4]), Some(0.5));
        assert_eq!(area(&mut [(0.5, true), (0.2, true)]), None);
    }
}
