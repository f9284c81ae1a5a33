//! The `Read` trait and its implementations, and readers of numbers in a range.

use std::{
    ops::Bound::{Excluded, Included, Unbounded},
    path::PathBuf,
};

use super::{Item, range::Range};

/// A type with one way of being read.
pub(crate) trait Read: Sized {
    fn read(v: Item<'_>) -> Self;
}

impl Read for bool {
    fn read(v: Item<'_>) -> Self {
        v.boolean()
    }
}

impl Read for String {
    fn read(v: Item<'_>) -> Self {
        v.string()
    }
}

impl Read for PathBuf {
    fn read(v: Item<'_>) -> Self {
        v.path()
    }
}

impl<T: Read> Read for Option<T> {
    fn read(v: Item<'_>) -> Self {
        Some(T::read(v))
    }
}

/// Wraps a reader for an optional field.
pub(crate) fn some<T>(read: impl Fn(Item<'_>) -> T) -> impl Fn(Item<'_>) -> Option<T> {
    move |v| Some(read(v))
}

macro_rules! numbers {
    ($($(#[$doc:meta])+ $name:ident = $least:expr, $most:expr;)+) => {
        $($(#[$doc])+ pub(crate) fn $name(v: Item<'_>) -> f64 {
            v.float(Range($least, $most))
        })+
    };
}

numbers! {
    /// Any finite number.
    finite = Unbounded, Unbounded;
    /// A number above 0.
    positive = Excluded(0.0), Unbounded;
    /// A number of at least 0.
    non_negative = Included(0.0), Unbounded;
    /// A number in [0, 1).
    below_one = Included(0.0), Excluded(1.0);
    /// A number in [0, 1].
    unit = Included(0.0), Included(1.0);
    /// A number in (0, 1].
    positive_unit = Excluded(0.0), Included(1.0);
    /// Seconds between two samples: from a hundredth of a second to a day.
    interval = Included(0.01), Included(86_400.0);
}

/// An integer of at least 1, such as a number of epochs.
pub(crate) fn count(v: Item<'_>) -> u64 {
    v.integer(1..=i64::MAX as u64)
}

/// An integer of at least 0.
pub(crate) fn count_or_zero(v: Item<'_>) -> u64 {
    v.integer(0..=i64::MAX as u64)
}

/// A number of rows, columns or units, at least 1.
pub(crate) fn size(v: Item<'_>) -> usize {
    v.size(1)
}
