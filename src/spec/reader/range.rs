//! The numbers that a field takes, in words, as a test and as JSON Schema.

use std::fmt;

use super::Json;

/// The real numbers that a field takes.
#[derive(Clone, Copy)]
pub(in crate::spec) enum Range {
    /// Any finite number.
    Finite,
    /// Above zero.
    Positive,
    /// At least zero.
    NonNegative,
    /// In [0, 1).
    BelowOne,
    /// In [0, 1].
    Unit,
    /// In (0, 1].
    PositiveUnit,
    /// Seconds between two looks at something: from a hundredth to a day.
    Interval,
}

/// Numbers become f32 on the devices; one that overflows there would train nothing.
const LARGEST: f64 = f32::MAX as f64;

/// Nor would one that is none there: devices take a number below this for 0.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

impl Range {
    /// Whether it is a number that f32 has no normal one for: too large, or taken for 0.
    pub(super) fn is_beyond_f32(x: f64) -> bool {
        x.is_finite() && (x.abs() > LARGEST || (x != 0.0 && x.abs() < SMALLEST))
    }

    pub(super) fn contains(self, x: f64) -> bool {
        x.is_finite()
            && x.abs() <= LARGEST
            && match self {
                Self::Finite => true,
                Self::Positive => x >= SMALLEST,
                Self::NonNegative => x >= 0.0,
                Self::BelowOne => (0.0..1.0).contains(&x),
                Self::Unit => (0.0..=1.0).contains(&x),
                Self::PositiveUnit => x > 0.0 && x <= 1.0,
                Self::Interval => (0.01..=86_400.0).contains(&x),
            }
    }

    pub(super) fn describe(self, schema: &mut Json) {
        let bounds: &[(&str, f64)] = match self {
            Self::Finite => &[],
            Self::Positive => &[("exclusiveMinimum", 0.0)],
            Self::NonNegative => &[("minimum", 0.0)],
            Self::BelowOne => &[("minimum", 0.0), ("exclusiveMaximum", 1.0)],
            Self::Unit => &[("minimum", 0.0), ("maximum", 1.0)],
            Self::PositiveUnit => &[("exclusiveMinimum", 0.0), ("maximum", 1.0)],
            Self::Interval => &[("minimum", 0.01), ("maximum", 86_400.0)],
        };
        schema.extend(bounds.iter().map(|(name, bound)| ((*name).to_owned(), (*bound).into())));
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finite => "a finite number",
            Self::Positive => "a number above 0",
            Self::NonNegative => "a number of at least 0",
            Self::BelowOne => "a number of at least 0 and below 1",
            Self::Unit => "a number from 0 to 1",
            Self::PositiveUnit => "a number above 0 and at most 1",
            Self::Interval => "a number from 0.01 to 86400",
        })?;
        if matches!(self, Self::Finite | Self::Positive | Self::NonNegative) {
            // Said only where it is news: see `Item::float`.
            if f.alternate() {
                f.write_str(" that fits f32")?;
            }
        }
        Ok(())
    }
}

/// How the fields of a table depend on each other, beyond their own values.
#[derive(Clone, Copy)]
pub(in crate::spec) enum Rule {
    /// At most one of them is given.
    Exclude(&'static str, &'static str),
    /// Both are given, or neither.
    Together(&'static str, &'static str),
}
