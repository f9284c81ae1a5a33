//! The results of a step for the host: a row of the log, running sums, the flag for a loss that is not
//! finite.

use super::{
    Access, BufferId, Cost, Emitter, Encoder, Kind, NON_FINITE, Operation, Record, Refused, Slice,
    record::FLAG_VALIDATION,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};

/// Records a step's scalars.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// The scalars; the first is the loss.
    pub cells: Slice,
    pub to: LogTarget,
}

/// All targets except the validation's sums raise the non-finite flag if the first cell is not finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LogTarget {
    /// A row of this buffer, at the device's slot counter.
    Row(BufferId),
    /// The device's sums in double precision. Each cell is added times `rows`: the number of rows if cells
    /// are means, 1 if they are sums. The epoch's sums stop growing once the flag is raised.
    Sums { rows: usize, sums: Accumulator },
    /// Only the flag.
    Flag,
}

/// The sets of running sums that a device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Accumulator {
    /// The sums of the epoch's training steps.
    Epoch,
    Validation,
}

impl Operation for Log {
    fn access(&self) -> Access {
        Access::new([self.cells], [NON_FINITE])
    }

    fn cost(&self) -> Cost {
        let copies = if self.to == LogTarget::Flag { 1 } else { 2 };
        Cost::new(0, copies * self.cells.len)
    }

    fn reference(&self, memory: &mut Memory) {
        let v = memory.get(self.cells);
        let watched = memory.non_finite;
        if !matches!(self.to, LogTarget::Sums { sums: Accumulator::Validation, .. }) {
            memory.non_finite |= !v[0].is_finite();
        }
        match self.to {
            LogTarget::Row(buffer) => {
                memory.set(Slice { buffer, offset: memory.slot * v.len(), len: v.len() }, &v);
                memory.slot += 1;
            }
            LogTarget::Sums { sums: Accumulator::Epoch, .. } if watched => {}
            LogTarget::Sums { rows, sums } => {
                let to = &mut memory.sums[sums as usize];
                to.resize(v.len(), 0.0);
                to.iter_mut().zip(v).for_each(|(s, v)| *s += v * rows as f64);
            }
            LogTarget::Flag => {}
        }
    }

    fn split(&self, split: &mut Split<'_>) {
        let log = match self.to {
            LogTarget::Row(log) => split.layout.whole(log),
            _ => Slice::default(),
        };
        split.single(self.to, Access::new([self.cells], [log]));
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let (kind, rows, flags) = match self.to {
            LogTarget::Row(_) => (Kind::LogAppend, 0, 0),
            LogTarget::Sums { rows, sums: Accumulator::Epoch } => (Kind::Accumulate, rows, 0),
            LogTarget::Sums { rows, .. } => (Kind::Accumulate, rows, FLAG_VALIDATION),
            LogTarget::Flag => (Kind::Watch, 0, 0),
        };
        Ok(Record { rows: e.int(rows)?, flags, ..e.numbered(kind, self.cells.len, [self.cells])? })
    }

    fn emit(&self, r: &Record, e: &Emitter) -> String {
        let rows = if let LogTarget::Sums { .. } = self.to { e.rows[1] as i32 } else { r.rows };
        e.call(r, &Record { rows, ..*r })
    }
}

impl LogTarget {
    /// Reads cells, writes the log.
    #[inline]
    pub(super) fn run(&self, ([cells, ..], [log, ..]): Slices<'_>, context: &mut Context<'_>) {
        let (at, worker) = (&context.at, &mut *context.worker);
        match *self {
            Self::Row(_) => {
                log[at.slot * cells.len()..][..cells.len()].copy_from_slice(cells);
                worker.watch(cells[0], at.step);
            }
            Self::Sums { rows, sums } => {
                if sums == Accumulator::Epoch {
                    // Steps after the first loss that is not finite do not count.
                    if worker.non_finite.is_some() {
                        return;
                    }
                    worker.watch(cells[0], at.step);
                }
                let to = &mut worker.sums[sums as usize];
                to.resize(cells.len(), 0.0);
                to.iter_mut().zip(cells).for_each(|(s, v)| *s += f64::from(*v) * rows as f64);
            }
            Self::Flag => worker.watch(cells[0], at.step),
        }
    }
}
