//! Packs operands into the order in which tiles read them.
//!
//! The right operand is cut into blocks of k, and a block into row-major panels as wide as a tile, so that a
//! tile reads contiguous memory. A (block, panel) pair is a unit; a team that packs together shares the
//! units.

use std::ops::Range;

use super::product::blocks;
use super::{Kernel, bf16};
use crate::simd::{From, InstructionSet, Matrix, MatrixMut, Order, Reach};

/// Elements from one k to the next in a packed strip of the left operand: at least the rows of the highest
/// tile, in whole vectors of every instruction set.
pub(super) const LEFT_LANES: usize = 16;

/// From this number of elements (4 MiB) on, a packed operand would be evicted before it is read. Packing is
/// then bound by memory and twice as fast if it bypasses the caches, and takes 1 % of the product's time
/// (1024 x 2048 x 2048).
const FAR: usize = 1 << 20;

/// A right operand, `[k, n]`, to be packed.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Row-major.
    Rows(&'a [f32]),
    /// Given as its row-major transpose, `[n, k]`.
    Transposed(&'a [f32]),
}

impl Kernel {
    /// Number of elements of a packed `[k, n]` operand.
    pub fn packed_len(self, k: usize, n: usize) -> usize {
        if self.bf16.is_some() {
            return bf16::len(n, k);
        }
        k * n.next_multiple_of(2 * self.set.lanes())
    }

    /// Number of units of a packed `[k, n]` operand.
    pub fn units(self, k: usize, n: usize) -> usize {
        if let Some(width) = self.strip_rows() {
            return n.div_ceil(width);
        }
        blocks(k).0 * n.div_ceil(2 * self.set.lanes())
    }

    /// The range of elements of some units in a packed `[k, n]` operand.
    pub fn unit_range(self, k: usize, n: usize, units: Range<usize>) -> Range<usize> {
        if self.bf16.is_some() {
            return bf16::range(k, units);
        }
        self.unit_start(k, n, units.start)..self.unit_start(k, n, units.end)
    }

    fn unit_start(self, k: usize, n: usize, unit: usize) -> usize {
        let width = 2 * self.set.lanes();
        let (panels, (_, size)) = (n.div_ceil(width), blocks(k));
        let (block, panel) = (unit / panels.max(1), unit % panels.max(1));
        let first = (block * size).min(k);
        let length = (k - first).min(size);
        (first * panels + panel * length) * width
    }

    /// Packs some units of a `[k, n]` right operand into `out`, the slice at their
    /// [`unit_range`](Self::unit_range).
    ///
    /// # Panics
    /// If a slice is shorter than its shape.
    pub fn pack(self, source: Source<'_>, [k, n]: [usize; 2], units: Range<usize>, out: &mut [f32]) {
        if let Some(bf16) = self.bf16 {
            return bf16::pack_right(bf16, source, [k, n], units, out);
        }
        let width = 2 * self.set.lanes();
        let (panels, (_, size)) = (n.div_ceil(width), blocks(k));
        let reach = if k * n >= FAR { Reach::Far } else { Reach::Near };
        let (mut unit, mut rest) = (units.start, out);
        while unit < units.end && k > 0 {
            // Take all units that belong to the same block.
            let (first, panel) = (unit / panels * size, unit % panels);
            let run = (panels - panel).min(units.end - unit);
            let length = (k - first).min(size);
            let (block, after) = rest.split_at_mut(run * length * width);
            let columns = (n - panel * width).min(run * width);
            let from = match source {
                Source::Rows(data) => {
                    From::Rows(Matrix { data: &data[first * n + panel * width..], stride: n })
                }
                Source::Transposed(data) => {
                    From::Columns(Matrix { data: &data[panel * width * k + first..], stride: k })
                }
            };
            self.set.panels(from, [length, columns], block, reach);
            (unit, rest) = (unit + run, after);
        }
    }
}

/// Copies a strip of the left operand, keeping its memory order; returns the stride of the copy. Without the
/// copy, rows that are a power of two apart would compete for the same few lines of the L1 cache.
#[inline]
pub(super) fn left(
    set: InstructionSet,
    data: &[f32],
    order: Order,
    stride: usize,
    rows: usize,
    k: usize,
    scratch: &mut [f32],
) -> usize {
    let from = Matrix { data, stride };
    let (lines, numbers) = match order {
        Order::Rows => (rows, k),
        Order::Columns => (k, rows),
    };
    let stride = numbers.next_multiple_of(LEFT_LANES);
    set.copy(from, lines, numbers, MatrixMut { data: scratch, stride }, stride);
    stride
}
