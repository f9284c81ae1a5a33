//! The gradient of a Linear layer's weight: dW = xᵀ dy.

use super::{
    Access, Cost, Emitter, Encoder, FLAG_UPDATE, Kind, Operation, Record, Refused, SLIM, Size, Slice,
    bias_gradient,
    emit::Operand,
    product,
    reference::Memory,
    run::{Context, RowFetch, Slices},
    split::{GRAIN, Split},
};
use crate::vector::reference::{product_of, transposed};

/// dW = xᵀ dy; or, with the plain SGD update fused in, W -= rate dW.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightGradient {
    /// `[rows, inputs]`.
    pub x: Slice,
    /// `[rows, outputs]`.
    pub dy: Slice,
    /// `[inputs, outputs]`: the gradient, or the weight itself if the update is fused.
    pub to: Slice,
    pub update: bool,
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

/// Rows per partial sum of a single column. It is fixed, so that the order of additions does not depend on
/// the threads.
pub const SUM_ROWS: usize = 64;

/// How its operands are stored.
const OPERANDS: [Operand; 2] = [Operand::AlongSide, Operand::AlongSide];

impl Operation for WeightGradient {
    fn access(&self) -> Access {
        Access::new([self.x, self.dy], [self.to])
    }

    fn cost(&self) -> Cost {
        let Self { rows, inputs, outputs, update, .. } = *self;
        let written = inputs * outputs * if update { 2 } else { 1 };
        Cost::product([inputs, rows, outputs], rows * (inputs + outputs) + written)
    }

    fn product(&self) -> Option<[usize; 3]> {
        Some([self.inputs, self.rows, self.outputs])
    }

    fn reference(&self, memory: &mut Memory) {
        let x = transposed(&memory.get(self.x), self.rows, self.inputs);
        let d = product_of(&x, &memory.get(self.dy), [self.inputs, self.rows, self.outputs]);
        memory.gradient(self.to, &d, self.update);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { x, dy, to, update, rows, inputs, outputs } = *self;
        let by_tiles = split.kernel.strip_rows().is_some();
        if outputs == 1 && rows > SUM_ROWS && !by_tiles {
            return self.split_single_column(split);
        }
        let shape = [inputs, rows, outputs];
        let operands = product::pack(split, (x, true), (dy, false), shape);
        let packed = operands.packed;
        // A single column is summed in strips of this width, which must not be split.
        let unit = if outputs == 1 || inputs >= GRAIN * split.threads { GRAIN } else { 1 };
        // The first layer's weight gradient is the last op of a step, so the next step's rows are prefetched
        // here.
        let upcoming = split.upcoming(x);
        product::split(split, shape, packed, unit, [outputs, 0], |part| {
            let shape = [part.len(), rows, outputs];
            let (first, stride) = (part.start, inputs);
            let job = product::Job::WeightGradient { shape, first, stride, packed, update, upcoming };
            let left = operands.left(&part).unwrap_or(x);
            (job, Access::new([left, operands.right], [to.rows(&part, outputs)]))
        });
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record {
            flags: e.precision_flag() | if self.update { FLAG_UPDATE } else { 0 },
            at: e.places([self.x, self.dy, self.to])?,
            ..e.shaped(Kind::WeightGradient, [self.rows, self.inputs, self.outputs])?
        })
    }

    fn operands(&self) -> Option<[Operand; 2]> {
        Some(OPERANDS)
    }

    fn emit(&self, r: &Record, e: &Emitter) -> String {
        let shape = [r.inputs, r.rows, r.outputs];
        e.product(r, "weight_gradient_product(op, own, at)", shape, OPERANDS, Some(r.at[2]))
    }
}

impl WeightGradient {
    /// For one output: each thread sums over its own rows, which are in its cache. Dividing by inputs instead
    /// would move every row from one core's cache to another's and back in every step.
    fn split_single_column(&self, split: &mut Split<'_>) {
        let Self { x, dy, to, update, rows, inputs, .. } = *self;
        let chunks = rows.div_ceil(SUM_ROWS);
        let stride = inputs.next_multiple_of(GRAIN);
        let partial = split.scratch(chunks * stride);
        let features = split.in_place(x);
        split.units(chunks, 1, |c| {
            let rows = c.start * SUM_ROWS..(c.end * SUM_ROWS).min(rows);
            let in_place = features.map(|fetch| fetch.from(rows.start));
            let reads = [x.rows(&rows, inputs), dy.part(rows)];
            (PartialSums { inputs, stride, in_place }, Access::new(reads, [partial.rows(&c, stride)]))
        });
        bias_gradient::split(split, partial, stride, inputs, to, update);
    }
}

/// If there are few inputs or outputs, blocks share the rows of each 32 of the others.
pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    if r.inputs > SLIM && r.outputs > SLIM {
        return product::size(r, [r.inputs, r.rows, r.outputs], multiprocessors);
    }
    let columns = r.inputs.max(r.outputs);
    let strips = product::Strips { columns, width: 32, least_rows: 16, blocks_per_multiprocessor: 4 };
    strips.size(r.rows, multiprocessors)
}

/// Reads x, which may be used in place, and dy (one element per row); writes their products, one row of sums
/// per chunk of rows.
#[derive(Clone, Copy, Debug)]
pub struct PartialSums {
    inputs: usize,
    stride: usize,
    in_place: Option<RowFetch>,
}

impl PartialSums {
    #[inline]
    pub(super) fn run(&self, ([x, dy, ..], [to, ..]): Slices<'_>, context: &mut Context<'_>) {
        let Self { inputs, stride, in_place } = *self;
        let x = context.bound.lines(in_place, x, [dy.len(), inputs], &context.at);
        for (i, (dy, sums)) in dy.chunks(SUM_ROWS).zip(to.chunks_exact_mut(stride)).enumerate() {
            context.kernel.weigh_rows(x.part(i * SUM_ROWS, dy.len()), dy, None, &mut sums[..inputs]);
        }
    }
}
