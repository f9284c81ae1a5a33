//! The cells of a comparison, by column, in words for people.

use super::{
    comparison::Comparison,
    grid::{Column, EPOCH_MEAN, LAST_STEP, done},
    run::Run,
    speeds,
};
use crate::units;

/// Axes shown in a table on the screen when they are merely what differs between specs; an export shows all.
const MOST_KEYS: usize = 4;

/// Where there are more keys, only these are shown.
const TELLING: [&str; 2] = ["kind", "name"];

/// The columns of a comparison: number, axes, figures. A column that no run has a cell for is left out. Runs are called
/// `thing`, and counted from `first`.
pub(super) fn columns(comparison: &Comparison, thing: &str, first: usize) -> Vec<Column> {
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
        title: thing.to_owned(),
        numeric: true,
        cells: (first..first + runs.len()).map(|number| number.to_string()).collect(),
    }];
    let swept = runs.iter().all(|run| !run.axes.is_empty());
    let shown = |key: &&String| {
        swept
            || comparison.axes.len() <= MOST_KEYS
            || TELLING.contains(&key.as_str())
            || runs.iter().any(|run| run.axes.iter().any(|(axis, _)| axis == *key))
    };
    let axes = comparison.axes.iter().filter(shown);
    columns.extend(axes.map(|key| make(key, true, &|run| run.axis(key).unwrap_or("-").to_owned())));
    let [steps, time, rate] = done(&comparison.kinds());
    let train_loss = |means: bool| {
        let loss = number("final_train_loss", units::number);
        move |run: &Run| if run.has_epoch_means() == means { loss(run) } else { String::new() }
    };
    columns.push(make("status", false, &|run| match comparison.original(run) {
        Some(place) => format!("same as {thing} {}", place + first),
        None => run.status.clone(),
    }));
    columns.push(make("devices", false, &text("devices_used")));
    columns.push(make(steps, true, &number("steps", whole)));
    columns.push(make(LAST_STEP, true, &train_loss(false)));
    columns.push(make(EPOCH_MEAN, true, &train_loss(true)));
    columns.push(make("validation loss", true, &number("final_validation_loss", units::number)));
    columns.push(make("validation accuracy", true, &number("final_validation_accuracy", units::percent)));
    columns.push(make(time, true, &number("train_s", units::seconds)));
    columns.push(make(rate, true, &number("steps_per_s", units::rate)));
    columns.push(speeds::column(&comparison.ratios, |place| format!("{thing} {}", place + first)));
    columns.push(make("logging", true, &number("logging_share", units::percent)));
    columns.push(make("h2d", true, &number("bytes_h2d", bytes)));
    columns.push(make("d2h", true, &number("bytes_d2h", bytes)));
    columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
    columns
}
