//! The columns of a comparison, with cells formatted for people.

use super::{
    best,
    comparison::Comparison,
    grid::{Column, Columns, done},
    grouping::distinct,
    run::Run,
    speeds,
};
use crate::units;

/// Maximum number of axes in a table on the screen if they are just what differs between specs; an export has
/// all of them.
const MOST_KEYS: usize = 4;

/// If more keys differ, only these are shown.
const SHOWN_OF_MANY: [&str; 2] = ["kind", "name"];

/// The columns of a comparison: number, axes, figures. A run is called `thing`, and the first one has the
/// number `first`.
pub(super) fn columns(comparison: &Comparison, thing: &str, first: usize) -> Vec<Column> {
    let runs = &comparison.runs;
    let number = |column: &'static str| move |run: &Run| run.number(column);
    let mut columns = Columns::new(runs);
    columns.extend([Column::of_numbers(thing, (first..first + runs.len()).map(|number| number.to_string()))]);
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
        Some(place) => format!("same as {thing} {}", place + first),
        None => run.status.clone(),
    });
    columns.words("devices", Run::devices);
    columns.figures(steps, |value| units::count(value as u64), number("steps"));
    columns.figures("train loss", units::number, number("epoch_train_loss"));
    columns.figures("validation loss", units::number, number("final_validation_loss"));
    columns.extend([best::column(runs)]);
    columns.figures("validation accuracy", units::percent, number("final_validation_accuracy"));
    columns.figures(time, units::seconds, number("train_s"));
    columns.figures(rate, units::rate, number("steps_per_s"));
    columns
        .extend([speeds::column(&comparison.ratios(), &kinds, |place| format!("{thing} {}", place + first))]);
    columns.figures("logging", units::percent, number("logging_share"));
    columns.figures("h2d", |value| units::bytes(value as u64), number("bytes_h2d"));
    columns.figures("d2h", |value| units::bytes(value as u64), number("bytes_d2h"));
    columns.known()
}

/// The same with the metrics that runs log beside the loss, as in the last validation.
pub(super) fn with_logged(comparison: &Comparison) -> Vec<Column> {
    let mut columns = columns(comparison, "run", 1);
    let Some(loss) = columns.iter().position(|column| column.title == "validation loss") else {
        return columns;
    };
    let runs = &comparison.runs;
    let names = runs.iter().flat_map(Run::logged_names).filter(|name| name.starts_with("validation."));
    let mut logged = Columns::new(runs);
    for name in distinct(names) {
        let value = |run: &Run| run.learned_last(name)?.parse().ok();
        logged.figures(&name.replace('.', " "), units::number, value);
    }
    columns.splice(loss + 1..loss + 1, logged.known());
    columns
}
