//! The table of configurations: repeats combined, with medians and intervals.

use std::collections::HashMap;

use crate::{
    files::Leaves,
    report::{
        axes::differences,
        comparison::Comparison,
        configurations::Configuration,
        grid::{self, Column, Columns},
        grouping::distinct,
        machines::Machine,
        metric::in_one_unit,
        run::{Run, varies_setting},
        speeds::{self, Speed},
        statistics::{Estimate, coverage},
    },
    units,
};

/// The heading for intervals of `counts` values each: the minimum probability with which they cover the true
/// median.
pub(in crate::report) fn interval_title(counts: impl Iterator<Item = usize> + Clone) -> String {
    let several = counts.filter(|count| *count > 1);
    let coverages = || several.clone().map(coverage);
    let (least, most) = (coverages().fold(1.0, f64::min), coverages().fold(0.0, f64::max));
    let at_least = if least < most { "≥ " } else { "" };
    format!("{at_least}{} interval", units::percent(least))
}

/// Keys longer than this are shortened in a heading.
const LONG: usize = 24;

/// Tables of combined repeats.
pub(in crate::report) struct Repeats {
    pub(in crate::report) times: Vec<Column>,
    /// Kept apart from the times, so that the width of measured values does not affect where this table is
    /// split.
    pub(in crate::report) losses: Vec<Column>,
    /// Number of columns that identify the rows, in both.
    pub(in crate::report) keys: usize,
}

impl Repeats {
    /// A row per configuration of a job: axes, number of runs, median times and rates with their intervals,
    /// the rate relative to the first configuration with the same data and model, and the last losses.
    pub(in crate::report) fn new(comparison: &Comparison, configurations: &[Configuration]) -> Self {
        let mut columns = axes(configurations);
        let names = configurations.iter().map(|c| &c.axes);
        if distinct(names).len() < configurations.len() {
            columns.insert(0, of_run(comparison, configurations));
        }
        columns.extend(threads(comparison, configurations));
        Self::by(columns, comparison, configurations)
    }

    /// A row per configuration of runs outside sweeps: the keys in which their specs differ, and the run
    /// numbers.
    pub(in crate::report) fn of_single(comparison: &Comparison, configurations: &[Configuration]) -> Self {
        let mut columns = vec![of_run(comparison, configurations)];
        columns.extend(keys(comparison, configurations));
        Self::by(columns, comparison, configurations)
    }

    fn by(mut keys: Vec<Column>, comparison: &Comparison, configurations: &[Configuration]) -> Self {
        let runs = &comparison.runs;
        let count = Configuration::count;
        keys.push(Column::of_numbers("runs", configurations.iter().map(|c| count(c).to_string())));
        if configurations.iter().any(|c| !c.unfinished.is_empty()) {
            let cells = configurations.iter().map(|c| c.unfinished.clone());
            keys.push(Column::of_numbers("others", cells));
        }
        let [mut times, mut losses] = [(); 2].map(|()| Columns::new(configurations));
        times.extend(keys.iter().cloned());
        losses.extend(keys.iter().cloned());
        let kinds = distinct(configurations.iter().map(|c| c.first(runs).kind()));
        let [_, time, rate] = grid::done(&kinds);
        let title = interval_title(configurations.iter().map(count));
        times.numbers(time, |c| word(c.estimate(runs, "train_s"), units::seconds));
        times.numbers(&title, |c| interval(c.estimate(runs, "train_s"), units::seconds));
        times.numbers(rate, |c| word(c.estimate(runs, "steps_per_s"), units::rate));
        times.numbers(&title, |c| interval(c.estimate(runs, "steps_per_s"), units::rate));
        times.extend([ratio_column(comparison, configurations, &kinds)]);
        let mut loss = |title: &str, unit: fn(f64) -> String, column: &str| {
            let estimate = |c: &Configuration| c.estimate_loss(runs, column);
            let varying = |c: &Configuration| varying(estimate(c));
            let counts = configurations.iter().filter_map(|c| Some(varying(c)?.count)).collect::<Vec<_>>();
            losses.numbers(title, |c| word(estimate(c), unit));
            losses.numbers(&interval_title(counts.into_iter()), |c| interval(varying(c), unit));
        };
        loss("train loss", units::number, "epoch_train_loss");
        loss("validation loss", units::number, "final_validation_loss");
        loss("validation accuracy", units::percent, "final_validation_accuracy");
        Self { times: times.known(), losses: losses.known(), keys: keys.len() }
    }

    /// Keeps the rows at these indices, in this order.
    pub(in crate::report) fn pick(&mut self, rows: &[usize]) {
        self.times.iter_mut().chain(&mut self.losses).for_each(|column| column.pick(rows));
    }

    /// As text for a terminal of `width` columns.
    pub(in crate::report) fn table(&self, width: u16) -> String {
        let times = grid::table(&self.times, self.keys, width);
        match self.losses.len() > self.keys {
            true => format!("{times}\n{}", grid::table(&self.losses, self.keys, width)),
            false => times,
        }
    }
}

/// The numbers of each configuration's runs.
fn of_run(comparison: &Comparison, configurations: &[Configuration]) -> Column {
    let numbers = configurations.iter().map(|c| comparison.numbers(&c.places));
    Column::of_numbers("of run", numbers)
}

