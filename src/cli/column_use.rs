//! What a drafted spec uses each column of a table for, and why it leaves one out.

use crate::{data::ColumnProfile, units};

/// A text column with more categories than this is taken for names or prose.
const MOST_CATEGORIES: usize = 50;

/// Minimum average number of rows per class or category.
pub(super) const ROWS_EACH: usize = 5;

/// What a column is used for.
#[derive(PartialEq)]
pub(super) enum Use {
    Number,
    Category,
    /// Left out, with the reason.
    Ignored(String),
}

/// Whether its first text becomes a number without its commas.
pub(super) fn has_commas(column: &ColumnProfile) -> bool {
    column
        .text
        .as_ref()
        .is_some_and(|cell| cell.contains(',') && cell.replace(',', "").parse::<f64>().is_ok())
}

pub(super) fn commas(column: &ColumnProfile) -> String {
    format!("its numbers have commas{}, which are not read", example(column))
}

/// `, such as` its first text; nothing if all its cells are numbers.
fn example(column: &ColumnProfile) -> String {
    let text = column.text.as_ref();
    text.map(|cell| format!(", such as `{}`", shortened(cell))).unwrap_or_default()
}

/// A cell's first characters.
fn shortened(cell: &str) -> String {
    let (longest, cell) = (40, cell.escape_debug().to_string());
    match cell.char_indices().nth(longest) {
        Some((end, _)) => format!("{}...", &cell[..end]),
        None => cell,
    }
}

/// Whether a column of numbers and some other texts is one of numbers, rather than of categories.
pub(super) fn is_of_numbers(column: &ColumnProfile, rows: usize) -> bool {
    column.numbers > rows / 2 || !is_few(column, rows)
}

fn is_few(column: &ColumnProfile, rows: usize) -> bool {
    let distinct = column.distinct();
    distinct <= MOST_CATEGORIES && distinct * ROWS_EACH <= rows
}

/// What is wrong with a column of numbers and other cells.
pub(super) fn no_numbers(column: &ColumnProfile, rows: usize) -> String {
    let others = rows - column.missing - column.numbers;
    let verb = if others == 1 { "is" } else { "are" };
    let [others, all] = [others, rows].map(|count| units::count(count as u64));
    let what = match column.text.as_ref().filter(|_| column.is_one_text) {
        Some(text) => format!("`{}`, which is no finite number", shortened(text)),
        None => format!("no finite numbers{}", example(column)),
    };
    format!("{others} of its {all} cells {verb} {what}")
}

/// The reason for leaving a column out.
pub(super) fn reason(column: &ColumnProfile, purpose: &Use) -> Option<String> {
    let Use::Ignored(why) = purpose else { return None };
    Some(format!("`{}` is left out: {why}", column.name.escape_debug()))
}

pub(super) fn use_of(column: &ColumnProfile, rows: usize) -> Use {
    let distinct = column.distinct();
    let is_marked = column.numbers > 0 && column.is_one_text;
    Use::Ignored(match distinct {
        _ if has_commas(column) => commas(column),
        _ if column.name.is_empty() => "it has no name".to_owned(),
        0 => "it has no numbers and no text".to_owned(),
        1 => "all its values are equal".to_owned(),
        _ if column.is_numeric() && column.counts_rows => "it counts the rows".to_owned(),
        _ if column.is_numeric() => return Use::Number,
        _ if column.numbers > rows / 2 || (is_marked && is_of_numbers(column, rows)) => {
            no_numbers(column, rows) + "; `missing_values` names texts that stand for missing ones"
        }
        _ if is_few(column, rows) => return Use::Category,
        _ => {
            let more = if column.has_many() { " or more" } else { "" };
            let texts = units::count(distinct as u64);
            format!("it has {texts}{more} different texts{}: too many for categories", example(column))
        }
    })
}
