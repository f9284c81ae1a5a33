//! `system.csv`: the machine's state during a run, sampled at fixed intervals by a thread of its own.
//!
//! One row per device and sample; unknown values are empty. There is a sample at the start, one per interval,
//! and one at the end, so the shortest run has two.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    RecordError,
    lines::Lines,
    row_file::{Column, RowFile},
};
use crate::host::{
    self, Task, begin_task, load,
    nvml::{GpuSample, Throttle},
};

/// Looks at the GPUs of a run.
pub struct GpuProbe {
    /// Samples of them, with their names.
    pub sample: Box<dyn Fn() -> Vec<(String, GpuSample)> + Send>,
    /// Other processes that compute on them: `gpu:0: python3 (4200)`.
    pub others: Box<dyn Fn() -> Vec<String> + Send>,
}

/// What the samples of the GPUs show at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// GPUs with reduced clocks and the reason: `gpu:0: power_cap`.
    pub throttled: Vec<String>,
    /// Other processes that computed on them at the start or at the end: `gpu:0: python3 (4200)`.
    pub others: BTreeSet<String>,
    /// Energy of each GPU in joules, from the first to the last sample.
    pub energy_j: BTreeMap<String, f64>,
}

impl Findings {
    /// The energy of all `gpus` together in joules, if it is known of each.
    pub fn energy_of(&self, gpus: usize) -> Option<f64> {
        (gpus > 0 && self.energy_j.len() == gpus).then(|| self.energy_j.values().sum())
    }
}

/// The sampling thread.
pub struct SystemSampler {
    /// Dropping it ends the thread at once, even in the middle of an interval.
    stop: Sender<()>,
    thread: Task<Result<Findings, RecordError>>,
}

impl SystemSampler {
    /// Creates the file with its header and samples at the interval `every`. Without a file, only GPUs are
    /// sampled, at the start and at the end.
    pub fn start(path: Option<(&Path, Duration)>, gpus: Option<GpuProbe>) -> Result<Self, RecordError> {
        let names = COLUMNS.map(|(name, _)| name);
        let file = path.map(|(path, _)| RowFile::with_columns(path, names)).transpose()?;
        let every = path.map(|(_, every)| every);
        let (stop, stopped) = channel();
        let mut sampling = Sampling { file, gpus, last: load::counters(), ..Sampling::new() };
        let body = move || {
            sampling.see_others();
            sampling.take()?;
            loop {
                let ended = match every {
                    Some(every) => stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout),
                    None => stopped.recv().is_err(),
                };
                sampling.take()?;
                if ended {
                    sampling.see_others();
                    return Ok(sampling.findings());
                }
            }
        };
        let thread = begin_task("system", body).map_err(RecordError::Start)?;
        Ok(Self { stop, thread })
    }

    /// Takes the last sample and ends the thread.
    pub fn finish(self) -> Result<Findings, RecordError> {
        drop(self.stop);
        self.thread.join().unwrap_or(Err(RecordError::Gone))
    }
}

struct Sampling {
    origin: Instant,
    file: Option<RowFile>,
    gpus: Option<GpuProbe>,
    last: Option<load::Counters>,
    seen: BTreeMap<String, Seen>,
    others: BTreeSet<String>,
}

/// What was observed of a GPU so far.
struct Seen {
    /// NVML's throttle bits, combined over all samples.
    throttle: Throttle,
    first_j: Option<f64>,
    last_j: Option<f64>,
}

impl Sampling {
    fn new() -> Self {
        let (seen, others) = Default::default();
        Self { origin: Instant::now(), file: None, gpus: None, last: None, seen, others }
    }

    fn see_others(&mut self) {
        self.others.extend(self.gpus.iter().flat_map(|gpus| (gpus.others)()));
    }

