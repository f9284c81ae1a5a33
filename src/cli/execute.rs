//! One run from its folder to its last file.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

use super::{
    announce::{begin, compare_with_truth, report_findings, report_sums, send, timed_by},
    device_group::{device_group, own_products},
};
use crate::{
    data::{Dataset, Weights},
    device::DeviceError,
    event::{Event, Level, Outcome, Status},
    host::{self, load::Watch, nvml::Monitor},
    plan::{AllReduceMethod, AllReducePlan, DeviceId, ResolvedDevices, Trial},
    record::{
        ConsoleOptions, EnvironmentFacts, EnvironmentFile, GitQuery, GpuProbe, RecordError, Recorder, RunDir,
        SystemSampler, command_line, open_sinks, write_model,
    },
    train::{self, Closed, DeviceGroup, StopFlag, Trained, exported, initial_values},
    units,
};

/// What all runs of a process share.
pub struct Process<'a> {
    /// When it began.
    pub begun: Instant,
    /// The same by the calendar.
    pub started: DateTime<Utc>,
    /// As typed.
    pub command: String,
    /// `--threads`, where given.
    pub threads: Option<u32>,
    /// `--virtual-gpus`, where given.
    pub virtual_gpus: Option<u32>,
    /// What was asked of git about the spec's folder.
    pub git: GitQuery,
    /// Asks to stop.
    pub stop: &'a StopFlag,
    /// How busy others keep the machine.
    pub load: Watch,
}

impl Process<'_> {
    /// Threads that may compute.
    pub fn available_threads(&self) -> usize {
        self.threads.map_or_else(|| host::logical_cores().unwrap_or(1), |n| n as usize)
    }
}

/// Why a run did not come to its recorded end.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The run folder cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The device cannot hold the run.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An experiment of the lab could not be begun.
    #[error("{0}")]
    Lab(String),
    /// What was read when the trials were prepared can no longer be read, or is something else.
    #[error("the data have changed since the start: {0}")]
    Data(String),
}

/// A trial with all that may be refused already taken: memory, threads, rows, weights. Only then is a folder made.
pub struct Ready<'a> {
    trial: &'a Trial,
    dataset: Arc<Dataset>,
    group: DeviceGroup,
    initial: Vec<f32>,
    /// How its devices sum, where that is to be said.
    sums: Option<AllReducePlan>,
    /// What else is to be said of its devices.
    note: Option<String>,
    /// How long it took to load them and to warm them up.
    loading: Duration,
}

impl<'a> Ready<'a> {
    /// Loads the device.
    pub fn new(
        trial: &'a Trial,
        dataset: Arc<Dataset>,
        weights: Option<&Weights>,
    ) -> Result<Self, DeviceError> {
        let begun = Instant::now();
        let (group, sums) = device_group(trial)?;
        let (loading, note) = (begun.elapsed(), own_products(trial));
        let initial =
            initial_values(&trial.spec.model.init, &trial.programs.layout, trial.spec.seed, weights);
        Ok(Self { trial, dataset, group, initial, sums, note, loading })
    }

    /// Trains without a folder.
    ///
    /// # Errors
    /// Where `emit` wants no more.
    pub fn train(
        self,
        stop: &StopFlag,
        emit: &mut dyn FnMut(Vec<Event>) -> Result<(), Closed>,
    ) -> Result<Trained, Closed> {
        let Self { trial, dataset, group, initial, .. } = self;
        train::train(train::TrainSetup { trial, dataset: &dataset, group, initial: &initial, stop, emit })
    }
}

/// Runs a trial in `folder`.
pub fn execute(
    process: &Process<'_>,
    ready: Ready<'_>,
    folder: &RunDir,
    console: ConsoleOptions,
) -> Result<Outcome, ExecuteError> {
    let Ready { trial, dataset, group, initial, sums, note, loading } = ready;
    let dataset = dataset.as_ref();
    folder.write("spec.toml", &resolved_text(process, trial, folder))?;
    let names = trial.devices.used_names();
    let facts = EnvironmentFacts {
        started: process.started,
        command: process.command.clone(),
        devices_requested: trial.devices.requested.clone(),
        devices_used: names.clone(),
        virtual_devices: trial.devices.any_virtual(),
        virtual_gpus: process.virtual_gpus,
        threads: trial.threads,
        available_threads: process.available_threads(),
        instruction_set: trial.instruction_set.clone(),
        precision: trial.spec.devices.precision.name().to_owned(),
        gpus: trial.gpus.clone(),
        timed_by: timed_by(trial).to_owned(),
        libraries: libraries(
            &trial.devices.used,
            [
                trial.engine.is_gpu() && trial.has_large_product(),
                sums.as_ref().is_some_and(|sums| sums.by == AllReduceMethod::Nccl),
            ],
        ),
        sums: sums.as_ref().map(AllReducePlan::in_words),
    };
    let environment = EnvironmentFile::create(&folder.file("environment.toml"), facts, process.git.clone())?;
    let sinks = open_sinks(folder, &trial.spec.logging, process.begun, console)?;
    let recorder = Recorder::start(sinks)?;
    let sender = recorder.sender();
    let mut outcome = None;
    let sampler = sampler(trial, folder)?;
    let result = begin(trial, dataset, &names, &sender).and_then(|()| {
        if trial.engine.is_gpu() {
            let text = format!(
                "loaded and warmed up in {}, before the first step: kernels, memory, graphs, connections",
                units::seconds(loading.as_secs_f64())
            );
            send(&sender, Event::Notice(Level::Info, text))?;
        }
        note.map_or(Ok(()), |note| send(&sender, Event::Notice(Level::Warning, note)))?;
        sums.map_or(Ok(()), |sums| report_sums(trial, &sums, &sender))?;
        let mut emit = |events| sender.send_all(events).map_err(|_| Closed);
        train::train(train::TrainSetup {
            trial,
            dataset,
            group,
            initial: &initial,
            stop: process.stop,
            emit: &mut emit,
        })
    });
    let findings = sampler.map(SystemSampler::finish).transpose().map(Option::unwrap_or_default);
    if let Ok(findings) = &findings {
        let _ = report_findings(findings, &sender);
    }
    if let Ok(Trained { outcome: mut ended, values }) = result {
        let saved = match &values {
            Some(values) => save(trial, dataset, values, folder, &ended).map(|()| {
                let _ = compare_with_truth(trial, dataset, values, &sender);
            }),
            None => Ok(()),
        };
        if let Err(e) = saved {
            (ended.status, ended.reason) = (Status::Failed, Some(e.to_string()));
        }
        ended.load = process.load.load();
        let _ = send(&sender, Event::Finished(Box::new(ended.clone())));
        outcome = Some(ended);
    }
    let recorded = recorder.finish();
    environment.finish(process.load.load(), findings.as_ref().cloned().unwrap_or_default())?;
    recorded?;
    findings?;
    outcome.ok_or(ExecuteError::Record(RecordError::Gone))
}

