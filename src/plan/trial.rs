//! A trial with every choice made.

use super::{
    AllReducePlan, Chunks, DatasetInfo, Engine, Footprint, LayerRow, LowerBound, ResolvedDevices, gpu,
};
use crate::{program::Programs, spec::Spec};

/// One trial, ready to run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The spec with everything filled in that depends on data and model.
    pub spec: Spec,
    /// What was asked and what is used.
    pub devices: ResolvedDevices,
    /// Names and UUIDs of the GPUs among those.
    pub gpus: Vec<(String, String)>,
    /// What runs the steps.
    pub engine: Engine,
    /// Why that engine.
    pub engine_reason: String,
    /// How its devices sum, where several and GPUs among them.
    pub sums: Option<AllReducePlan>,
    /// CPU threads that run steps.
    pub threads: usize,
    /// Instruction set of the CPU's products.
    pub instruction_set: String,
    /// The layers with their shapes.
    pub layers: Vec<LayerRow>,
    /// The data.
    pub facts: DatasetInfo,
    /// What the first device runs.
    pub programs: Programs,
    /// What each further device runs.
    pub peers: Vec<Programs>,
    /// Optimizer steps per epoch, the last perhaps on fewer rows.
    pub steps_per_epoch: u64,
    /// Steps of the whole run, if nothing ends it early.
    pub steps: u64,
    /// How rows are brought to where they are computed with; `None` where they stay there, or each step fetches its own.
    pub chunks: Option<Chunks>,
    /// Threads that read a chunk of rows.
    pub readers: usize,
    /// The least time a step can take, and why.
    pub lower_bound: LowerBound,
    /// Bytes of resident data.
    pub data_bytes: u64,
    /// All that it takes of memory.
    pub footprint: Footprint,
    /// What it would take with its rows kept in memory, where that is less.
    pub resident: Option<Footprint>,
}

impl Trial {
    /// Steps of `trainer.max_epochs`.
    pub fn steps_of_epochs(&self) -> u64 {
        self.steps_per_epoch.saturating_mul(self.spec.trainer.max_epochs)
    }

    /// Whether a step has a product that a GPU's library does.
    pub fn has_large_product(&self) -> bool {
        gpu::has_large_product(&self.programs)
    }

    /// What each device runs, in the order of [`ResolvedDevices::used`].
    pub fn ranks(&self) -> impl Iterator<Item = &Programs> {
        std::iter::once(&self.programs).chain(&self.peers)
    }
}
