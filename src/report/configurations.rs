//! Repeats of a configuration taken together: medians, intervals, and what made them noisy.

use super::{run::Run, statistics::Estimate};

/// The axis that numbers a sweep's repeats.
pub(super) const REPEAT: &str = "repeat";

/// Keys of the spec in which repeats differ, or that change nothing about what is run.
const NOT_THE_CONFIGURATION: [&str; 3] = ["name", "description", "seed"];

/// Keys of the environment that make another machine.
const THE_MACHINE: [&str; 4] = ["cpu.model", "cpu.instruction_set", "host.threads", "devices.used"];

/// Runs of the same spec but for the seed, on the same machine.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    /// The sweep's axes but the repeat, with their values.
    pub(super) axes: Vec<(String, String)>,
    /// Places of its finished runs.
    pub(super) places: Vec<usize>,
    /// Seconds of training, validation excluded.
    pub(super) train_s: Option<Estimate>,
    /// Steps per second.
    pub(super) steps_per_s: Option<Estimate>,
    /// Part of the time that went into the log.
    pub(super) logging_share: Option<Estimate>,
}

impl Configuration {
    fn of(runs: &[Run], places: Vec<usize>) -> Self {
        let estimate = |column: &str| {
            let values: Option<Vec<f64>> = places.iter().map(|&place| runs[place].number(column)).collect();
            Estimate::of(&values?)
        };
        let first = places.first().map(|&place| &runs[place].axes);
        Self {
            axes: first.into_iter().flatten().filter(|(key, _)| key != REPEAT).cloned().collect(),
            train_s: estimate("train_s"),
            steps_per_s: estimate("steps_per_s"),
            logging_share: estimate("logging_share"),
            places,
        }
    }
}

/// The configurations of finished runs, in the order of their first run.
pub(super) fn configurations(runs: &[Run]) -> Vec<Configuration> {
    let mut groups: Vec<(Identity<'_>, Vec<usize>)> = Vec::new();
    for (place, run) in runs.iter().enumerate().filter(|(_, run)| run.status == "finished") {
        let identity = identity(run);
        match groups.iter_mut().find(|(known, _)| *known == identity) {
            Some((_, places)) => places.push(place),
            None => groups.push((identity, vec![place])),
        }
    }
    groups.into_iter().map(|(_, places)| Configuration::of(runs, places)).collect()
}

/// What two repeats have in common: keys and values.
type Identity<'a> = Vec<(&'a str, &'a str)>;

fn identity(run: &Run) -> Identity<'_> {
    let axes = run.axes.iter().filter(|(key, _)| key != REPEAT);
    let spec = run.spec.iter().flatten().filter(|(key, _)| !NOT_THE_CONFIGURATION.contains(&key.as_str()));
    let machine = run.environment.iter().flatten().filter(|(key, _)| THE_MACHINE.contains(&key.as_str()));
    let pairs = axes.map(|(key, value)| (key, value)).chain(spec).chain(machine);
    pairs.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// Whether one of them was run more than once.
pub(super) fn has_repeats(configurations: &[Configuration]) -> bool {
    configurations.iter().any(|configuration| configuration.places.len() > 1)
}
