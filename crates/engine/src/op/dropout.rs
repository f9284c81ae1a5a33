//! Dropout: the mask is a pure function of (seed, layer, step, global row, unit). It is computed when needed,
//! never stored.

use std::ops::Range;

use super::{
    Access, Backward, Cost, Encoder, Kind, Lowering, Op, Operation, Record, Refused, Size, Slice,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};
use crate::{random::mix, vector::vectorized};

/// y = x m / (1 - p), with m = 0 with probability p: a pure function of (seed, layer, step, row of the epoch,
/// unit).
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    pub x: Slice,
    pub y: Slice,
    pub p: f32,
    /// Index of the layer in the Sequential.
    pub layer: u32,
    /// This device's first row within the global batch.
    pub first: usize,
    pub rows: usize,
    pub width: usize,
}

/// dy becomes dy m / (1 - p), with the mask of the forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct DropoutBackward {
    pub dy: Slice,
    pub p: f32,
    /// Index of the layer in the Sequential.
    pub layer: u32,
    /// This device's first row within the global batch.
    pub first: usize,
    pub rows: usize,
    pub width: usize,
}

impl Dropout {
    pub fn lower(l: &mut Lowering, layer: usize, p: f64, x: Slice, width: usize) -> Slice {
        let y = l.rows_of(&format!("{layer}.output"), width);
        let (rows, first) = (l.rows, l.first);
        l.forward(Self { x, y, p: p as f32, layer: layer as u32, first, rows, width });
        y
    }

    fn backward_op(&self, dy: Slice) -> DropoutBackward {
        let Self { p, layer, first, rows, width, .. } = *self;
        DropoutBackward { dy, p, layer, first, rows, width }
    }
}

impl Operation for Dropout {
    fn access(&self) -> Access {
        Access::new([self.x], [self.y])
    }

    fn cost(&self) -> Cost {
        Cost::with_functions(8 * self.rows * self.width, 2 * self.rows * self.width)
    }

    fn reference(&self, memory: &mut Memory) {
        let x = memory.get(self.x);
        memory.set(self.y, &x);
        self.backward_op(self.y).reference(memory);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { x, y, width, .. } = *self;
        let job = self.backward_op(y).job();
        split.each(self.rows, |rows| {
            (job.from(rows.start), Access::new([x.rows(&rows, width)], [y.rows(&rows, width)]))
        });
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let [x, y] = [self.x, self.y].map(|slice| slice.rows(rows, self.width));
        Some(Self { x, y, first: self.first + rows.start, rows: rows.len(), ..self.clone() }.into())
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let backward = self.backward_op(self.y).record(e)?;
        Ok(Record { kind: Kind::Dropout as i32, at: e.places([self.x, self.y])?, ..backward })
    }

    fn backward(&self, l: &mut Lowering, Backward { dy, .. }: Backward<'_>) -> (Slice, bool) {
        l.backward(self.backward_op(dy));
        (dy, false)
    }
}

impl DropoutBackward {
    fn job(&self) -> Job {
        Job { p: self.p, layer: self.layer, width: self.width, first: self.first }
    }
}

impl Operation for DropoutBackward {
    fn access(&self) -> Access {
        Access::new([], [self.dy])
    }

    fn cost(&self) -> Cost {
        Cost::with_functions(8 * self.rows * self.width, 2 * self.rows * self.width)
    }

    fn reference(&self, memory: &mut Memory) {
        let mut d = memory.get(self.dy);
        for row in 0..self.rows {
            let place = (memory.position + self.first + row) as u64;
            for unit in 0..self.width {
                let kept = keeps(memory.seed, self.layer, memory.step, place, unit as u32, self.p);
                d[row * self.width + unit] *= if kept { 1.0 / (1.0 - f64::from(self.p)) } else { 0.0 };
            }
        }
        memory.set(self.dy, &d);
    }

    fn split(&self, split: &mut Split<'_>) {
        let (dy, width, job) = (self.dy, self.width, self.job());
        split.each(self.rows, |rows| (job.from(rows.start), Access::new([], [dy.rows(&rows, width)])));
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let (dy, first) = (self.dy.rows(rows, self.width), self.first + rows.start);
        Some(Self { dy, first, rows: rows.len(), ..self.clone() }.into())
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record {
            first: e.int(self.first)?,
            layer: e.int(self.layer as usize)?,
            f: [self.p, 0.0, 0.0, 0.0, 0.0, 0.0],
            at: e.places([self.dy])?,
            ..e.shaped(Kind::DropoutBackward, [self.rows, self.width, 0])?
        })
    }
}

pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    Size::of_threads(r.product(r.rows, r.inputs), multiprocessors)
}

/// Which rows of the mask a share covers. The forward pass reads x and writes y; the backward pass writes dy
/// in place and has no reads.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    p: f32,
    layer: u32,
    width: usize,
    first: usize,
}

impl Job {
    fn from(self, row: usize) -> Self {
        Self { first: self.first + row, ..self }
    }

    #[inline]
    pub(super) fn run(&self, ([x, ..], [y, ..]): Slices<'_>, context: &mut Context<'_>) {
        let (Self { p, layer, width, first }, at) = (*self, &context.at);
        let (threshold, scale) = (threshold_of(p), 1.0 / (1.0 - p));
        for (row, y) in y.chunks_exact_mut(width).enumerate() {
            let key = key_of_row(at.seed, layer, at.step, (at.position + first + row) as u64);
            if x.is_empty() {
                vectorized(
                    #[inline(always)]
                    || {
                        for (unit, d) in y.iter_mut().enumerate() {
                            *d = if draw(key, unit as u32) >= threshold { *d * scale } else { 0.0 };
                        }
                    },
                );
                continue;
            }
            let x = &x[row * width..][..width];
            vectorized(
                #[inline(always)]
                || {
                    for (unit, (y, x)) in y.iter_mut().zip(x).enumerate() {
                        *y = if draw(key, unit as u32) >= threshold { x * scale } else { 0.0 };
                    }
                },
            );
        }
    }
}

/// Whether dropout keeps a unit: compares a 32-bit hash of (seed, layer, step, row within the epoch, unit)
/// with p. The row's key is SplitMix64's finalizer over the mixed coordinates (Steele, Lea, Flood 2014).
pub fn keeps(seed: u64, layer: u32, step: u64, row: u64, unit: u32, p: f32) -> bool {
    let key = key_of_row(seed, layer, step, row);
    draw(key, unit) >= threshold_of(p)
}

/// The part of the hash that all units of a row share.
fn key_of_row(seed: u64, layer: u32, step: u64, row: u64) -> u32 {
    let mut z = seed ^ (u64::from(layer) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for coordinate in [step, row] {
        z = mix((z ^ coordinate).wrapping_add(0x9E37_79B9_7F4A_7C15));
    }
    (z >> 32) as u32 ^ z as u32
}

/// A unit's 32 uniform bits: the `lowbias32` mix (Wellons 2018) of key and unit. It uses only 32-bit
/// arithmetic, so that the vector units of every device compute the same.
#[inline(always)]
fn draw(key: u32, unit: u32) -> u32 {
    let mut x = key ^ unit.wrapping_mul(0x9E37_79B9);
    x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

/// Draws below this are zeroed.
fn threshold_of(p: f32) -> u32 {
    (f64::from(p) * 4_294_967_296.0) as u32
}
