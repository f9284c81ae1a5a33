//! Speeds of a GPU as measured there, and what they are to each of its engines.
//!
//! | engine | an instruction costs | products run at | bytes come from |
//! | --- | --- | --- | --- |
//! | `launch` | a launch in a stream | the library's rate in the run's precision | second-level cache or memory |
//! | `graph` | a node of a graph | the same | the same |
//! | `cooperative` | a barrier over the grid | the rate of our own products over all multiprocessors | the same |
//! | `persistent` | a barrier within the block | that of one multiprocessor | shared memory: what its banks give |
//!
//! Rows of the data lie in the GPU's memory whatever the engine, and come from there or from the second-level cache. To the
//! block of `persistent` they come through its multiprocessor's first-level cache, which is one unit with the shared memory
//! (CUDA C++ programming guide, shared memory), so that they cannot come faster than from there.

use serde::{Deserialize, Serialize};

use super::{Engine, MachineRates, Origin, Processor, Speed};
use crate::spec::Precision;

/// Bytes that the banks of a multiprocessor's shared memory give in a clock: 32 of four bytes (CUDA C++ programming guide,
/// shared memory).
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;

/// What was measured of a GPU. Rates are per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuRates {
    /// Of large products in f32, operations per second.
    pub f32_flops_per_s: f64,
    /// The same in tf32.
    pub tf32_flops_per_s: f64,
    /// The same in bf16.
    pub bf16_flops_per_s: f64,
    /// Of our own products over all multiprocessors, within a cooperative grid.
    pub grid_flops_per_s: f64,
    /// Of those within one persistent block.
    pub block_flops_per_s: f64,
    /// Of functions of single numbers.
    pub elementwise_per_s: f64,
    /// From the second-level cache.
    pub cache_bytes_per_s: f64,
    /// From memory.
    pub memory_bytes_per_s: f64,
    /// Of shared memory: not measured but counted, from clock and banks.
    pub shared_bytes_per_s: f64,
    /// Pinned host memory to the device.
    pub h2d_bytes_per_s: f64,
    /// The device to pinned host memory.
    pub d2h_bytes_per_s: f64,
    /// A copy of a few bytes to the device.
    pub h2d_latency_s: f64,
    /// The same to the host.
    pub d2h_latency_s: f64,
    /// A launch behind another in a stream.
    pub launch_s: f64,
    /// A node behind another in a graph.
    pub node_s: f64,
    /// An instruction of a cooperative grid, its barrier included.
    pub barrier_s: f64,
    /// The same within the persistent block.
    pub meeting_s: f64,
    /// A wait of the host for a kernel that does next to nothing, from its launch on.
    pub sync_s: f64,
    /// Handing over a block of one step and reading its loss, beside the step.
    pub block_s: f64,
    /// Bytes of the second-level cache.
    pub cache_bytes: u64,
}

impl GpuRates {
    /// What the banks of shared memory give at a clock.
    pub fn shared_of(clock_hz: u64) -> f64 {
        SHARED_BYTES_PER_CLOCK * clock_hz as f64
    }

    /// Of large products.
    pub fn product(&self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.f32_flops_per_s,
            Precision::Tf32 => self.tf32_flops_per_s,
            Precision::Bf16 => self.bf16_flops_per_s,
        }
    }

    /// What a step by this engine goes by, with nothing known of sums over several GPUs.
    pub fn speed(&self, engine: Engine, precision: Precision) -> Speed {
        Speed {
            rates: self.by(engine, precision),
            rows_bytes_per_s: self.rows(engine),
            cache_bytes: self.cache_bytes,
            sums: None,
            upload_bytes_per_s: Some(self.h2d_bytes_per_s),
            fetch: None,
        }
    }

    /// Rows of the data, from second-level cache and from memory.
    fn rows(&self, engine: Engine) -> [f64; 2] {
        let most = if engine == Engine::Persistent { self.shared_bytes_per_s } else { f64::INFINITY };
        [self.cache_bytes_per_s, self.memory_bytes_per_s].map(|rate| rate.min(most))
    }

    /// What a step by this engine goes by, but for the rows that it fetches.
    pub fn by(&self, engine: Engine, precision: Precision) -> MachineRates {
        let library = self.product(precision);
        let (processor, flops_per_s, instruction_s) = match engine {
            Engine::Persistent => (Processor::GpuWalk, self.block_flops_per_s, self.meeting_s),
            Engine::Cooperative => (Processor::GpuWalk, self.grid_flops_per_s, self.barrier_s),
            // The CPU's engines have no rates here; a launch is the nearest.
            Engine::Launch | Engine::Serial | Engine::Team => (Processor::Gpu, library, self.launch_s),
            Engine::Graph => (Processor::Gpu, library, self.node_s),
        };
        let (cache, memory) = match engine {
            Engine::Persistent => (self.shared_bytes_per_s, self.shared_bytes_per_s),
            _ => (self.cache_bytes_per_s, self.memory_bytes_per_s),
        };
        MachineRates {
            origin: Origin::Measured,
            processor,
            flops_per_s,
            elementwise_per_s: self.elementwise_per_s,
            cache_bytes_per_s: cache,
            memory_bytes_per_s: memory,
            product_scaling: 0.0,
            memory_scaling: 0.0,
            instruction_s,
            barrier_s: 0.0,
            block_s: self.block_s,
        }
    }

    /// Whether every figure can be one of a machine.
    pub fn is_sane(&self) -> bool {
        let speeds = [
            self.f32_flops_per_s,
            self.tf32_flops_per_s,
            self.bf16_flops_per_s,
            self.grid_flops_per_s,
            self.block_flops_per_s,
            self.elementwise_per_s,
            self.cache_bytes_per_s,
            self.memory_bytes_per_s,
            self.shared_bytes_per_s,
            self.h2d_bytes_per_s,
            self.d2h_bytes_per_s,
        ];
        let times = [
            self.h2d_latency_s,
            self.d2h_latency_s,
            self.launch_s,
            self.node_s,
            self.barrier_s,
            self.meeting_s,
            self.sync_s,
            self.block_s,
        ];
        speeds.iter().all(|v| v.is_finite() && *v > 0.0) && times.iter().all(|v| v.is_finite() && *v >= 0.0)
    }
}

/// What a sum over several GPUs takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduceRates {
    /// GPUs that took part.
    pub gpus: u32,
    /// Of a few numbers.
    pub small_s: f64,
    /// Of many: bytes of the sum per second, whatever the links carry for them.
    pub bytes_per_s: f64,
}

impl AllReduceRates {
    /// Seconds of a sum of so many bytes.
    pub fn seconds(&self, bytes: u64) -> f64 {
        self.small_s.max(bytes as f64 / self.bytes_per_s)
    }

    /// Whether both figures can be those of a machine.
    pub fn is_sane(&self) -> bool {
        self.gpus > 1
            && self.small_s.is_finite()
            && self.small_s >= 0.0
            && self.bytes_per_s.is_finite()
            && self.bytes_per_s > 0.0
    }
}
