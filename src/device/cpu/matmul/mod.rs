//! The matrix product in f32: what one thread does for its rows of the result.
//!
//! A team of threads splits the rows of the result; each calls [`Kernel::multiply`] for its share, a contiguous slice.
//! Every element is one chain of additions over k in a fixed order, so its bits depend on the instruction set alone:
//! not on the split, nor on whether an operand was packed. Nothing here allocates.

mod narrow;
mod pack;
#[cfg(test)]
mod tests;
mod vector;

use super::simd::{Ahead, Finish, InstructionSet, Order, Strip};
pub use pack::Source;

/// Sums are put down in memory after this many terms: the strip of the left operand that belongs to them
/// (14 rows: 18 KiB) stays in the first-level cache while all panels of the right one pass by.
const MAX_BLOCK: usize = 320;

/// Bytes of the right operand worked on at a time: half of a usual second-level cache.
const RIGHT_BYTES: usize = 3 << 18;

/// Columns from which on the left operand's strips are copied together before use.
const PACK_LEFT_COLUMNS: usize = 512;

/// The left operand, `[m, k]`, from the first row of the caller's share on.
#[derive(Clone, Copy, Debug)]
pub enum Lhs<'a> {
    /// Element (i, k) at `i * stride + k`: activations in a forward pass, gradients going back.
    Rows {
        /// The numbers.
        data: &'a [f32],
        /// From one row to the next.
        stride: usize,
    },
    /// Element (i, k) at `k * stride + i`: the transpose of activations, for the gradient of weights.
    Columns {
        /// The numbers.
        data: &'a [f32],
        /// From one k to the next.
        stride: usize,
    },
}

/// The right operand, `[k, n]`.
#[derive(Clone, Copy, Debug)]
pub enum Rhs<'a> {
    /// Row-major, as it is: best where n is small or the left operand has few rows ([`Kernel::worth_packing`]).
    Rows(&'a [f32]),
    /// As [`Kernel::pack`] laid it out.
    Packed(&'a [f32]),
}

/// What becomes of a finished sum.
#[derive(Clone, Copy, Debug)]
pub enum Epilogue<'a> {
    /// `out = sum`
    Store,
    /// `out = sum + bias`, and 0 where that is negative if `relu`.
    Bias {
        /// One number per column.
        bias: Option<&'a [f32]>,
        /// Whether a rectifier follows.
        relu: bool,
    },
    /// `out = out - rate * sum`: a step of plain gradient descent. With k in several blocks, one such step per block.
    Update {
        /// The learning rate.
        rate: f32,
    },
    /// `out = sum` where `saved > 0`, else 0: back through a rectifier, of which `saved` is the output, `[m, n]`.
    WherePositive {
        /// From the first row of the caller's share on.
        saved: &'a [f32],
    },
}

/// Vector instructions, chosen once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    set: InstructionSet,
}

impl Kernel {
    /// The best that this machine has.
    pub fn detect() -> Self {
        Self { set: InstructionSet::detect() }
    }

    /// The one that every machine has.
    pub fn portable() -> Self {
        Self { set: InstructionSet::portable() }
    }

    /// `avx512`, `avx2` or `portable`: to be recorded, since bits differ between them.
    pub fn name(self) -> &'static str {
        self.set.name()
    }

    /// Multiplies: `out[m, n] = epilogue(lhs[m, k] * rhs[k, n])`.
    ///
    /// # Panics
    /// Where a slice is shorter than its shape says.
    pub fn multiply(
        self,
        lhs: Lhs<'_>,
        rhs: Rhs<'_>,
        [m, k, n]: [usize; 3],
        out: &mut [f32],
        epilogue: Epilogue<'_>,
    ) {
        let out = &mut out[..m * n];
        if m == 0 || n == 0 {
            return;
        }
        let product = Product { set: self.set, lhs, rhs, m, k, n, epilogue };
        if product.is_narrow() {
            product.run_narrow(out);
        } else if n >= PACK_LEFT_COLUMNS {
            product.with_packed_left(out);
        } else {
            product.run(out, None);
        }
    }
}

/// Blocks of k: their number and the length of all but the last.
fn blocks(k: usize) -> (usize, usize) {
    let count = k.div_ceil(MAX_BLOCK).max(1);
    (count, k.div_ceil(count))
}

/// What follows `at`; nothing, where an operand without terms (k = 0) ends before.
fn from(data: &[f32], at: usize) -> &[f32] {
    data.get(at..).unwrap_or_default()
}

