//! The engines that run steps.

use crate::units::named;

named! {
    pub enum Engine {
        Serial = "serial",
        Team = "team",
        /// One block of a GPU keeps the trial in its shared memory and runs hundreds of steps per launch.
        Persistent = "persistent",
        /// The same by a kernel that is compiled for the trial.
        Compiled = "compiled",
        /// All blocks of one GPU launch interpret the program together.
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
}

/// Why a trial has its engine.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineReason {
    Spec,
    OneThread,
    ThreadPerDevice,
    /// A team must save enough of a step's time, in seconds by one thread and by all.
    Threads {
        alone_s: f64,
        together_s: f64,
        threads: usize,
        /// Whether the step reads rows of a file, at typical rates.
        reads_file: bool,
    },
    /// All-reduce is queued among the kernels, so that a graph can hold it.
    QueuedSums,
    SumsOnHost,
    /// The least seconds of a step, in ascending order.
    Fastest {
        steps_s: Vec<(Engine, f64)>,
        /// Whether they follow from measured rates.
        measured: bool,
    },
    /// A trial on blank rows.
    Tried {
        tried: Vec<Tried>,
        /// Cores that other processes held meanwhile.
        held: usize,
        took_s: f64,
    },
    /// The run that goes on began with it.
    Begun,
}

impl EngineReason {
    /// Seconds of a step by one thread and by a team, if both were tried.
    pub fn tried_s(&self, threads: usize) -> Option<[f64; 2]> {
        let Self::Tried { tried, .. } = self else { return None };
        let step_s = |threads| tried.iter().find(|own| own.threads == threads).map(|own| own.step_s);
        Some([step_s(1)?, step_s(threads)?])
    }
}

/// What a trial found of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    pub engine: Engine,
    pub threads: usize,
    pub step_s: f64,
}
