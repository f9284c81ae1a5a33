//! `system.csv`: the machine's state during a run, sampled at fixed intervals by a thread of its own.
//!
//! One row per device and sample; unknown values are empty. There is a sample at the start, one per interval, and one at
//! the end, so the shortest run has two.

use std::{
    path::Path,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{RecordError, lines::Lines, row_file::RowFile};
use crate::host::{self, load, nvml::GpuSample};

const COLUMNS: [&str; 16] = [
    "elapsed_s",
    "device",
    "utilization",
    "process_cores",
    "rss_bytes",
    "load_1m",
    "memory_used_bytes",
    "memory_available_bytes",
    "memory_utilization",
    "temperature_c",
    "power_w",
    "energy_j",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "throttled",
    "throttle_reasons",
];

/// Samples the GPUs of a run, with their names.
pub type GpuProbe = Box<dyn Fn() -> Vec<(String, GpuSample)> + Send>;

/// Results of sampling, for the run's end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// GPUs with reduced clocks and the reason: `gpu:0: power_cap`.
    pub throttled: Vec<String>,
    /// Energy of each GPU in joules, from the first to the last sample.
    pub energy_j: Vec<(String, f64)>,
}

/// The sampling thread.
pub struct SystemSampler {
    /// Dropping it ends the thread at once, even within an interval.
    stop: Sender<()>,
    thread: JoinHandle<Result<Findings, RecordError>>,
}

impl SystemSampler {
    /// Creates the file with its header and samples at the interval `every`. Without a file only GPUs are sampled, at the
    /// start and the end.
    ///
    /// # Errors
    /// The file cannot be written, or the thread cannot be started.
    pub fn start(path: Option<(&Path, Duration)>, gpus: Option<GpuProbe>) -> Result<Self, RecordError> {
        let file = path.map(|(path, _)| RowFile::with_columns(path, COLUMNS)).transpose()?;
        let every = path.map(|(_, every)| every);
        let (stop, stopped) = channel();
        let mut looks =
            Looks { origin: Instant::now(), file, gpus, last: load::sample(), found: Found::default() };
        let body = move || {
            looks.take()?;
            loop {
                let ended = match every {
                    Some(every) => stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout),
                    None => stopped.recv().is_err(),
                };
                looks.take()?;
                if ended {
                    return Ok(looks.found.findings());
                }
            }
        };
        let thread =
            thread::Builder::new().name("system".to_owned()).spawn(body).map_err(RecordError::Start)?;
        Ok(Self { stop, thread })
    }

    /// Takes the last sample and ends.
    ///
    /// # Errors
    /// A row could not be written.
    pub fn finish(self) -> Result<Findings, RecordError> {
        drop(self.stop);
        self.thread.join().unwrap_or(Err(RecordError::Gone))
    }
}

struct Looks {
    origin: Instant,
    file: Option<RowFile>,
    gpus: Option<GpuProbe>,
    last: Option<load::Sample>,
    found: Found,
}

