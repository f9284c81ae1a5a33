//! Number formats of tensors. Devices hold 32-bit words; an `i64` takes two, the low word first.

use std::fmt;

use serde::Serialize;

use crate::reader::words;

/// A number as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scalar {
    /// Without a decimal point.
    Integer(i64),
    /// With a decimal point or an exponent.
    Float(f64),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(i) => i.fmt(f),
            Self::Float(x) => x.fmt(f),
        }
    }
}

words! {
    /// The number format of a tensor.
    pub enum DType {
        /// Single precision; what all arithmetic takes.
        F32 = "f32",
        /// Whole numbers of 32 bits.
        I32 = "i32",
        /// Whole numbers of 64 bits.
        I64 = "i64",
    }
}

impl DType {
    /// 32-bit words per number.
    pub fn words(self) -> usize {
        if self == Self::I64 { 2 } else { 1 }
    }

    /// A number as words; `None` if the format cannot represent it exactly.
    pub fn encode(self, number: Scalar) -> Option<Vec<f32>> {
        let bits = match (self, number) {
            (Self::F32, Scalar::Integer(i)) => return Some(vec![i as f32]),
            (Self::F32, Scalar::Float(x)) => return Some(vec![x as f32]),
            (_, Scalar::Float(_)) => return None,
            (Self::I32, Scalar::Integer(i)) => vec![i32::try_from(i).ok()? as u32],
            (Self::I64, Scalar::Integer(i)) => vec![i as u32, (i >> 32) as u32],
        };
        Some(bits.into_iter().map(f32::from_bits).collect())
    }

    /// The integer that these words encode.
    pub fn decode(self, words: &[f32]) -> i64 {
        match *words {
            [word] => i64::from(word.to_bits() as i32),
            [low, high, ..] => i64::from(high.to_bits() as i32) << 32 | i64::from(low.to_bits()),
            [] => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_keep_every_bit() {
        for i in [0, 1, -1, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN, 1 << 53 | 1] {
            let words = DType::I64.encode(Scalar::Integer(i)).unwrap();
            assert_eq!(DType::I64.decode(&words), i);
            let narrow = DType::I32.encode(Scalar::Integer(i)).map(|words| DType::I32.decode(&words));
            assert_eq!(narrow, i32::try_from(i).ok().map(i64::from));
        }
        assert_eq!(DType::I32.encode(Scalar::Float(1.0)), None);
    }
}
