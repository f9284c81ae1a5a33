//! Which classes a model takes for which others: a shaded matrix, or of many classes the most frequent confusions.

use std::cmp::Reverse;

use super::{
    Content,
    heat::{self, HeatMap},
    html::Html,
    table,
};
use crate::{
    report::{ClassTable, grid::Columns},
    units,
};

/// Maximum classes of a matrix, and confusions of a table.
const MOST: usize = 20;

/// Rows by their class and the predicted one.
pub(super) struct Matrix<'a> {
    /// The classes down, and across.
    pub(super) actual: &'a [String],
    pub(super) predicted: &'a [String],
    /// Row by row.
    pub(super) counts: &'a [u64],
}

impl Matrix<'_> {
    /// Whether it has the cells that its classes need.
    fn is_whole(&self) -> bool {
        self.counts.len() == self.actual.len() * self.predicted.len()
    }

    /// The cells of each actual class, and their shares of its rows.
    fn rows(&self) -> impl Iterator<Item = Vec<(u64, f64)>> + '_ {
        let shares = |row: &[u64]| {
            let rows = row.iter().sum::<u64>().max(1) as f64;
            row.iter().map(|count| (*count, *count as f64 / rows)).collect()
        };
        self.counts.chunks_exact(self.predicted.len().max(1)).map(shares)
    }

    /// Pairs of different classes with their rows, the most frequent first.
    fn confusions(&self) -> Vec<(&str, &str, u64, f64)> {
        let mut all = Vec::new();
        for (actual, row) in self.actual.iter().zip(self.rows()) {
            for (predicted, (count, share)) in self.predicted.iter().zip(row) {
                if count > 0 && actual != predicted {
                    all.push((actual.as_str(), predicted.as_str(), count, share));
                }
            }
        }
        all.sort_by_key(|(.., count, _)| Reverse(*count));
        all
    }
}

impl Content<'_> {
    /// Adds the figures of each class and the matrix; `of` says of which rows, by which weights.
    pub(super) fn confusion(&mut self, of: &str, matrix: &Matrix<'_>) {
        if !matrix.is_whole() {
            return;
        }
        if matrix.actual == matrix.predicted {
            self.section("classes", "Classes", |_, html| {
                let table = ClassTable::new(matrix.actual, matrix.counts);
                table::table(html, "How well each class is predicted", &table.columns);
                let note = table.note.map(|note| format!("; {note}")).unwrap_or_default();
                html.prose("note", &format!("{of}{note}."));
            });
        }
        let is_small = matrix.actual.len().max(matrix.predicted.len()) <= MOST;
        let title = if is_small { "Confusion matrix" } else { "Confusions" };
        self.section("confusion", title, |content, html| match is_small {
            true => content.matrix(html, of, matrix),
            false => confusions(html, of, matrix),
        });
    }

    fn matrix(&mut self, html: &mut Html, of: &str, matrix: &Matrix<'_>) {
        let cells: Vec<_> = matrix.rows().collect();
        let place = |names: &[String], name: &str| names.iter().position(|known| known == name);
        // Shades are shares of the actual class, so that rare classes are visible too.
        let cell = |row: &str, column: &str| {
            let (count, share) = cells[place(matrix.actual, row)?][place(matrix.predicted, column)?];
            let own = if count > 0 { format!("\n{}", units::percent(share)) } else { String::new() };
            Some((format!("{}{own}", units::count(count)), (share * heat::SHADES) as usize))
        };
        let caption =
            "Rows by actual class (down) and predicted class (across), with their share of the actual class";
        let [rows, columns] = [matrix.actual, matrix.predicted]
            .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        let (name, axes) = ("confusion", ["actual", "predicted"]);
        self.heat_table(html, &HeatMap { name, caption, axes, rows: &rows, columns: &columns }, cell);
        html.prose("note", &format!("{of}."));
    }
}

/// The table of the most frequent ones.
fn confusions(html: &mut Html, of: &str, matrix: &Matrix<'_>) {
    let mut all = matrix.confusions();
    let found = all.len();
    all.truncate(MOST);
    let mut columns = Columns::new(&all);
    columns.words("actual", |(actual, ..)| (*actual).to_owned());
    columns.words("predicted", |(_, predicted, ..)| (*predicted).to_owned());
    columns.numbers("rows", |(.., count, _)| units::count(*count));
    columns.figures("share of the actual class", units::percent, |(.., share)| Some(*share));
    let classes = units::count(matrix.actual.len() as u64);
    match found {
        0 => html.prose("note", &format!("No class of {classes} is taken for another.")),
        _ => table::table(html, "Classes that are taken for others, the most frequent first", &columns.all()),
    }
    let cut = if found > MOST {
        format!("; {MOST} of {} are shown", units::count(found as u64))
    } else {
        String::new()
    };
    html.prose("note", &format!("{of}: confusions of {classes} classes{cut}."));
}
