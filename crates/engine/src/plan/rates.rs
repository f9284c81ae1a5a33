//! Speeds of processors: measured on this machine, or typical of their kind. A GPU is one more set of them.

use serde::{Deserialize, Serialize};

use crate::units::named;

named! {
    #[derive(Default)]
    pub enum Origin {
        /// Figures that such processors have, from data sheets and machines that were measured.
        Typical = "typical",
        /// Measured here: those that are read back were.
        #[default]
        Measured = "measured",
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    #[default]
    Cpu,
    /// A GPU's, to which every instruction is a launch.
    Gpu,
    /// A GPU's, where one launch interprets the whole program, with a barrier after every instruction.
    GpuWalk,
}

impl Processor {
    pub fn is_gpu(self) -> bool {
        self != Self::Cpu
    }
}

/// Whether every figure is finite, speeds above zero and all others not below it.
pub fn are_sane(rates: &impl Serialize) -> bool {
    // JSON has no figure that is not finite.
    let is_sane = |(name, figure): (&String, &serde_json::Value)| {
        figure.as_f64().is_some_and(|figure| figure > 0.0 || figure == 0.0 && !name.ends_with("_per_s"))
    };
    let figures = serde_json::to_value(rates);
    figures.is_ok_and(|figures| figures.as_object().is_some_and(|all| all.iter().all(is_sane)))
}

/// Speeds of one thread (of a GPU: of the whole device, which has no threads to the plan), and how they grow with threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineRates {
    /// Where they come from; those in a file were measured on a CPU.
    #[serde(skip)]
    pub origin: Origin,
    #[serde(skip)]
    pub processor: Processor,
    pub flops_per_s: f64,
    /// Products of bfloat16, where the processor has instructions for them and they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16_flops_per_s: Option<f64>,
    /// Functions of single numbers, operations per second.
    pub elementwise_per_s: f64,
    pub cache_bytes_per_s: f64,
    pub memory_bytes_per_s: f64,
    /// What each further thread adds to products, as a part of the first one's speed.
    pub product_scaling: f64,
    /// What each further thread adds to reading memory, which all threads share.
    pub memory_scaling: f64,
    /// Cost of an instruction beside its work.
    pub instruction_s: f64,
    pub barrier_s: f64,
    /// Cost of handing over a block of steps and waiting for it, beside the steps: what reading the loss after every step
    /// adds to it.
    pub block_s: f64,
    /// How far the middle half of the rounds of the least steady rate lay apart, as a part of it; 0 where nothing was measured.
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

    /// The rates of a run whose products that unit computes in bfloat16: the measured one, or a typical multiple of that of f32.
    pub fn in_bf16(self, unit: &str) -> Self {
        let typical = if unit == "amx_bf16" { 6.0 } else { 1.8 };
        let flops_per_s = self.bf16_flops_per_s.unwrap_or(typical * self.flops_per_s);
        Self { flops_per_s, ..self }
    }

    /// How many times as fast as one thread `threads` of them are at products, and at what they have in their own caches.
    pub fn product_speedup(&self, threads: usize) -> f64 {
        1.0 + self.product_scaling * (threads.max(1) - 1) as f64
    }

    /// How many times as fast as one thread `threads` of them read memory.
    pub fn memory_speedup(&self, threads: usize) -> f64 {
        1.0 + self.memory_scaling * (threads.max(1) - 1) as f64
    }
}

/// What the steps of a program take on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    pub rates: MachineRates,
    /// Bytes per second of the data's rows, from the cache and from memory.
    pub rows_bytes_per_s: [f64; 2],
    pub cache_bytes: u64,
    /// Rates of all-reduce; where unknown, a sum counts as any other work.
    pub sums: Option<AllReduceRates>,
    /// Rate of rows on their way to a device with a memory of its own.
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
    /// Seconds for a buffer of `bytes` bytes.
    pub(super) fn seconds(&self, bytes: u64) -> f64 {
        self.small_s.max(bytes as f64 / self.bytes_per_s)
    }
}
