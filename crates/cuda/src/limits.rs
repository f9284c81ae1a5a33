//! What a GPU reports to the plan before anything has been measured on it.

use super::{MOST_PEERS, ffi::Gpu};
use crate::{op::MOST_COUNTED, plan::GpuLimits};

/// Shared memory that the persistent kernel needs in addition to the job's own (kernels/interpret.cu).
const INTERPRETER_BYTES: u64 = 12 << 10;

/// GPU memory that every job needs: tables of counters and rates, and up to 32 MiB of cuBLASLt workspace.
const FIXED_BYTES: u64 = 40 << 20;

/// The most bytes that the peer kernel sums, indexed by the number of GPUs. Every GPU reads all that the
/// others have, so for large sums an algorithm that splits the work is faster. vLLM
/// (csrc/custom_all_reduce.cuh) uses its one-stage kernel below these sizes.
const PEER_BYTES: [u64; MOST_PEERS + 1] = {
    let (four, more) = (512 << 10, 256 << 10);
    [four, four, four, four, four, more, more, more, more]
};

/// Typical fixed seconds per instruction, in a persistent block, a cooperative grid and a graph: steps of linear 2 -> 1 (7
/// instructions) and of 64-32-10 (12) on an H100 and an H200. More than the measured cost of a further small instruction, since
/// most of them also wait for memory or for a sum over threads.
const INSTRUCTION_S: [f64; 3] = [0.84e-6, 2.4e-6, 3.0e-6];

/// Share of the peak that products reach: in one block, in a grid, in tuned kernels; on the same GPUs.
const PRODUCT_SHARES: [f64; 3] = [0.03, 0.009, 0.5];

/// Multiply-adds of a multiprocessor per clock in f32 (CUDA C++ programming guide, arithmetic instructions).
const FMA_PER_CLOCK: f64 = 128.0;

impl Gpu {
    /// Shared memory per block that a job may use.
    pub(super) fn job_shared_bytes(&self) -> u64 {
        u64::from(self.shared_bytes).saturating_sub(INTERPRETER_BYTES)
    }

    /// `queued_sums`: whether NCCL is available.
    pub fn limits(&self, queued_sums: bool) -> GpuLimits {
        let clock_hz = u64::from(self.clock_khz) * 1000;
        GpuLimits {
            multiprocessors: self.multiprocessors,
            shared_bytes: self.job_shared_bytes(),
            fixed_bytes: FIXED_BYTES,
            most_elements: MOST_COUNTED,
            cooperative: self.cooperative,
            tensor_cores: self.capability >= (8, 0),
            queued_sums,
            peer_bytes: &PEER_BYTES,
            multiprocessor_flops_per_s: 2.0 * FMA_PER_CLOCK * clock_hz.max(1) as f64,
            instruction_s: INSTRUCTION_S,
            product_shares: PRODUCT_SHARES,
        }
    }
}
