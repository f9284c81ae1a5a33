//! Opens and closes all files of one run.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::planned::{ExecuteError, Process, RunFacts, Start};
use crate::{
    event::{Closed, Event, Level, Outcome, Status},
    host::{
        CoreWaits,
        load::Watch,
        nvml::{GpuProcess, Monitor},
        slurm_job,
    },
    plan::{DeviceId, ResolvedDevices},
    record::{
        ConsoleOptions, Cpu, Devices, Environment, EnvironmentFile, EventSender, Findings, GpuFacts,
        GpuProbe, HostOptions, Memory, Os, RecordError, Recorder, RunDir, SystemSampler, Versions,
        command_line, open_sinks, rfc3339,
    },
    vector::matmul::Kernel,
};

/// Everything that records a run while it runs.
pub struct Recording {
    environment: EnvironmentFile,
    recorder: Recorder,
    sampler: Option<SystemSampler>,
    begun: Instant,
    waits: CoreWaits,
    /// The number of its GPUs.
    gpus: usize,
    /// How long it must run for the samples of its GPU to tell of it, and whether other trials may run on it.
    sampled: (Duration, bool),
}

impl Recording {
    /// Opens all files in `folder`. `is_shared`: whether other trials may run on its GPU.
    pub fn begin(
        process: &Process,
        start: Start,
        (devices, is_shared): (&ResolvedDevices, bool),
        facts: RunFacts<'_>,
        folder: &RunDir,
        console: ConsoleOptions,
    ) -> Result<Self, ExecuteError> {
        folder.write("spec.toml", &resolved(process, folder, devices, &facts))?;
        let is_short = console.trial.is_some() && facts.system.flatten().is_none();
        let ages = if is_short { RECENT } else { [Duration::ZERO; 2] };
        let (trial, sweep) = of_sweep(folder, console.trial.as_ref().map(|trial| trial.number));
        let environment = Environment {
            trial,
            sweep,
            started: rfc3339(start.at),
            command: process.command.clone(),
            resumed_after: facts.resumed_after,
            devices: Devices {
                requested: devices.requested.clone(),
                used: devices.used_names(),
                virtual_devices: devices.any_virtual(),
                precision: facts.precision.to_owned(),
                timed_by: facts.timed_by.to_owned(),
                engine: facts.engine,
                sums: facts.sums,
            },
            data: facts.data,
            step: facts.step,
            host: HostOptions {
                virtual_gpus: process.virtual_gpus,
                threads: facts.threads,
                available_threads: process.available_threads,
                jobs: Some(process.jobs).filter(|jobs| *jobs > 1),
                share: (is_shared && process.jobs > 1).then_some(true),
                slurm_job: slurm_job(),
            },
            cpu: Cpu::here(Kernel::detect().name().to_owned(), facts.bf16_unit),
            memory: Memory::here(),
            gpus: GpuFacts::query(&devices.gpus, ages[0]),
            os: Os::here(),
            versions: Versions::here(libraries(&devices.used, facts.libraries)),
            git: None,
        };
        let environment =
            EnvironmentFile::create(&folder.file("environment.toml"), environment, process.git.clone())?;
        let recorder = Recorder::start(open_sinks(folder, facts.files, start.begun, console)?)?;
        let sampler = facts.system.map(|every| sampler(&devices.gpus, every, folder, ages));
        let sampler = sampler.transpose()?.flatten();
        let (begun, waits) = (Instant::now(), CoreWaits::of_this_thread());
        let (gpus, sampled) = (devices.gpus.len(), (10 * ages[0], is_shared));
        Ok(Self { environment, recorder, sampler, begun, waits, gpus, sampled })
    }

    pub fn sender(&self) -> EventSender {
        self.recorder.sender()
    }

    /// Closes all files; returns how the run ended.
    pub fn end(
        mut self,
        mut outcome: Result<Outcome, Closed>,
        load: &Watch,
    ) -> Result<Outcome, ExecuteError> {
        let waited = self.waits.total(); // before the time that it is a share of
        let wall_s = self.begun.elapsed().as_secs_f64();
        let thousandth = |waited: Duration| (waited.as_secs_f64() / wall_s * 1000.0).round() / 1000.0;
        let core_wait_share = waited.map(thousandth);
        let sender = self.sender();
        let mut findings = self.sampler.map(SystemSampler::finish).transpose().map(Option::unwrap_or_default);
        if let Ok(findings) = &mut findings {
            let (least, is_shared) = self.sampled;
            if self.begun.elapsed() < least {
                *findings = Findings::default(); // samples may be older than the trial
            } else if is_shared {
                findings.energy_j.clear();
            }
        }
        if let Ok(findings) = &findings {
            let _ = report_findings(findings, &sender); // `recorder.finish` reports the failure
        }
        // Write everything else before the summary: its existence means that the run is recorded completely.
        let load = load.load();
        let described =
            self.environment.finish(load, core_wait_share, findings.as_ref().cloned().unwrap_or_default());
        let fault = described.as_ref().err().or(findings.as_ref().err()).map(ToString::to_string);
        let is_failure = |outcome: &Outcome| outcome.status == Status::Failed;
        let is_reported = outcome.as_ref().is_ok_and(is_failure) && !self.recorder.has_failed();
        if let Ok(outcome) = &mut outcome {
            if fault.is_some() && outcome.status == Status::Finished {
                (outcome.status, outcome.reason) = (Status::Failed, fault);
            }
            (outcome.load, outcome.core_wait_share) = (load, core_wait_share);
            let energy_j = findings.as_ref().ok().filter(|_| outcome.earlier_s == 0.0);
            outcome.energy_j = energy_j.and_then(|findings| findings.energy_of(self.gpus));
            let _ = sender.send(Event::Finished(Box::new(outcome.clone())));
        }
        let recorded = self.recorder.finish();
        // Report what failed first: later failures have the same cause.
        match outcome {
            Ok(outcome) if is_reported => return Ok(outcome),
            _ => recorded?,
        }
        described?;
        findings?;
        outcome.map_err(|Closed| ExecuteError::Record(RecordError::Gone))
    }
}

