//! The mean of several models' outputs for the same rows: of probabilities for classes, otherwise of numbers in the units of the
//! training file. It is expressed as outputs of the first model, so that all that follows takes it for those of one.

use super::Trained;
use crate::{data::Scale, train::log_softmax};

/// Adds up the outputs of models, row by row.
pub struct MeanOutputs {
    /// Those of the first model's targets; none for classes.
    scales: Vec<Scale>,
    width: usize,
    /// `[rows, outputs]`: sums of numbers, or logarithms of sums of probabilities.
    sums: Vec<f64>,
    /// How many models there are for each row.
    counts: Vec<u32>,
}

impl MeanOutputs {
    pub fn new(first: &Trained, rows: usize) -> Self {
        let (scales, width) = (first.data.target_scales(), first.outputs);
        let none = if scales.is_empty() { f64::NEG_INFINITY } else { 0.0 };
        Self { scales, width, sums: vec![none; rows * width], counts: vec![0; rows] }
    }

    /// Adds the outputs of a model for a row; `scales` are those of its targets.
    pub fn add(&mut self, row: usize, outputs: &[f32], scales: &[Scale]) {
        self.counts[row] += 1;
        // Whatever the others say: of such a row one model alone predicts nothing either.
        let outputs =
            if outputs.iter().all(|y| y.is_finite()) { outputs } else { &vec![f32::NAN; outputs.len()] };
        let sums = &mut self.sums[row * self.width..][..self.width];
        if self.scales.is_empty() {
            sums.iter_mut().zip(log_softmax(outputs)).for_each(|(sum, own)| *sum = log_of_sum(*sum, own));
        } else {
            let own = outputs.iter().zip(scales).map(|(y, scale)| scale.original((*y).into()));
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
    }

    /// The means, `[rows, outputs]`: numbers in the first model's scale, or logarithms of probabilities, whose softmax they are.
    pub fn outputs(&self) -> Vec<f32> {
        let of = |(place, sum): (usize, &f64)| {
            let count = f64::from(self.counts[place / self.width]);
            match self.scales.get(place % self.width) {
                Some(scale) => scale.apply(sum / count),
                None => (sum - count.ln()) as f32,
            }
        };
        self.sums.iter().enumerate().map(of).collect()
    }
}

/// `ln(exp(a) + exp(b))`; NaN if one of them is.
fn log_of_sum(a: f64, b: f64) -> f64 {
    let top = if a > b { a } else { b };
    top + ((a - top).exp() + (b - top).exp()).ln()
}

/// Values of a model's targets in another scale, by what `original` says that they are in the units of the file. `values` is
/// `[rows, width]`, where columns without a scale stay as they are.
pub fn rescaled(
    values: &[f32],
    width: usize,
    (from, to): (&[Scale], &[Scale]),
    original: impl Fn(&Scale, f32) -> f64,
) -> Vec<f32> {
    let scales: Vec<_> = from.iter().zip(to).collect();
    let of = |(place, value): (usize, &f32)| match scales.get(place % width) {
        Some((from, to)) if from != to => to.apply(original(from, *value)),
        _ => *value,
    };
    values.iter().enumerate().map(of).collect()
}

/// The number with the fewest digits that has this scaled value: that of the file, unless it has more digits than f32 tells apart.
pub fn shortest(scale: &Scale, scaled: f32) -> f64 {
    let value = scale.original(scaled.into());
    let rounded = (0..17).filter_map(|digits| format!("{value:.digits$e}").parse::<f64>().ok());
    [0.0].into_iter().chain(rounded).find(|rounded| scale.apply(*rounded) == scaled).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(scales: Vec<Scale>, models: &[(&[f32], &[Scale])]) -> Vec<f32> {
        let width = models[0].0.len();
        let none = if scales.is_empty() { f64::NEG_INFINITY } else { 0.0 };
        let mut mean = MeanOutputs { scales, width, sums: vec![none; width], counts: vec![0] };
        models.iter().for_each(|(outputs, scales)| mean.add(0, outputs, scales));
        mean.outputs()
    }

    /// Probabilities of 0.75, 0.25 and of 0.5, 0.5.
    #[test]
    fn probabilities_are_averaged() {
        let found = mean(Vec::new(), &[(&[3.0_f32.ln(), 0.0], &[]), (&[7.0, 7.0], &[])]);
        let shares: Vec<f32> = crate::train::softmax(&found).map(|share| share as f32).collect();
        assert_eq!(shares, [0.625, 0.375]);
        // Far beyond what exp() can hold: all stay finite.
        let found = mean(Vec::new(), &[(&[0.0, 3000.0], &[]), (&[0.0, 2000.0], &[])]);
        assert!((found[0] - (-2000.0 - std::f32::consts::LN_2)).abs() < 1e-3 && found[1] == 0.0, "{found:?}");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for models in [[[0.0, 1.0], [bad, 0.0]], [[bad, 0.0], [0.0, 1.0]]] {
                let found = mean(Vec::new(), &models.each_ref().map(|outputs| (&outputs[..], &[][..])));
                assert!(found.iter().all(|y| y.is_nan()), "{models:?}: {found:?}");
            }
        }
    }

    /// Each model's numbers are in a scale of its own: 10 + 2 * 3 and 20 + 4 * 1 have the mean 20, which in the first scale is 5.
    #[test]
    fn numbers_are_averaged_in_the_units_of_the_file() {
        let scale = |text| serde_json::from_str::<Scale>(text).expect("a scale");
        let [first, second] = [r#"{"mean":10,"std":2}"#, r#"{"mean":20,"std":4}"#].map(scale);
        assert_eq!(mean(vec![first], &[(&[3.0], &[first]), (&[1.0], &[second])]), [5.0]);
        assert_eq!(
            mean(vec![Scale::IDENTITY], &[(&[3.0], &[Scale::IDENTITY]), (&[1.0], &[Scale::IDENTITY])]),
            [2.0]
        );
        // The weight that follows a target is none.
        assert_eq!(rescaled(&[1.0, 0.5, 0.0, 2.0], 2, (&[second], &[first]), shortest), [7.0, 0.5, 5.0, 2.0]);
    }

    #[test]
    fn a_target_is_the_number_of_the_file() {
        let scale: Scale = serde_json::from_str(r#"{"mean":152.13,"std":77.09}"#).expect("a scale");
        for value in [151.0, 75.0, -0.25, 1234.5678, 152.13, 0.0] {
            assert_eq!(shortest(&scale, scale.apply(value)), value);
        }
        assert!(shortest(&scale, f32::NAN).is_nan());
    }
}
