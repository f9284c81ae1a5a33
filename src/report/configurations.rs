//! Repeats of a configuration taken together: medians, intervals, and what made them noisy.

use super::{run::Run, statistics::Estimate};
use crate::units;

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
    /// Training rows per second.
    pub(super) rows_per_s: Option<Estimate>,
    /// Part of the time that went into the log.
    pub(super) logging_share: Option<Estimate>,
    /// The training loss of the last step.
    pub(super) train_loss: Option<Estimate>,
    /// That of the last epoch, where only its mean is logged.
    pub(super) epoch_loss: Option<Estimate>,
    /// The last validation loss.
    pub(super) validation_loss: Option<Estimate>,
    /// The last validation's accuracy.
    pub(super) accuracy: Option<Estimate>,
}

impl Configuration {
    /// The values of its axes, or the number of its first run.
    pub(super) fn name(&self) -> String {
        let values: Vec<&str> = self.axes.iter().map(|(_, value)| value.as_str()).collect();
        match self.places.first() {
            Some(place) if values.is_empty() => format!("run {}", place + 1),
            _ => values.join(" "),
        }
    }

    fn new(runs: &[Run], places: Vec<usize>) -> Self {
        let estimate = |column: &str| {
            let values: Option<Vec<f64>> = places.iter().map(|&place| runs[place].number(column)).collect();
            Estimate::from_values(&values?)
        };
        let first = places.first().map(|&place| &runs[place].axes);
        let means = places.first().is_some_and(|&place| runs[place].has_epoch_means());
        let loss = estimate("final_train_loss");
        Self {
            axes: first.into_iter().flatten().filter(|(key, _)| key != REPEAT).cloned().collect(),
            train_s: estimate("train_s"),
            steps_per_s: estimate("steps_per_s"),
            rows_per_s: estimate("samples_per_s"),
            logging_share: estimate("logging_share"),
            train_loss: loss.filter(|_| !means),
            epoch_loss: loss.filter(|_| means),
            validation_loss: estimate("final_validation_loss"),
            accuracy: estimate("final_validation_accuracy"),
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
    groups.into_iter().map(|(_, places)| Configuration::new(runs, places)).collect()
}

/// The configurations by job: those of a sweep, whose axes tell them apart, are one, together with other sweeps that ran
/// some of the same; what was run on its own is another.
pub(super) fn jobs(runs: &[Run], configurations: &[Configuration]) -> Vec<Vec<Configuration>> {
    let mut jobs: Vec<(Vec<Option<&str>>, Vec<Configuration>)> = Vec::new();
    for configuration in configurations {
        let mut sweeps: Vec<Option<&str>> =
            configuration.places.iter().map(|&place| runs[place].sweep.as_deref()).collect();
        let shares =
            |(known, _): &(Vec<Option<&str>>, Vec<_>)| known.iter().any(|sweep| sweeps.contains(sweep));
        let (mut joined, others): (Vec<_>, Vec<_>) = jobs.drain(..).partition(shares);
        jobs = others;
        let mut members = Vec::new();
        for (known, own) in joined.drain(..) {
            sweeps.extend(known);
            sweeps.sort_unstable();
            sweeps.dedup();
            members.extend(own);
        }
        members.push(configuration.clone());
        jobs.push((sweeps, members));
    }
    let first = |members: &[Configuration]| members.iter().flat_map(|c| c.places.first().copied()).min();
    let mut jobs: Vec<_> = jobs.into_iter().map(|(_, members)| members).collect();
    jobs.sort_by_key(|members| first(members));
    jobs
}

/// The runs of one of several jobs: `, runs 1 to 4`; nothing where there is but one.
pub(super) fn runs_of(job: &[Configuration], jobs: usize) -> String {
    let mut numbers: Vec<usize> = job.iter().flat_map(|c| c.places.iter().map(|place| place + 1)).collect();
    numbers.sort_unstable();
    match numbers.len() {
        _ if jobs < 2 => String::new(),
        1 => format!(", run {}", units::numbers(&numbers)),
        _ => format!(", runs {}", units::numbers(&numbers)),
    }
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
