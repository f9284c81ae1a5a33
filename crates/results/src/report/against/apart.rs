//! What sets the shared settings of two sweeps apart, beside the axes that match them.

use crate::{
    report::{
        axes::{differences, is_inferred, is_of_record, names_same_rows},
        comparison::Comparison,
        grouping::distinct,
        metric::Metric,
        ranking::Candidate,
        run::{Run, varies_setting},
        tasks::Tasks,
    },
    units,
};

/// The names of the two sweeps.
pub(in crate::report) const SWEEPS: [&str; 2] = ["first", "second"];

/// Maximum values of a key in its line.
const MOST_VALUES: usize = 4;

/// The differences of two sweeps whose settings are matched.
pub(in crate::report) struct Apart {
    /// The sentence about settings that learn different tasks.
    pub(in crate::report) task: Option<String>,
    /// A line for each key of the spec: its values in either sweep.
    pub(in crate::report) spec: Vec<(String, String)>,
}

impl Apart {
    /// Of `pairs` of settings, compared by a metric, that have the same values of `keys`.
    pub(in crate::report) fn new(
        keys: &[String],
        pairs: &[[&Candidate; 2]],
        sweeps: [&Comparison; 2],
        metric: &Metric,
    ) -> Self {
        let of = |sweep: usize| {
            let places = pairs.iter().flat_map(move |pair| &pair[sweep].places);
            places.map(move |&place| sweeps[sweep].runs[place].clone())
        };
        let mut runs: Vec<Run> = of(0).collect();
        let count = runs.len();
        runs.extend(of(1));
        Self { task: task(pairs, &runs, count, metric), spec: spec(keys, &runs, count) }
    }
}

/// `2 tasks, whose losses are not comparable: the data differ (first; second)`, where a shared setting learns two. The first
/// `count` runs are those of the first sweep.
fn task(pairs: &[[&Candidate; 2]], runs: &[Run], count: usize, metric: &Metric) -> Option<String> {
    let tasks = Tasks::of_metric(runs, metric).unwrap_or_else(|| Tasks::new(runs));
    let by_run = tasks.by_run(runs.len());
    let mut next = [0, count];
    let is_apart = pairs.iter().any(|pair| {
        let [first, second] = next.map(|place| by_run[place]);
        next = [0, 1].map(|sweep| next[sweep] + pair[sweep].places.len());
        first != second
    });
    let name = |places: &[usize]| match places.iter().filter(|&&place| place < count).count() {
        0 => SWEEPS[1].to_owned(),
        own if own == places.len() => SWEEPS[0].to_owned(),
        _ => "both".to_owned(),
    };
    tasks.difference(name).filter(|_| is_apart)
}

fn spec(keys: &[String], runs: &[Run], count: usize) -> Vec<(String, String)> {
    let all: Vec<&Run> = runs.iter().collect();
    let is_told = |key: &str| {
        keys.iter().any(|shared| shared == key)
            || !varies_setting(key)
            || key == "name"
            || is_of_record(key)
            || is_inferred(key)
            || names_same_rows(key, &all)
    };
    let found = differences::spec(runs).into_iter().filter(|found| !is_told(&found.key));
    let lines = found.filter_map(|found| {
        let values = |is_first: bool| {
            let has = |numbers: &[usize]| numbers.iter().any(|number| (*number <= count) == is_first);
            let values = found.values.iter().filter(|(_, numbers)| has(numbers));
            let mut values = distinct(values.map(|(value, _)| value.as_deref().unwrap_or("absent")));
            values.sort_unstable();
            values
        };
        let values = [values(true), values(false)];
        let words = |(values, sweep): (&Vec<&str>, &str)| {
            let more = units::and_more(values.len().saturating_sub(MOST_VALUES));
            format!("{}{more} ({sweep})", values[..values.len().min(MOST_VALUES)].join(", "))
        };
        let words: Vec<String> = values.iter().zip(SWEEPS).map(words).collect();
        (values[0] != values[1]).then(|| (found.key.clone(), words.join("  ")))
    });
    lines.collect()
}
