//! Standardization of a column, and back.

use serde::{Deserialize, Serialize};

/// `(x - mean) / std`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Subtracted.
    pub mean: f64,
    /// The divisor.
    pub std: f64,
    #[serde(skip)]
    is_identity: bool,
}

impl Scale {
    /// Leaves values as they are.
    pub const IDENTITY: Self = Self { mean: 0.0, std: 1.0, is_identity: true };

    /// Zero mean and unit population deviation over `values`, as scikit-learn's `StandardScaler`. For constant values the
    /// deviation is 1.
    pub(super) fn standard(values: impl Iterator<Item = f64> + Clone) -> Self {
        let mean = mean(values.clone()).unwrap_or(0.0);
        let (sum, count) =
            values.fold((0.0, 0_u64), |(sum, count), x| (sum + (x - mean) * (x - mean), count + 1));
        let std = (sum / count.max(1) as f64).sqrt();
        Self { mean, std: if std > 0.0 { std } else { 1.0 }, is_identity: false }
    }

    #[inline]
    pub(super) fn apply(&self, value: f64) -> f32 {
        ((value - self.mean) / self.std) as f32
    }

    /// The value before scaling.
    #[inline]
    pub fn original(&self, value: f64) -> f64 {
        if self.is_identity { value } else { value * self.std + self.mean }
    }

    /// Whether values are left as they are.
    pub fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// What the model's file keeps, where anything is done.
    pub(super) fn stored(&self) -> Option<Self> {
        (!self.is_identity).then_some(*self)
    }
}

/// Mean of the present values, clamped to their range, so that the mean of equal values is exact.
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
    fn equal_values_become_zero() {
        let scale = Scale::standard(std::iter::repeat_n(0.1, 1000));
        assert_eq!([scale.mean, scale.std], [0.1, 1.0]);
        assert_eq!(scale.apply(0.1), 0.0);
        assert_eq!(mean([f64::NAN; 3].into_iter()), None);
        assert_eq!(mean([f64::NAN, 2.0, 4.0].into_iter()), Some(3.0));
    }
}
