//! Programs of one kind, training or validation, with the engine that runs them.

use super::{
    engine::Runner,
    ground::Ground,
    steps::{Steps, Work},
};
use crate::{device::DeviceError, plan::Engine, program::Phase};

/// Steps that are queued at once, at most.
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
    pub runner: Option<Runner>,
    pub full: Steps,
    pub last: Option<Steps>,
    pub engine: Engine,
    /// Numbers of the arena that its programs use.
    pub numbers: usize,
    /// Seconds that a step takes on the slowest of GPUs.
    pub slowest_s: f64,
}

impl Loaded {
    pub fn runner(&mut self, ground: &Ground) -> Result<&Runner, DeviceError> {
        match self.runner.take() {
            Some(runner) => Ok(self.runner.insert(runner)),
            None => {
                let made = Runner::new(self.engine, ground, &self.full, self.last.as_ref(), self.numbers)?;
                Ok(self.runner.insert(made))
            }
        }
    }

    /// Steps of it that a block may have.
    pub fn most_steps(&self) -> usize {
        match self.engine {
            Engine::Launch => {
                let each = self.full.nodes.len() + Phase::ALL.len() + 1;
                (MOST_QUEUED / each).clamp(1, MOST_LAUNCHED)
            }
            Engine::Graph => MOST_IN_GRAPHS,
            _ => MOST_STEPS,
        }
    }

    /// Does every sum over GPUs once, in place: of zeros, before there is anything else.
    pub fn sum_zeros(&self, ground: &Ground) -> Result<(), DeviceError> {
        let nodes = self.full.nodes.iter().chain(self.last.iter().flat_map(|last| &last.nodes));
        let mut sums = nodes.filter(|node| matches!(node.work, Work::AllReduce { .. }));
        sums.try_for_each(|node| ground.queue(&node.work))
    }
}
