//! The weight gradient of a layer with few outputs: few columns, the left operand column-major.
//!
//! A row of the result would fill only part of a vector. So the transposed product is computed, with vectors
//! along the rows of the result, and each tile is transposed before it is stored. The chains of additions,
//! and so the bits, are the same.

use super::product::{Product, blocks, from};
use super::{Epilogue, Lhs, Rhs};
use crate::simd::{Finish, Matrix, MatrixMut, Order, Strip, TilePrefetch, prefetch};

/// The widest tile.
const WIDTH: usize = 32;
/// Maximum columns of the result: the rows of the highest tile.
const COLUMNS: usize = 14;

impl Product<'_> {
    /// Whether the transposed product is faster.
    pub(super) fn is_narrow(&self) -> bool {
        matches!(self.lhs, Lhs::Columns { .. })
            && matches!(self.epilogue, Epilogue::Store | Epilogue::Update { .. })
            && self.n <= self.set.tile_rows()
    }

    pub(super) fn run_narrow(&self, out: &mut [f32]) {
        let Self { set, lhs, m, k, n, .. } = *self;
        let Lhs::Columns { data, stride } = lhs else { return };
        let width = 2 * set.lanes();
        let (count, size) = blocks(k);
        let mut tile = [0.0; COLUMNS * WIDTH];
        for row in (0..m).step_by(width) {
            let rows = (m - row).min(width);
            let out = &mut out[row * n..(row + rows) * n];
            for block in 0..count {
                let first = block * size;
                let length = (k - first).min(size);
                let (left, lhs_stride) = match self.rhs {
                    Rhs::Rows(data) => (from(data, first * n), n),
                    Rhs::Packed(data) => (from(data, first * width), width),
                };
                self.bring_near(row, first + length, width);
                let update = matches!(self.epilogue, Epilogue::Update { .. });
                set.strip(&mut Strip {
                    lhs: left,
                    lhs_order: Order::Columns,
                    lhs_stride,
                    rows: n,
                    k: length,
                    rhs: from(data, first * stride + row),
                    rhs_stride: stride,
                    rhs_panel_stride: width,
                    columns: rows,
                    out: &mut tile,
                    out_stride: WIDTH,
                    resume: block > 0 && !update,
                    finish: Finish::Store,
                    ahead: [TilePrefetch::default(); 2],
                });
                let from = Matrix { data: &tile, stride: WIDTH };
                if let Epilogue::Update { rate } = self.epilogue {
                    let mut turned = [0.0; COLUMNS * WIDTH];
                    set.transpose(from, n, rows, MatrixMut { data: &mut turned, stride: n }, n);
                    for (out, sum) in out.iter_mut().zip(turned) {
                        *out -= rate * sum;
                    }
                } else if block + 1 == count {
                    set.transpose(from, n, rows, MatrixMut { data: &mut *out, stride: n }, n);
                }
            }
        }
    }

    /// Prefetches the part of the left operand that is used after the columns at `row` are done up to term
    /// `end`: short pieces far apart, which the hardware does not prefetch.
    fn bring_near(&self, row: usize, end: usize, width: usize) {
        let Lhs::Columns { data, stride } = self.lhs else { return };
        let (row, first) = if end < self.k { (row, end) } else { (row + width, 0) };
        if row < self.m && self.is_left_far() {
            let columns = width.min(self.m - row);
            for k in first..self.k.min(first + blocks(self.k).1) {
                prefetch(&from(data, k * stride + row)[..columns]);
            }
        }
    }
}
