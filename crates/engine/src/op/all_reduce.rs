//! The sum over all devices of a run, and its early start.

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

/// Starts the sum of a part of the gradients, which goes on while the step computes others. Only several processes
/// have it.
#[derive(Clone, Debug, PartialEq)]
pub struct StartAllReduce {
    /// Ends where the part started before it begins.
    pub of: Slice,
    /// Whether the elements themselves are summed, by a GPU, or a copy of them, which the whole sum then uses.
    pub in_place: bool,
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
        split.single(Job::Finish, Access::new([], [self.of]));
    }

    /// There is no such kernel: the GPU's collectives do the work. Only checks that the slice has a place.
    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        e.places([self.of])?;
        Err(Refused::AllReduce(self.of))
    }
}

impl Operation for StartAllReduce {
    fn access(&self) -> Access {
        if self.in_place { Access::new([], [self.of]) } else { Access::new([self.of], []) }
    }

    /// That of the copy: the whole sum counts the rest.
    fn cost(&self) -> Cost {
        Cost::new(0, if self.in_place { 0 } else { 2 * self.of.len })
    }

    fn reference(&self, _: &mut Memory) {}

    fn split(&self, split: &mut Split<'_>) {
        split.single(Job::Start, Access::new([self.of], []));
    }

    /// As for the whole sum.
    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        e.places([self.of])?;
        Err(Refused::StartAllReduce(self.of))
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Reads a part of the elements.
    Start,
    /// Writes all elements.
    Finish,
}

impl Job {
    pub(super) fn run(&self, ([part, ..], [all, ..]): Slices<'_>, context: &mut Context<'_>) {
        let (step, worker) = (context.at.step + 1, &mut *context.worker);
        match self {
            Self::Start => {
                worker.sum(|collective| collective.start(part, step));
            }
            Self::Finish => {
                if worker.sum(|collective| collective.all_reduce(all, step)) {
                    worker.all_reduces.0 += 1;
                    worker.all_reduce_bytes = 4 * all.len() as u64;
                }
            }
        }
    }
}
