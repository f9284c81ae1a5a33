//! `environment.toml`: what a run's numbers depend on beside its spec.
//!
//! The file is written twice: at the start, so that a run that is killed still tells its machine, and whole again at
//! the end, with git's answer whether tracked files differ from the commit, and with what else the machine did in the
//! meantime. Git's answer takes some 10 ms, as long as a small run itself, so it is asked for in the background, by
//! [`GitQuery`].

mod during;
mod gpus;
mod machine;

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use crate::host::{Durability, load::Load, write_atomically};

use self::gpus::gpu_facts;
pub use self::{
    during::{During, MachineLoad},
    gpus::GpuFacts,
    machine::{Cpu, HostOptions, Memory, Os, Versions},
};
use super::{Findings, RecordError, git::GitQuery};

/// What only the caller knows.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentFacts {
    /// When the process began.
    pub started: DateTime<Utc>,
    /// The command line, as [`super::command_line`] writes it.
    pub command: String,
    /// What the spec asks for: `3`, `all`, `gpu:1;gpu:2`.
    pub devices_requested: String,
    /// Names of the devices that train.
    pub devices_used: Vec<String>,
    /// Whether those are virtual.
    pub virtual_devices: bool,
    /// `--virtual-gpus`, where given.
    pub virtual_gpus: Option<u32>,
    /// Threads that compute.
    pub threads: usize,
    /// Threads that may: `--threads`, or else all cores.
    pub available_threads: usize,
    /// The instruction set in use; it may change the last bits of a product.
    pub instruction_set: String,
    /// The number format of the products.
    pub precision: String,
    /// Names and UUIDs of the GPUs that train.
    pub gpus: Vec<(String, String)>,
    /// How finely steps are timed, and why.
    pub timed_by: String,
    /// Names and versions of the libraries that its GPUs need.
    pub libraries: BTreeMap<String, String>,
    /// How the devices sum, and why, where GPUs are among several.
    pub sums: Option<String>,
}

/// The content of `environment.toml`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Environment {
    /// RFC 3339, UTC.
    pub started: String,
    /// The command line as typed.
    pub command: String,
    /// Asked and used.
    pub devices: Devices,
    /// Options that concern the machine.
    pub host: HostOptions,
    /// The processor.
    pub cpu: Cpu,
    /// The host's memory.
    pub memory: Memory,
    /// The GPUs that train, as the driver's monitor sees them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuFacts>,
    /// The system.
    pub os: Os,
    /// Of this program and what it loads.
    pub versions: Versions,
    /// Where the spec is kept under git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// What else the machine did; known at the end of a run, where it or the runs before it took long enough to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<MachineLoad>,
    /// What the GPUs did during the run, where there are some that tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub during: Option<During>,
}

/// Devices asked and used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Devices {
    /// As in `summary.csv`.
    pub requested: String,
    /// Those that train.
    pub used: Vec<String>,
    /// Whether they are virtual.
    #[serde(rename = "virtual")]
    pub virtual_devices: bool,
    /// The number format of the products.
    pub precision: String,
    /// How finely steps are timed, and why.
    pub timed_by: String,
    /// How they sum their gradients, and why, where GPUs are among several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sums: Option<String>,
}

/// The repository that the spec is in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Git {
    /// The commit.
    pub commit: String,
    /// Whether tracked files differ from it; absent where that is not known (yet).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty: Option<bool>,
}

impl Environment {
    fn collect(facts: EnvironmentFacts, commit: Option<String>) -> Self {
        Self {
            started: facts.started.to_rfc3339_opts(SecondsFormat::Millis, true),
            command: facts.command,
            devices: Devices {
                requested: facts.devices_requested,
                used: facts.devices_used,
                virtual_devices: facts.virtual_devices,
                precision: facts.precision,
                timed_by: facts.timed_by,
                sums: facts.sums,
            },
            host: HostOptions {
                virtual_gpus: facts.virtual_gpus,
                threads: facts.threads,
                available_threads: facts.available_threads,
            },
            cpu: Cpu::here(facts.instruction_set),
            gpus: gpu_facts(facts.gpus),
            memory: Memory::here(),
            os: Os::here(),
            versions: Versions::here(facts.libraries),
            git: commit.map(|commit| Git { commit, dirty: None }),
            load: None,
            during: None,
        }
    }

