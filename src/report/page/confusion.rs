//! The confusion matrix of a run that holds the file that `runner evaluate --confusion` writes.

use std::path::Path;

use super::{Content, table};
use crate::{report::csv_file, units};

/// Classes in a table.
const MOST_CLASSES: usize = 40;

impl Content<'_> {
    /// Adds the matrix of a single run.
    pub(super) fn confusion(&mut self) {
        if self.comparison.runs.len() != 1 {
            return;
        }
        let file = self.file_of(0, "confusion.csv", |path: &Path| csv_file::read(path).map(Some));
        let Some(file) = file.filter(|file| file.rows.len() <= MOST_CLASSES) else { return };
        let predicted: Vec<&str> = file.columns.iter().skip(1).collect();
        let actual: Vec<&str> = file.rows.iter().filter_map(|row| row.get(0)).collect();
        // Shades are shares of the actual class, so that rare classes are seen, too.
        let cell = |row: &str, column: &str| {
            let row = &file.rows[actual.iter().position(|name| *name == row)?];
            let counts = row.iter().skip(1).map(|count| count.parse::<u64>().unwrap_or(0));
            let count: u64 = row.get(1 + predicted.iter().position(|name| *name == column)?)?.parse().ok()?;
            let share = count as f64 / (counts.sum::<u64>().max(1)) as f64;
            Some((units::count(count), (share * table::SHADES) as usize))
        };
        self.section("confusion", "Confusion matrix", |_, html| {
            let caption = "Rows by actual class (down) and predicted class (across)";
            table::heat_map(html, caption, ("actual \\ predicted", &actual, &predicted), cell);
        });
    }
}
