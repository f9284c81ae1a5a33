//! The f32 matrix product as one thread computes it, for its share of the rows of the result.
//!
//! A team splits the rows of the result; each thread calls [`Kernel::multiply`] for its contiguous share.
//! Every element is one chain of additions over k in a fixed order, so its bits depend only on the
//! instruction set, not on the split or on packing. Nothing here allocates.

mod bf16;
#[cfg(test)]
mod bf16_tests;
mod narrow;
mod pack;
mod product;
#[cfg(test)]
mod tests;
mod tiled;
mod vector;

pub use crate::simd::Lines;
use crate::simd::{Bf16Set, InstructionSet};
use bf16::Bf16Product;
pub use pack::Source;
use product::Product;
pub use tiled::{Grid, Scratch, Turn, UpcomingRows};

/// The left operand, `[m, k]`, starting at the first row of the caller's share.
#[derive(Clone, Copy, Debug)]
pub enum Lhs<'a> {
    /// Element (i, k) at `i * stride + k`: activations in a forward pass, gradients in a backward pass.
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
    /// Packed by [`Kernel::pack_left`], for products of bfloat16.
    Packed(&'a [f32]),
}

/// The right operand, `[k, n]`.
#[derive(Clone, Copy, Debug)]
pub enum Rhs<'a> {
    /// Row-major: best if n is small or the left operand has few rows ([`Kernel::worth_packing`]).
    Rows(&'a [f32]),
    /// Packed by [`Kernel::pack`].
    Packed(&'a [f32]),
}

/// What to do with a finished sum.
#[derive(Clone, Copy, Debug)]
pub enum Epilogue<'a> {
    /// `out = sum`
    Store,
    /// `out = sum + bias`; if `relu`, negative results become 0.
    Bias {
        /// One number per column.
        bias: Option<&'a [f32]>,
        /// Whether a rectifier follows.
        relu: bool,
    },
    /// `out = out - rate * sum`: a step of plain gradient descent; with k in several blocks, one step per
    /// block.
    Update {
        /// The learning rate.
        rate: f32,
    },
    /// `out = sum` where `saved > 0`, else 0: the backward pass of a rectifier with the output `saved`, `[m,
    /// n]`.
    WherePositive {
        /// Starts at the first row of the caller's share.
        saved: &'a [f32],
    },
}

/// The matrix product for one set of vector instructions, in f32 or bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    set: InstructionSet,
    bf16: Option<Bf16Set>,
}

impl Kernel {
    /// The best kernel for this machine.
    pub fn detect() -> Self {
        Self { set: InstructionSet::detect(), bf16: None }
    }

    /// The kernel that every machine supports.
    pub fn portable() -> Self {
        Self { set: InstructionSet::portable(), bf16: None }
    }

    /// The kernel with this name, if this machine supports it.
    pub fn named(name: &str) -> Option<Self> {
        InstructionSet::named(name).map(|set| Self { set, bf16: None })
    }

    /// `avx512`, `avx2` or `portable`: recorded, since results differ between them.
    pub fn name(self) -> &'static str {
        self.set.name()
    }

    /// Whether to pack a row-major right operand `[k, n]` that all threads together use for `m` rows. This
    /// pays if its rows are so long that each row of a tile lies on another memory page, and if enough rows
    /// use it. Operands of bfloat16 are always packed.
    pub fn worth_packing(self, m: usize, n: usize) -> bool {
        self.bf16.is_some() || n > 512 && m >= 64
    }

    /// Multiplies: `out[m, n] = epilogue(lhs[m, k] * rhs[k, n])`.
    ///
    /// # Panics
    /// If a slice is shorter than its shape.
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
        if let Some(product) = self.bf16_product(lhs, rhs, [k, n], epilogue) {
            return product.run(m, out);
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

    fn bf16_product<'a>(
        self,
        lhs: Lhs<'a>,
        rhs: Rhs<'a>,
        [k, n]: [usize; 2],
        epilogue: Epilogue<'a>,
    ) -> Option<Bf16Product<'a>> {
        let bf16 = self.bf16?;
        let (Lhs::Packed(left), Rhs::Packed(right)) = (lhs, rhs) else {
            panic!("operands of bfloat16 are packed before they are multiplied");
        };
        Some(Bf16Product { bf16, set: self.set, left, right, k, n, epilogue })
    }
}
