//! The table's cells, by column, in words for people.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::{comparison::Comparison, run::Run};
use crate::units;

/// Axes shown in a table on the screen when they are merely what differs between specs; an export shows all.
const MOST_KEYS: usize = 4;

impl Column {
    /// Of numbers.
    pub(super) fn of_numbers(title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        Self { title: title.to_owned(), numeric: true, cells: cells.into_iter().collect() }
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// Its heading.
    pub(super) title: String,
    /// Whether it holds numbers, to stand on the right.
    pub(super) numeric: bool,
    /// One per run.
    pub(super) cells: Vec<String>,
}

/// The columns of a comparison: number, axes, figures. A column that no run has a cell for is left out.
pub(super) fn columns(comparison: &Comparison) -> Vec<Column> {
    let runs = &comparison.runs;
    let number = |column: &'static str, word: fn(f64) -> String| {
        move |run: &Run| run.number(column).map(word).unwrap_or_default()
    };
    let text =
        |column: &'static str| move |run: &Run| run.figure(column).unwrap_or_default().replace(';', " ");
    let whole = |value: f64| units::count(value as u64);
    let bytes = |value: f64| units::bytes(value as u64);
    let make = |title: &str, numeric: bool, cell: &dyn Fn(&Run) -> String| Column {
        title: title.to_owned(),
        numeric,
        cells: runs.iter().map(cell).collect(),
    };
    let mut columns = vec![Column {
        title: "run".to_owned(),
        numeric: true,
        cells: (1..=runs.len()).map(|place| place.to_string()).collect(),
    }];
    let swept = runs.iter().all(|run| !run.axes.is_empty());
    if swept || comparison.axes.len() <= MOST_KEYS {
        let axes = comparison.axes.iter();
        columns.extend(axes.map(|key| make(key, true, &|run| run.axis(key).unwrap_or("-").to_owned())));
    }
    columns.push(make("status", false, &|run| run.status.clone()));
    columns.push(make("devices", false, &text("devices_used")));
    columns.push(make("steps", true, &number("steps", whole)));
    columns.push(make("train loss", true, &number("final_train_loss", units::number)));
    columns.push(make("validation loss", true, &number("final_validation_loss", units::number)));
    columns.push(make("accuracy", true, &number("final_validation_accuracy", units::percent)));
    columns.push(make("train time", true, &number("train_s", units::seconds)));
    columns.push(make("steps/s", true, &number("steps_per_s", units::rate)));
    if comparison.ratios.iter().flatten().count() > 1 {
        let word = |ratio: &Option<f64>| ratio.map(|ratio| format!("{ratio:.2}x")).unwrap_or_default();
        let cells = comparison.ratios.iter().map(word).collect();
        columns.push(Column { title: "ratio".to_owned(), numeric: true, cells });
    }
    columns.push(make("logging", true, &number("logging_share", units::percent)));
    columns.push(make("h2d", true, &number("bytes_h2d", bytes)));
    columns.push(make("d2h", true, &number("bytes_d2h", bytes)));
    columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
    columns
}

/// Runs down and figures across; where that is too wide and the runs are few, the other way round.
pub(super) fn table(columns: &[Column], width: u16) -> String {
    let upright = draw(columns, None);
    let natural = upright.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    if natural <= usize::from(width) {
        return upright;
    }
    let runs = columns.first().map_or(0, |column| column.cells.len());
    if runs <= 4 { draw(&turned(columns), Some(width)) } else { draw(columns, Some(width)) }
}

/// The same with a row per figure.
fn turned(columns: &[Column]) -> Vec<Column> {
    let Some((first, rest)) = columns.split_first() else { return Vec::new() };
    let titles = Column {
        title: first.title.clone(),
        numeric: false,
        cells: rest.iter().map(|column| column.title.clone()).collect(),
    };
    let runs = first.cells.iter().enumerate().map(|(place, title)| Column {
        title: title.clone(),
        numeric: true,
        cells: rest.iter().map(|column| column.cells[place].clone()).collect(),
    });
    std::iter::once(titles).chain(runs).collect()
}

fn draw(columns: &[Column], width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.set_header(columns.iter().map(|column| column.title.as_str()));
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        table.add_row(columns.iter().map(|column| column.cells[row].as_str()));
    }
    for (drawn, column) in table.column_iter_mut().zip(columns) {
        drawn.set_cell_alignment(if column.numeric { CellAlignment::Right } else { CellAlignment::Left });
    }
    format!("{}\n", table.trim_fmt())
}
