//! The table of configurations: repeats taken together, with medians and intervals.

use super::{configurations::Configuration, grid::Column, run::Run, statistics::Estimate};
use crate::units;

/// Above an interval.
pub(super) const INTERVAL: &str = "95 % interval";

/// Longer keys are shortened in a heading.
const LONG: usize = 24;

/// A row per configuration: axes, number of runs, median times and rates with their intervals, the ratio of the rates.
pub(super) fn columns(runs: &[Run], configurations: &[Configuration]) -> Vec<Column> {
    let cells = |cell: &dyn Fn(&Configuration) -> String| configurations.iter().map(cell).collect::<Vec<_>>();
    let mut columns = axes(configurations);
    columns.push(Column::of_numbers("runs", cells(&|c| c.places.len().to_string())));
    columns.push(Column::of_numbers("train time", cells(&|c| word(c.train_s, units::seconds))));
    columns.push(Column::of_numbers(INTERVAL, cells(&|c| interval(c.train_s, units::seconds))));
    columns.push(Column::of_numbers("steps/s", cells(&|c| word(c.steps_per_s, units::rate))));
    columns.push(Column::of_numbers(INTERVAL, cells(&|c| interval(c.steps_per_s, units::rate))));
    // Virtual devices share one processor: their times say nothing of real ones.
    let rate = |c: &Configuration| {
        let is_virtual = c.places.iter().any(|&place| runs[place].is_virtual());
        c.steps_per_s.map(|estimate| estimate.median).filter(|&rate| rate > 0.0 && !is_virtual)
    };
    if let Some(base) = configurations.first().and_then(rate).filter(|_| configurations.len() > 1) {
        let ratio =
            |c: &Configuration| rate(c).map_or_else(String::new, |rate| format!("{:.2}x", rate / base));
        columns.push(Column::of_numbers("ratio", cells(&ratio)));
    }
    columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
    columns
}

/// A column per axis.
pub(super) fn axes(configurations: &[Configuration]) -> Vec<Column> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in configurations.iter().flat_map(|c| &c.axes) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let value = |c: &Configuration, key: &str| {
        c.axes.iter().find(|(axis, _)| axis == key).map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
    };
    let heads: Vec<&str> = keys.iter().map(|key| short(key)).collect();
    let is_unique = |head: &str| heads.iter().filter(|other| **other == head).count() == 1;
    let head = |key| if is_unique(short(key)) { short(key) } else { key };
    let column = |key| Column::of_numbers(head(key), configurations.iter().map(|c| value(c, key)));
    keys.iter().copied().map(column).collect()
}

/// The last two words of a long key: `linear.out_features`.
fn short(key: &str) -> &str {
    let mut dots = key.rmatch_indices('.').map(|(at, _)| at);
    if key.len() <= LONG { key } else { dots.nth(1).map_or(key, |at| &key[at + 1..]) }
}

/// The median.
pub(super) fn word(estimate: Option<Estimate>, word: fn(f64) -> String) -> String {
    estimate.map(|estimate| word(estimate.median)).unwrap_or_default()
}

/// `2.31 to 2.55 ms`.
pub(super) fn interval(estimate: Option<Estimate>, word: fn(f64) -> String) -> String {
    let Some([low, high]) = estimate.and_then(|estimate| estimate.interval) else { return String::new() };
    let (low, high) = (word(low), word(high));
    // A unit that both have is said once.
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}