    fn write(&self, path: &Path) -> Result<(), RecordError> {
        let text = toml::to_string(self).map_err(|e| RecordError::encode(path, e))?;
        write_atomically(path, Durability::Process, |file| file.write_all(text.as_bytes()))
            .map_err(|e| RecordError::write(path, e))
    }
}

/// An `environment.toml` that still lacks git's answer.
pub struct EnvironmentFile {
    path: PathBuf,
    environment: Environment,
    git: GitQuery,
}

impl EnvironmentFile {
    /// Collects the facts and writes the file. `git` was asked about the folder that the spec is in.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn create(path: &Path, facts: EnvironmentFacts, git: GitQuery) -> Result<Self, RecordError> {
        let environment = Environment::collect(facts, git.commit.clone());
        environment.write(path)?;
        Ok(Self { path: path.to_owned(), environment, git })
    }

    /// Takes git's answer, what else the machine did and what its GPUs did, and writes the file whole again.
    ///
    /// # Errors
    /// Where it cannot be written; the first version stays then.
    pub fn finish(mut self, load: Option<Load>, findings: Findings) -> Result<(), RecordError> {
        self.environment.load = load.map(MachineLoad::new);
        self.environment.during = During::from_findings(findings);
        if let Some(git) = &mut self.environment.git {
            git.dirty = self.git.dirty();
        }
        self.environment.write(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> EnvironmentFacts {
        EnvironmentFacts {
            started: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
            command: "runner 'a b.toml'".to_owned(),
            devices_requested: "1".to_owned(),
            devices_used: vec!["cpu".to_owned()],
            virtual_devices: false,
            virtual_gpus: None,
            threads: 2,
            available_threads: 2,
            instruction_set: "avx512".to_owned(),
            precision: "f32".to_owned(),
            gpus: Vec::new(),
            timed_by: "phases".to_owned(),
            libraries: BTreeMap::new(),
            sums: None,
        }
    }

    #[test]
    fn the_file_of_a_known_machine() {
        let mut environment = Environment::collect(facts(), None);
        environment.cpu.model = Some("A \"fast\" one".to_owned());
        environment.cpu.logical_cores = Some(2);
        environment.cpu.caches = vec!["L1 data 48K".to_owned()];
        environment.memory =
            Memory { total_bytes: Some(8_192_000), available_bytes: Some(4096), limit_bytes: None };
        environment.os = Os { name: "linux", arch: "x86_64", kernel: Some("6.1".to_owned()) };
        environment.versions = Versions {
            runner: "0.1.0",
            build: "release",
            libraries: BTreeMap::from([("NVRTC".to_owned(), "13.0".to_owned())]),
        };
        environment.cpu.flags = vec!["avx2".to_owned()];
        environment.cpu.governor = Some("performance".to_owned());
        environment.cpu.simultaneous_threads = Some("off".to_owned());
        environment.cpu.numa_nodes = Some(1);
        environment.cpu.quota_cores = Some(1.5);
        environment.git = Some(Git { commit: "0123".to_owned(), dirty: Some(false) });
        insta::assert_snapshot!(toml::to_string(&environment).unwrap(), @r#"
        started = "2027-01-15T08:00:00.000Z"
        command = "runner 'a b.toml'"

        [devices]
        requested = "1"
        used = ["cpu"]
        virtual = false
        precision = "f32"
        timed_by = "phases"

        [host]
        threads = 2
        available_threads = 2

        [cpu]
        model = 'A "fast" one'
        logical_cores = 2
        instruction_set = "avx512"
        flags = ["avx2"]
        caches = ["L1 data 48K"]
        governor = "performance"
        simultaneous_threads = "off"
        numa_nodes = 1
        quota_cores = 1.5

        [memory]
        total_bytes = 8192000
        available_bytes = 4096

        [os]
        name = "linux"
        arch = "x86_64"
        kernel = "6.1"

        [versions]
        runner = "0.1.0"
        build = "release"

        [versions.libraries]
        NVRTC = "13.0"

        [git]
        commit = "0123"
        dirty = false
        "#);
    }

    #[test]
    fn outside_of_git_there_is_no_git() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("environment.toml");
        EnvironmentFile::create(&path, facts(), GitQuery::start(folder.path()))
            .unwrap()
            .finish(None, Findings::default())
            .unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["started"].as_str(), Some("2027-01-15T08:00:00.000Z"));
        assert!(!table.contains_key("git") && table["cpu"].get("instruction_set").is_some());
    }
}
