//! Readers by type, and those of numbers in a range.

use std::path::PathBuf;

use super::{Item, Range};

/// A type that has one way to be read.
pub(in crate::spec) trait Read: Sized {
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

/// A field that may be left out.
pub(in crate::spec) fn some<T>(read: impl Fn(Item<'_>) -> T) -> impl Fn(Item<'_>) -> Option<T> {
    move |v| Some(read(v))
}

/// Any finite number.
pub(in crate::spec) fn finite(v: Item<'_>) -> f64 {
    v.float(Range::Finite)
}

/// A number above 0.
pub(in crate::spec) fn positive(v: Item<'_>) -> f64 {
    v.float(Range::Positive)
}

/// A number of at least 0.
pub(in crate::spec) fn non_negative(v: Item<'_>) -> f64 {
    v.float(Range::NonNegative)
}

/// A number in [0, 1).
pub(in crate::spec) fn below_one(v: Item<'_>) -> f64 {
    v.float(Range::BelowOne)
}

/// A number in [0, 1].
pub(in crate::spec) fn unit(v: Item<'_>) -> f64 {
    v.float(Range::Unit)
}

/// An integer of at least 1, such as a number of epochs.
pub(in crate::spec) fn count(v: Item<'_>) -> u64 {
    v.integer(1..=i64::MAX as u64)
}

/// An integer of at least 0.
pub(in crate::spec) fn count_or_zero(v: Item<'_>) -> u64 {
    v.integer(0..=i64::MAX as u64)
}

/// A number of rows, columns or units, at least 1.
pub(in crate::spec) fn size(v: Item<'_>) -> usize {
    v.size(1)
}
