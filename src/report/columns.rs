//! The cells of a comparison, by column, in words for people.

use super::{
    best,
    comparison::Comparison,
    grid::{Column, Columns, done},
    run::Run,
    speeds,
};
use crate::units;

/// Axes shown in a table on the screen when they are merely what differs between specs; an export shows all.
const MOST_KEYS: usize = 4;

/// Where there are more keys, only these are shown.
const TELLING: [&str; 2] = ["kind", "name"];

/// The columns of a comparison: number, axes, figures. Runs are called `thing`, and counted from `first`.
pub(super) fn columns(comparison: &Comparison, thing: &str, first: usize) -> Vec<Column> {
    let runs = &comparison.runs;
    let number = |column: &'static str, word: fn(f64) -> String| {
        move |run: &Run| run.number(column).map(word).unwrap_or_default()
    };
    let mut columns = Columns::new(runs);
    columns.extend([Column::of_numbers(thing, (first..first + runs.len()).map(|number| number.to_string()))]);
    let swept = runs.iter().all(|run| !run.axes.is_empty());
    let shown = |key: &&String| {
        swept
            || comparison.axes.len() <= MOST_KEYS
            || TELLING.contains(&key.as_str())
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
    columns.numbers(steps, number("steps", |value| units::count(value as u64)));
    columns.numbers("train loss", number("epoch_train_loss", units::number));
    columns.numbers("validation loss", number("final_validation_loss", units::number));
    columns.extend([best::column(runs)]);
    columns.numbers("validation accuracy", number("final_validation_accuracy", units::percent));
    columns.numbers(time, number("train_s", units::seconds));
    columns.numbers(rate, number("steps_per_s", units::rate));
    columns
        .extend([speeds::column(&comparison.ratios(), &kinds, |place| format!("{thing} {}", place + first))]);
    columns.numbers("logging", number("logging_share", units::percent));
    columns.numbers("h2d", number("bytes_h2d", |value| units::bytes(value as u64)));
    columns.numbers("d2h", number("bytes_d2h", |value| units::bytes(value as u64)));
    columns.known()
}
