//! The results of a step for the host: a row of the log, running sums, the flag for a loss that is not
//! finite.

use super::{
    Access, BufferId, Cost, Emitter, Encoder, Hyper, Kind, NON_FINITE, Operation, Record, Refused, Slice,
    record::{FLAG_VALIDATION, FLAG_WEIGHTED},
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
    /// are means, 1 if they are sums. If rows are weighted the loss is added times the sum of their weights, which is `rows` by
    /// `loss_scale`. The epoch's sums stop growing once the flag is raised.
    Sums { rows: usize, weighted: bool, sums: Accumulator },
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
            LogTarget::Sums { rows, weighted, sums } => {
                let loss = loss_weight(rows, weighted, &memory.hyper);
                let to = &mut memory.sums[sums as usize];
                to.resize(v.len(), 0.0);
                to[0] += v[0] * loss;
                to.iter_mut().zip(v).skip(1).for_each(|(s, v)| *s += v * rows as f64);
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
            LogTarget::Sums { rows, sums: Accumulator::Validation, .. } => {
                (Kind::Accumulate, rows, FLAG_VALIDATION)
            }
            LogTarget::Sums { rows, weighted, .. } => {
                (Kind::Accumulate, rows, if weighted { FLAG_WEIGHTED } else { 0 })
            }
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
            Self::Sums { rows, weighted, sums } => {
                if sums == Accumulator::Epoch {
                    // Steps after the first loss that is not finite do not count.
                    if worker.non_finite.is_some() {
                        return;
                    }
                    worker.watch(cells[0], at.step);
                }
                let to = &mut worker.sums[sums as usize];
                to.resize(cells.len(), 0.0);
                to[0] += f64::from(cells[0]) * loss_weight(rows, weighted, &at.hyper);
                to.iter_mut().zip(cells).skip(1).for_each(|(s, v)| *s += f64::from(*v) * rows as f64);
            }
            Self::Flag => worker.watch(cells[0], at.step),
        }
    }
}

/// What the mean loss of a step counts in that of the epoch.
fn loss_weight(rows: usize, weighted: bool, hyper: &Hyper) -> f64 {
    match hyper.loss_scale {
        scale if weighted && scale > 0.0 => rows as f64 / f64::from(scale),
        _ if weighted => 0.0,
        _ => rows as f64,
    }
}
