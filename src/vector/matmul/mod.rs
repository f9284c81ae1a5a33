//! The matrix product in f32: what one thread does for its rows of the result.
//!
//! A team of threads splits the rows of the result; each calls [`Kernel::multiply`] for its share, a contiguous slice.
//! Every element is one chain of additions over k in a fixed order, so its bits depend on the instruction set alone:
//! not on the split, nor on whether an operand was packed. Nothing here allocates.

mod narrow;
mod pack;
mod product;
#[cfg(test)]
mod tests;
mod tiled;
mod vector;

use super::simd::InstructionSet;
pub use super::simd::Lines;
pub use pack::Source;
use product::Product;
pub use tiled::{Grid, Scratch, Tiled, Turn, UpcomingRows};

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

    /// The one of that name, if this machine has it.
    pub fn named(name: &str) -> Option<Self> {
        InstructionSet::named(name).map(|set| Self { set })
    }

    /// `avx512`, `avx2` or `portable`: to be recorded, since bits differ between them.
    pub fn name(self) -> &'static str {
        self.set.name()
    }

    /// Whether a row-major `[k, n]` right operand, used for `m` rows by all threads together, is better packed first:
    /// where its rows are so long that those a tile reads lie in as many pages of memory, and enough rows use it.
    pub fn worth_packing(self, m: usize, n: usize) -> bool {
        n > 512 && m >= 64
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
        } else if n >= product::COPY_LEFT_COLUMNS {
            product.run_with_copies(out);
        } else {
            product.run(out, None);
        }
    }
}