#[derive(Clone, Copy)]
struct Product<'a> {
    set: InstructionSet,
    lhs: Lhs<'a>,
    rhs: Rhs<'a>,
    m: usize,
    k: usize,
    n: usize,
    epilogue: Epilogue<'a>,
}

impl Product<'_> {
    #[inline(never)]
    fn with_packed_left(&self, out: &mut [f32]) {
        let mut scratch = [0.0; pack::LEFT_LANES * MAX_BLOCK];
        self.run(out, Some(&mut scratch));
    }

    fn run(&self, out: &mut [f32], mut scratch: Option<&mut [f32]>) {
        let Self { set, m, k, n, .. } = *self;
        let width = 2 * set.lanes();
        let (count, size) = blocks(k);
        let tiles = m.div_ceil(set.tile_rows()).max(1);
        let (short, longer) = (m / tiles, m % tiles);
        let copied = scratch.is_some();
        let group = match self.rhs {
            Rhs::Packed(_) => (RIGHT_BYTES / (4 * size.max(1))).next_multiple_of(width),
            Rhs::Rows(_) => n.max(1),
        };
        for column in (0..n).step_by(group) {
            let columns = (n - column).min(group);
            for block in 0..count {
                let first = block * size;
                let length = (k - first).min(size);
                let (rhs, rhs_stride, rhs_panel_stride) = match self.rhs {
                    Rhs::Rows(data) => (from(data, first * n + column), n, width),
                    Rhs::Packed(data) => {
                        let padded = n.next_multiple_of(width);
                        (from(data, first * padded + column * length), width, length * width)
                    }
                };
                let mut row = 0;
                for tile in 0..tiles {
                    let rows = short + usize::from(tile < longer);
                    let (data, order, stride) = match self.lhs {
                        Lhs::Rows { data, stride } => (from(data, row * stride + first), Order::Rows, stride),
                        Lhs::Columns { data, stride } => {
                            (from(data, first * stride + row), Order::Columns, stride)
                        }
                    };
                    let (lhs, lhs_order, lhs_stride) = match &mut scratch {
                        Some(scratch) => {
                            let lanes = pack::left(set, data, order, stride, rows, length, scratch);
                            (&**scratch, Order::Columns, lanes)
                        }
                        None => (data, order, stride),
                    };
                    let ahead = match self.lhs {
                        _ if !copied || row + rows == m => Ahead::default(),
                        Lhs::Rows { data, stride } => Ahead {
                            data: from(data, (row + rows) * stride + first),
                            stride,
                            rows,
                            columns: length,
                        },
                        // A row's part is less than a cache line, of which the last strip brought the beginning.
                        Lhs::Columns { data, stride } => Ahead {
                            data: from(data, first * stride + row + 2 * rows - 1),
                            stride,
                            rows: length,
                            columns: 1,
                        },
                    };
                    // The right operand's next piece, in as many parts as there are tiles.
                    let next_right = match self.rhs {
                        Rhs::Packed(data) if copied => {
                            let padded = n.next_multiple_of(width);
                            let (next_block, next_column) =
                                if block + 1 < count { (block + 1, column) } else { (0, column + group) };
                            let f = next_block * size;
                            let l = (k - f).min(size);
                            let total = (padded.saturating_sub(next_column)).min(group) * l;
                            let part = total.div_ceil(tiles).next_multiple_of(16);
                            Ahead {
                                data: from(data, f * padded + next_column * l + tile * part),
                                stride: 0,
                                rows: 1,
                                columns: part,
                            }
                        }
                        _ => Ahead::default(),
                    };
                    let at = row * n + column;
                    set.strip(Strip {
                        lhs,
                        lhs_order,
                        lhs_stride,
                        rows,
                        k: length,
                        rhs,
                        rhs_stride,
                        rhs_panel_stride,
                        columns,
                        out: &mut out[at..],
                        out_stride: n,
                        resume: block > 0 && !matches!(self.epilogue, Epilogue::Update { .. }),
                        finish: self.finish(block + 1 == count, at, column),
                        ahead: [ahead, next_right],
                    });
                    row += rows;
                }
            }
        }
    }

    fn finish(&self, last: bool, at: usize, column: usize) -> Finish<'_> {
        match self.epilogue {
            Epilogue::Update { rate } => Finish::Update { rate },
            _ if !last => Finish::Store,
            Epilogue::Store => Finish::Store,
            Epilogue::Bias { bias, relu } => Finish::Affine {
                bias: bias.map(|b| &b[column..]),
                floor: if relu { 0.0 } else { f32::NEG_INFINITY },
            },
            Epilogue::WherePositive { saved } => Finish::WherePositive { saved: &saved[at..] },
        }
    }
}
