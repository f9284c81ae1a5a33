//! Training over the processes of a job. Rank 0 runs the session as on one host and uses the devices of the
//! other ranks like its own; the others plan the same trial and serve it.

use std::{sync::Arc, thread};

use serde::{Deserialize, Serialize};

use super::{
    Datasets, Exit,
    device_group::{executor, host_timeout, sum_limit},
    exit::held_output,
    prepare::Prepared,
    session::Session,
};
use crate::{
    collective::{CollectiveError, ProcessGroup, RankSum},
    data::{Dataset, Part},
    device::{Device, DeviceError, Purpose, RankLink, Store, remote},
    host,
    plan::{DatasetInfo, Machine, Trial},
    random::mix,
    units,
    vector::matmul::Kernel,
};

/// What a rank reports to rank 0 before it serves.
#[derive(Serialize, Deserialize)]
struct Report {
    /// Why it cannot serve, if so.
    failure: Option<String>,
    /// Names and values of everything that must be planned alike on all ranks.
    plan: Vec<(String, u64)>,
    /// A description of its processor, for the log.
    words: String,
}

/// Rank 0: waits until all others can serve the trial. Returns their descriptions, for the log.
pub fn wait_for_ranks(
    world: &ProcessGroup,
    trial: &Trial,
    dataset: &Dataset,
) -> Result<Vec<String>, DeviceError> {
    world.set_limit(host_timeout(trial));
    let own = plan_of(trial, dataset);
    let mut words =
        vec![format!("{} leads: {}, by {}", world.name_of(0), processor(trial), world.transport())];
    for rank in 1..world.size() {
        let frame = remote::ask_for_report(world, rank).map_err(|e| DeviceError::Remote(e.to_string()))?;
        let name = world.name_of(rank);
        let refused = |why: String| DeviceError::Remote(format!("`{name}` cannot take part: {why}"));
        let foreign = |_| refused("it is another version of this program".to_owned());
        let report: Report = serde_json::from_slice(&frame).map_err(foreign)?;
        if let Some(why) = report.failure {
            return Err(refused(why));
        }
        if let Some((what, _)) = own.iter().zip(&report.plan).find(|(a, b)| a != b).map(|(own, _)| own) {
            return Err(refused(format!("{what} are not those of `{}`", world.name_of(0))));
        }
        words.push(format!("{name}: {}", report.words));
    }
    Ok(words)
}

/// What must be equal on all ranks for their steps to be equal.
fn plan_of(trial: &Trial, dataset: &Dataset) -> Vec<(String, u64)> {
    let of = |text: String| text.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
    let programs: Vec<_> = trial.ranks().collect();
    // Each host decides for itself whether rows stay in their file, depending on its memory.
    let facts = DatasetInfo { file_row_bytes: None, ..trial.facts };
    vec![
        ("the keys of its spec".to_owned(), of(trial.spec.to_toml())),
        ("its data".to_owned(), of(dataset.digest.clone())),
        ("its steps".to_owned(), of(format!("{facts:?} {programs:?} {}", trial.steps))),
    ]
}

fn processor(trial: &Trial) -> String {
    let threads = units::counted(trial.threads as u64, "thread");
    let model = host::cpu_model().unwrap_or_else(|| "an unknown processor".to_owned());
    format!("{threads} of {model}, {}", Kernel::detect().name())
}

impl Session<'_, Trial> {
    /// On a rank other than 0: plans the trial and serves it until the job is over.
    ///
    /// # Errors
    /// Rank 0 is gone.
    pub fn serve(&self, machine: &Machine, world: &Arc<ProcessGroup>) -> Result<(), CollectiveError> {
        let Ok(prepared) = self.prepare(machine) else { return decline(world, &held_output()) };
        let trial = match prepared.first() {
            Some(Prepared::Run(trial)) if !self.is_sweep() => trial,
            Some(Prepared::Missing(problem)) => return decline(world, &problem.message),
            _ => return decline(world, "there is no one run"),
        };
        serve_trial(trial, &mut self.shared(), world)
    }
}

