//! What a step leaves for the host: a row of the log, running sums, the flag of a loss that is not finite.

use super::{
    Access, BufferId, Cost, Encoder, Kind, NON_FINITE, Operation, Record, Refused, Slice,
    record::FLAG_VALIDATION,
    reference::Memory,
    run::{Context, Slices, WorkerState},
    split::Split,
};

/// Appends the cells to the log at the device's slot counter, and raises the non-finite flag by the first (the loss).
#[derive(Clone, Debug, PartialEq)]
pub struct LogAppend {
    /// `[log_width]`.
    pub cells: Slice,
    pub log: BufferId,
}

/// Adds to the device's sums in double precision. The epoch's raise the non-finite flag by the first cell, and take
/// nothing more once it is raised; those of the validation know nothing of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Accumulate {
    /// Cells to add, each times `rows`.
    pub cells: Slice,
    /// The weight: the rows that the cells are means of, 1 where they are sums.
    pub rows: usize,
    pub sums: Accumulator,
}

/// Raises the non-finite flag if the cell is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    pub cell: Slice,
}

/// The sets of running sums that a device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulator {
    /// The sums of the epoch's training steps.
    Epoch,
    Validation,
}

impl Operation for LogAppend {
    fn access(&self) -> Access {
        Access::new([self.cells], [NON_FINITE])
    }

    fn cost(&self) -> Cost {
        Cost::new(0, 2 * self.cells.len)
    }

    fn reference(&self, memory: &mut Memory) {
        let v = memory.get(self.cells);
        memory.non_finite |= !v[0].is_finite();
        memory.set(Slice { buffer: self.log, offset: memory.slot * v.len(), len: v.len() }, &v);
        memory.slot += 1;
    }

    fn split(&self, split: &mut Split<'_>) {
        let log = split.layout.whole(self.log);
        split.single(Job::Append, Access::new([self.cells], [log]));
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record { n: e.int(self.cells.len)?, at: e.places([self.cells])?, ..Record::new(Kind::LogAppend) })
    }
}

impl Operation for Accumulate {
    fn access(&self) -> Access {
        Access::new([self.cells], [NON_FINITE])
    }

    fn cost(&self) -> Cost {
        Cost::new(0, 2 * self.cells.len)
    }

    fn reference(&self, memory: &mut Memory) {
        let v = memory.get(self.cells);
        if self.sums == Accumulator::Epoch {
            if memory.non_finite {
                return;
            }
            memory.non_finite = !v[0].is_finite();
        }
        let to = &mut memory.sums[usize::from(self.sums == Accumulator::Validation)];
        to.resize(v.len(), 0.0);
        to.iter_mut().zip(v).for_each(|(s, v)| *s += v * self.rows as f64);
    }

    fn split(&self, split: &mut Split<'_>) {
        let job = Job::Accumulate { rows: self.rows, sums: self.sums };
        split.single(job, Access::new([self.cells], []));
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record {
            n: e.int(self.cells.len)?,
            rows: e.int(self.rows)?,
            flags: if self.sums == Accumulator::Validation { FLAG_VALIDATION } else { 0 },
            at: e.places([self.cells])?,
            ..Record::new(Kind::Accumulate)
        })
    }
}

impl Operation for Watch {
    fn access(&self) -> Access {
        Access::new([self.cell], [NON_FINITE])
    }

    fn cost(&self) -> Cost {
        Cost::new(0, 1)
    }

    fn reference(&self, memory: &mut Memory) {
        memory.non_finite |= !memory.get(self.cell)[0].is_finite();
    }

    fn split(&self, split: &mut Split<'_>) {
        split.single(Job::Watch, Access::new([self.cell], []));
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record { at: e.places([self.cell])?, ..Record::new(Kind::Watch) })
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Job {
    Append,
    /// Adds to sums that the first thread keeps.
    Accumulate {
        rows: usize,
        sums: Accumulator,
    },
    Watch,
}

impl Job {
    #[inline]
    pub(super) fn run(
        &self,
        ([cells, ..], [log, ..]): Slices<'_>,
        context: &Context<'_>,
        tally: &mut WorkerState,
    ) -> std::io::Result<()> {
        let at = &context.at;
        match *self {
            Self::Append => {
                log[at.slot * cells.len()..][..cells.len()].copy_from_slice(cells);
                tally.watch(cells[0], at.step);
            }
            Self::Accumulate { rows, sums } => {
                if sums == Accumulator::Epoch {
                    // What comes after the first loss that is not finite never happened.
                    if tally.non_finite.is_some() {
                        return Ok(());
                    }
                    tally.watch(cells[0], at.step);
                }
                let to = &mut tally.sums[usize::from(sums == Accumulator::Validation)];
                to.resize(cells.len(), 0.0);
                to.iter_mut().zip(cells).for_each(|(s, v)| *s += f64::from(*v) * rows as f64);
            }
            Self::Watch => tally.watch(cells[0], at.step),
        }
        Ok(())
    }
}
