//! NVIDIA GPUs as NVML reports them (the library behind `nvidia-smi`): properties, links and samples. Nothing
//! here uses CUDA; UUIDs identify a GPU on both sides.

#[allow(unsafe_code)]
mod device;
mod library;
mod links;

use std::fmt;

use serde::Serialize;

pub use library::Monitor;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// As `570.86.10`.
    pub version: Option<String>,
    /// The newest CUDA version it supports, as `12.8`.
    pub cuda: Option<String>,
}

/// Properties that do not change during a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// As in `nvidia-smi`, which ignores `CUDA_VISIBLE_DEVICES`.
    pub index: u32,
    /// `GPU-...`, or `MIG-...` for a MIG instance.
    pub uuid: String,
    /// As `NVIDIA H100 80GB HBM3`.
    pub name: Option<String>,
    /// As `00000000:01:00.0`.
    pub bus_id: Option<String>,
    /// Persistence mode: the driver stays loaded while unused.
    pub persistence: Option<bool>,
    /// `Default`, `Exclusive` or `Prohibited`.
    pub compute_mode: Option<&'static str>,
    pub mig: Option<bool>,
    /// Current generation and width of the PCIe link.
    pub pcie: Option<(u32, u32)>,
    /// Maximum generation and width of the PCIe link.
    pub pcie_most: Option<(u32, u32)>,
    pub ecc: Option<bool>,
    pub power_limit_default_w: Option<f64>,
    pub clocks_most_mhz: [Option<u32>; 2],
    /// Compute capability: major, minor.
    pub capability: Option<(i32, i32)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuSample {
    /// Share of NVML's last sample period in which a kernel ran.
    pub utilization_percent: Option<u32>,
    /// Share of NVML's last sample period in which its memory was read or written.
    pub memory_utilization_percent: Option<u32>,
    /// By all processes and the driver.
    pub memory_used_bytes: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    pub temperature_c: Option<u32>,
    pub fan_percent: Option<u32>,
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    /// Since the driver was loaded.
    pub energy_j: Option<f64>,
    pub sm_clock_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    /// 0 is the fastest.
    pub performance_state: Option<u32>,
    pub throttle: Option<Throttle>,
}

/// Reasons for reduced clocks, as NVML's bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle(pub u64);

impl Throttle {
    /// NVML's bits (`nvmlClocksEventReason*` of nvml.h) in words.
    const WORDS: [(u64, &'static str); 9] = [
        (0x1, "idle"),
        (0x2, "application_clocks"),
        (0x4, "power_cap"),
        (0x8, "hardware_slowdown"),
        (0x10, "sync_boost"),
        (0x20, "software_thermal"),
        (0x40, "hardware_thermal"),
        (0x80, "power_brake"),
        (0x100, "display_clocks"),
    ];

    /// Bits for power and thermal limits, not for idleness or clocks set by a user.
    const SLOWING: u64 = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

    /// Whether a power or thermal limit reduces the clocks.
    pub fn slows(self) -> bool {
        self.0 & Self::SLOWING != 0
    }

    pub fn slowing(self) -> Self {
        Self(self.0 & Self::SLOWING)
    }
}

/// Words joined by `;`, or `none`.
impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Self::WORDS.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, word)| *word);
        let text = words.collect::<Vec<_>>().join(";");
        f.write_str(if text.is_empty() { "none" } else { &text })
    }
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuProcess {
    pub pid: u32,
    /// `C` for compute, `G` for graphics, as in `nvidia-smi`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub name: Option<String>,
    pub memory_used_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLink {
    /// Indices as in `nvidia-smi`, the lower one first.
    pub between: (u32, u32),
    /// As printed by `nvidia-smi topo`: `NV4`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`; `?` if unknown.
    pub kind: String,
    /// Whether each can read the other's memory.
    pub peer_access: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_reasons_are_words() {
        assert_eq!(Throttle(0).to_string(), "none");
        assert_eq!(Throttle(0x1).to_string(), "idle");
        assert_eq!(Throttle(0x24).to_string(), "power_cap;software_thermal");
        assert_eq!(Throttle(0x1ff).to_string().split(';').count(), 9);
    }
}
