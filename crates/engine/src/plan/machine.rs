//! What devices report to the plan: facts about the host, and each GPU with its limits.

use super::{
    gpu_rates::GpuRates,
    rates::{AllReduceRates, MachineRates, Speed},
};
use crate::{program::StepRoom, spec::Precision};

/// The facts about a machine that planning needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// GPUs that can be used, by ordinal.
    pub gpus: Vec<Gpu>,
    /// Why there is no GPU, as a sentence.
    pub no_gpu: String,
    /// Cores of the host that a run may use.
    pub cores: usize,
    /// Bytes of host memory that a run may use.
    pub memory_available: u64,
    /// Bytes of one core's second-level cache.
    pub cache_bytes: u64,
    /// Instruction set of matrix products.
    pub instruction_set: String,
    /// The processor's unit for bfloat16 products, if it has one: `amx_bf16`, `avx512_bf16`.
    pub bf16_unit: Option<String>,
    pub rates: MachineRates,
    /// Costs of all-reduce over this machine's GPUs, each for a number of them; those that are known.
    pub sum_rates: Vec<AllReduceRates>,
    /// The hosts of the processes that a launcher started, by rank; empty for a process on its own. `None` if
    /// this command runs nothing and so did not look for a launcher.
    pub ranks: Option<Vec<String>>,
    /// This process among them.
    pub rank: u32,
    /// If it is not the machine that this process runs on, so that nothing can be measured.
    pub described: Option<Described>,
}

/// Where the description of a machine comes from that is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub file: String,
    /// Whether it describes the host, too; else that of this process stands in.
    pub has_cpu: bool,
}

impl Machine {
    /// A host of two cores with typical rates for AVX2, and these GPUs.
    pub fn typical(gpus: Vec<Gpu>, memory_available: u64) -> Self {
        let instruction_set = "avx2".to_owned();
        Self {
            gpus,
            no_gpu: String::new(),
            cores: 2,
            memory_available,
            cache_bytes: 1 << 20,
            rates: MachineRates::typical(&instruction_set),
            instruction_set,
            bf16_unit: None,
            sum_rates: Vec::new(),
            ranks: None,
            rank: 0,
            described: None,
        }
    }

    /// The speed of one thread of the host.
    pub(super) fn speed(&self, precision: Precision) -> Speed {
        let Self { rates, cache_bytes, .. } = *self;
        let rates = match precision {
            Precision::Bf16 => rates.in_bf16(self.bf16_unit.as_deref().unwrap_or_default()),
            _ => rates,
        };
        let rows_bytes_per_s = [rates.cache_bytes_per_s, rates.memory_bytes_per_s];
        Speed { rates, rows_bytes_per_s, cache_bytes, sums: None, upload_bytes_per_s: None }
    }
}

/// The facts about a GPU that planning needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Whether it is a virtual GPU, simulated by the host.
    pub is_virtual: bool,
    pub model: String,
    /// As `nvidia-smi` prints it, with `GPU-` or `MIG-` before it; `None` for a virtual one.
    pub uuid: Option<String>,
    /// Bytes of its memory that are free.
    pub memory_free: u64,
    /// Ordinals of the GPUs whose memory it can access.
    pub reaches: Vec<u32>,
    pub limits: GpuLimits,
    pub speed: Option<GpuRates>,
}

impl Gpu {
    /// A virtual GPU that may use this much of the host's memory.
    pub fn virtual_of(memory_free: u64) -> Self {
        let (model, limits) = ("virtual GPU".to_owned(), GpuLimits::default());
        Self { is_virtual: true, model, uuid: None, memory_free, reaches: Vec::new(), limits, speed: None }
    }
}

/// Limits that a GPU's device reports. Arrays are indexed by engine: `persistent`, `cooperative`, `graph`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuLimits {
    pub multiprocessors: u32,
    /// Bytes of a block's shared memory that a job may use.
    pub shared_bytes: u64,
    pub fixed_bytes: u64,
    /// The most elements of one instruction that kernels can count.
    pub most_elements: usize,
    /// Whether a kernel may use a barrier over its whole grid.
    pub cooperative: bool,
    /// Whether it multiplies in tf32.
    pub tensor_cores: bool,
    /// Whether all-reduce over GPUs can be queued like a kernel, which needs NCCL.
    pub queued_sums: bool,
    /// The most bytes that the peer kernel sums, indexed by the number of GPUs.
    pub peer_bytes: &'static [u64],
    /// Peak rate of one multiprocessor in f32.
    pub multiprocessor_flops_per_s: f64,
    /// Typical seconds of an instruction's fixed cost.
    pub instruction_s: [f64; 3],
    /// Share of the peak that small products reach.
    pub product_shares: [f64; 3],
}

impl GpuLimits {
    /// What a compiled step may use.
    pub fn step_room(self) -> StepRoom {
        let multiprocessors = if self.cooperative { self.multiprocessors } else { 0 };
        StepRoom { shared_bytes: self.shared_bytes, multiprocessors, tensor_cores: self.tensor_cores }
    }
}
