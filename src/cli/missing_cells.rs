//! The missing cells of a table, and what a drafted spec does about them.

use std::collections::{BTreeSet, HashSet};

use super::column_use::{Use, is_few_whole, is_of_numbers, use_of};
use crate::{
    data::{ColumnProfile, CsvProfile},
    host::escape_line,
    units,
};

/// Texts such as `-` among the numbers of a column stand for missing values, in all columns: unless one of them is a class of
/// the target or a category. `?` never is.
pub(super) fn take_markers_for_missing(profile: &mut CsvProfile, targets: &[usize]) {
    let CsvProfile { columns, rows, .. } = profile;
    let has_levels = |&(place, column): &(usize, &ColumnProfile)| match targets {
        [target] if *target == place => {
            let has_others = column.markers_among_numbers(*rows).next().is_none();
            has_others || !is_of_numbers(column, *rows) || is_few_whole(column, *rows)
        }
        _ => !targets.contains(&place) && use_of(column, *rows, false) == Use::Category,
    };
    let of_levels = columns.iter().enumerate().filter(has_levels);
    let levels: BTreeSet<String> =
        of_levels.flat_map(|(_, column)| column.markers()).map(str::to_ascii_lowercase).collect();
    let is_level = |text: &str| text != "?" && levels.contains(&text.to_ascii_lowercase());
    let of_numbers = columns.iter().filter(|column| is_of_numbers(column, *rows));
    let own = of_numbers.map(|column| column.markers_among_numbers(*rows).collect::<Vec<_>>());
    let markers = own.filter(|own| !own.iter().any(|text| is_level(text))).flatten();
    let markers: BTreeSet<String> = markers.map(str::to_owned).collect();
    columns.iter_mut().for_each(|column| column.take_for_missing(&markers));
}

/// The least percentage of missing cells for which an indicator is worth a try.
const OFTEN: usize = 5;

pub(super) struct MissingCells {
    /// Rows without a target, which nothing can be learned from.
    pub(super) rows_without_target: usize,
    /// Cells of features in the other rows: numbers, and texts.
    numbers: usize,
    texts: usize,
    /// Rows with a missing cell in any column that is used.
    rows: usize,
    /// Columns of numbers that often lack cells, with their shares of the rows with a target.
    often: Vec<(String, f64)>,
}

impl MissingCells {
    pub(super) fn new(targets: &[&ColumnProfile], uses: &[(&ColumnProfile, Use)], rows: usize) -> Self {
        let lost: HashSet<u32> = targets.iter().flat_map(|target| &target.missing).copied().collect();
        let rows_of = |wanted: Use| {
            let used = uses.iter().filter(move |(_, purpose)| *purpose == wanted);
            used.flat_map(|(column, _)| &column.missing).filter(|row| !lost.contains(*row))
        };
        let rows_left = rows - lost.len();
        let lacks = |column: &ColumnProfile| column.missing.iter().filter(|row| !lost.contains(*row)).count();
        let numbers = uses.iter().filter(|(_, purpose)| *purpose == Use::Number);
        let often = numbers.map(|(column, _)| (column.name.clone(), lacks(column)));
        let often = often.filter(|(_, count)| *count > 0 && 100 * count >= OFTEN * rows_left);
        let often = often.map(|(name, count)| (name, count as f64 / rows_left as f64)).collect();
        let others: HashSet<&u32> = rows_of(Use::Number).chain(rows_of(Use::Category)).collect();
        Self {
            rows_without_target: lost.len(),
            numbers: rows_of(Use::Number).count(),
            texts: rows_of(Use::Category).count(),
            rows: lost.len() + others.len(),
            often,
        }
    }

    /// The line on how they are handled.
    pub(super) fn line(&self) -> Option<String> {
        let cells = |count: usize| units::counted(count as u64, "missing cell");
        let rows = |count: usize| units::counted(count as u64, "row");
        let texts = match self.numbers {
            0 => cells(self.texts),
            _ => units::count(self.texts as u64),
        };
        let how: Vec<String> = [
            (self.rows_without_target, format!("drops {} without a target", rows(self.rows_without_target))),
            (self.numbers, format!("fills {}", cells(self.numbers))),
            (self.texts, format!("takes {texts} of text as a category")),
        ]
        .into_iter()
        .filter_map(|(count, words)| (count > 0).then_some(words))
        .collect();
        let other = match self.numbers + self.texts {
            0 => String::new(),
            _ => format!("; \"drop\" leaves {} out", rows(self.rows)),
        };
        (!how.is_empty()).then(|| format!("missing = \"mean\"    # {}{other}", how.join(", ")))
    }

    /// A comment on columns that often lack their number, which may itself tell something.
    pub(super) fn way_to_indicate(&self) -> Option<String> {
        let (name, share) = self.often.first()?;
        let name = escape_line(name);
        let which = match self.often.len() - 1 {
            0 => format!("`{name}` lacks {} of its cells", units::percent(*share)),
            more => {
                let others = units::counted(more as u64, "more column");
                format!("`{name}` and {others} lack {OFTEN} % of their cells or more")
            }
        };
        Some(format!("# {which}; `missing_indicators = true` also tells the model which cells are missing"))
    }
}
