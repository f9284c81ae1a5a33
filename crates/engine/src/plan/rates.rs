//! Speeds of processors: measured on this machine, or typical of their kind. A GPU is described by the same
//! figures.

use serde::{Deserialize, Serialize};

use super::link::Link;
use crate::units::named;

named! {
    #[derive(Default)]
    pub enum Origin {
        /// Typical of such processors, from data sheets and from machines that were measured.
        Typical = "typical",
        /// Measured on this machine. The default when rates are read from a file, since only measured ones
        /// are saved.
        #[default]
        Measured = "measured",
        /// Those of a machine that is not here, from the file that describes it.
        Given = "given",
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    #[default]
    Cpu,
    /// A GPU that runs each instruction as a launch.
    Gpu,
    /// A GPU on which one launch interprets the whole program, with a barrier after every instruction.
    GpuWalk,
}

impl Processor {
    pub fn is_gpu(self) -> bool {
        self != Self::Cpu
    }
}

/// Whether all figures are plausible: finite, speeds above zero, and no other figure negative.
pub fn are_sane(rates: &impl Serialize) -> bool {
    // In JSON a figure that is not finite becomes null, so it is refused here.
    let is_sane = |(name, figure): (&String, &serde_json::Value)| {
        figure.as_f64().is_some_and(|figure| figure > 0.0 || figure == 0.0 && !name.ends_with("_per_s"))
    };
    let figures = serde_json::to_value(rates);
    figures.is_ok_and(|figures| figures.as_object().is_some_and(|all| all.iter().all(is_sane)))
}

/// Speeds of one thread and how they scale with threads. For a GPU: speeds of the whole device, which counts
/// as one thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineRates {
    /// Where the rates come from. Not saved: those in a file were measured on a CPU.
    #[serde(skip)]
    pub origin: Origin,
    #[serde(skip)]
    pub processor: Processor,
    pub flops_per_s: f64,
    /// bfloat16 products, if the processor has instructions for them and they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16_flops_per_s: Option<f64>,
    /// Elementwise functions such as `exp`, per second.
    pub elementwise_per_s: f64,
    pub cache_bytes_per_s: f64,
    pub memory_bytes_per_s: f64,
    /// What each further thread adds to the speed of products, as a fraction of the first thread's.
    pub product_scaling: f64,
    /// What each further thread adds to the speed of main memory, which all threads share, as a fraction.
    pub memory_scaling: f64,
    /// Fixed cost of an instruction, in seconds.
    pub instruction_s: f64,
    pub barrier_s: f64,
    /// Seconds to launch a block of steps and wait for it, not counting the steps. Reading the loss after
    /// every step costs this much per step.
    pub block_s: f64,
    /// Relative interquartile range of the least steady rate over the measuring rounds; 0 if nothing was
    /// measured.
    #[serde(default)]
    pub noise: f64,
}

impl MachineRates {
    /// Typical figures for a CPU's instruction set.
    pub fn typical(instruction_set: &str) -> Self {
        let (flops_per_s, elementwise_per_s) = match instruction_set {
            "avx512" => (160e9, 40e9),
            "avx2" => (80e9, 20e9),
            _ => (15e9, 5e9),
        };
        Self {
            origin: Origin::Typical,
            processor: Processor::Cpu,
            flops_per_s,
            bf16_flops_per_s: None,
            elementwise_per_s,
            cache_bytes_per_s: 60e9,
            memory_bytes_per_s: 12e9,
            product_scaling: 1.0,
            memory_scaling: 1.0,
            instruction_s: 20e-9,
            barrier_s: 1e-6,
            block_s: 0.5e-6,
            noise: 0.0,
        }
    }

    /// The rates of a run whose products use `unit` in bfloat16: the measured rate, or a typical multiple of
    /// the f32 rate.
    pub fn in_bf16(self, unit: &str) -> Self {
        let typical = if unit == "amx_bf16" { 6.0 } else { 1.8 };
        let flops_per_s = self.bf16_flops_per_s.unwrap_or(typical * self.flops_per_s);
        Self { flops_per_s, ..self }
    }

    /// The speed of `threads` threads relative to one, for products and for data in their own caches.
    pub fn product_speedup(&self, threads: usize) -> f64 {
        1.0 + self.product_scaling * (threads.max(1) - 1) as f64
    }

    /// The speed of `threads` threads relative to one, for reading main memory.
    pub fn memory_speedup(&self, threads: usize) -> f64 {
        1.0 + self.memory_scaling * (threads.max(1) - 1) as f64
    }
}

/// What determines the time of a program's steps on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    pub rates: MachineRates,
    /// Bytes per second at which the data's rows are read, from the cache and from memory.
    pub rows_bytes_per_s: [f64; 2],
    pub cache_bytes: u64,
    /// Rates of all-reduce; if unknown, a sum counts like any other instruction.
    pub sums: Option<AllReduceRates>,
    /// Bytes per second of rows uploaded to a device with its own memory.
    pub upload_bytes_per_s: Option<f64>,
}

/// The cost of an all-reduce over several GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduceRates {
    pub gpus: u32,
    /// Seconds for a few elements.
    pub small_s: f64,
    /// Bytes of the result per second, for large buffers.
    pub bytes_per_s: f64,
}

impl AllReduceRates {
    /// Sums by a ring of `gpus` GPUs with such links: `2 (n - 1)` messages one after the other, each of an `n`th of the bytes
    /// (Thakur, Rabenseifner and Gropp 2005, Int. J. High Performance Computing Applications 19).
    pub fn of_ring(gpus: u32, link: Link) -> Self {
        let messages = f64::from(2 * gpus.saturating_sub(1));
        Self {
            gpus,
            small_s: messages * link.latency_s,
            bytes_per_s: link.bytes_per_s * f64::from(gpus) / messages,
        }
    }

    /// The link of which a ring of at least two GPUs would take as long.
    pub fn link(&self) -> Link {
        let messages = f64::from(2 * self.gpus.saturating_sub(1));
        Link {
            latency_s: self.small_s / messages,
            bytes_per_s: self.bytes_per_s * messages / f64::from(self.gpus),
        }
    }

    /// Seconds for a buffer of `bytes` bytes.
    pub(super) fn seconds(&self, bytes: u64) -> f64 {
        self.small_s.max(bytes as f64 / self.bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four GPUs exchange six messages of a quarter of the bytes each: their latencies or their bytes, whichever take longer.
    #[test]
    fn a_ring_takes_its_messages() {
        let link = Link { latency_s: 2e-6, bytes_per_s: 1e9 };
        let ring = AllReduceRates::of_ring(4, link);
        for (bytes, expected_s) in [(4, 6.0 * 2e-6), (4_000_000, 6.0 * 1e6 / 1e9)] {
            assert!((ring.seconds(bytes) / expected_s - 1.0).abs() < 1e-12, "{ring:?}");
        }
        let found = ring.link();
        assert!(
            (found.latency_s / 2e-6 - 1.0).abs() < 1e-12 && (found.bytes_per_s / 1e9 - 1.0).abs() < 1e-12
        );
    }
}