    fn take(&mut self) -> Result<(), RecordError> {
        let elapsed_s = self.origin.elapsed().as_secs_f64();
        let samples = self.gpus.as_ref().map(|gpus| (gpus.sample)()).unwrap_or_default();
        samples.iter().for_each(|(name, sample)| self.see(name, sample));
        let Some(file) = &mut self.file else { return Ok(()) };
        let now = load::counters();
        let load = self.last.zip(now).and_then(|(before, after)| load::Use::between(&before, &after));
        if load.is_some() {
            // The interval was too short for the clock ticks of CPU time; the next sample covers a longer
            // one.
            self.last = now;
        }
        file.row(&COLUMNS, &Row::of_host(elapsed_s, load))?;
        for (name, sample) in &samples {
            file.row(&COLUMNS, &Row::of_gpu(elapsed_s, name, sample))?;
        }
        file.flush()
    }

    fn see(&mut self, name: &str, sample: &GpuSample) {
        let first = || Seen { throttle: Throttle::default(), first_j: sample.energy_j, last_j: None };
        let seen = self.seen.entry(name.to_owned()).or_insert_with(first);
        seen.last_j = sample.energy_j.or(seen.last_j);
        seen.throttle.0 |= sample.throttle.unwrap_or_default().0;
    }

    fn findings(&self) -> Findings {
        let throttled = self.seen.iter().filter(|(_, seen)| seen.throttle.slows());
        // Both samples of a short trial of a sweep may be the same one.
        let energy = self.seen.iter().filter_map(|(name, seen)| {
            let joules = seen.last_j? - seen.first_j?;
            (joules > 0.0).then(|| (name.clone(), joules))
        });
        Findings {
            throttled: throttled.map(|(name, seen)| format!("{name}: {}", seen.throttle.slowing())).collect(),
            others: self.others.clone(),
            energy_j: energy.collect(),
        }
    }
}

/// A device with its sample.
#[derive(Default)]
struct Row {
    elapsed_s: f64,
    device: String,
    utilization: Option<f64>,
    load: Option<load::Use>,
    rss_bytes: Option<u64>,
    load_1m: Option<f64>,
    memory_used_bytes: Option<u64>,
    memory_available_bytes: Option<u64>,
    gpu: GpuSample,
}

const COLUMNS: [Column<Row>; 16] = [
    ("elapsed_s", |cells, row| cells.seconds(row.elapsed_s)),
    ("device", |cells, row| cells.text(&row.device)),
    ("utilization", |cells, row| cells.option(row.utilization, Lines::f64)),
    ("process_cores", |cells, row| cells.option(row.load.map(|load| load.process_cores), Lines::f64)),
    ("rss_bytes", |cells, row| cells.option(row.rss_bytes, Lines::u64)),
    ("load_1m", |cells, row| cells.option(row.load_1m, Lines::f64)),
    ("memory_used_bytes", |cells, row| cells.option(row.memory_used_bytes, Lines::u64)),
    ("memory_available_bytes", |cells, row| cells.option(row.memory_available_bytes, Lines::u64)),
    ("memory_utilization", |cells, row| cells.option(share(row.gpu.memory_utilization_percent), Lines::f64)),
    ("temperature_c", |cells, row| cells.option(row.gpu.temperature_c.map(u64::from), Lines::u64)),
    ("power_w", |cells, row| cells.option(row.gpu.power_w, Lines::f64)),
    ("energy_j", |cells, row| cells.option(row.gpu.energy_j, Lines::f64)),
    ("sm_clock_mhz", |cells, row| cells.option(row.gpu.sm_clock_mhz.map(u64::from), Lines::u64)),
    ("memory_clock_mhz", |cells, row| cells.option(row.gpu.memory_clock_mhz.map(u64::from), Lines::u64)),
    ("throttled", |cells, row| cells.option(row.gpu.throttle.map(Throttle::slows), Lines::bool)),
    ("throttle_reasons", |cells, row| {
        cells.option(row.gpu.throttle.map(|reasons| reasons.to_string()), |cells, text| cells.text(&text))
    }),
];

fn share(percent: Option<u32>) -> Option<f64> {
    percent.map(|percent| f64::from(percent) / 100.0)
}

