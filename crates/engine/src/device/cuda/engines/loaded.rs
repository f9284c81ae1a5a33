//! Programs of one kind, training or validation, with the engine that runs them.

use super::{
    compiled::Compiled,
    gpu_context::GpuContext,
    steps::{LaunchKind, Steps},
};
use crate::{
    device::{DeviceError, cuda::launch::Graph},
    plan::Engine,
    program::Phase,
};

pub const MOST_STEPS: usize = 1 << 14;
/// Steps of a block where they are nodes of graphs, 16 steps each; see [`MOST_QUEUED`].
pub const MOST_IN_GRAPHS: usize = 1 << 12;
/// Steps of a block where every instruction is a launch and its phases are marked.
pub const MOST_LAUNCHED: usize = 16;
/// Launches and marks of a block, at most; two blocks are on the device. A stream takes about a thousand launches
/// (NVIDIA documents no number; users have met 1,024). Then the next launch waits within the driver until there is
/// room: for ever, behind one that hangs.
pub const MOST_QUEUED: usize = 400;

/// How the programs of one kind run: those of training or of validation.
pub enum LoadedEngine {
    Persistent {
        threads: u32,
    },
    Cooperative {
        blocks: u32,
    },
    /// See [`Engine::Graph`]: of many full steps, of one, and of the last.
    Graph {
        many: Graph,
        one: Graph,
        last: Option<Graph>,
    },
    Launch,
}

/// Programs of one kind and their engine.
pub struct Loaded {
    /// Made at its first use: to capture a sum by NCCL each GPU needs its own thread, since the library may connect the
    /// GPUs then. Dropped first: graphs hold what they captured.
    pub loaded_engine: Option<LoadedEngine>,
    /// Kernels for these programs alone, in the place of the interpreter.
    pub compiled: Option<Compiled>,
    pub full: Steps,
    pub last: Option<Steps>,
    pub engine: Engine,
    pub elements: usize,
    /// Worst-case seconds of a step; see [`HangTimeout`](crate::device::cuda::launch::HangTimeout).
    pub slowest_s: f64,
}

impl Loaded {
    /// Loads the engine, unless it is.
    pub fn load(&mut self, gpu: &GpuContext) -> Result<(), DeviceError> {
        if self.loaded_engine.is_none() {
            self.loaded_engine = Some(self.load_engine(gpu)?);
        }
        Ok(())
    }

    /// The largest number of steps in a block.
    pub fn most_steps(&self) -> usize {
        match self.engine {
            Engine::Launch => {
                let each = self.full.queued() + Phase::ALL.len();
                (MOST_QUEUED / each).clamp(1, MOST_LAUNCHED)
            }
            Engine::Graph => MOST_IN_GRAPHS,
            _ => MOST_STEPS,
        }
    }

    /// Runs every sum over GPUs once, on zeros.
    pub fn sum_zeros(&self, gpu: &GpuContext) -> Result<(), DeviceError> {
        let launches = self.full.launches.iter().chain(self.last.iter().flat_map(|last| &last.launches));
        let mut sums = launches.filter(|launch| matches!(launch.work, LaunchKind::AllReduce { .. }));
        sums.try_for_each(|launch| gpu.queue(&launch.work))
    }
}
