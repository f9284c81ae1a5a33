//! The table of configurations: repeats taken together, with medians and intervals.

use super::{
    configurations::Configuration,
    grid::{self, Column},
    run::Run,
    statistics::Estimate,
};
use crate::units;

/// Above an interval.
pub(super) const INTERVAL: &str = "95 % interval";

/// Longer keys are shortened in a heading.
const LONG: usize = 24;

/// Repeats taken together.
pub(super) struct Repeats {
    columns: Vec<Column>,
    /// Columns that tell the rows apart.
    keys: usize,
}

impl Repeats {
    /// A row per configuration of a job: axes, number of runs, median times and rates with their intervals, the ratio of
    /// the rates to that of the first of the same data and model, the last losses.
    pub(super) fn of(runs: &[Run], configurations: &[Configuration]) -> Self {
        let cells =
            |cell: &dyn Fn(&Configuration) -> String| configurations.iter().map(cell).collect::<Vec<_>>();
        let mut columns = axes(configurations);
        columns.push(Column::of_numbers("runs", cells(&|c| c.places.len().to_string())));
        let keys = columns.len();
        columns.push(Column::of_numbers("train time", cells(&|c| word(c.train_s, units::seconds))));
        columns.push(Column::of_numbers(INTERVAL, cells(&|c| interval(c.train_s, units::seconds))));
        columns.push(Column::of_numbers("steps/s", cells(&|c| word(c.steps_per_s, units::rate))));
        columns.push(Column::of_numbers(INTERVAL, cells(&|c| interval(c.steps_per_s, units::rate))));
        columns.push(Column::of_numbers("ratio", ratios(runs, configurations)));
        let losses: [(&str, fn(&Configuration) -> Option<Estimate>, fn(f64) -> String); 3] = [
            ("train loss", |c| c.train_loss, units::number),
            ("validation loss", |c| c.validation_loss, units::number),
            ("accuracy", |c| c.accuracy, units::percent),
        ];
        for (title, estimate, unit) in losses {
            columns.push(Column::of_numbers(title, cells(&|c| word(estimate(c), unit))));
            columns.push(Column::of_numbers(INTERVAL, cells(&|c| interval(varying(estimate(c)), unit))));
        }
        columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
        Self { columns, keys }
    }

    /// For a terminal of `width` columns.
    pub(super) fn table(&self, width: u16) -> String {
        grid::table(&self.columns, self.keys, width)
    }
}

/// Virtual devices share one processor: their times say nothing of real ones, so they have no ratio and give none.
fn ratios(runs: &[Run], configurations: &[Configuration]) -> Vec<String> {
    let first = |c: &Configuration| c.places.first().map(|&place| &runs[place]);
    let work = |c: &Configuration| first(c).and_then(Run::work);
    let rate = |c: &Configuration| {
        let is_virtual = c.places.iter().any(|&place| runs[place].is_virtual());
        c.steps_per_s.map(|estimate| estimate.median).filter(|&rate| rate > 0.0 && !is_virtual)
    };
    let ratio = |c: &Configuration| {
        let own = work(c);
        let mut same = configurations.iter().filter(|other| work(other) == own);
        let base = rate(same.next()?)?;
        same.next()?;
        Some(format!("{:.2}x", rate(c)? / base))
    };
    configurations.iter().map(|c| ratio(c).unwrap_or_default()).collect()
}

/// Repeats of one seed end in the same loss, which needs no interval.
fn varying(estimate: Option<Estimate>) -> Option<Estimate> {
    estimate.filter(|estimate| estimate.interval.is_some_and(|[low, high]| low < high))
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
