//! The machine of a run and the software on it.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Serialize;

use crate::host::{self, processor};

#[derive(Clone, Debug, Serialize)]
pub struct Cpu {
    pub model: Option<String>,
    /// Logical cores that the process may use.
    pub logical_cores: Option<usize>,
    /// The instruction set in use; it may change the last bits of a product.
    pub instruction_set: String,
    /// The unit that multiplies bfloat16, if this run does that on the CPU: `amx_bf16`, `avx512_bf16`.
    pub bf16_unit: Option<&'static str>,
    /// The vector instruction sets of the processor.
    pub flags: Vec<String>,
    /// Caches of the first core.
    pub caches: Vec<String>,
    /// The CPU frequency governor.
    pub governor: Option<String>,
    /// Simultaneous multithreading: `on`, `off`, `notsupported`.
    pub simultaneous_threads: Option<String>,
    /// NUMA nodes with processors.
    pub numa_nodes: Option<usize>,
    /// The cgroup's CPU quota in cores, if there is one.
    pub quota_cores: Option<f64>,
}

/// The host's memory.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    /// Available memory at the start.
    pub available_bytes: Option<u64>,
    /// The cgroup's limit, if it is below the total.
    pub limit_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Os {
    pub name: &'static str,
    pub arch: &'static str,
    pub kernel: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Versions {
    /// This program's version.
    pub runner: &'static str,
    /// `release`, or `debug`, which is several times slower.
    pub build: &'static str,
    /// Versions of the libraries that a GPU run loads.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub libraries: BTreeMap<String, String>,
}

impl Cpu {
    /// This machine's processor. Cached at the first call, since a sweep asks for it with every trial.
    pub fn here(instruction_set: String, bf16_unit: Option<&'static str>) -> Self {
        static FIRST: LazyLock<Cpu> = LazyLock::new(|| Cpu {
            model: host::cpu_model(),
            logical_cores: host::logical_cores(),
            instruction_set: String::new(),
            bf16_unit: None,
            flags: processor::flags(),
            caches: host::caches(),
            governor: processor::governor(),
            simultaneous_threads: processor::simultaneous_threads(),
            numa_nodes: processor::numa_nodes(),
            quota_cores: processor::quota_cores(),
        });
        Self { instruction_set, bf16_unit, ..FIRST.clone() }
    }
}

impl Memory {
    /// This machine's memory as it is now.
    pub fn here() -> Self {
        let host::Memory { total: total_bytes, available: available_bytes } = host::memory();
        Self { total_bytes, available_bytes, limit_bytes: host::memory_limit(total_bytes) }
    }
}

impl Os {
    /// This machine's operating system.
    pub fn here() -> Self {
        Self { name: std::env::consts::OS, arch: std::env::consts::ARCH, kernel: host::kernel() }
    }
}

impl Versions {
    /// The versions of this program and of the libraries it has loaded.
    pub fn here(libraries: BTreeMap<String, String>) -> Self {
        Self { runner: env!("CARGO_PKG_VERSION"), build: host::BUILD, libraries }
    }
}
