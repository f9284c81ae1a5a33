//! The GPU properties that make two runs comparable, from NVML.

use serde::Serialize;

use crate::host::nvml::Monitor;

/// A GPU of the run; unknown values are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuFacts {
    /// `gpu:0`.
    pub name: String,
    /// As `nvidia-smi` prints it.
    pub uuid: String,
    /// As `NVIDIA H100 80GB HBM3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The driver's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The newest CUDA version it supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// The PCIe link at the start, as `gen5 x16`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<String>,
    /// `Default`, `Exclusive` or `Prohibited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_mode: Option<&'static str>,
    /// The maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_most: Option<String>,
    /// Whether memory error correction is on, which costs some speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// Whether MIG is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<bool>,
    /// Persistence mode: the driver stays loaded while unused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<bool>,
    /// The power limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// The default power limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_default_w: Option<f64>,
    /// Clock of the multiprocessors at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// The maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_most_mhz: Option<u32>,
    /// Clock of the memory at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// The maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_most_mhz: Option<u32>,
}

/// NVML's properties of these GPUs; empty if NVML is not available.
pub fn gpu_facts(gpus: Vec<(String, String)>) -> Vec<GpuFacts> {
    if gpus.is_empty() {
        return Vec::new();
    }
    let monitor = Monitor::open().ok();
    let driver = monitor.as_ref().map(Monitor::driver).unwrap_or_default();
    let table = monitor.as_ref().map(Monitor::gpus).unwrap_or_default();
    let link = |(generation, lanes): (u32, u32)| format!("gen{generation} x{lanes}");
    let facts = gpus.into_iter().map(|(name, uuid)| {
        let known = table.iter().find(|gpu| gpu.uuid == uuid).cloned().unwrap_or_default();
        // A MIG instance does not report properties of its GPU.
        let is_part = uuid.starts_with("MIG-");
        let whole = table.iter().find(|gpu| gpu.index == known.index && !gpu.uuid.starts_with("MIG-"));
        let whole = whole.filter(|_| is_part).unwrap_or(&known).clone();
        let shared = monitor.as_ref().and_then(|monitor| monitor.sample(&whole.uuid)).unwrap_or_default();
        GpuFacts {
            name,
            uuid,
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
