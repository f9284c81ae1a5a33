//! Finds the character that separates the cells of a table.

use std::cmp::Reverse;

use super::{decimal::value, missing::MissingCells, text::Text};

/// Separators that are tried.
pub(super) const SEPARATORS: [char; 4] = [',', ';', '\t', '|'];

/// Records that are looked at to find the separator.
const FIRST: usize = 50;

/// Finds what separates the cells: of the separators that give all records the same number of cells, the one with the most numbers
/// below the first record, then with the fewest cells that hold another separator, then with the most cells. In `a;13,8;14,3` the
/// commas are marks of decimals: semicolons give two numbers, commas one.
pub(super) fn separated(mut text: Text) -> Text {
    let missing = [MissingCells::usual('.'), MissingCells::usual(',')];
    let is_number = |cell: &str| {
        ['.', ',']
            .iter()
            .zip(&missing)
            .any(|(mark, missing)| missing.has(cell) || value(cell, *mark).is_some())
    };
    let (mut delimiter, mut most) = (SEPARATORS[0], None);
    for candidate in SEPARATORS {
        text = text.separated_by(candidate);
        let records: Vec<_> = text.reader().into_records().take(FIRST).map_while(Result::ok).collect();
        let cells = records.first().map_or(0, csv::StringRecord::len);
        let is_even = cells > 1 && records.iter().all(|record| record.len() == cells);
        let (mut numbers, mut mixed) = (0, 0);
        let is_other = |mark| mark != candidate && SEPARATORS.contains(&mark);
        for cell in records.iter().skip(1).filter(|_| is_even).flatten().map(str::trim) {
            if is_number(cell) {
                numbers += 1;
            } else if cell.contains(is_other) {
                mixed += 1;
            }
        }
        let found = Some((is_even, numbers, Reverse(mixed), cells));
        if found > most {
            (delimiter, most) = (candidate, found);
        }
    }
    text.separated_by(delimiter)
}
