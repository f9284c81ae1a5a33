//! What the processes that run an experiment use of the machine: cores, memory and GPUs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    host::{
        nvml::{GpuSample, Monitor},
        read_text,
    },
    units,
};

/// `USER_HZ`: 100 on all architectures that this program supports.
const TICKS_PER_S: f64 = 100.0;

/// Samples the processes repeatedly.
#[derive(Default)]
pub struct AtWork {
    monitor: Option<Monitor>,
    /// The processes, with their CPU time at the last sample.
    processes: BTreeMap<u32, u64>,
    looked: Option<Instant>,
}

impl AtWork {
    /// `1.94 cores, 84.1 MiB of memory, gpu:0 87 % busy with 3.1 GiB of 80 GiB`; `None` where nothing is known of this host's processes.
    pub fn line(&mut self, folder: &Path) -> Option<String> {
        let folder = fs::canonicalize(folder).ok()?;
        let runs_of = |pid: u32| run_folders(pid).into_iter().filter(|run| run.starts_with(&folder));
        let mut runs: BTreeSet<PathBuf> = self.processes.keys().copied().flat_map(runs_of).collect();
        if runs.is_empty() {
            let all = fs::read_dir("/proc").ok()?.flatten();
            let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            self.processes.clear();
            for pid in pids {
                let own: Vec<PathBuf> = runs_of(pid).collect();
                if !own.is_empty() {
                    self.processes.insert(pid, ticks(pid).unwrap_or_default());
                    runs.extend(own);
                }
            }
            self.looked = None;
        }
        if runs.is_empty() {
            return None;
        }
        let mut parts = Vec::new();
        let now: BTreeMap<u32, u64> =
            self.processes.keys().filter_map(|&pid| Some((pid, ticks(pid)?))).collect();
        if let Some(looked) = self.looked {
            let spent: u64 = now.iter().map(|(pid, ticks)| ticks.saturating_sub(self.processes[pid])).sum();
            let cores = spent as f64 / TICKS_PER_S / looked.elapsed().as_secs_f64().max(1e-3);
            parts.push(format!("{cores:.1} cores"));
        }
        let memory: u64 = now.keys().filter_map(|&pid| resident_bytes(pid)).sum();
        parts.push(format!("{} of memory", units::bytes(memory)));
        (self.processes, self.looked) = (now, Some(Instant::now()));
        let mut gpus: Vec<(String, String)> = runs.iter().flat_map(|run| gpus_of(run)).collect();
        gpus.sort();
        gpus.dedup();
        for (name, uuid) in gpus {
            if self.monitor.is_none() {
                self.monitor = Monitor::open().ok();
            }
            let sample = self.monitor.as_ref().and_then(|monitor| monitor.sample(&uuid));
            parts.extend(sample.map(|sample| gpu_in_words(&name, &sample)));
        }
        Some(parts.join(", "))
    }
}

/// Folders of the runs that a process records, found by the logs it has open.
pub fn run_folders(pid: u32) -> Vec<PathBuf> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let files = open.filter_map(|file| fs::read_link(file.path()).ok());
    files.filter(|file| file.ends_with("run.log")).filter_map(|log| Some(log.parent()?.to_owned())).collect()
}

fn ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character.
    let words = text.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    words.map(|word| word.parse::<u64>().ok()).sum()
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Names and UUIDs of a run's GPUs.
fn gpus_of(run: &Path) -> Vec<(String, String)> {
    let text = read_text(&run.join("environment.toml")).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    let gpus = table.get("gpus").and_then(toml::Value::as_array).into_iter().flatten();
    let word = |gpu: &toml::Value, key: &str| Some(gpu.get(key)?.as_str()?.to_owned());
    gpus.filter_map(|gpu| Some((word(gpu, "name")?, word(gpu, "uuid")?))).collect()
}

fn gpu_in_words(name: &str, sample: &GpuSample) -> String {
    let busy = sample.utilization_percent.map(|percent| format!(" {percent} % busy"));
    let memory = sample.memory_used_bytes.zip(sample.memory_total_bytes);
    let memory =
        memory.map(|(used, total)| format!(" with {} of {}", units::bytes(used), units::bytes(total)));
    format!("{name}{}{}", busy.unwrap_or_default(), memory.unwrap_or_default())
}
