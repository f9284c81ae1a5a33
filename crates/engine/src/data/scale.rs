//! Standardization of a column, and its inverse.

use serde::{Deserialize, Serialize};

/// `(x - mean) / std`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Subtracted from a value.
    pub mean: f64,
    /// The divisor.
    pub std: f64,
    /// Whether all training rows have the same value: `std` is 1 then, and the feature has taught the model nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub constant: bool,
    #[serde(skip)]
    is_identity: bool,
}

impl Scale {
    /// Leaves values unchanged.
    pub const IDENTITY: Self = Self { mean: 0.0, std: 1.0, constant: false, is_identity: true };

    /// Zero mean and unit population deviation over `values`, as in scikit-learn's `StandardScaler`. For
    /// constant values the deviation is set to 1.
    pub(super) fn standard(values: impl Iterator<Item = f64> + Clone) -> Self {
        let mean = mean(values.clone()).unwrap_or(0.0);
        let (sum, count) =
            values.fold((0.0, 0_u64), |(sum, count), x| (sum + (x - mean) * (x - mean), count + 1));
        Self { mean, std: (sum / count.max(1) as f64).sqrt(), constant: false, is_identity: false }
            .divisible()
    }

    /// [`Scale::standard`] of each column of `[rows, width]`.
    pub(super) fn standard_columns(values: &[f32], width: usize) -> Vec<Self> {
        // Row by row, in the order of memory.
        let mut sums = vec![(0.0, f64::INFINITY, f64::NEG_INFINITY); width];
        for row in values.chunks_exact(width) {
            for ((sum, least, greatest), x) in sums.iter_mut().zip(row) {
                let x = f64::from(*x);
                (*sum, *least, *greatest) = (*sum + x, x.min(*least), x.max(*greatest));
            }
        }
        let rows = (values.len() / width) as f64;
        let mean = |(sum, least, greatest): (f64, f64, f64)| (sum / rows).clamp(least, greatest);
        let centred = |sum| Self { mean: mean(sum), std: 0.0, constant: false, is_identity: false };
        let mut scales: Vec<Self> = sums.into_iter().map(centred).collect();
        for row in values.chunks_exact(width) {
            for (scale, x) in scales.iter_mut().zip(row) {
                let apart = f64::from(*x) - scale.mean;
                scale.std += apart * apart;
            }
        }
        scales.into_iter().map(|scale| Self { std: (scale.std / rows).sqrt(), ..scale }.divisible()).collect()
    }

    /// With a divisor of 1 in place of 0, or of what is no number.
    fn divisible(self) -> Self {
        if self.std > 0.0 { self } else { Self { std: 1.0, constant: self.std == 0.0, ..self } }
    }

    /// The scaled value.
    #[inline]
    pub fn apply(&self, value: f64) -> f32 {
        ((value - self.mean) / self.std) as f32
    }

    /// The value before scaling.
    #[inline]
    pub fn original(&self, value: f64) -> f64 {
        if self.is_identity { value } else { value * self.std + self.mean }
    }

    /// Whether values are left unchanged.
    pub fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// What is stored in the model's file; `None` if values are left unchanged.
    pub(super) fn stored(&self) -> Option<Self> {
        (!self.is_identity).then_some(*self)
    }
}

/// Mean of the values, clamped to their range so that the mean of equal values is exact.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let start = (0.0, 0_u64, f64::INFINITY, f64::NEG_INFINITY);
    let (sum, count, least, greatest) =
        values.filter(|value| !value.is_nan()).fold(start, |(sum, count, least, greatest), value| {
            (sum + value, count + 1, value.min(least), value.max(greatest))
        });
    (count > 0).then(|| (sum / count as f64).clamp(least, greatest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standardizes_as_scikit_learn() {
        // StandardScaler().fit([[1], [2], [4], [9]]): mean_ 4, scale_ 3.082207001484488.
        let scale = Scale::standard([1.0, 2.0, 4.0, 9.0].into_iter());
        assert_eq!([scale.mean, scale.std], [4.0, 3.082_207_001_484_488]);
        assert_eq!(scale.apply(4.0), 0.0);
        assert_eq!(scale.apply(9.0), 1.622_214_2);
    }

    #[test]
    fn columns_are_standardized_each_by_itself() {
        let values: Vec<f32> = (0..60).map(|i| ((i * 7919) % 101) as f32 * 0.3 + (i % 3) as f32).collect();
        let column = |c: usize| values.iter().skip(c).step_by(3).map(|x| f64::from(*x));
        assert_eq!(Scale::standard_columns(&values, 3), [0, 1, 2].map(|c| Scale::standard(column(c))));
    }

    #[test]
    fn equal_values_become_zero() {
        let scale = Scale::standard(std::iter::repeat_n(0.1, 1000));
        assert_eq!([scale.mean, scale.std], [0.1, 1.0]);
        assert_eq!(scale.apply(0.1), 0.0);
        assert_eq!(mean([f64::NAN; 3].into_iter()), None);
        assert_eq!(mean([f64::NAN, 2.0, 4.0].into_iter()), Some(3.0));
    }
}