impl Row {
    fn of_host(elapsed_s: f64, load: Option<load::Use>) -> Self {
        let host::Memory { total, available: free } = host::memory();
        Self {
            elapsed_s,
            device: "cpu".to_owned(),
            utilization: load.map(|load| load.utilization),
            load,
            rss_bytes: host::resident_bytes(),
            load_1m: load::average_1m(),
            memory_used_bytes: total.zip(free).map(|(total, free)| total - free.min(total)),
            memory_available_bytes: free,
            ..Self::default()
        }
    }

    fn of_gpu(elapsed_s: f64, name: &str, sample: &GpuSample) -> Self {
        let (total, used) = (sample.memory_total_bytes, sample.memory_used_bytes);
        Self {
            elapsed_s,
            device: name.to_owned(),
            utilization: share(sample.utilization_percent),
            memory_used_bytes: used,
            memory_available_bytes: total.zip(used).map(|(total, used)| total - used.min(total)),
            gpu: sample.clone(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(energy_j: f64, throttle: u64) -> GpuSample {
        GpuSample {
            utilization_percent: Some(87),
            memory_used_bytes: Some(1000),
            memory_total_bytes: Some(4000),
            temperature_c: Some(61),
            power_w: Some(250.5),
            energy_j: Some(energy_j),
            sm_clock_mhz: Some(1980),
            throttle: Some(Throttle(throttle)),
            ..GpuSample::default()
        }
    }

    #[test]
    fn the_first_and_the_last_look_are_always_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("system.csv");
        let (reported, heard) = channel();
        let probe = |reported: Sender<()>| -> GpuProbe {
            let sample = move || {
                let _ = reported.send(());
                vec![("gpu:0".to_owned(), gpu(10.0, 0))]
            };
            let others = || vec!["gpu:0: python3 (4200)".to_owned()];
            GpuProbe { sample: Box::new(sample), others: Box::new(others) }
        };
        // It must end without waiting for the interval of an hour.
        let every = Some((path.as_path(), Duration::from_secs(3600)));
        let sampler = SystemSampler::start(every, Some(probe(reported))).unwrap();
        heard.recv().unwrap();
        sampler.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 2 * 2, "{text}");
        assert!(lines.iter().all(|line| line.matches(',').count() == COLUMNS.len() - 1), "{text}");
        let devices: Vec<&str> = lines[1..].iter().map(|line| line.split(',').nth(1).unwrap()).collect();
        assert_eq!(devices, ["cpu", "gpu:0", "cpu", "gpu:0"]);
        let (_, cells) = lines[2].split_once(',').unwrap();
        assert_eq!(cells, "gpu:0,0.87,,,,1000,3000,,61,250.5,10.0,1980,,false,none");

        // Without a file GPUs are sampled twice.
        let (reported, heard) = channel();
        let findings = SystemSampler::start(None, Some(probe(reported))).unwrap().finish().unwrap();
        assert_eq!(heard.iter().count(), 2);
        assert_eq!(findings.others.iter().collect::<Vec<_>>(), ["gpu:0: python3 (4200)"]);
    }

    #[test]
    fn a_throttled_gpu_is_found_and_energy_is_a_difference() {
        let mut sampling = Sampling::new();
        // Idle clocks do not count as throttling; a power cap and heat do.
        for (name, joules, bits) in
            [("gpu:0", 1000.0, 0x1), ("gpu:1", 50.0, 0x1), ("gpu:0", 1025.5, 0x25), ("gpu:1", 51.0, 0x2)]
        {
            sampling.see(name, &gpu(joules, bits));
        }
        let expected = Findings {
            throttled: vec!["gpu:0: power_cap;software_thermal".to_owned()],
            others: BTreeSet::new(),
            energy_j: BTreeMap::from([("gpu:0".to_owned(), 25.5), ("gpu:1".to_owned(), 1.0)]),
        };
        assert_eq!(sampling.findings(), expected);
    }
}
