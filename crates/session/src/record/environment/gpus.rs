//! The GPU properties that make two runs comparable, from NVML.

use std::time::Duration;

use serde::Serialize;

use crate::host::nvml::Monitor;

/// A GPU of the run. Clocks, link and limit are those at the start; `_most` marks a maximum.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuFacts {
    /// `gpu:0`.
    pub name: String,
    /// In the format of `nvidia-smi`.
    pub uuid: String,
    /// For example `NVIDIA H100 80GB HBM3`.
    pub model: Option<String>,
    pub driver: Option<String>,
    /// The newest CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// The PCIe link, for example `gen5 x16`.
    pub pcie: Option<String>,
    /// `Default`, `Exclusive` or `Prohibited`.
    pub compute_mode: Option<&'static str>,
    pub pcie_most: Option<String>,
    /// Whether memory error correction is on, which costs some speed.
    pub ecc: Option<bool>,
    pub mig: Option<bool>,
    /// Whether the driver stays loaded while unused.
    pub persistence: Option<bool>,
    pub power_limit_w: Option<f64>,
    pub power_limit_default_w: Option<f64>,
    /// Clock of the multiprocessors.
    pub sm_clock_mhz: Option<u32>,
    pub sm_clock_most_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    pub memory_clock_most_mhz: Option<u32>,
}

impl GpuFacts {
    /// NVML's properties of GPUs with these names and UUIDs, their clocks no older than `age`; empty if NVML is not available.
    pub fn query(gpus: &[(String, String)], age: Duration) -> Vec<Self> {
        if gpus.is_empty() {
            return Vec::new();
        }
        let monitor = Monitor::of_process();
        let driver = monitor.map(Monitor::driver).unwrap_or_default();
        let table = monitor.map(Monitor::known_gpus).unwrap_or_default();
        let link = |(generation, lanes): (u32, u32)| format!("gen{generation} x{lanes}");
        let facts = gpus.iter().map(|(name, uuid)| {
            let known = table.iter().find(|gpu| gpu.uuid == *uuid).cloned().unwrap_or_default();
            // A MIG instance does not report its GPU's properties.
            let is_part = uuid.starts_with("MIG-");
            let whole = table.iter().find(|gpu| gpu.index == known.index && !gpu.uuid.starts_with("MIG-"));
            let whole = whole.filter(|_| is_part).unwrap_or(&known).clone();
            let shared =
                monitor.and_then(|monitor| monitor.recent_sample(&whole.uuid, age)).unwrap_or_default();
            Self {
                name: name.clone(),
                uuid: uuid.clone(),
                model: known.name,
                driver: driver.version.clone(),
                cuda: driver.cuda.clone(),
                pcie: whole.pcie.map(link),
                pcie_most: whole.pcie_most.map(link),
                ecc: whole.ecc,
                compute_mode: whole.compute_mode,
                mig: whole.mig,
                persistence: whole.persistence,
                power_limit_w: shared.power_limit_w,
                power_limit_default_w: whole.power_limit_default_w,
                sm_clock_mhz: shared.sm_clock_mhz,
                sm_clock_most_mhz: whole.clocks_most_mhz[0],
                memory_clock_mhz: shared.memory_clock_mhz,
                memory_clock_most_mhz: whole.clocks_most_mhz[1],
            }
        });
        facts.collect()
    }
}
