//! The sum over all devices of a run.

use super::{
    Access, Cost, Encoder, Operation, Record, Refused, Slice,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};

/// Sums over all devices of the run, in place: afterwards every device holds the same bits.
#[derive(Clone, Debug, PartialEq)]
pub struct AllReduce {
    /// Gradients and the cells that follow them.
    pub of: Slice,
    /// How many of these elements are gradients and metrics; the others are padding.
    pub payload: usize,
}

impl Operation for AllReduce {
    fn access(&self) -> Access {
        Access::new([], [self.of])
    }

    fn cost(&self) -> Cost {
        Cost::new(self.of.len, 2 * self.of.len)
    }

    /// Nothing to do: the reference runs on a single device.
    fn reference(&self, _: &mut Memory) {}

    fn split(&self, split: &mut Split<'_>) {
        split.single(Job, Access::new([], [self.of]));
    }

    /// There is no such kernel: the GPU's collectives do the work. Only checks that the slice has a place.
    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        e.places([self.of])?;
        Err(Refused::AllReduce(self.of))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Job;

impl Job {
    pub(super) fn run(&self, (_, [of, ..]): Slices<'_>, context: &mut Context<'_>) {
        context.worker.all_reduce(of, context.at.step);
    }
}
