//! Parses cells of a long file as numbers.

use std::str::{self, FromStr};

/// The message about a malformed cell.
pub(super) fn wrong(cell: &[u8], column: &str, what: &str) -> String {
    format!("`{}` in column `{column}` {what}", String::from_utf8_lossy(cell))
}

/// Whether a row with this `split` belongs to a validation.
pub(super) fn is_validation(split: &[u8]) -> Result<bool, String> {
    match split {
        b"train" => Ok(false),
        b"validation" => Ok(true),
        _ => Err(wrong(split, "split", "is neither `train` nor `validation`")),
    }
}

/// A cell as a number.
pub(super) fn parsed<T: FromStr>(cell: &[u8]) -> Option<T> {
    str::from_utf8(cell).ok()?.parse().ok()
}
