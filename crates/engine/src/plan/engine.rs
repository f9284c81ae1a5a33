//! The engines that run steps.

use super::rates::Origin;
use crate::units::named;

named! {
    pub enum Engine {
        Serial = "serial",
        Team = "team",
        /// One block of a GPU keeps the trial in its shared memory and runs hundreds of steps per launch.
        Persistent = "persistent",
        /// Like `persistent`, with a kernel that is compiled for the trial.
        Compiled = "compiled",
        /// All blocks of one GPU launch interpret the program together, with a barrier over the grid.
        Cooperative = "cooperative",
        /// Steps are captured once as a CUDA graph and replayed.
        Graph = "graph",
        /// Every instruction is a separate, timed launch.
        Launch = "launch",
    }
}

impl Engine {
    /// Whether it runs on a GPU, asynchronously to the host.
    pub fn is_gpu(self) -> bool {
        !matches!(self, Self::Serial | Self::Team)
    }

    /// Whether the GPU's library computes its large products.
    pub fn uses_library(self) -> bool {
        matches!(self, Self::Graph | Self::Launch)
    }
}

/// Why a trial has its engine.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineReason {
    Spec,
    OneThread,
    ThreadPerDevice,
    /// Whether a team saves enough of a step's time: seconds with one thread and with all.
    Threads {
        alone_s: f64,
        together_s: f64,
        threads: usize,
        /// Whether the step reads rows from a file; that cost is at typical rates.
        reads_file: bool,
    },
    /// All-reduce is queued like a kernel, so a graph can contain it.
    QueuedSums,
    SumsOnHost,
    /// The estimated seconds of a step by engine, in ascending order.
    Fastest {
        steps_s: Vec<(Engine, f64)>,
        /// Where the rates come from that the estimates follow from; without rates, the limits of the GPU.
        by: Option<Origin>,
    },
    /// The trials of a sweep share a compiled kernel, which none of them would repay alone, or the engine with which others of
    /// them began.
    Together {
        /// Steps of all of them.
        steps: u64,
        /// As in `Fastest`.
        steps_s: Vec<(Engine, f64)>,
    },
    /// The candidates were timed in a few steps on made-up rows.
    Tried {
        tried: Vec<Tried>,
        /// Cores that other processes used meanwhile.
        held: usize,
        took_s: f64,
    },
    /// A resumed run keeps the engine that it began with.
    Begun,
}

impl EngineReason {
    /// Seconds of a step with one thread and with a team, if both were tried.
    pub fn tried_s(&self, threads: usize) -> Option<[f64; 2]> {
        let Self::Tried { tried, .. } = self else { return None };
        let step_s = |threads| tried.iter().find(|own| own.threads == threads).map(|own| own.step_s);
        Some([step_s(1)?, step_s(threads)?])
    }
}

/// What was measured of an engine that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    pub engine: Engine,
    pub threads: usize,
    pub step_s: f64,
}
