//! What a GPU reports to the plan before anything was measured on it.

use super::ffi::Gpu;
use crate::plan::GpuLimits;

/// Shared memory that the persistent kernel needs beside the job's own (kernels/interpret.cu).
const INTERPRETER_BYTES: u64 = 12 << 10;

/// Typical seconds of an instruction beside its work: in the persistent block a few hundred cycles with the barrier behind
/// it; in a grid its barrier, reported as 0.7 to 2 µs; as a node of a graph 1.3 µs between dependent kernels, as reported
/// for an H100, and a kernel's own start and end.
const INSTRUCTION_S: [f64; 3] = [0.3e-6, 1.5e-6, 2.0e-6];

/// Share of the peak that small products reach, an estimate: in one block, in a grid, as tuned kernels.
const PRODUCT_SHARES: [f64; 3] = [0.2, 0.25, 0.5];

/// Multiply-adds of a multiprocessor per clock in f32 (CUDA C++ programming guide, arithmetic instructions).
const FMA_PER_CLOCK: f64 = 128.0;

impl Gpu {
    /// Shared memory of a block that a job may fill.
    pub(super) fn job_shared_bytes(&self) -> u64 {
        u64::from(self.shared_bytes).saturating_sub(INTERPRETER_BYTES)
    }

    /// `queued_sums`: whether NCCL is there.
    pub fn limits(&self, queued_sums: bool) -> GpuLimits {
        let clock_hz = u64::from(self.clock_khz) * 1000;
        GpuLimits {
            capability: self.capability,
            multiprocessors: self.multiprocessors,
            shared_bytes: self.job_shared_bytes(),
            l2_bytes: u64::from(self.cache_bytes),
            cooperative: self.cooperative,
            queued_sums,
            multiprocessor_flops_per_s: 2.0 * FMA_PER_CLOCK * clock_hz.max(1) as f64,
            instruction_s: INSTRUCTION_S,
            product_shares: PRODUCT_SHARES,
        }
    }
}
