//! What a drafted spec uses each column of a table for, and why it leaves one out.

use super::column_names::{ROWS_TO_DOUBT, is_of_group, is_of_identity, is_of_time, is_of_weight};
use crate::{
    data::{ColumnProfile, RowOrder},
    host::escape_line,
    units,
};

/// A column of whole numbers with more distinct values than this is not taken for classes.
pub(super) const MOST_CLASSES: usize = 20;

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

/// Whether a target holds classes: text, or few distinct whole numbers.
pub(super) fn is_class(column: &ColumnProfile, rows: usize) -> bool {
    !column.is_numeric() || is_few_whole(column, rows)
}

pub(super) fn is_few_whole(column: &ColumnProfile, rows: usize) -> bool {
    let distinct = column.distinct();
    column.is_whole && distinct <= MOST_CLASSES && distinct * ROWS_EACH <= rows
}

/// Whether its first text becomes a number without the marks that are none of decimals: commas, or points where commas are.
pub(super) fn has_marks(column: &ColumnProfile) -> bool {
    let Some(cell) = &column.text else { return false };
    if column.decimal != ',' {
        return cell.contains(',') && cell.replace(',', "").parse::<f64>().is_ok();
    }
    let (whole, _) = cell.split_once(',').unwrap_or((cell, ""));
    let points = cell.matches('.').count();
    // A date such as 31.12.2024 is no number.
    let is_of_thousands = whole.split('.').skip(1).all(|digits| digits.len() == 3);
    let digits = cell.replace('.', "").replacen(',', ".", 1);
    (points == 1 || (points > 1 && is_of_thousands)) && digits.parse::<f64>().is_ok()
}

/// The reason not to use such a column.
pub(super) fn marks(column: &ColumnProfile) -> String {
    let marks = if column.decimal == ',' { "points" } else { "commas" };
    format!("its numbers have {marks}{}{}, which are not read", example(column), column.text_place)
}

/// What to do about such a column.
pub(super) fn way_with_marks(column: &ColumnProfile, is_parquet: bool) -> &'static str {
    // Where others have decimals after the mark, it is the right one.
    let is_sure = is_parquet || !column.is_whole;
    match column.decimal {
        ',' if is_sure => "write decimals with a comma, thousands without a mark",
        ',' => {
            "write decimals with a comma, thousands without a mark; `--decimal .` if decimals come after points"
        }
        _ if is_sure => "write decimals with a point, thousands without a mark",
        _ => {
            "write decimals with a point, thousands without a mark; `--decimal ,` if decimals come after commas"
        }
    }
}

/// Whether all its texts are numbers with a sign of percent or of a currency.
pub(super) fn has_units(column: &ColumnProfile) -> bool {
    const UNITS: [char; 5] = ['%', '€', '$', '£', '¥'];
    let is_number = |text: &str| text.replace(',', "").parse::<f64>().is_ok();
    if column.is_numeric() {
        return false;
    }
    let mut texts = column.values().map(|(text, _)| text).filter(|text| !is_number(text)).peekable();
    let is_it = |text: &str| is_number(text.trim_matches(|letter| UNITS.contains(&letter) || letter == ' '));
    texts.peek().is_some() && texts.all(is_it)
}

pub(super) fn units_of_numbers(column: &ColumnProfile) -> String {
    format!("its numbers have signs beside them{}, which are not read", example(column))
}

/// `, such as` its first text; nothing if all its cells are numbers.
fn example(column: &ColumnProfile) -> String {
    let text = column.text.as_ref();
    text.map(|cell| format!(", such as `{}`", shortened(cell))).unwrap_or_default()
}

