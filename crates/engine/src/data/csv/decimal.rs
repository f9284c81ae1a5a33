//! The marks of a CSV file: between its cells, and before the decimals of its numbers.

/// The marks of a file whose author names them; `None`: those of the training file, or before there is one, as its cells look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// What separates its cells.
    pub delimiter: Option<char>,
    /// What stands before the decimals of its numbers.
    pub decimal: Option<char>,
}

/// The number that a text holds whose decimals come after `decimal`.
pub(super) fn value(text: &str, decimal: char) -> Option<f64> {
    match decimal {
        '.' => text.parse().ok(),
        // As in pandas, a point is part of no number then.
        _ if text.contains('.') => None,
        _ if text.contains(decimal) => text.replacen(decimal, ".", 1).parse().ok(),
        _ => text.parse().ok(),
    }
}

/// Whether a cell is a number with decimals after a comma, and not one such as `1,234` with a mark of thousands.
pub(super) fn has_decimal_comma(cell: &str) -> bool {
    let digits = cell.trim_start_matches(['-', '+']);
    digits.split_once(',').is_some_and(|(whole, decimals)| {
        let may_be_thousands =
            decimals.len() == 3 && (1..=3).contains(&whole.len()) && !whole.starts_with('0');
        !may_be_thousands && value(cell, ',').is_some()
    })
}
