//! Tables on the screen, built from columns.

use std::iter;

use super::grouping::distinct;
use crate::{host::escape_line, record::text_table};

/// The headings for the number, time and rate of a run's steps.
pub(super) fn done(kinds: &[&str]) -> [&'static str; 3] {
    match kinds {
        [] | ["train"] => ["steps", "train time", "steps/s"],
        ["matmul"] => ["products", "time", "products/s"],
        ["transfer"] => ["copies", "time", "copies/s"],
        ["tensors"] => ["steps", "time", "steps/s"],
        _ => ["work", "time", "work/s"],
    }
}

/// Maximum runs shown side by side, one column each.
const MOST_SIDE_BY_SIDE: usize = 4;

/// A column of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Column {
    pub(super) title: String,
    /// Whether it holds numbers, which are right-aligned.
    pub(super) numeric: bool,
    /// One cell per row.
    pub(super) cells: Vec<String>,
    /// The values before rounding, by which a page sorts; empty if the cells are exact.
    pub(super) exact: Vec<Option<f64>>,
}

impl Column {
    /// Width in characters, including the space around it.
    fn width(&self) -> usize {
        let cells = self.cells.iter().chain([&self.title]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0) + 2
    }

    /// Keeps the cells at these indices, in this order.
    pub(super) fn pick(&mut self, rows: &[usize]) {
        self.cells = rows.iter().map(|&row| self.cells[row].clone()).collect();
        self.exact = rows.iter().filter_map(|&row| self.exact.get(row).copied()).collect();
    }

    /// A left-aligned column of text.
    pub(super) fn of_words(title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        Self { title: title.to_owned(), cells: cells.into_iter().collect(), ..Self::default() }
    }

    /// A right-aligned column.
    pub(super) fn of_numbers(title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        Self { numeric: true, ..Self::of_words(title, cells) }
    }

    /// The same column with its values before rounding.
    pub(super) fn with_exact(self, exact: impl IntoIterator<Item = Option<f64>>) -> Self {
        Self { exact: exact.into_iter().collect(), ..self }
    }
}

/// Builds columns over a list of rows.
pub(super) struct Columns<'a, T> {
    rows: &'a [T],
    columns: Vec<Column>,
}

impl<'a, T> Columns<'a, T> {
    pub(super) fn new(rows: &'a [T]) -> Self {
        Self { rows, columns: Vec::new() }
    }

    pub(super) fn numbers(&mut self, title: &str, cell: impl Fn(&T) -> String) {
        self.columns.push(Column::of_numbers(title, self.rows.iter().map(cell)));
    }

    pub(super) fn words(&mut self, title: &str, cell: impl Fn(&T) -> String) {
        self.columns.push(Column::of_words(title, self.rows.iter().map(cell)));
    }

    /// Adds a column of numbers, rounded by `word`.
    pub(super) fn figures(
        &mut self,
        title: &str,
        word: impl Fn(f64) -> String,
        figure: impl Fn(&T) -> Option<f64>,
    ) {
        let figures = || self.rows.iter().map(&figure);
        let cells = figures().map(|figure| figure.map(&word).unwrap_or_default());
        self.columns.push(Column::of_numbers(title, cells).with_exact(figures()));
    }

    pub(super) fn extend(&mut self, columns: impl IntoIterator<Item = Column>) {
        self.columns.extend(columns);
    }

    pub(super) fn all(self) -> Vec<Column> {
        self.columns
    }

    /// The columns that are not empty.
    pub(super) fn known(mut self) -> Vec<Column> {
        self.columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
        self.columns
    }
}

/// A table with a row per run. If it is too wide, few runs are shown side by side instead; with many runs,
/// the columns are split into blocks, each of which starts with the first `keys` columns, which identify the
/// rows.
pub(super) fn table(columns: &[Column], keys: usize, width: u16) -> String {
    let columns = &escaped(columns);
    let width = usize::from(width);
    let fits = |text: &String| text.lines().all(|line| line.chars().count() <= width);
    let upright = draw(columns);
    if fits(&upright) {
        return upright;
    }
    let runs = columns.first().map_or(0, |column| column.cells.len());
    let turned = Some(()).filter(|()| runs <= MOST_SIDE_BY_SIDE).map(|()| draw(&turned(columns)));
    match turned.filter(fits) {
        Some(turned) => turned,
        None => {
            let blocks = fold(columns, keys, width);
            blocks.iter().map(|block| draw(block)).collect::<Vec<_>>().join("\n")
        }
    }
}

/// A table with the runs side by side, whatever its width.
pub(super) fn side_by_side(columns: &[Column]) -> String {
    draw(&turned(&escaped(columns)))
}

