//! `environment.toml`: what a run's results depend on besides its spec.
//!
//! The file is written at the start, so that a killed run still has a record of its machine. The end of the
//! run appends whether tracked files differ from the git commit, the load of the machine and the state of its
//! GPUs. Asking git takes some 10 ms, as long as a small run, so [`GitQuery`] asks in the background.

mod gpus;
mod machine;

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

pub use self::{
    gpus::GpuFacts,
    machine::{Cpu, Memory, Os, Versions},
};
use super::{Findings, RecordError, git::GitQuery};
use crate::{
    data::{Dataset, FileFingerprint},
    host::{
        Durability,
        load::{self, Load},
        write_atomically,
    },
    plan::{LowerBound, Origin, Trial},
};

/// The content of `environment.toml`. Unknown values are omitted.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The trial's number in its sweep. It comes first, where [`super::RunDir::trial_number`] looks for it.
    pub trial: Option<usize>,
    /// The folder of that sweep.
    pub sweep: Option<String>,
    /// When the process started: RFC 3339, UTC.
    pub started: String,
    /// The command line in the format of [`super::command_line`].
    pub command: String,
    /// After which step it was resumed: times and copies are of what came since.
    pub resumed_after: Option<u64>,
    pub devices: Devices,
    /// The data of a training.
    pub data: Option<DataFacts>,
    /// The work of a training step.
    pub step: Option<StepFacts>,
    pub host: HostOptions,
    pub cpu: Cpu,
    pub memory: Memory,
    /// The GPUs that train, as reported by NVML.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuFacts>,
    pub os: Os,
    pub versions: Versions,
    /// The repository that contains the spec. It comes last because the end of the run adds a line to it.
    pub git: Option<Git>,
}

