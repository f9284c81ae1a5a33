//! The machine of a run and the program on it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::host::{self, processor};

/// Options that concern the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostOptions {
    /// `--virtual-gpus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_gpus: Option<u32>,
    /// Threads that compute.
    pub threads: usize,
    /// Available threads: `--threads`, or else all cores.
    pub available_threads: usize,
}

/// The processor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cpu {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Logical cores that the process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical_cores: Option<usize>,
    /// The instruction set in use.
    pub instruction_set: String,
    /// Vector instruction sets that it has.
    pub flags: Vec<String>,
    /// Caches of the first core.
    pub caches: Vec<String>,
    /// Its frequency governor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Simultaneous multithreading: `on`, `off`, `notsupported`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simultaneous_threads: Option<String>,
    /// NUMA nodes with processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<usize>,
    /// The cgroup's CPU quota in cores, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_cores: Option<f64>,
}

/// The host's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// The machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Available memory at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// The cgroup's limit, if it is below the total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}

/// The system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Os {
    /// `linux`, ...
    pub name: &'static str,
    /// `x86_64`, ...
    pub arch: &'static str,
    /// The kernel's release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

/// Versions of this program and its libraries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Versions {
    /// This program's.
    pub runner: &'static str,
    /// `release`, or `debug`, which is several times slower.
    pub build: &'static str,
    /// Versions of the libraries that a GPU run loads.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub libraries: BTreeMap<String, String>,
}

impl Cpu {
    /// This machine's CPU, computing with `instruction_set`.
    pub fn here(instruction_set: String) -> Self {
        Self {
            model: host::cpu_model(),
            logical_cores: host::logical_cores(),
            instruction_set,
            flags: processor::flags(),
            caches: host::caches(),
            governor: processor::governor(),
            simultaneous_threads: processor::simultaneous_threads(),
            numa_nodes: processor::numa_nodes(),
            quota_cores: processor::quota_cores(),
        }
    }
}

impl Memory {
    /// This machine's, now.
    pub fn here() -> Self {
        let total_bytes = host::memory("MemTotal");
        Self {
            total_bytes,
            available_bytes: host::memory("MemAvailable"),
            limit_bytes: host::memory_limit(total_bytes),
        }
    }
}

impl Os {
    /// This machine's.
    pub fn here() -> Self {
        Self { name: std::env::consts::OS, arch: std::env::consts::ARCH, kernel: host::kernel() }
    }
}

impl Versions {
    /// This program's, with those of the libraries that it has loaded.
    pub fn here(libraries: BTreeMap<String, String>) -> Self {
        Self { runner: env!("CARGO_PKG_VERSION"), build: host::BUILD, libraries }
    }
}