/// Median speeds relative to the first configuration with the same work. If both ran in turns, ratios are
/// computed within each turn, like the speed-up of devices and the cost of a policy.
fn ratio_column(comparison: &Comparison, configurations: &[Configuration], kinds: &[&str]) -> Column {
    let runs = &comparison.runs;
    let speeds: Vec<Option<Speed<'_>>> = configurations.iter().map(|c| speed(runs, c)).collect();
    let machines: Vec<Machine<'_>> =
        configurations.iter().map(|c| Machine::from_run(c.first(runs))).collect();
    let mut ratios = speeds::ratios(&speeds, &machines);
    for (own, ratio) in configurations.iter().zip(&mut ratios) {
        let Some(ratio) = ratio else { continue };
        let within =
            own.within_turns(&configurations[ratio.base], runs, |run| speeds::speed(run).map(|s| s.rate));
        let within = Estimate::from_values(&within.iter().map(|(own, base)| own / base).collect::<Vec<_>>());
        ratio.times = within.map_or(ratio.times, |within| within.median);
    }
    let mut counts: HashMap<_, usize> = HashMap::new();
    configurations.iter().for_each(|c| *counts.entry(&c.axes).or_default() += 1);
    // By the values of its axes, unless it has none or others share them.
    let name = |c: &Configuration| {
        let values: Vec<&str> = c.axes.iter().map(|(_, value)| value.as_str()).collect();
        let is_shared = values.is_empty() || counts[&c.axes] > 1;
        if is_shared { comparison.numbers(&c.places[..1]) } else { values.join(" ") }
    };
    speeds::column(&ratios, kinds, |place| name(&configurations[place]))
}

fn speed<'a>(runs: &'a [Run], c: &Configuration) -> Option<Speed<'a>> {
    let means_something = c.places.iter().all(|&place| speeds::is_timed(&runs[place]));
    let work = speeds::work(c.first(runs)).filter(|_| means_something)?;
    let rate = c.estimate(runs, "samples_per_s").or_else(|| c.estimate(runs, "steps_per_s"))?.median;
    (rate > 0.0).then_some(Speed { work, rate })
}

/// Repeats with one seed end with the same loss, which needs no interval.
fn varying(estimate: Option<Estimate>) -> Option<Estimate> {
    estimate.filter(|estimate| estimate.interval.is_some_and(|[low, high]| low < high))
}

/// Maximum number of keys shown.
const MOST_KEYS: usize = 4;

/// A column for each key in which the specs of some configurations differ, if there are not too many, and for
/// their devices if those differ.
fn keys(comparison: &Comparison, configurations: &[Configuration]) -> Vec<Column> {
    let firsts: Vec<&Run> = configurations.iter().map(|c| c.first(&comparison.runs)).collect();
    let specs: Vec<(usize, &Leaves)> =
        firsts.iter().enumerate().filter_map(|(place, run)| Some((place, run.spec.as_ref()?))).collect();
    let found = differences::differences(&specs, |_| true);
    // Runs of several seeds are taken together.
    let tells = |key: &str| key != "description" && varies_setting(key) && !key.starts_with("devices.");
    let mut keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).filter(|key| tells(key)).collect();
    if keys.len() > MOST_KEYS {
        keys.retain(|key| ["kind", "name"].contains(key));
    }
    let column = |key: &str| {
        let value = |run: &&Run| run.axis(key).unwrap_or("-").to_owned();
        Column::of_numbers(short(key), firsts.iter().map(value))
    };
    let mut columns: Vec<Column> = keys.into_iter().map(column).collect();
    let devices: Vec<String> = firsts.iter().map(|run| comparison.devices_of(run)).collect();
    if devices.windows(2).any(|pair| pair[0] != pair[1]) {
        columns.push(Column::of_words("devices", devices));
    }
    columns
}

/// The devices, where runs were given different numbers of threads.
fn threads(comparison: &Comparison, configurations: &[Configuration]) -> Option<Column> {
    let devices = configurations.iter().map(|c| comparison.devices_of(c.first(&comparison.runs)));
    (!comparison.given_threads().is_empty()).then(|| Column::of_words("devices", devices))
}

/// A column per axis.
pub(in crate::report) fn axes(configurations: &[Configuration]) -> Vec<Column> {
    let keys = distinct(configurations.iter().flat_map(|c| &c.axes).map(|(key, _)| key.as_str()));
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

/// The median; a rate without a prefix has that of its interval.
pub(in crate::report) fn word(estimate: Option<Estimate>, word: fn(f64) -> String) -> String {
    let Some(Estimate { median, interval, .. }) = estimate else { return String::new() };
    match (word(median), interval) {
        (own, Some([_, high])) if !own.contains(' ') && word(high).contains(' ') => {
            let [own, _] = in_one_unit([median, high], word);
            own
        }
        (own, _) => own,
    }
}

/// `2.31 to 2.55 ms`.
pub(in crate::report) fn interval(estimate: Option<Estimate>, word: fn(f64) -> String) -> String {
    let Some([low, high]) = estimate.and_then(|estimate| estimate.interval) else { return String::new() };
    let [in_one, _] = in_one_unit([low, high], word);
    let (low, high) = (word(low), word(high));
    // Write a common unit only once.
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (None, Some((_, unit))) if in_one.ends_with(unit) => {
            format!("{} to {high}", in_one.trim_end_matches(unit).trim_end())
        }
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_and_its_interval_have_one_unit() {
        let words = |values: &[f64]| {
            let own = Estimate::from_values(values);
            [word(own, units::rate), interval(own, units::rate)]
        };
        assert_eq!(words(&[2804.0, 6356.0, 11_500.0]), ["6.36 k", "2.80 to 11.50 k"]);
        assert_eq!(words(&[12_000.0, 13_000.0]), ["12.50 k", "12.00 to 13.00 k"]);
        assert_eq!(words(&[500.0, 700.0, 900.0]), ["700.0", "500.0 to 900.0"]);
    }
}