/// What is appended at the end of the run.
#[derive(Debug, Serialize)]
struct End {
    /// Whether tracked files differ from the commit: a line of `[git]`, if git answers.
    #[serde(skip)]
    dirty: Option<bool>,
    load: Option<MachineLoad>,
    /// Known for a run on GPUs.
    during: Option<Findings>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Devices {
    /// What the spec asks for: `3`, `all`, `gpu:1;gpu:2`.
    pub requested: String,
    /// Names of the devices that train.
    pub used: Vec<String>,
    #[serde(rename = "virtual")]
    pub virtual_devices: bool,
    /// The number format of the products.
    pub precision: String,
    /// How finely steps are timed, and by which clock.
    pub timed_by: String,
    /// What runs the steps of a training, and why.
    pub engine: Option<String>,
    /// How the devices sum their gradients, and why; if there are several and GPUs are among them.
    pub sums: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DataFacts {
    /// As in `summary.csv`.
    pub digest: String,
    /// Whether the digest is of samples of a large file.
    pub sampled: bool,
    /// When the newest of its files was written.
    pub modified: Option<String>,
    pub rows_to_train_on: usize,
    pub rows_to_validate_on: usize,
    /// Which rows of the source do not train, and what they are for; `None` if all train.
    pub split_digest: Option<String>,
}

impl DataFacts {
    pub fn new(dataset: &Dataset) -> Self {
        let newest = dataset.files.iter().map(FileFingerprint::modified).max();
        let newest = newest.and_then(|(seconds, nanos)| DateTime::from_timestamp(seconds, nanos as u32));
        Self {
            digest: dataset.digest.clone(),
            sampled: dataset.is_sampled,
            modified: newest.map(rfc3339),
            rows_to_train_on: dataset.train.rows,
            rows_to_validate_on: dataset.validation.as_ref().map_or(0, |part| part.rows),
            split_digest: dataset.split_digest(),
        }
    }
}

/// The work of a step on one device, and the device's measured rates, if any.
#[derive(Clone, Debug, Serialize)]
pub struct StepFacts {
    pub flops: f64,
    /// Bytes that move between instructions and memory if nothing stays in a cache.
    pub bytes: f64,
    pub flops_per_s: Option<f64>,
    pub cache_bytes_per_s: Option<f64>,
    pub memory_bytes_per_s: Option<f64>,
}

impl StepFacts {
    /// The step of a trial, over all its threads.
    pub fn new(trial: &Trial) -> Self {
        let LowerBound { rates, cost, .. } = &trial.lower_bound;
        let is_own = trial.engine.is_gpu() == rates.processor.is_gpu() && !trial.devices.any_virtual();
        let is_known = is_own && rates.origin == Origin::Measured;
        let (products, memory) = match rates.processor.is_gpu() {
            true => (1.0, 1.0),
            false => (rates.product_speedup(trial.threads), rates.memory_speedup(trial.threads)),
        };
        Self {
            flops: cost.flops,
            bytes: cost.bytes,
            flops_per_s: is_known.then_some(rates.flops_per_s * products),
            cache_bytes_per_s: is_known.then_some(rates.cache_bytes_per_s * products),
            memory_bytes_per_s: is_known.then_some(rates.memory_bytes_per_s * memory),
        }
    }
}

/// Options that concern the machine.
#[derive(Clone, Debug, Serialize)]
pub struct HostOptions {
    /// `--virtual-gpus`.
    pub virtual_gpus: Option<u32>,
    /// Threads that compute.
    pub threads: usize,
    /// Available threads: `--threads`, or else all cores.
    pub available_threads: usize,
    /// Number of trials that ran side by side, if several; times are then those of a shared machine.
    pub jobs: Option<usize>,
    /// Whether other trials may have used its GPUs at the same time.
    pub share: Option<bool>,
    /// The Slurm job it ran in: `1234_7` is task 7 of the array 1234.
    pub slurm_job: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Git {
    pub commit: String,
}

/// The machine's load during a run (and, if it was short, the runs before it).
#[derive(Clone, Debug, Serialize)]
pub struct MachineLoad {
    /// Known if the run (with the runs before it) took long enough.
    #[serde(flatten)]
    load: Option<Load>,
    /// The one-minute load average, including this process.
    average_1m: Option<f64>,
    /// As in [`Outcome::core_wait_share`](crate::event::Outcome).
    core_wait_share: Option<f64>,
}

/// The current time; works for clocks before 1970 too.
pub fn now() -> DateTime<Utc> {
    std::time::SystemTime::now().into()
}

/// A time as `2026-11-21T01:58:14.123Z`.
pub fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// An `environment.toml` that still lacks what is known only at the end of the run.
pub struct EnvironmentFile {
    path: PathBuf,
    /// Number of bytes written at the start.
    length: u64,
    git: GitQuery,
}

impl EnvironmentFile {
    /// Writes the file. `git` is a query about the folder that contains the spec.
    pub fn create(path: &Path, mut environment: Environment, git: GitQuery) -> Result<Self, RecordError> {
        environment.git = git.commit.clone().map(|commit| Git { commit });
        let text = toml::to_string(&environment).map_err(|e| RecordError::encode(path, e))?;
        write_atomically(path, Durability::Process, |file| file.write_all(text.as_bytes()))
            .map_err(|e| RecordError::write(path, e))?;
        Ok(Self { path: path.to_owned(), length: text.len() as u64, git })
    }

    /// Appends git's answer, the machine's load and what was found about its GPUs. On an error, the file
    /// stays as it was.
    pub fn finish(
        self,
        load: Option<Load>,
        core_wait_share: Option<f64>,
        findings: Findings,
    ) -> Result<(), RecordError> {
        let machine = || MachineLoad { load, average_1m: load::average_1m(), core_wait_share };
        let end = End {
            dirty: self.git.commit.is_some().then(|| self.git.dirty()).flatten(),
            load: (load.is_some() || core_wait_share.is_some()).then(machine),
            during: Some(findings).filter(|findings| *findings != Findings::default()),
        };
        let text = end.text().map_err(|e| RecordError::encode(&self.path, e))?;
        append(&self.path, self.length, &text).map_err(|e| RecordError::write(&self.path, e))
    }
}

impl End {
    fn text(&self) -> Result<String, toml::ser::Error> {
        let tables = toml::to_string(self)?;
        let dirty = self.dirty.map(|dirty| format!("dirty = {dirty}\n")).unwrap_or_default();
        Ok(dirty + if tables.is_empty() { "" } else { "\n" } + &tables)
    }
}

/// Appends to a file of this length; on an error, truncates it to that length.
fn append(path: &Path, length: u64, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        let _ = file.set_len(length); // the write's own error is the one to report
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load =
        Load { window_s: 2.0, others_cores: 0.5, stolen_cores: 0.0, cores: 2, throttles: 0, withheld_s: 0.0 };

    #[test]
    fn a_clock_may_be_before_1970() {
        let time = std::time::UNIX_EPOCH - std::time::Duration::from_millis(86_400_500);
        assert_eq!(rfc3339(time.into()), "1969-12-30T23:59:59.500Z");
    }

    #[test]
    fn the_load_is_a_flat_table_of_what_is_known() {
        let text =
            toml::to_string(&MachineLoad { load: Some(LOAD), average_1m: None, core_wait_share: None })
                .unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let expected = ["window_s = 2.0", "others_cores = 0.5", "stolen_cores = 0.0", "throttles = 0"];
        assert_eq!((&lines[..4], &lines[4..]), (&expected[..], &["withheld_s = 0.0"][..]));
    }

    /// `[git]` must be the last table written at the start.
    #[test]
    fn the_end_continues_the_start() {
        let load = Some(MachineLoad { load: None, average_1m: Some(0.5), core_wait_share: Some(0.25) });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("environment.toml");
        let start = "command = \"x\"\n\n[git]\ncommit = \"c0ffee\"\n";
        let ended = |end: End| {
            std::fs::write(&path, start).unwrap();
            append(&path, start.len() as u64, &end.text().unwrap()).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        assert_eq!(ended(End { dirty: None, load: None, during: None }), start);
        let whole: toml::Table = ended(End { dirty: Some(true), load, during: None }).parse().unwrap();
        assert_eq!(whole["git"]["dirty"].as_bool(), Some(true));
        assert_eq!(whole["load"]["average_1m"].as_float(), Some(0.5));
        assert_eq!(whole["load"]["core_wait_share"].as_float(), Some(0.25));
        std::fs::remove_file(&path).unwrap();
        assert!(append(&path, 0, "dirty = true").is_err());
    }
}
