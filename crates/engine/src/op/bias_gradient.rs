//! The gradient of a bias: column sums of dy.

use super::{
    Access, Cost, Emitter, Encoder, FLAG_UPDATE, Kind, Operation, Record, Refused, Size, Slice,
    product::Strips,
    reduce::sum,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};
use crate::vector::vectorized;

/// db = column sums of dy; with `update`, b -= rate db.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasGradient {
    /// `[rows, outputs]`.
    pub dy: Slice,
    /// `[outputs]`.
    pub to: Slice,
    pub update: bool,
    pub rows: usize,
    pub outputs: usize,
}

impl Operation for BiasGradient {
    fn access(&self) -> Access {
        Access::new([self.dy], [self.to])
    }

    fn cost(&self) -> Cost {
        Cost::new(self.rows * self.outputs, (self.rows + 1) * self.outputs)
    }

    fn reference(&self, memory: &mut Memory) {
        let mut d = vec![0.0; self.outputs];
        memory.get(self.dy).iter().enumerate().for_each(|(i, v)| d[i % self.outputs] += v);
        memory.gradient(self.to, &d, self.update);
    }

    fn split(&self, s: &mut Split<'_>) {
        split(s, self.dy, self.outputs, self.outputs, self.to, self.update);
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record {
            flags: if self.update { FLAG_UPDATE } else { 0 },
            at: e.places([self.dy, self.to])?,
            ..e.shaped(Kind::BiasGradient, [self.rows, 0, self.outputs])?
        })
    }

    fn emit(&self, r: &Record, e: &Emitter) -> String {
        e.column_sums(r, [r.rows, r.outputs])
    }
}

pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    // The last block of a strip adds the sums of all: with few columns that takes longer than many rows.
    let strips = Strips { columns: r.outputs, width: 32, least_rows: 64, blocks_per_multiprocessor: 4 };
    strips.size(r.rows, multiprocessors)
}

/// Adds tasks that sum the first `columns` columns of `[_, stride]` over all rows. The sums are stored as a
/// gradient or, with `update`, subtracted from a parameter.
pub(super) fn split(s: &mut Split<'_>, of: Slice, stride: usize, columns: usize, to: Slice, update: bool) {
    let sums = if update { s.scratch(columns) } else { Slice::default() };
    s.each(columns, |c| {
        let first = c.start;
        let scratch = if update { sums.part(c.clone()) } else { Slice::default() };
        (Columns { stride, first, update }, Access::new([of], [to.part(c), scratch]))
    });
}

/// Reads rows and writes the sums of some columns. They are a gradient; or, with an update, they go to a
/// scratch buffer of the same length and are subtracted from a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    stride: usize,
    first: usize,
    update: bool,
}

impl Columns {
    #[inline]
    pub(super) fn run(&self, ([of, ..], [to, scratch, ..]): Slices<'_>, context: &mut Context<'_>) {
        let Self { stride, first, update } = *self;
        if update {
            columns(of, stride, first, scratch);
            sgd_step(context.at.hyper.rate, to, scratch);
        } else {
            columns(of, stride, first, to);
        }
    }
}

/// `values -= rate * gradients`.
fn sgd_step(rate: f32, values: &mut [f32], gradients: &[f32]) {
    vectorized(
        #[inline(always)]
        || values.iter_mut().zip(gradients).for_each(|(w, g)| *w -= rate * g),
    );
}

/// Sums of the columns `first..first + out.len()` of `[rows, stride]`; the rows are added in order.
fn columns(values: &[f32], stride: usize, first: usize, out: &mut [f32]) {
    if let (1, [out]) = (stride, &mut *out) {
        *out = sum(values) as f32;
        return;
    }
    out.fill(0.0);
    vectorized(
        #[inline(always)]
        || {
            // A few rows at a time, each read along its length: the sums stay in the L1 cache, and memory is
            // read sequentially.
            const ROWS: usize = 4;
            let mut rows = values.chunks_exact(ROWS * stride);
            for rows in &mut rows {
                let row = |r: usize| &rows[r * stride + first..][..out.len()];
                let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
                for ((((sum, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                    *sum = *sum + a + b + c + d;
                }
            }
            for row in rows.remainder().chunks_exact(stride) {
                out.iter_mut().zip(&row[first..]).for_each(|(sum, v)| *sum += v);
            }
        },
    );
}
