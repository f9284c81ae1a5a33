//! Which class a model's outputs predict.

/// The class of the highest probability; or, of two classes, the positive one where its probability reaches a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecisionRule {
    /// Of two classes the one whose average precision counts.
    pub positive: usize,
    /// The least probability of the positive class with which it is predicted. Only of two classes.
    pub threshold: Option<f32>,
}

impl Default for DecisionRule {
    fn default() -> Self {
        Self { positive: 1, threshold: None }
    }
}

impl DecisionRule {
    /// The class that a row's outputs predict.
    pub fn class(&self, outputs: &[f32]) -> usize {
        let Some(threshold) = self.threshold else { return largest(outputs) };
        // In f32, as probabilities are printed: a row whose printed probability is the threshold reaches it.
        let reaches = softmax(outputs).nth(self.positive).is_some_and(|share| share as f32 >= threshold);
        if reaches { self.positive } else { 1 - self.positive }
    }
}

/// The probability of each class.
pub fn softmax(outputs: &[f32]) -> impl Iterator<Item = f64> {
    let (top, sum) = top_and_sum(outputs);
    outputs.iter().map(move |y| (f64::from(*y) - top).exp() / sum)
}

/// The logarithm of each class's probability; finite where the outputs are.
pub fn log_softmax(outputs: &[f32]) -> impl Iterator<Item = f64> {
    let (top, sum) = top_and_sum(outputs);
    outputs.iter().map(move |y| f64::from(*y) - top - sum.ln())
}

/// The largest output, and the sum of the exponentials of all outputs less the largest.
pub(super) fn top_and_sum(outputs: &[f32]) -> (f64, f64) {
    let top = f64::from(outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    (top, outputs.iter().map(|y| (f64::from(*y) - top).exp()).sum())
}

/// The index of the largest output; the first of equal ones.
pub fn largest(outputs: &[f32]) -> usize {
    (1..outputs.len()).fold(0, |best, i| if outputs[i] > outputs[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where a probability is too small for f64.
    #[test]
    fn logarithms_of_probabilities_are_finite() {
        let logs: Vec<f64> = log_softmax(&[3.0_f32.ln(), 0.0]).collect();
        assert!((logs[0] - 0.75_f64.ln()).abs() < 1e-7 && (logs[1] - 0.25_f64.ln()).abs() < 1e-7);
        assert_eq!(log_softmax(&[0.0, 2000.0]).collect::<Vec<_>>(), [-2000.0, 0.0]);
    }

    #[test]
    fn a_threshold_is_reached_from_its_own_value_on() {
        // Their softmax is 0.75 and 0.25.
        let outputs = [3.0_f32.ln(), 0.0];
        let class = |positive, threshold| DecisionRule { positive, threshold }.class(&outputs);
        let printed = softmax(&outputs).map(|share| share as f32).collect::<Vec<_>>();
        assert_eq!(printed, [0.75, 0.25]);
        assert_eq!([class(1, None), class(1, Some(0.25)), class(1, Some(0.250_001))], [0, 1, 0]);
        assert_eq!([class(0, Some(0.75)), class(0, Some(0.750_001))], [0, 1]);
        assert_eq!(DecisionRule { positive: 1, threshold: Some(0.1) }.class(&[f32::NAN, 0.0]), 0);
    }
}
