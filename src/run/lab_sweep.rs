//! The end of a sweep over products or copies: one table of all trials, and how each ended. Trials with equal work get a
//! ratio of their speeds.

use std::{fmt::Write, path::Path};

use super::TrialEnded;
use crate::{
    event::{Outcome, Status},
    host,
    plan::{
        DeviceId,
        lab::{CopyPlan, LabTrial, Work},
    },
    record::{LabTable, TrialEnd},
    spec::{Experiment, Lab, LabSpec, lab::Order},
    units,
};

type Ended<'a> = TrialEnded<'a, LabTrial>;

/// The spec with the default order, which means nothing for a single device.
pub(super) fn without_order(mut spec: LabSpec) -> LabSpec {
    if let Lab::Matmul(matmul) = &mut spec.lab {
        matmul.order = Order::Sequential;
    }
    spec
}

/// The table, a line per trial, the folder.
pub fn text(experiment: &Experiment<LabSpec>, trials: &[Ended<'_>], folder: &Path) -> String {
    let (mut table, mut any_virtual) = (LabTable::default(), false);
    let mut lines = String::new();
    for ((index, ended), spec) in trials.iter().enumerate().zip(&experiment.trials) {
        if let Some((planned, _, own)) = &ended.ran {
            any_virtual |= planned.devices.any_virtual();
            table.extend(own.clone().of_trial(index, &spec.axes));
        }
        let end = match (&ended.end, &ended.ran) {
            (TrialEnd::SameAs { trial, .. }, _) => format!("same_as trial {trial}, not run twice"),
            (TrialEnd::Skipped { reason }, _) => format!("skipped: {reason}"),
            (TrialEnd::Ran { .. }, None) => "failed".to_owned(),
            (TrialEnd::Ran { .. }, Some((planned, outcome, _))) => {
                // Only trials of this repeat: other repeats have other random factors.
                let before = trials[..index].iter().enumerate();
                let before = before.filter(|(i, _)| experiment.trials[*i].repeat == spec.repeat);
                ended_in_words(outcome) + &ratio(planned, outcome, before)
            }
        };
        let _ = writeln!(lines, "  trial {index}: {end}"); // a String takes every write
    }
    table.note_doubts(any_virtual, host::BUILD);
    let name = experiment.trials.first().map_or("", |trial| &trial.spec.name);
    let count = units::counted(experiment.trials.len() as u64, "trial");
    format!("{table}{name}: {count}\n{lines}  folder {}\n", folder.display())
}

/// `finished in 12.3 ms`, `interrupted in 12.3 ms: Ctrl-C (SIGINT) after 3 of 10 products`; the reason of a failure is
/// printed as an error.
fn ended_in_words(outcome: &Outcome) -> String {
    let reason = outcome.reason.as_ref().filter(|_| outcome.status == Status::Interrupted);
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} in {}{reason}", outcome.status.name(), units::seconds(outcome.train_s))
}

/// Products or copies per second against the first trial that did the same work.
fn ratio<'a>(
    planned: &LabTrial,
    outcome: &Outcome,
    before: impl Iterator<Item = (usize, &'a Ended<'a>)>,
) -> String {
    let Some(own) = speed(planned, outcome) else { return String::new() };
    let mut others = before.filter_map(|(trial, ended)| {
        let (other, outcome, _) = ended.ran.as_ref()?;
        Some((trial, speed(other, outcome).filter(|_| same_work(other, planned))?))
    });
    others
        .next()
        .map_or(String::new(), |(trial, speed)| format!(", {:.2}x as fast as trial {trial}", own / speed))
}

/// Products or copies per second of a finished trial; `None` on virtual devices, which share one processor.
fn speed(planned: &LabTrial, outcome: &Outcome) -> Option<f64> {
    let whole = outcome.status == Status::Finished && outcome.train_s > 0.0;
    (whole && !planned.devices.any_virtual()).then_some(outcome.steps as f64 / outcome.train_s)
}

/// Whether two trials do equal work, ignoring devices, order and logging policy.
fn same_work(a: &LabTrial, b: &LabTrial) -> bool {
    let same = match (&a.work, &b.work) {
        (Work::Matmul { shapes: x, .. }, Work::Matmul { shapes: y, .. }) => {
            x == y && a.devices.used.len() == b.devices.used.len()
        }
        (Work::Transfer(x), Work::Transfer(y)) => {
            let is_host = |place| place == DeviceId::Cpu;
            let way = |c: &CopyPlan| (is_host(c.from), is_host(c.to), c.from == c.to, c.memory);
            x.iter().map(way).eq(y.iter().map(way))
        }
        // Steps over tensors measure nothing.
        _ => false,
    };
    let without = |spec: &LabSpec| {
        let mut spec = without_order(spec.clone());
        (spec.devices, spec.logging) = (a.spec.devices.clone(), None);
        spec
    };
    same && without(&a.spec) == without(&b.spec)
}
