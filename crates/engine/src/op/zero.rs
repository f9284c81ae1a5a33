//! Fills with zeros: the gradients of a device that has no rows of a batch.

use super::{
    Access, Cost, Encoder, Kind, Operation, Record, Refused, Slice,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Zero {
    pub of: Slice,
}

impl Operation for Zero {
    fn access(&self) -> Access {
        Access::new([], [self.of])
    }

    fn cost(&self) -> Cost {
        Cost::new(0, self.of.len)
    }

    fn reference(&self, memory: &mut Memory) {
        memory.set(self.of, &vec![0.0; self.of.len]);
    }

    fn split(&self, split: &mut Split<'_>) {
        split.each(self.of.len, |part| (Job, Access::new([], [self.of.part(part)])));
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        e.numbered(Kind::Zero, self.of.len, [self.of])
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Job;

impl Job {
    pub(super) fn run(&self, (_, [of, ..]): Slices<'_>, _: &mut Context<'_>) {
        of.fill(0.0);
    }
}
