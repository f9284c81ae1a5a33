//! The best value of a run's monitored metric, and the best trial of a sweep.

use super::{
    configurations::Configuration,
    run::{REPEAT, Run},
    tasks::Tasks,
};
use crate::units;

/// Axes that leave what is learned as it is, but for the last bits.
const OTHERWISE: [&str; 3] = ["devices.", "logging.", "data.placement"];

/// `0.1000 in epoch 7`; nothing where nothing was validated.
pub(super) fn best(run: &Run) -> String {
    let known = run.number("best_value").zip(run.figure("best_epoch"));
    known.map(|(value, epoch)| format!("{} in epoch {epoch}", in_words(run, value))).unwrap_or_default()
}

fn in_words(run: &Run, value: f64) -> String {
    if run.monitors_accuracy() { units::percent(value) } else { units::number(value) }
}

/// `best: trial 3, lr=0.01, validation loss 0.1000 in epoch 7`; with repeats the setting with the best median. `None` where
/// trials learn different tasks or by different metrics, or no axis concerns what is learned.
pub(super) fn best_trial(runs: &[Run], configurations: &[Configuration], tasks: &Tasks) -> Option<String> {
    let concerns = |key: &str| key != REPEAT && !OTHERWISE.iter().any(|other| key.starts_with(other));
    let mut axes = runs.iter().flat_map(|run| &run.axes);
    let value = |c: &Configuration| Some(c.estimate(runs, "best_value")?.median);
    let mut values: Vec<(f64, &Configuration)> =
        configurations.iter().filter_map(|c| Some((value(c)?, c))).collect();
    let first = values.first()?.1.first(runs);
    let more_is_better = first.monitors_accuracy();
    let is_alike = runs.iter().all(|run| run.monitors_accuracy() == more_is_better);
    if !is_alike || tasks.difference().is_some() || !axes.any(|(key, _)| concerns(key)) {
        return None;
    }
    let cost = |value: f64| if more_is_better { -value } else { value };
    values.sort_by(|a, b| cost(a.0).total_cmp(&cost(b.0)));
    let least = values.first()?.0;
    values.retain(|(value, _)| *value == least);
    let run = values[0].1.first(runs);
    let metric = if more_is_better { "validation accuracy" } else { "validation loss" };
    let repeats = values[0].1.count();
    let value = match repeats {
        1 => format!("{metric} {}", best(run)),
        repeats => format!("median {metric} {} of {repeats} repeats", in_words(run, least)),
    };
    Some(match values.len() {
        1 => {
            let name =
                if repeats == 1 { format!("trial {}, ", values[0].1.places[0]) } else { String::new() };
            format!("best: {name}{}, {value}", setting(&values[0].1.axes))
        }
        alike => format!("best: {alike} settings alike, {metric} {}", in_words(run, least)),
    })
}

/// `lr=0.01, width=32`: axes by the last word of their keys, where that says which.
fn setting(axes: &[(String, String)]) -> String {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let name = |key: &String| {
        let is_unique = axes.iter().filter(|(other, _)| last(other) == last(key)).count() == 1;
        if is_unique { last(key) } else { key.clone() }
    };
    axes.iter().map(|(key, value)| format!("{}={value}", name(key))).collect::<Vec<_>>().join(", ")
}
