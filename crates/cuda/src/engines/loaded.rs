//! The programs of one kind, training or validation, with the engine that runs them.

use super::{
    compiled::Compiled,
    gpu_context::GpuContext,
    steps::{LaunchKind, Steps},
};
use crate::{device::DeviceError, launch::Graph, plan::Engine};

pub const MOST_STEPS: usize = 1 << 14;
/// Steps per graph, so that the cost of its launch is shared by many.
pub const GRAPH_STEPS: usize = 16;
/// The most steps of a block if they are nodes of graphs; see [`MOST_QUEUED`].
pub const MOST_IN_GRAPHS: usize = 1 << 12;
/// The most steps of a block if every instruction is a launch and phases are marked.
pub const MOST_LAUNCHED: usize = 16;
/// The most launches and marks of a block; the device holds two blocks. A stream accepts about a thousand
/// launches (NVIDIA documents no number; users have reported 1,024). After that the next launch waits inside
/// the driver until there is room, which would be forever if the GPU hangs.
pub const MOST_QUEUED: usize = 400;

/// How the programs of one kind run.
pub enum LoadedEngine {
    Persistent {
        threads: u32,
    },
    Cooperative {
        blocks: u32,
    },
    /// See [`Engine::Graph`]: one graph of many full steps, one of a single step, one of the last step.
    Graph {
        many: Graph,
        one: Graph,
        last: Option<Graph>,
    },
    Launch,
}

/// Programs of one kind and their engine.
pub struct Loaded {
    /// Created at its first use, on each GPU's own thread: capturing a sum may make NCCL connect the GPUs,
    /// for which all must take part. Dropped first, since graphs hold what they captured.
    pub loaded_engine: Option<LoadedEngine>,
    /// Kernels compiled for these programs, used instead of the interpreter.
    pub compiled: Option<Compiled>,
    pub full: Steps,
    pub last: Option<Steps>,
    pub engine: Engine,
    pub elements: usize,
    /// Worst-case seconds of a step; see [`HangTimeout`](crate::launch::HangTimeout).
    pub slowest_s: f64,
}

impl Loaded {
    /// Loads the engine, unless it is loaded.
    pub fn load(&mut self, gpu: &GpuContext) -> Result<(), DeviceError> {
        if self.loaded_engine.is_none() {
            self.loaded_engine = Some(self.load_engine(gpu)?);
        }
        Ok(())
    }

    /// Rows of a full global batch.
    pub fn batch(&self) -> usize {
        usize::try_from(self.full.rows).unwrap_or(1).max(1)
    }

    /// The largest number of steps in a block, of epochs with `per_epoch` steps.
    pub fn most_steps(&self, per_epoch: usize) -> usize {
        let (most, launches) = match self.engine {
            Engine::Launch => return self.most_launched(),
            Engine::Graph => (MOST_IN_GRAPHS, per_epoch / GRAPH_STEPS + per_epoch % GRAPH_STEPS + 1),
            Engine::Compiled if self.compiled.is_some() => (MOST_STEPS, 0),
            _ => (MOST_STEPS, 2),
        };
        let epochs = MOST_QUEUED.checked_div(launches).map_or(usize::MAX, |epochs| epochs.max(1));
        epochs.saturating_mul(per_epoch).min(most)
    }

    fn most_launched(&self) -> usize {
        (MOST_QUEUED / (self.full.queued() + self.step_marks())).clamp(1, MOST_LAUNCHED)
    }

    /// The most marks of a block.
    pub fn marks(&self) -> usize {
        if self.engine == Engine::Launch { self.most_launched() * self.step_marks() } else { 0 }
    }

    fn step_marks(&self) -> usize {
        self.last.as_ref().map_or(0, Steps::marks).max(self.full.marks())
    }

    /// Runs every all-reduce of the programs once, parts and wholes, on zeros.
    pub fn sum_zeros(&self, gpu: &GpuContext) -> Result<(), DeviceError> {
        let launches = self.full.launches.iter().chain(self.last.iter().flat_map(|last| &last.launches));
        let is_sum =
            |work: &_| matches!(work, LaunchKind::AllReduce { .. } | LaunchKind::StartAllReduce { .. });
        let mut sums = launches.filter(|launch| is_sum(&launch.work));
        sums.try_for_each(|launch| gpu.queue(&launch.work))
    }
}