/// The number of a sweep's trial, and the sweep's folder. One that goes on by itself stays the trial that it was.
fn of_sweep(folder: &RunDir, trial: Option<usize>) -> (Option<usize>, Option<String>) {
    let sweep = match trial {
        Some(_) => folder.path().parent().and_then(|sweep| Some(sweep.file_name()?.to_str()?.to_owned())),
        None => folder.environment(&["sweep"]).and_then(|sweep| Some(sweep.as_str()?.to_owned())),
    };
    (trial.or_else(|| folder.recorded_trial()), sweep)
}

/// Reports throttling and energy, which matter to whoever reads the times.
fn report_findings(findings: &Findings, sender: &EventSender) -> Result<(), Closed> {
    for throttled in &findings.throttled {
        let text = format!("a limit of power or heat held clocks back, so that times mean less: {throttled}");
        sender.send(Event::Notice(Level::Warning, text))?;
    }
    for other in &findings.others {
        let text = format!("another process computed on the GPU, so that times mean less: {other}");
        sender.send(Event::Notice(Level::Info, text))?;
    }
    for (name, joules) in &findings.energy_j {
        sender.send(Event::Notice(Level::Info, format!("{name} took {joules:.1} J")))?;
    }
    Ok(())
}

/// Names and versions of the NVIDIA libraries in use; the flags say whether cuBLASLt and NCCL are among them.
fn libraries(used: &[DeviceId], [products, sums]: [bool; 2]) -> BTreeMap<String, String> {
    use crate::cuda;

    let first = used.iter().find_map(|place| place.own_gpu());
    let gpu = first.and_then(|i| cuda::gpus().ok()?.into_iter().find(|gpu| gpu.ordinal == i));
    gpu.map_or_else(BTreeMap::new, |gpu| cuda::versions(&gpu, products, sums).into_iter().collect())
}

/// How old a sample of a GPU, and a list of the processes on it, may be for a trial of a sweep without `system.csv`. Asking takes
/// milliseconds, and the trials of a sweep may be as short.
const RECENT: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// Starts the sampling thread if `system.csv` is wanted or a GPU can be monitored.
fn sampler(
    gpus: &[(String, String)],
    every: Option<Duration>,
    folder: &RunDir,
    ages: [Duration; 2],
) -> Result<Option<SystemSampler>, RecordError> {
    let path = folder.file("system.csv");
    let monitor = Monitor::of_process().filter(|_| !gpus.is_empty());
    let probe = monitor.map(|monitor| {
        let (gpus, [sample_age, list_age]) = (Arc::new(gpus.to_vec()), ages);
        let others_gpus = Arc::clone(&gpus);
        let sample = move |(name, uuid): &(String, String)| {
            Some((name.clone(), monitor.recent_sample(uuid, sample_age)?))
        };
        let others = move |(name, uuid): &(String, String)| {
            let others = monitor.recently_beside(uuid, list_age).into_iter();
            let words = |other: GpuProcess| match other.name {
                Some(process) => format!("{name}: {process} ({})", other.pid),
                // In a container none has a name, and one of the numbers may be this process's own.
                None => format!("{name}: a process that is not visible here"),
            };
            others.map(words).collect::<Vec<_>>()
        };
        GpuProbe {
            sample: Box::new(move || gpus.iter().filter_map(sample).collect()),
            others: Box::new(move || others_gpus.iter().flat_map(others).collect()),
        }
    });
    if every.is_none() && probe.is_none() {
        return Ok(None);
    }
    SystemSampler::start(every.map(|every| (path.as_path(), every)), probe).map(Some)
}

/// The resolved spec, below comments with the command that repeats the run and notes.
fn resolved(process: &Process, folder: &RunDir, devices: &ResolvedDevices, facts: &RunFacts<'_>) -> String {
    let path = folder.file("spec.toml");
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut words = vec!["runner".to_owned(), path.to_string_lossy().into_owned()];
    if let Some(threads) = process.threads {
        words.extend(["--threads".to_owned(), threads.to_string()]);
    }
    if let Some(gpus) = process.virtual_gpus {
        words.extend(["--virtual-gpus".to_owned(), gpus.to_string()]);
    }
    let posed = devices.any_virtual().then(|| {
        format!("ran on virtual devices, which the host posed as: {}", devices.used_names().join(", "))
    });
    let notes: String = facts.notes.iter().chain(&posed).map(|note| format!("# {note}\n")).collect();
    format!("# {}\n{notes}{}", command_line(words), facts.toml)
}
