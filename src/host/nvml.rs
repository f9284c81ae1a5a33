//! NVIDIA GPUs as the driver's own monitor (NVML, which `nvidia-smi` prints) sees them: the table, the links, and what
//! can be sampled while a run goes on. Nothing here uses CUDA: a GPU is told by its UUID, which both sides know.

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(feature = "cuda")]
mod library;
#[cfg(feature = "cuda")]
mod links;

use std::fmt;

#[cfg(not(feature = "cuda"))]
pub use absent::Monitor;
#[cfg(feature = "cuda")]
pub use library::Monitor;

/// Versions of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// As `570.86.10`.
    pub version: Option<String>,
    /// The newest CUDA that it serves, as `12.8`.
    pub cuda: Option<String>,
}

/// A GPU of the table: what does not change while a run goes on. All but the UUID may be unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// Its number in `nvidia-smi`, which knows nothing of `CUDA_VISIBLE_DEVICES`.
    pub index: u32,
    /// `GPU-...`, or `MIG-...` for a part of one.
    pub uuid: String,
    /// As `NVIDIA H100 80GB HBM3`.
    pub name: Option<String>,
    /// As `00000000:01:00.0`.
    pub bus_id: Option<String>,
    /// Whether the driver stays loaded while nobody uses it.
    pub persistence: Option<bool>,
    /// `Default`, `Exclusive` or `Prohibited`.
    pub compute_mode: Option<&'static str>,
    /// Whether it is cut into parts.
    pub mig: Option<bool>,
    /// Generation and lanes of its PCIe link, now.
    pub pcie: Option<(u32, u32)>,
    /// The same at most.
    pub pcie_most: Option<(u32, u32)>,
    /// Whether memory corrects errors.
    pub ecc: Option<bool>,
    /// Power that is allowed where nobody has set anything else.
    pub power_limit_default_w: Option<f64>,
    /// Clocks of multiprocessors and memory at most.
    pub clocks_most_mhz: [Option<u32>; 2],
    /// Compute capability, as 9, 0.
    pub capability: Option<(i32, i32)>,
}

/// What a GPU does at a moment; what it does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuSample {
    /// Share of the last period in which a kernel ran.
    pub utilization_percent: Option<u32>,
    /// Share of the last period in which its memory was read or written.
    pub memory_utilization_percent: Option<u32>,
    /// Bytes taken, by all processes and the driver.
    pub memory_used_bytes: Option<u64>,
    /// Bytes there are.
    pub memory_total_bytes: Option<u64>,
    /// Of the chip.
    pub temperature_c: Option<u32>,
    /// Of the first fan, in percent of its most.
    pub fan_percent: Option<u32>,
    /// Power drawn.
    pub power_w: Option<f64>,
    /// Power allowed.
    pub power_limit_w: Option<f64>,
    /// Energy since the driver was loaded: the difference of two samples is what lay between them.
    pub energy_j: Option<f64>,
    /// Clock of the multiprocessors.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_clock_mhz: Option<u32>,
    /// 0 is the fastest.
    pub performance_state: Option<u32>,
    /// Why clocks are below their most.
    pub throttle: Option<Throttle>,
}

/// Reasons for clocks below their most, as NVML's bits.
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

    /// Those that slow a busy GPU down against its kind: limits of power and heat, not idleness or clocks that someone
    /// set.
    const SLOWING: u64 = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

    /// Whether a limit of power or heat holds the clocks back.
    pub fn slows(self) -> bool {
        self.0 & Self::SLOWING != 0
    }

    /// Only these reasons.
    pub fn slowing(self) -> Self {
        Self(self.0 & Self::SLOWING)
    }
}

/// Words joined by `;`, `none` where nothing holds the clocks back.
impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Self::WORDS.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, word)| *word);
        let text = words.collect::<Vec<_>>().join(";");
        f.write_str(if text.is_empty() { "none" } else { &text })
    }
}

/// How two GPUs of the table are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLink {
    /// Numbers in `nvidia-smi`, the lesser first.
    pub between: (u32, u32),
    /// In the words of `nvidia-smi topo`: `NV4`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`; `?` where unknown.
    pub kind: String,
    /// Whether one may read the other's memory.
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