/// What a run on these devices loads of NVIDIA's libraries, with versions: whether it has large products and sums over GPUs.
#[cfg(feature = "cuda")]
pub fn libraries(used: &[DeviceId], [products, sums]: [bool; 2]) -> BTreeMap<String, String> {
    use crate::device::cuda;

    let first = used.iter().find_map(|p| if let DeviceId::Gpu(i) = p { Some(*i) } else { None });
    let gpu = first.and_then(|i| cuda::gpus().ok()?.into_iter().find(|gpu| gpu.ordinal == i));
    gpu.map_or_else(BTreeMap::new, |gpu| cuda::versions(&gpu, products, sums).into_iter().collect())
}

#[cfg(not(feature = "cuda"))]
pub fn libraries(_: &[DeviceId], _: [bool; 2]) -> BTreeMap<String, String> {
    BTreeMap::new()
}

/// The thread that looks at the machine, where the spec wants that or a GPU can be asked.
fn sampler(trial: &Trial, folder: &RunDir) -> Result<Option<SystemSampler>, RecordError> {
    let path = folder.file("system.csv");
    let every = trial.spec.logging.system_every_s.map(Duration::from_secs_f64);
    let gpus = trial.gpus.clone();
    let monitor = if gpus.is_empty() { None } else { Monitor::open().ok() };
    let probe = monitor.map(|monitor| -> GpuProbe {
        let sample = move |(name, uuid): &(String, String)| Some((name.clone(), monitor.sample(uuid)?));
        Box::new(move || gpus.iter().filter_map(&sample).collect())
    });
    if every.is_none() && probe.is_none() {
        return Ok(None);
    }
    SystemSampler::start(every.map(|every| (path.as_path(), every)), probe).map(Some)
}

/// The resolved spec behind a comment with the command that repeats the run.
fn resolved_text(process: &Process<'_>, trial: &Trial, folder: &RunDir) -> String {
    let notes = trial.scaling_in_words().into_iter().collect();
    resolved(process, folder, &trial.devices, notes, &trial.spec.to_toml())
}

/// The same for a spec of any kind, with further notes below the command.
pub fn resolved(
    process: &Process<'_>,
    folder: &RunDir,
    devices: &ResolvedDevices,
    mut notes: Vec<String>,
    spec: &str,
) -> String {
    let path = folder.file("spec.toml");
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut words = vec!["runner".to_owned(), path.to_string_lossy().into_owned()];
    if let Some(threads) = process.threads {
        words.extend(["--threads".to_owned(), threads.to_string()]);
    }
    if let Some(gpus) = process.virtual_gpus {
        words.extend(["--virtual-gpus".to_owned(), gpus.to_string()]);
    }
    if devices.any_virtual() {
        let used = devices.used_names().join(", ");
        notes.push(format!("ran on virtual devices, which the host posed as: {used}"));
    }
    let notes: String = notes.iter().map(|note| format!("# {note}\n")).collect();
    format!("# {}\n{notes}{spec}", command_line(words))
}

fn save(
    trial: &Trial,
    dataset: &Dataset,
    values: &[f32],
    folder: &RunDir,
    outcome: &Outcome,
) -> Result<(), RecordError> {
    let parameters = &trial.programs.layout.parameters;
    let turned: Vec<_> = parameters.iter().map(|p| (p.name.clone(), exported(p, values))).collect();
    let tensors: Vec<_> =
        turned.iter().map(|(n, (shape, v))| (n.clone(), shape.clone(), v.as_slice())).collect();
    let mut metadata = BTreeMap::from([
        ("format".to_owned(), "pt".to_owned()),
        ("framework".to_owned(), concat!("runner ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("name".to_owned(), trial.spec.name.clone()),
        ("spec_hash".to_owned(), trial.spec.hash8()),
        ("step".to_owned(), outcome.steps.to_string()),
        ("epoch".to_owned(), outcome.epochs.to_string()),
    ]);
    if !dataset.preprocessing.is_null() {
        metadata.insert("preprocessing".to_owned(), dataset.preprocessing.to_string());
    }
    write_model(&folder.file("model.safetensors"), &tensors, &metadata)
}
