//! The ranges that numeric fields accept: in words, as a check and as JSON Schema.

use std::{
    fmt,
    ops::{
        Bound::{self, Excluded, Included, Unbounded},
        RangeBounds,
    },
};

use super::Json;

/// The real numbers that a field accepts.
#[derive(Clone, Copy)]
pub(crate) struct Range(pub Bound<f64>, pub Bound<f64>);

/// Devices compute in f32; a number that overflows there makes training useless.
const LARGEST: f64 = f32::MAX as f64;

/// So does a positive number that is 0 there: devices flush smaller numbers (denormals) to 0.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

impl Range {
    /// Whether a number has no normal f32: it overflows, or is flushed to 0.
    pub fn is_beyond_f32(x: f64) -> bool {
        x.is_finite() && (x.abs() > LARGEST || (x != 0.0 && x.abs() < SMALLEST))
    }

    pub fn contains(self, x: f64) -> bool {
        let is_zero_in_f32 = matches!(self, Self(Excluded(_), Unbounded)) && x < SMALLEST;
        x.is_finite() && x.abs() <= LARGEST && (self.0, self.1).contains(&x) && !is_zero_in_f32
    }

    pub fn describe(self, schema: &mut Json) {
        let ends = [(self.0, ["minimum", "exclusiveMinimum"]), (self.1, ["maximum", "exclusiveMaximum"])];
        for (bound, [included, excluded]) in ends {
            match bound {
                Included(x) => schema.insert(included.into(), x.into()),
                Excluded(x) => schema.insert(excluded.into(), x.into()),
                Unbounded => None,
            };
        }
    }
}

/// The alternate form (`{:#}`) adds "that fits f32", for numbers that are rejected because of that: see
/// `Item::float`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Unbounded, _) => f.write_str("a finite number")?,
            (Included(least), Included(most)) => write!(f, "a number from {least} to {most}")?,
            (Included(least), _) => write!(f, "a number of at least {least}")?,
            (Excluded(least), _) => write!(f, "a number above {least}")?,
        }
        match (self.0, self.1) {
            (Included(_), Included(_)) => Ok(()),
            (_, Included(most)) => write!(f, " and at most {most}"),
            (_, Excluded(most)) => write!(f, " and below {most}"),
            (_, Unbounded) if f.alternate() => f.write_str(" that fits f32"),
            (_, Unbounded) => Ok(()),
        }
    }
}

/// Rules between the fields of a table.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// At most one of them may be given.
    Exclude(&'static str, &'static str),
    /// Both must be given, or neither.
    Together(&'static str, &'static str),
    /// At least one of them must be given.
    Either(&'static str, &'static str),
}
