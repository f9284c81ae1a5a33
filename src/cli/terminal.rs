//! Text for standard output, as wide as its terminal.

use crate::record::{folded, output_width};

/// Width of the terminal in columns, or of a page if there is none.
pub(super) fn terminal_width() -> u16 {
    output_width().unwrap_or(120)
}

/// The text for standard output: folded if that is a terminal.
pub(super) fn fit(text: &str) -> String {
    match output_width() {
        Some(width) => text.lines().map(|line| folded(line, width.into()) + "\n").collect(),
        None => text.to_owned(),
    }
}
