//! Measured rates of a GPU, and the rates of each engine.
//!
//! | engine | an instruction costs | products run at | bytes come from |
//! | --- | --- | --- | --- |
//! | `launch` | a launch in a stream | the library's rate, in the run's precision | L2 cache or memory |
//! | `graph` | a node of a graph | the same | the same |
//! | `cooperative` | a barrier over the grid | our own products on all multiprocessors | the same |
//! | `persistent` | a barrier within the block | our own products on one multiprocessor | shared memory |
//! | `compiled`, one block | as `persistent`, which overestimates it: it has no measured rates | the same | the same |
//! | `compiled`, a grid | nothing: it has no measured rates | the library's rate | L2 cache or memory |
//!
//! With every engine the data's rows are in the GPU's memory and are read from there or from the L2 cache.
//! The block of `persistent` reads them through its multiprocessor's L1 cache. That cache and shared memory
//! are one unit (CUDA C++ Programming Guide, Shared Memory), so the rows cannot be read faster than shared
//! memory.

use serde::{Deserialize, Serialize};

use super::{
    engine::Engine,
    rates::{MachineRates, Origin, Processor, Speed},
};
use crate::spec::Precision;

/// Rates of a GPU, per second, and costs in seconds: measured, or given in the description of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuRates {
    /// Not saved, as that of [`MachineRates`].
    #[serde(skip)]
    pub origin: Origin,
    pub f32_flops_per_s: f64,
    pub tf32_flops_per_s: f64,
    pub bf16_flops_per_s: f64,
    /// FLOPs of this project's matrix products in a cooperative grid over all multiprocessors.
    pub grid_flops_per_s: f64,
    /// FLOPs of this project's matrix products in one persistent block.
    pub block_flops_per_s: f64,
    pub elementwise_per_s: f64,
    pub cache_bytes_per_s: f64,
    pub memory_bytes_per_s: f64,
    /// Bytes of shared memory per second: computed from clock and banks, not measured.
    pub shared_bytes_per_s: f64,
    pub h2d_bytes_per_s: f64,
    pub d2h_bytes_per_s: f64,
    pub h2d_latency_s: f64,
    pub d2h_latency_s: f64,
    pub launch_s: f64,
    pub node_s: f64,
    /// Seconds per instruction of a cooperative grid, with its barrier.
    pub barrier_s: f64,
    /// Seconds per instruction of the persistent block, with its barrier.
    pub block_barrier_s: f64,
    /// Seconds to launch an almost empty kernel and wait for it on the host.
    pub sync_s: f64,
    /// Seconds to launch a block of one step and read its loss, not counting the step itself.
    pub block_s: f64,
    pub cache_bytes: u64,
    /// As [`MachineRates::noise`].
    #[serde(default)]
    pub noise: f64,
}

/// Bytes of shared memory that a multiprocessor moves per clock: 32 banks of four bytes (CUDA C++ Programming Guide, Shared Memory).
pub const SHARED_BYTES_PER_CLOCK: f64 = 128.0;

/// Special functions of a multiprocessor per clock (CUDA C++ Programming Guide, Arithmetic Instructions).
const FUNCTIONS_PER_CLOCK: f64 = 16.0;

impl GpuRates {
    /// The rates of a GPU of which only f32 products, memory and the bus are known, each per second, with its number of multiprocessors
    /// and their clock. Costs and shares are those that were measured on an H100 (2026-11-22) and an H200 (2026-11-26).
    pub fn typical(
        [f32_flops_per_s, memory_bytes_per_s, h2d_bytes_per_s]: [f64; 3],
        (multiprocessors, clock_hz): (u32, f64),
    ) -> Self {
        Self {
            origin: Origin::Given,
            f32_flops_per_s,
            // Where no rate of tensor cores is given, there is none.
            tf32_flops_per_s: f32_flops_per_s,
            bf16_flops_per_s: f32_flops_per_s,
            grid_flops_per_s: 0.013 * f32_flops_per_s,
            block_flops_per_s: 13.6 * clock_hz,
            elementwise_per_s: FUNCTIONS_PER_CLOCK * f64::from(multiprocessors) * clock_hz,
            cache_bytes_per_s: 1.8 * memory_bytes_per_s,
            memory_bytes_per_s,
            shared_bytes_per_s: SHARED_BYTES_PER_CLOCK * clock_hz,
            h2d_bytes_per_s,
            d2h_bytes_per_s: h2d_bytes_per_s,
            h2d_latency_s: 2.2e-6,
            d2h_latency_s: 1.7e-6,
            launch_s: 3.6e-6,
            node_s: 0.93e-6,
            barrier_s: 2.0e-6,
            block_barrier_s: 0.29e-6,
            sync_s: 11e-6,
            block_s: 40e-6,
            cache_bytes: 50 << 20,
            noise: 0.0,
        }
    }

    pub fn product(&self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.f32_flops_per_s,
            Precision::Tf32 => self.tf32_flops_per_s,
            Precision::Bf16 => self.bf16_flops_per_s,
        }
    }

    /// The speed of an engine, without all-reduce. `in_block`: whether the job fits the shared memory of a block.
    pub fn speed(&self, engine: Engine, precision: Precision, in_block: bool) -> Speed {
        let library = self.product(precision);
        let (processor, flops_per_s, instruction_s) = match engine {
            Engine::Compiled if !in_block => (Processor::Gpu, library, 0.0),
            Engine::Persistent | Engine::Compiled => {
                (Processor::GpuWalk, self.block_flops_per_s, self.block_barrier_s)
            }
            Engine::Cooperative => (Processor::GpuWalk, self.grid_flops_per_s, self.barrier_s),
            // The CPU's engines have no rates here; `launch` is the closest.
            Engine::Launch | Engine::Serial | Engine::Team => (Processor::Gpu, library, self.launch_s),
            Engine::Graph => (Processor::Gpu, library, self.node_s),
        };
        let (whole, shared) = ([self.cache_bytes_per_s, self.memory_bytes_per_s], self.shared_bytes_per_s);
        let ([cache_bytes_per_s, memory_bytes_per_s], rows_bytes_per_s) = match engine {
            Engine::Compiled if !in_block => (whole, whole),
            Engine::Persistent | Engine::Compiled => ([shared; 2], whole.map(|rate| rate.min(shared))),
            _ => (whole, whole),
        };
        let rates = MachineRates {
            origin: self.origin,
            processor,
            flops_per_s,
            bf16_flops_per_s: None,
            elementwise_per_s: self.elementwise_per_s,
            cache_bytes_per_s,
            memory_bytes_per_s,
            product_scaling: 0.0,
            memory_scaling: 0.0,
            instruction_s,
            barrier_s: 0.0,
            block_s: self.block_s,
            noise: self.noise,
        };
        let upload_bytes_per_s = Some(self.h2d_bytes_per_s);
        Speed { rates, rows_bytes_per_s, cache_bytes: self.cache_bytes, sums: None, upload_bytes_per_s }
    }
}
