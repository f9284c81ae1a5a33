//! A training step as data: a short, fixed list of instructions over buffers whose sizes are known beforehand.
//!
//! Pure data, shared by everyone: `runner check` prints it, its FLOPs and bytes give the floor that a measured step is
//! held against, each instruction bears its phase, and every device runs it. May use [`crate::spec`].
//!
//! Conventions: all numbers are f32 (classes too: a class is its index); matrices are row-major; a weight is held as
//! `[in, out]`, the transpose of PyTorch's, so that the forward product reads it along its rows.

mod cost;
mod in_place;
mod initial;
mod layout;
mod lower;
mod memory_plan;
mod op;
mod phase;
pub mod reference;
mod rules;

pub use cost::{Cost, LARGE_PRODUCT};
pub use in_place::IN_PLACE_FROM;
pub use initial::{exported, imported, initial_parameter};
pub use layout::{Buffer, BufferId, Layout, Parameter, Role, Slice};
pub use lower::{Options, Shard, lower};
pub use memory_plan::{MemoryPlan, Offsets};
pub use op::{Accumulator, Instruction, Op, RowSource};
pub use phase::Phase;
pub use rules::{Activation, Hyper, LossKind, UpdateRule};

/// The instructions of one kind of step, for one number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Rows of the global batch: by so many the position moves on.
    pub batch: usize,
    /// Of these, the rows of this device.
    pub rows: usize,
    /// In order.
    pub instructions: Vec<Instruction>,
}

impl Program {
    /// Floating-point operations and bytes of one run.
    pub fn cost(&self) -> Cost {
        self.instructions.iter().map(|i| i.op.cost()).sum()
    }
}

/// All programs of a trial, over one layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Programs {
    /// The buffers.
    pub layout: Layout,
    /// One optimizer step on a full batch.
    pub train: Program,
    /// One on the last batch of an epoch, where that is smaller.
    pub train_last: Option<Program>,
    /// One chunk of validation rows: no dropout, no backward.
    pub validate: Option<Program>,
    /// The last chunk, where that is smaller.
    pub validate_last: Option<Program>,
}
