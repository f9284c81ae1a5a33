//! Training over the processes of a job. Rank 0 runs the session as on one host and uses the devices of the
//! other ranks like its own; the others plan the same trial and serve it.

use std::{collections::BTreeMap, sync::Arc, thread};

use serde::{Deserialize, Serialize};

use super::{
    Datasets, Exit,
    device_group::{gpu_model, host_timeout, sum_limit, watched_executor},
    exit::held_output,
    nccl_ranks,
    prepare::Prepared,
    session::Session,
};
use crate::{
    collective::{CollectiveError, ProcessGroup, RankSum},
    cuda::RankLink,
    data::{Dataset, Part},
    device::{Device, DeviceError, Purpose, Store, remote},
    host,
    plan::{DatasetInfo, Machine, Trial},
    random::mix,
    spec::Problem,
    units,
    vector::matmul::Kernel,
};

/// What a rank says before it serves.
#[derive(Default, Serialize, Deserialize)]
struct Report {
    /// Why it cannot serve, if so.
    failure: Option<String>,
    /// Names and values of everything that must be planned alike on all ranks.
    plan: Vec<(String, u64)>,
    /// Its processor or GPU, for the log.
    words: String,
    /// The UUID of its GPU.
    gpu: Option<String>,
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
        vec![format!("{} leads: {}, by {}", world.name_of(0), own_device(trial), world.transport())];
    let mut gpus: BTreeMap<_, _> = own_uuid(trial).map(|uuid| (uuid, world.name_of(0))).into_iter().collect();
    for rank in 1..world.size() {
        let frame = remote::ask_for_report(world, rank).map_err(|e| DeviceError::Remote(e.to_string()))?;
        let name = world.name_of(rank);
        let refused = |why: String| DeviceError::Remote(format!("`{name}` cannot take part: {why}"));
        let foreign = |_| refused("it is another version of this program".to_owned());
        let report: Report = serde_json::from_slice(&frame).map_err(foreign)?;
        if let Some(why) = report.failure {
            return Err(refused(why));
        }
        if let Some((_, (what, _))) = own.iter().zip(&report.plan).find(|(a, b)| a != b) {
            return Err(refused(format!("{what} are not those of `{}`", world.name_of(0))));
        }
        if let Some(uuid) = report.gpu
            && let Some(other) = gpus.insert(uuid.clone(), name.clone())
        {
            return Err(refused(format!("`{other}` has taken its {uuid}: start one process for each GPU")));
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
    // Processors may share their work among other numbers of threads.
    let device = match trial.engine.is_gpu() {
        true => format!("`{}`, {}", trial.engine.name(), nccl_ranks::version(trial)),
        false => "a CPU".to_owned(),
    };
    vec![
        ("the keys of its spec".to_owned(), of(trial.spec.to_toml())),
        ("its data".to_owned(), of(dataset.digest.clone())),
        (format!("its device and engine ({device})"), of(device)),
        ("its steps".to_owned(), of(format!("{facts:?} {programs:?} {}", trial.steps))),
    ]
}

fn own_uuid(trial: &Trial) -> Option<String> {
    trial.devices.gpus.first().map(|(_, uuid)| uuid.clone())
}

/// The GPU or the processor of this process.
fn own_device(trial: &Trial) -> String {
    if let (Some(ordinal), Some(uuid)) =
        (trial.devices.used.iter().find_map(|place| place.own_gpu()), own_uuid(trial))
    {
        return format!("{}, {uuid}", gpu_model(ordinal));
    }
    let threads = units::counted(trial.threads as u64, "thread");
    let model = host::cpu_model().unwrap_or_else(|| "an unknown processor".to_owned());
    format!("{threads} of {model}, {}", Kernel::detect().name())
}

impl Session<'_, Trial> {
    /// On a rank other than 0: plans the trial and serves it until the job is over.
    pub fn serve(&self, machine: &Machine, world: &Arc<ProcessGroup>) -> Result<(), CollectiveError> {
        let Ok(prepared) = self.prepare(machine) else { return decline(world, &held_output()) };
        let trial = match prepared.first() {
            Some(Prepared::Run(trial)) if !self.is_sweep() => trial,
            Some(Prepared::Missing(problem)) => {
                let Problem { message, label, .. } = &**problem;
                let because = label.as_ref().map_or_else(String::new, |label| format!(": {label}"));
                return decline(world, &format!("{message}{because}"));
            }
            _ => return decline(world, "there is no one run"),
        };
        serve_trial(trial, &mut self.shared(), world)
    }
}

/// Serves a planned trial until the job is over.
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
    // NCCL connects GPUs only once all are there.
    let by_nccl = nccl_ranks::is_planned(trial);
    let sum = || RankLink::Host(Box::new(RankSum::new(world, sum_limit(trial))));
    let own = match (!by_nccl).then(|| device(trial, world, sum())).transpose() {
        Ok(own) => own,
        Err(e) => return decline(world, &e.to_string()),
    };
    let (plan, words, gpu) = (plan_of(trial, &dataset), own_device(trial), own_uuid(trial));
    if !report(world, Report { failure: None, plan, words, gpu })? {
        return Ok(());
    }
    let load = |link| device(trial, world, link);
    let own = match own {
        None => nccl_ranks::connect(trial, world, sum_limit(trial), load)?,
        own => own,
    };
    own.map_or(Ok(()), |own| remote::serve(world, own, rows(trial, &dataset)))
}

fn device(trial: &Trial, world: &Arc<ProcessGroup>, link: RankLink) -> Result<Device, DeviceError> {
    let (rank, name) = (world.rank(), world.name_of(world.rank()));
    let own = trial.devices.used.iter().zip(trial.ranks()).nth(rank);
    let (place, programs) =
        own.ok_or_else(|| DeviceError::Unusable { device: name.clone(), why: "it has no share".to_owned() })?;
    let group = Arc::clone(world);
    // Signs of life do not tell rank 0 of a thread that does not come back.
    let stuck = Box::new(move |why| {
        remote::fail(&group, &why);
        Exit::Failed.at_once()
    });
    let executor = watched_executor(trial, *place, programs.clone(), link, Some(stuck))?;
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
pub fn decline(world: &Arc<ProcessGroup>, why: &str) -> Result<(), CollectiveError> {
    // The first line is the message; the lines below show the spec, which rank 0 has too.
    let line = why.lines().next().unwrap_or("it was asked to end").trim_start_matches("error: ");
    let failure = Some(line.to_owned());
    if report(world, Report { failure, ..Report::default() })? { remote::wait_for_end(world) } else { Ok(()) }
}

/// Says whether it can serve, once that is asked; false where the job is over instead.
fn report(world: &ProcessGroup, report: Report) -> Result<bool, CollectiveError> {
    // Plain texts and numbers always have a form.
    remote::report(world, serde_json::to_vec(&report).unwrap_or_default())
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
