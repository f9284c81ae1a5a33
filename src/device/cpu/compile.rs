//! From a program to the tasks of each thread.
//!
//! Each op splits itself. A barrier stands only where one thread would touch what another one writes: small networks, of
//! which all that is split by rows of the batch stays with the same thread, run through the forward and the backward pass
//! without one.

use super::stage::Stages;
use crate::{
    op::{
        Layout, Op, RowSource,
        run::{NextRows, RowFetch},
        split::{Scratch, Split},
    },
    program::Program,
    vector::matmul::Kernel,
};

/// Compiles programs for a team of `threads`.
pub struct Compiler<'a> {
    pub layout: &'a Layout,
    pub threads: usize,
    /// Decides what is packed.
    pub kernel: Kernel,
}

impl Compiler<'_> {
    /// The stages of a program; the scratch memory that they need is added up.
    pub fn stages(&self, program: &Program, scratch: &mut Scratch) -> Stages {
        let mut split = Split::new(self.layout, self.threads, self.kernel, scratch);
        let gather = program.instructions.iter().find_map(|i| match &i.op {
            Op::Gather(gather) => Some(gather),
            _ => None,
        });
        if let Some(gather) = gather {
            split.features = program.features_in_place().map(|x| (x, RowFetch::new(gather, self.layout)));
            let first = program.batch + gather.first;
            let next = NextRows { first, rows: gather.rows, width: gather.width };
            split.fetched = matches!(gather.source, RowSource::Order(_)).then_some((gather.x, next));
        }
        for instruction in &program.instructions {
            split.phase = instruction.phase;
            instruction.op.split(&mut split);
        }
        let mut stages = Stages::new(self.threads);
        split.steps.into_iter().for_each(|step| stages.push(step));
        stages
    }
}