/// A cell's first characters.
fn shortened(cell: &str) -> String {
    let (longest, cell) = (40, escape_line(cell));
    match cell.char_indices().nth(longest) {
        Some((end, _)) => format!("{}...", &cell[..end]),
        None => cell.into_owned(),
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
    let others = rows - column.missing.len() - column.numbers;
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
    Some(format!("`{}` is left out: {why}", escape_line(&column.name)))
}

pub(super) fn use_of(column: &ColumnProfile, rows: usize, is_parquet: bool) -> Use {
    let distinct = column.distinct();
    let is_marked = column.numbers > 0 && column.is_one_text;
    Use::Ignored(match distinct {
        _ if has_marks(column) => format!("{}; {}", marks(column), way_with_marks(column, is_parquet)),
        _ if has_units(column) => units_of_numbers(column),
        _ if column.name.is_empty() => "it has no name".to_owned(),
        0 => "it has no numbers and no text".to_owned(),
        1 => "all its values are equal".to_owned(),
        _ if column.is_numeric() && column.counts_rows => "it counts the rows".to_owned(),
        _ if column.is_numeric() && column.is_nearly_unique && is_of_identity(&column.name, rows) => {
            "by its name it identifies rows, and nearly every row has another number".to_owned()
        }
        _ if column.is_numeric() => return Use::Number,
        _ if column.numbers > rows / 2 || (is_marked && is_of_numbers(column, rows)) => {
            no_numbers(column, rows) + "; `missing_values` names texts that stand for missing ones"
        }
        _ if is_few(column, rows) => return Use::Category,
        _ if column.has_dates() => {
            let example = example(column);
            format!(
                "it has dates{example}: what a model can use is numbers, such as year, month or days since the first"
            )
        }
        _ if is_beyond_f32(column) => format!("it has numbers beyond the range of f32{}", example(column)),
        _ => {
            let more = if column.different == 0 { " or more" } else { "" };
            let texts = units::count(distinct.max(column.different) as u64);
            let group = if repeats(column, rows) {
                "; if rows with equal ones belong together, name it `group`"
            } else {
                ""
            };
            format!("it has {texts}{more} different texts{}: too many for categories{group}", example(column))
        }
    })
}

/// Whether the first cell that cannot be used is a number that is too large.
fn is_beyond_f32(column: &ColumnProfile) -> bool {
    let number = column.text.as_ref().and_then(|text| text.parse::<f64>().ok());
    number.is_some_and(|value| value.abs() > f64::from(f32::MAX))
}

/// A sentence on a feature that may be an identifier, or a weight of rows.
pub(super) fn doubt(column: &ColumnProfile, purpose: &Use, rows: usize) -> Option<String> {
    let name = escape_line(&column.name);
    let may_group = is_of_identity(&column.name, rows) || is_of_group(column);
    if !matches!(purpose, Use::Ignored(_)) && may_group && repeats(column, rows) {
        return Some(format!(
            "`{name}` may say which rows belong together; if it does, `group` in place of a feature keeps them in one part"
        ));
    }
    if *purpose == Use::Number && is_of_weight(&column.name) {
        return Some(format!(
            "`{name}` may say how much each row counts; if it does, `weight` in place of a feature has losses and metrics of numbers \
             count rows so"
        ));
    }
    let is_doubtful = *purpose == Use::Number && column.is_nearly_unique && rows >= ROWS_TO_DOUBT;
    is_doubtful.then(|| {
        format!(
            "`{name}` may identify rows: nearly every row has another whole number; if it does, `ignore` leaves it out"
        )
    })
}

/// A sentence on rows in the order of a column of dates.
pub(super) fn order_of<'a>(
    mut columns: impl Iterator<Item = &'a ColumnProfile>,
    rows: usize,
) -> Option<String> {
    let is_it = |own: &&ColumnProfile| {
        (own.are_times || is_of_time(&own.name)) && own.order.is_some() && !is_of_identity(&own.name, rows)
    };
    let times = columns.find(is_it)?;
    let how = match times.order {
        Some(RowOrder::Descending) => ", from the latest to the earliest: if you turn them round,",
        _ => ":",
    };
    Some(format!(
        "rows are in the order of `{}`{how} `data.split.shuffle=false` judges by the last of them, and with `data.folds=5 \
         data.fold=0..5` by five later parts in turn",
        escape_line(&times.name)
    ))
}

/// Whether a value stands in two rows or more, on average.
fn repeats(column: &ColumnProfile, rows: usize) -> bool {
    column.different > 0 && column.different * 2 <= rows
}

/// Sentences on the cells of a feature; `telling` is that on one that tells the target, whose far numbers are then no mistakes.
pub(super) fn oddities(column: &ColumnProfile, purpose: &Use, telling: Option<&str>) -> Vec<String> {
    let telling = telling.map(str::to_owned);
    match purpose {
        Use::Number => {}
        Use::Category => return alike("categories", column).into_iter().chain(telling).collect(),
        Use::Ignored(_) => return Vec::new(),
    }
    let dates = column.are_dates.then(|| {
        format!(
            "`{}` has dates written as numbers: between the last of a month and the next first they leap; count days instead, or \
             `ignore` it",
            escape_line(&column.name)
        )
    });
    telling.or_else(|| column.outliers.clone()).into_iter().chain(dates).collect()
}

/// Sentences on the cells of a target.
pub(super) fn oddities_of_target(column: &ColumnProfile, is_class: bool, rows: usize) -> Vec<String> {
    if !is_class {
        return column.outliers.iter().cloned().collect();
    }
    let name = escape_line(&column.name);
    let classes = sorted(column);
    let many = (classes.len() > MOST_CATEGORIES).then(|| {
        let [count, rows] = [classes.len(), rows].map(|count| units::count(count as u64));
        let more = if column.has_many() { " or more" } else { "" };
        let first = classes.first().map(|class| shortened(class)).unwrap_or_default();
        format!(
            "`{name}` has {count}{more} classes, such as `{first}`, in {rows} rows: does it hold classes?"
        )
    });
    alike("classes", column).into_iter().chain(many).collect()
}

/// The values of a column, those that differ in case alone beside each other.
fn sorted(column: &ColumnProfile) -> Vec<&str> {
    let mut values: Vec<&str> = column.values().map(|(value, _)| value).collect();
    values.sort_unstable_by_key(|value| (value.to_lowercase(), *value));
    values
}

/// A sentence on values, which are called `what`, that differ in case alone.
fn alike(what: &str, column: &ColumnProfile) -> Option<String> {
    let values = sorted(column);
    let groups = values.chunk_by(|a, b| a.to_lowercase() == b.to_lowercase()).filter(|group| group.len() > 1);
    let groups = groups.map(|group| {
        group.iter().map(|value| format!("`{}`", escape_line(value))).collect::<Vec<_>>().join(", ")
    });
    let groups = groups.take(MOST_CATEGORIES).collect::<Vec<_>>().join("; ");
    let name = escape_line(&column.name);
    (!groups.is_empty()).then(|| format!("{what} of `{name}` differ in case alone: {groups}"))
}