/// Escapes control characters in names and values that come from files.
fn escaped(columns: &[Column]) -> Vec<Column> {
    let escape = |text: &String| escape_line(text).into_owned();
    let column = |column: &Column| Column {
        title: escape(&column.title),
        cells: column.cells.iter().map(escape).collect(),
        ..column.clone()
    };
    columns.iter().map(column).collect()
}

/// Width in characters of a table with these columns.
pub(super) fn width(columns: &[Column]) -> usize {
    columns.iter().map(Column::width).sum::<usize>().saturating_sub(1)
}

/// Splits columns into blocks, each starting with the keys, no wider than `width` where possible. Where a block would be wider, the
/// first key, if it tells rows apart, stands for all in the later ones.
fn fold(columns: &[Column], keys: usize, width: usize) -> Vec<Vec<Column>> {
    let (keys, rest) = columns.split_at(keys.min(columns.len()));
    let widest = rest.iter().map(Column::width).max().unwrap_or(0);
    let is_wide = self::width(keys) + widest > width;
    let is_told = |key: &Column| distinct(key.cells.iter()).len() == key.cells.len();
    let later = if is_wide && keys.first().is_some_and(is_told) { &keys[..1] } else { keys };
    let mut blocks: Vec<Vec<Column>> = Vec::new();
    let mut used = usize::MAX;
    for column in rest {
        // No space follows the last column of a line.
        if used.saturating_add(column.width() - 1) > width {
            let keys = if blocks.is_empty() { keys } else { later };
            used = keys.iter().map(Column::width).sum();
            blocks.push(keys.to_vec());
        }
        used += column.width();
        blocks.last_mut().into_iter().for_each(|block| block.push(column.clone()));
    }
    blocks
}

/// Transposes the table: one row per figure.
pub(super) fn turned(columns: &[Column]) -> Vec<Column> {
    let Some((first, rest)) = columns.split_first() else { return Vec::new() };
    let titles = Column::of_words(&first.title, rest.iter().map(|column| column.title.clone()));
    let runs = first.cells.iter().enumerate().map(|(place, title)| {
        Column::of_numbers(title, rest.iter().map(|column| column.cells[place].clone()))
    });
    iter::once(titles).chain(runs).collect()
}

fn draw(columns: &[Column]) -> String {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let titles = columns.iter().map(|column| column.title.as_str()).collect();
    let cells = |row: usize| columns.iter().map(|column| column.cells[row].as_str()).collect();
    let all: Vec<Vec<&str>> = iter::once(titles).chain((0..rows).map(cells)).collect();
    let lines = text_table::aligned(&all, |place| columns[place].numeric);
    lines.iter().map(|line| format!("{}\n", format!(" {line}").trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(rows: usize) -> Vec<Column> {
        let column =
            |title: &str, cell: &str| Column::of_numbers(title, (0..rows).map(|i| format!("{cell}{i}")));
        let titles = [("run", ""), ("optimizer.sgd.lr", "0.0"), ("steps", "1,00"), ("train loss", "0.123")];
        titles.map(|(title, cell)| column(title, cell)).to_vec()
    }

    #[test]
    fn a_wide_table_of_few_runs_is_turned_and_of_many_folded() {
        insta::assert_snapshot!(table(&columns(2), 1, 41), @r"
         run  optimizer.sgd.lr  steps  train loss
           0              0.00  1,000      0.1230
           1              0.01  1,001      0.1231
        ");
        insta::assert_snapshot!(table(&columns(2), 1, 40), @r"
         run                    0       1
         optimizer.sgd.lr    0.00    0.01
         steps              1,000   1,001
         train loss        0.1230  0.1231
        ");
        insta::assert_snapshot!(table(&columns(5), 1, 40), @r"
         run  optimizer.sgd.lr  steps
           0              0.00  1,000
           1              0.01  1,001
           2              0.02  1,002
           3              0.03  1,003
           4              0.04  1,004

         run  train loss
           0      0.1230
           1      0.1231
           2      0.1232
           3      0.1233
           4      0.1234
        ");
        // Keys that leave no room are in the first block alone.
        let titles = |keys, width| -> Vec<Vec<String>> {
            let blocks = fold(&columns(5), keys, width);
            blocks.iter().map(|own| own.iter().map(|column| column.title.clone()).collect()).collect()
        };
        let first = ["run", "optimizer.sgd.lr", "steps"];
        assert_eq!(titles(2, 34), [first, ["run", "optimizer.sgd.lr", "train loss"]]);
        assert_eq!(titles(2, 33), [&first[..], &["run", "train loss"]]);
        // A column is never split, however narrow the terminal is.
        let narrow = table(&columns(5), 1, 1);
        assert!(narrow.contains(" run  optimizer.sgd.lr\n   0              0.00\n"), "{narrow}");
        assert_eq!(narrow.lines().filter(|line| line.contains("run")).count(), 3);
    }
}
