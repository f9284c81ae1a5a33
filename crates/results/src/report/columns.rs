//! The columns of a comparison, with cells formatted for people.

use super::{
    best,
    comparison::Comparison,
    grid::{Column, Columns, done},
    grouping::distinct,
    logged::Logged,
    run::Run,
    speeds,
};
use crate::units;

/// Maximum number of axes in a table on the screen if they are just what differs between specs; an export has
/// all of them.
const MOST_KEYS: usize = 4;

/// If more keys differ, only these are shown.
const SHOWN_OF_MANY: [&str; 2] = ["kind", "name"];

const LAST_ACCURACY: &str = "last validation accuracy";

/// The columns of a comparison: number, axes, figures.
pub(super) fn columns(comparison: &Comparison) -> Vec<Column> {
    let runs = &comparison.runs;
    let mut columns = Columns::new(runs);
    let name = |place| comparison.numbers(&[place]);
    let number = |place| name(place).trim_start_matches('#').to_owned();
    columns.extend([Column::of_numbers("#", (0..runs.len()).map(number))]);
    let number = |column: &'static str| move |run: &Run| run.number(column);
    let swept = runs.iter().all(|run| !run.axes.is_empty());
    let shown = |key: &&String| {
        swept
            || comparison.axes.len() <= MOST_KEYS
            || SHOWN_OF_MANY.contains(&key.as_str())
            || runs.iter().any(|run| run.axes.iter().any(|(axis, _)| axis == *key))
    };
    for key in comparison.axes.iter().filter(shown) {
        columns.numbers(key, |run| run.axis(key).unwrap_or("-").to_owned());
    }
    let kinds = comparison.kinds();
    let [steps, time, rate] = done(&kinds);
    let originals = comparison.originals();
    let original = |run: &Run| originals.get(run.twin.as_deref()?);
    columns.words("status", |run| match original(run) {
        Some(place) => format!("same as {}", name(*place)),
        None => run.status.clone(),
    });
    columns.words("devices", |run| comparison.devices_of(run));
    columns.figures(steps, |value| units::count(value as u64), number("steps"));
    columns.figures("train loss", units::number, number("epoch_train_loss"));
    columns.figures("last validation loss", units::number, number("final_validation_loss"));
    columns.extend([best::column(runs)]);
    columns.figures(LAST_ACCURACY, units::percent, number("final_validation_accuracy"));
    columns.figures(time, units::seconds, number("train_s"));
    columns.figures(rate, units::rate, number("steps_per_s"));
    columns.extend([speeds::column(&comparison.ratios(), &kinds, name)]);
    columns.figures("logging", units::percent, number("logging_share"));
    // Within the CPU's memory nothing is copied.
    let moved =
        |column| move |run: &Run| run.number(column).filter(|bytes| *bytes > 0.0 || run.devices() != "cpu");
    columns.figures("h2d", |value| units::bytes(value as u64), moved("bytes_h2d"));
    columns.figures("d2h", |value| units::bytes(value as u64), moved("bytes_d2h"));
    columns.known()
}

/// The same of few runs: beside the best value the other metrics of that validation, at which the best weights were kept.
pub(super) fn with_best(comparison: &Comparison) -> Vec<Column> {
    let (runs, mut columns) = (&comparison.runs, columns(comparison));
    let title = best::column(runs).title;
    let Some(best) = columns.iter().position(|column| column.title == title) else { return columns };
    let validations: Vec<Logged> = runs.iter().map(Run::best_validation).collect();
    let rows: Vec<(&Run, &Logged)> = runs.iter().zip(&validations).collect();
    let mut others = Columns::new(&rows);
    for name in distinct(validations.iter().flat_map(Logged::keys)) {
        let full = format!("validation.{name}");
        let value = |(run, validation): &(&Run, &Logged)| {
            validation.get(name).filter(|_| run.monitor() != full)?.parse().ok()
        };
        let word = if name == "accuracy" { units::percent } else { units::number };
        others.figures(&format!("best epoch's {name}"), word, value);
    }
    columns.retain(|column| column.title != LAST_ACCURACY);
    columns.splice(best + 1..best + 1, others.known());
    columns
}
