//! Programs of one kind, training or validation, with the engine that runs them.

use super::{
    engine::LoadedEngine,
    gpu_context::GpuContext,
    steps::{LaunchKind, Steps},
};
use crate::{device::DeviceError, plan::Engine, program::Phase};

pub const MOST_STEPS: usize = 1 << 14;
/// The same where they are nodes of graphs, 16 in each: see [`MOST_QUEUED`].
pub const MOST_IN_GRAPHS: usize = 1 << 12;
/// The same where every instruction is a launch of its own, and its phases are marked.
pub const MOST_LAUNCHED: usize = 16;
/// Launches and marks of a block at most, where each step has several: two blocks are on the device. A stream takes some
/// thousand launches; then the next one waits within the driver till there is room, and for ever behind one that hangs.
/// (NVIDIA documents no number; users have met 1,024.)
pub const MOST_QUEUED: usize = 400;

/// Programs of one kind and their engine.
pub struct Loaded {
    /// Made when it is first used: to capture a sum by NCCL each GPU needs a thread of its own, since the library may
    /// connect them then. It goes first: graphs hold what they captured.
    pub loaded_engine: Option<LoadedEngine>,
    pub full: Steps,
    pub last: Option<Steps>,
    pub engine: Engine,
    pub elements: usize,
    /// Seconds that a step takes on the slowest of GPUs.
    pub slowest_s: f64,
}

impl Loaded {
    pub fn loaded_engine(&mut self, gpu_context: &GpuContext) -> Result<&LoadedEngine, DeviceError> {
        match self.loaded_engine.take() {
            Some(loaded_engine) => Ok(self.loaded_engine.insert(loaded_engine)),
            None => {
                let made = LoadedEngine::new(
                    self.engine,
                    gpu_context,
                    &self.full,
                    self.last.as_ref(),
                    self.elements,
                )?;
                Ok(self.loaded_engine.insert(made))
            }
        }
    }

    /// Steps of it that a block may have.
    pub fn most_steps(&self) -> usize {
        match self.engine {
            Engine::Launch => {
                let each = self.full.launches.len() + Phase::ALL.len() + 1;
                (MOST_QUEUED / each).clamp(1, MOST_LAUNCHED)
            }
            Engine::Graph => MOST_IN_GRAPHS,
            _ => MOST_STEPS,
        }
    }

    /// Does every sum over GPUs once, in place: of zeros, before there is anything else.
    pub fn sum_zeros(&self, gpu_context: &GpuContext) -> Result<(), DeviceError> {
        let launches = self.full.launches.iter().chain(self.last.iter().flat_map(|last| &last.launches));
        let mut sums = launches.filter(|launch| matches!(launch.work, LaunchKind::AllReduce { .. }));
        sums.try_for_each(|launch| gpu_context.queue(&launch.work))
    }
}
