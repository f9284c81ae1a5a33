//! Precision, recall and F1 of each class.

use std::cmp::Ordering;

use super::grid::{Column, Columns};
use crate::{record::text_table, train::ClassCounts, units};

/// Maximum classes of a table.
const MOST: usize = 20;

/// A row for each class. Of two classes the one with fewer rows comes first; of more than `MOST`, those with the
/// lowest F1.
pub struct ClassTable {
    pub(super) columns: Vec<Column>,
    /// A sentence about the classes that are not shown.
    pub(super) note: Option<String>,
}

impl ClassTable {
    /// `counts` are rows by actual and predicted class, row by row.
    pub fn new(names: &[String], counts: &[u64]) -> Self {
        let mut classes: Vec<_> = names.iter().zip(ClassCounts::all(counts, names.len())).collect();
        match classes.len() {
            2 => classes.sort_by_key(|(_, class)| class.rows),
            count if count > MOST => {
                let order = |class: &ClassCounts| (class.rows == 0, class.f1());
                classes.sort_by(|(_, a), (_, b)| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
            }
            _ => {}
        }
        let note = (classes.len() > MOST).then(|| {
            let all = units::count(classes.len() as u64);
            format!("{MOST} of {all} classes, those with the lowest f1; `runner evaluate --json` has all")
        });
        classes.truncate(MOST);
        let mut columns = Columns::new(&classes);
        columns.words("class", |(name, _)| (*name).clone());
        let rows = |rows| if rows > 0 { units::count(rows) } else { "none".to_owned() };
        columns.numbers("rows", |(_, class)| rows(class.rows));
        let mut figures = |title, figure: fn(&ClassCounts) -> f64| {
            columns.figures(title, units::number, |(_, class)| (class.rows > 0).then(|| figure(class)));
        };
        figures("precision", ClassCounts::precision);
        figures("recall", ClassCounts::recall);
        figures("f1", ClassCounts::f1);
        Self { columns: columns.all(), note }
    }

    /// Lines for a terminal.
    pub fn text(&self) -> String {
        let header: Vec<&str> = self.columns.iter().map(|column| &*column.title).collect();
        let rows = self.columns.first().map_or(0, |column| column.cells.len());
        let row = |row: usize| self.columns.iter().map(|column| column.cells[row].clone()).collect();
        let rows: Vec<Vec<String>> = (0..rows).map(row).collect();
        let lines = text_table::lines(&header, &rows, |place| place > 0);
        lines.iter().chain(&self.note).map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: u64) -> Vec<String> {
        (0..count).map(|class| format!("class {class}")).collect()
    }

    #[test]
    fn the_rarer_of_two_classes_is_first() {
        // [[8, 2], [1, 3]]: classification_report gives 0.6, 0.75, 0.6667 and 0.8889, 0.8, 0.8421.
        insta::assert_snapshot!(ClassTable::new(&names(2), &[8, 2, 1, 3]).text(), @r"
        class    rows  precision  recall      f1
        class 1     4     0.6000  0.7500  0.6667
        class 0    10     0.8889  0.8000  0.8421
        ");
        insta::assert_snapshot!(ClassTable::new(&names(3), &[8, 2, 0, 1, 1003, 0, 0, 0, 0]).text(), @r"
        class     rows  precision  recall      f1
        class 0     10     0.8889  0.8000  0.8421
        class 1  1,004     0.9980  0.9990  0.9985
        class 2   none
        ");
    }

    /// Class `n` of 30 has `n` rows right and one wrong.
    #[test]
    fn of_many_classes_the_worst_are_shown() {
        let mut counts = vec![0; 900];
        (0..30).for_each(|class| counts[31 * class] = class as u64);
        (0..30).for_each(|class| counts[30 * class + (class + 1) % 30] = 1);
        let text = ClassTable::new(&names(30), &counts).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 22, "{text}");
        assert!(lines[1].starts_with("class 0 ") && lines[20].starts_with("class 19 "), "{text}");
        assert_eq!(lines[21], "20 of 30 classes, those with the lowest f1; `runner evaluate --json` has all");
    }
}
