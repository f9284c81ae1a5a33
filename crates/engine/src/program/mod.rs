//! A training step as data: a short, fixed list of instructions over buffers whose sizes are known in
//! advance.
//!
//! It is pure data with many uses: `runner check` prints it, its FLOPs and bytes give the lower bound that a
//! measured step is compared with, each instruction is labelled with its phase, and every device runs it.

mod bf16_copies;
mod early_sums;
mod in_place;
mod initial;
mod lower;
mod memory_plan;
mod merged;
mod step_source;

pub use crate::op::*;
pub use bf16_copies::{Bf16Copies, library_operands};
pub use initial::{exported, imported, initial_parameter};
pub use lower::{Options, Shard, lower, lower_inference};
pub use memory_plan::{MemoryPlan, Offsets};
pub use step_source::{StepOptions, StepRoom, StepSource};

use crate::vector::matmul::Kernel;

/// The most columns of a packed panel.
const PANEL: usize = 32;

/// The instructions of one kind of step, for one number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Rows of the global batch; the position in the data advances by this much.
    pub batch: usize,
    /// This device's rows of the batch.
    pub rows: usize,
    pub instructions: Vec<Instruction>,
}

impl Program {
    /// Floating-point operations and bytes of one run.
    pub fn cost(&self) -> Cost {
        self.instructions.iter().map(|i| i.op.cost()).sum()
    }
}

/// All programs of a trial; they share one layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Programs {
    pub layout: Layout,
    /// One optimizer step on a full batch.
    pub train: Program,
    /// One optimizer step on the last batch of an epoch, if that is smaller.
    pub train_last: Option<Program>,
    /// One chunk of validation rows: no dropout, no backward.
    pub validate: Option<Program>,
    /// The last validation chunk, if that is smaller.
    pub validate_last: Option<Program>,
}

impl Programs {
    /// Bytes of all buffers except the data, as [`MemoryPlan`] lays them out.
    pub fn arena_bytes(&self) -> u64 {
        let log = self.layout.buffers.get(self.layout.log.0).map_or(0, |log| aligned(log.len));
        (MemoryPlan::new(self).elements() as u64).saturating_add(log as u64).saturating_mul(4)
    }

    /// Bytes that the CPU needs to pack matrices for the products of a step or of a chunk, rounded up. With
    /// `bf16`, both operands of each product are packed.
    pub fn packed_bytes(&self, bf16: bool) -> u64 {
        let packed = |Instruction { op, .. }: &Instruction| {
            let [m, k, n] = op.product()?;
            if bf16 {
                let [m, k, n] = [m, k, n].map(|size| size.next_multiple_of(PANEL) as u64);
                return Some(m.saturating_add(n).saturating_mul(k).saturating_mul(2));
            }
            let packs = matches!(op, Op::InputGradient(_)) || Kernel::portable().worth_packing(m, n);
            packs.then(|| (k as u64).saturating_mul(n.next_multiple_of(PANEL) as u64).saturating_mul(4))
        };
        let of =
            |program: &Program| program.instructions.iter().filter_map(packed).fold(0, u64::saturating_add);
        of(&self.train).max(self.validate.as_ref().map_or(0, of))
    }
}