/// Serves a planned trial until the job is over.
///
/// # Errors
/// Rank 0 is gone.
pub fn serve_trial(
    trial: &Trial,
    datasets: &mut Datasets,
    world: &Arc<ProcessGroup>,
) -> Result<(), CollectiveError> {
    let dataset = match datasets.open(&trial.spec) {
        Ok(dataset) => dataset,
        Err(problems) => return decline(world, problems.first().map_or("", |problem| &problem.message)),
    };
    world.set_limit(host_timeout(trial));
    let device = match device(trial, world) {
        Ok(device) => device,
        Err(e) => return decline(world, &e.to_string()),
    };
    if !report(world, None, plan_of(trial, &dataset), processor(trial))? {
        return Ok(());
    }
    remote::serve(world, device, rows(trial, &dataset))
}

fn device(trial: &Trial, world: &Arc<ProcessGroup>) -> Result<Device, DeviceError> {
    let (rank, name) = (world.rank(), world.name_of(world.rank()));
    let own = trial.devices.used.iter().zip(trial.ranks()).nth(rank);
    let (place, programs) =
        own.ok_or_else(|| DeviceError::Unusable { device: name.clone(), why: "it has no share".to_owned() })?;
    let sum = RankSum::new(world, sum_limit(trial));
    let executor = executor(trial, *place, programs.clone(), RankLink::Host(Box::new(sum)))?;
    Ok(Device::new(name, executor))
}

/// The rows that go into each data buffer.
fn rows(trial: &Trial, dataset: &Dataset) -> Vec<(crate::op::BufferId, Purpose, Store)> {
    let layout = &trial.programs.layout;
    let part = |part: &Part, features, targets, purpose| {
        [
            (features, purpose, part.features.clone()),
            (targets, purpose, Store::Memory(Arc::clone(&part.targets))),
        ]
    };
    let train = part(&dataset.train, layout.train_features, layout.train_targets, Purpose::Batch);
    let validation = dataset.validation.iter().flat_map(|own| {
        part(own, layout.validation_features, layout.validation_targets, Purpose::Validation)
    });
    train.into_iter().chain(validation).collect()
}

/// Tells rank 0 why this rank cannot serve, and waits for the end of the job.
///
/// # Errors
/// Rank 0 is gone.
pub fn decline(world: &Arc<ProcessGroup>, why: &str) -> Result<(), CollectiveError> {
    // The first line is the message; the lines below show the spec, which rank 0 has too.
    let line = why.lines().next().unwrap_or("it was asked to end").trim_start_matches("error: ");
    if report(world, Some(line.to_owned()), Vec::new(), String::new())? {
        remote::wait_for_end(world)
    } else {
        Ok(())
    }
}

/// Waits for rank 0's question and answers whether this rank can serve; false if the job ended instead.
fn report(
    world: &ProcessGroup,
    failure: Option<String>,
    plan: Vec<(String, u64)>,
    words: String,
) -> Result<bool, CollectiveError> {
    // Serializing strings and integers cannot fail.
    let report = serde_json::to_vec(&Report { failure, plan, words }).unwrap_or_default();
    remote::report(world, report)
}

/// Ends this process's part of the job; returns its exit code.
pub fn leave(world: &Arc<ProcessGroup>, exit: Exit) -> Exit {
    if world.rank() == 0 {
        remote::end(world);
    }
    // Finalizing MPI waits for all ranks, and one of them may hang. It must run on the thread that
    // initialized it, so a watchdog limits the wait.
    let limit = world.limit();
    let watchdog = move || {
        thread::sleep(limit);
        exit.at_once()
    };
    let _ = thread::Builder::new().name("watchdog".to_owned()).spawn(watchdog); // else unlimited
    world.finish();
    if world.lost().is_some() { exit.at_once() } else { exit }
}
