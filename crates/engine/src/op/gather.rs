//! Fetches the rows of a batch.

use std::ops::Range;

use super::{
    Access, BufferId, Cost, Emitter, Encoder, Kind, Op, Operation, Record, Refused, Size, Slice, Store,
    record::{FLAG_CHUNK, FLAG_ORDERED, FLAG_VALIDATION},
    reference::Memory,
    run::{Context, Failure, RowFetch, Slices},
    split::Split,
};
use crate::vector::gather;

/// Copies the batch's rows of features and targets. The device itself counts the position within the epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Gather {
    /// `[all rows, width]`.
    pub features: BufferId,
    /// `[all rows, target_width]`.
    pub targets: BufferId,
    pub source: RowSource,
    /// This device's first row within the global batch.
    pub first: usize,
    /// `[rows, width]`.
    pub x: Slice,
    /// `[rows, target_width]`.
    pub y: Slice,
    pub rows: usize,
    pub width: usize,
    pub target_width: usize,
}

/// How row i of a device's share of a batch is found in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSource {
    /// The epoch's order, in this buffer, holds the row's index at `position + first + i`.
    Order(BufferId),
    /// It is row `position + first + i`.
    Position,
    /// It is row `offset + i` of a streamed chunk, which holds only this device's rows.
    Chunk,
}

impl Operation for Gather {
    fn access(&self) -> Access {
        Access::new([], [self.x, self.y])
    }

    fn cost(&self) -> Cost {
        Cost::new(0, self.rows * (2 * (self.width + self.target_width) + 1))
    }

    fn reference(&self, memory: &mut Memory) {
        for (from, to, width) in
            [(self.features, self.x, self.width), (self.targets, self.y, self.target_width)]
        {
            let mut copied = Vec::with_capacity(to.len);
            for i in 0..self.rows {
                let position = memory.position + self.first + i;
                let row = match self.source {
                    RowSource::Order(order) => memory.buffers[order.0][position] as usize,
                    RowSource::Position => position,
                    RowSource::Chunk => memory.offset + i,
                };
                copied.extend_from_slice(&memory.buffers[from.0][row * width..(row + 1) * width]);
            }
            memory.set(to, &copied);
        }
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { x, y, width, target_width, .. } = *self;
        let fetch = RowFetch::new(self, split.layout);
        let in_place = split.in_place(x).is_some();
        split.each(self.rows, |rows| {
            let job = Job { fetch: fetch.from(rows.start), width, target_width, in_place };
            (job, Access::new([], [x.rows(&rows, width), y.rows(&rows, target_width)]))
        });
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let (x, y) = (self.x.rows(rows, self.width), self.y.rows(rows, self.target_width));
        Some(Self { x, y, first: self.first + rows.start, rows: rows.len(), ..self.clone() }.into())
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let source = match self.source {
            RowSource::Order(_) => FLAG_ORDERED,
            RowSource::Position => 0,
            RowSource::Chunk => FLAG_CHUNK,
        };
        let validation = self.features == e.layout.validation_features;
        Ok(Record {
            first: e.int(self.first)?,
            flags: source | if validation { FLAG_VALIDATION } else { 0 },
            at: e.places([self.x, self.y])?,
            ..e.shaped(Kind::Gather, [self.rows, self.width, self.target_width])?
        })
    }

    fn emit(&self, r: &Record, e: &Emitter) -> String {
        format!(
            "{} gather_rows(op, own, at, s, [&](int i) {{ return batch_row(op, at, rows, i); }});",
            e.record_text(r, r)
        )
    }
}

/// Four elements per thread, if a row is a whole number of quads.
pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    Size::of_threads((r.product(r.rows, r.inputs) / 4).max(r.product(r.rows, r.outputs)), multiprocessors)
}

/// Writes x and y, the batch's rows. x is not written if its users read the rows in place.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    fetch: RowFetch,
    width: usize,
    target_width: usize,
    in_place: bool,
}

impl Job {
    #[inline]
    pub(super) fn run(&self, (_, [x, y, ..]): Slices<'_>, context: &mut Context<'_>) {
        let Self { fetch, width, target_width, in_place } = *self;
        let (bound, start, rows) = (context.bound, context.at.start(fetch), x.len() / width);
        let part = bound.part(fetch.validation);
        let order = matches!(fetch.source, RowSource::Order(_)).then(|| &bound.order[start..start + rows]);
        let read = match (&part.features, order) {
            (Store::File(file), Some(order)) => file.read_rows(order, x),
            (Store::File(file), None) => file.read_range(start as u32, x),
            (Store::Memory(all), order) => {
                match order {
                    _ if in_place => {}
                    Some(order) => gather(all, order, width, x),
                    None => x.copy_from_slice(&all[start * width..][..x.len()]),
                }
                Ok(())
            }
        };
        if let Err(source) = read {
            context.worker.failure = Some(Failure::Rows(source));
            return;
        }
        match order {
            Some(order) => gather(&part.targets, order, target_width, y),
            None => y.copy_from_slice(&part.targets[start * target_width..][..y.len()]),
        }
    }
}