impl Looks {
    fn take(&mut self) -> Result<(), RecordError> {
        let elapsed_s = self.origin.elapsed().as_secs_f64();
        let samples = self.gpus.as_ref().map(|ask| ask()).unwrap_or_default();
        for (name, sample) in &samples {
            self.found.take(name, sample);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let now = load::sample();
        let use_of = self.last.zip(now).and_then(|(before, after)| load::Use::between(&before, &after));
        if use_of.is_some() {
            // Too short for ticks: the next sample then covers a longer window.
            self.last = now;
        }
        host_row(&mut file.lines, elapsed_s, use_of);
        file.end_line()?;
        for (name, sample) in &samples {
            gpu_row(&mut file.lines, elapsed_s, name, sample);
            file.end_line()?;
        }
        file.flush()
    }
}

fn host_row(lines: &mut Lines, elapsed_s: f64, use_of: Option<load::Use>) {
    let used = host::memory("MemTotal")
        .zip(host::memory("MemAvailable"))
        .map(|(total, free)| total - free.min(total));
    lines.seconds(elapsed_s).text("cpu");
    lines
        .option(use_of.map(|u| u.utilization), Lines::f64)
        .option(use_of.map(|u| u.process_cores), Lines::f64);
    lines.option(host::process_memory(), Lines::u64).option(load::average_1m(), Lines::f64);
    lines.option(used, Lines::u64).option(host::memory("MemAvailable"), Lines::u64);
    for _ in 8..COLUMNS.len() {
        lines.empty();
    }
}

fn gpu_row(lines: &mut Lines, elapsed_s: f64, name: &str, sample: &GpuSample) {
    let share = |percent: Option<u32>| percent.map(|percent| f64::from(percent) / 100.0);
    let whole = |value: Option<u32>| value.map(u64::from);
    let free = sample.memory_total_bytes.zip(sample.memory_used_bytes).map(|(all, used)| all - used.min(all));
    lines.seconds(elapsed_s).text(name).option(share(sample.utilization_percent), Lines::f64);
    lines.empty().empty().empty();
    lines.option(sample.memory_used_bytes, Lines::u64).option(free, Lines::u64);
    lines.option(share(sample.memory_utilization_percent), Lines::f64);
    lines.option(whole(sample.temperature_c), Lines::u64);
    lines.option(sample.power_w, Lines::f64).option(sample.energy_j, Lines::f64);
    lines.option(whole(sample.sm_clock_mhz), Lines::u64).option(whole(sample.memory_clock_mhz), Lines::u64);
    lines.option(sample.throttle.map(|t| t.slows()), Lines::bool);
    let reasons = sample.throttle.map(|t| t.to_string());
    lines.option(reasons.as_deref(), Lines::text);
}

/// Observations per GPU name, in the order of the first sample.
#[derive(Default)]
struct Found(Vec<Seen>);

struct Seen {
    name: String,
    /// NVML's bits over all samples.
    throttle: host::nvml::Throttle,
    first_j: Option<f64>,
    last_j: Option<f64>,
}

impl Found {
    fn take(&mut self, name: &str, sample: &GpuSample) {
        let place = self.0.iter().position(|seen| seen.name == name).unwrap_or_else(|| {
            let throttle = host::nvml::Throttle::default();
            self.0.push(Seen { name: name.to_owned(), throttle, first_j: sample.energy_j, last_j: None });
            self.0.len() - 1
        });
        let seen = &mut self.0[place];
        seen.last_j = sample.energy_j.or(seen.last_j);
        seen.throttle.0 |= sample.throttle.unwrap_or_default().0;
    }

    fn findings(&self) -> Findings {
        let throttled = self.0.iter().filter(|seen| seen.throttle.slows());
        let energy = self.0.iter().filter_map(|seen| Some((seen.name.clone(), seen.last_j? - seen.first_j?)));
        Findings {
            throttled: throttled.map(|seen| format!("{}: {}", seen.name, seen.throttle.slowing())).collect(),
            energy_j: energy.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::host::nvml::Throttle;

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
        let (reported, heard) = mpsc::channel();
        let probe: GpuProbe = Box::new(move || {
            let _ = reported.send(());
            vec![("gpu:0".to_owned(), gpu(10.0, 0))]
        });
        // Ends without waiting for an interval of an hour.
        let sampler = SystemSampler::start(Some((&path, Duration::from_secs(3600))), Some(probe)).unwrap();
        heard.recv().unwrap();
        sampler.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], COLUMNS.join(","));
        assert_eq!(lines.len(), 1 + 2 * 2, "{text}");
        assert!(lines[1..].iter().all(|line| line.matches(',').count() == COLUMNS.len() - 1), "{text}");
        let devices: Vec<&str> = lines[1..].iter().map(|line| line.split(',').nth(1).unwrap()).collect();
        assert_eq!(devices, ["cpu", "gpu:0", "cpu", "gpu:0"]);
        let (_, cells) = lines[2].split_once(',').unwrap();
        assert_eq!(cells, "gpu:0,0.87,,,,1000,3000,,61,250.5,10.0,1980,,false,none");
    }

    #[test]
    fn a_throttled_gpu_is_found_and_energy_is_a_difference() {
        let mut found = Found::default();
        // Idle clocks do not count as throttling; a power cap and heat do.
        found.take("gpu:0", &gpu(1000.0, 0x1));
        found.take("gpu:1", &gpu(50.0, 0x1));
        found.take("gpu:0", &gpu(1010.0, 0x4));
        found.take("gpu:0", &gpu(1025.5, 0x21));
        found.take("gpu:1", &gpu(51.0, 0x2));
        let expected = Findings {
            throttled: vec!["gpu:0: power_cap;software_thermal".to_owned()],
            energy_j: vec![("gpu:0".to_owned(), 25.5), ("gpu:1".to_owned(), 1.0)],
        };
        assert_eq!(found.findings(), expected);
    }

    #[test]
    fn without_a_file_gpus_are_asked_twice() {
        let (reported, heard) = mpsc::channel();
        let probe: GpuProbe = Box::new(move || {
            let _ = reported.send(());
            Vec::new()
        });
        let findings = SystemSampler::start(None, Some(probe)).unwrap().finish().unwrap();
        assert_eq!(findings, Findings::default());
        assert_eq!(heard.iter().count(), 2);
    }
}
