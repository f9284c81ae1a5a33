//! A layer with one output: matrix-vector products, limited by reading the matrix once.

use super::Kernel;
use crate::simd::Lines;

impl Kernel {
    /// Forward pass: `out[r] = x[r] . w + bias`, and negative results become 0 if `relu`; `x` is `[out.len(),
    /// w.len()]`.
    ///
    /// A row's bits do not depend on the other rows, so any split over threads is valid.
    ///
    /// # Panics
    /// If `x` is shorter than its shape.
    pub fn dot_rows(self, x: Lines<'_>, w: &[f32], bias: f32, relu: bool, out: &mut [f32]) {
        self.set.gemv(x, w, bias, if relu { 0.0 } else { f32::NEG_INFINITY }, out);
    }

    /// Gradient of the weights: `out[c] = sum over r of x[r][c] * weights[r]`, or, with a `rate`,
    /// `out[c] - rate * sum`.
    ///
    /// A column's bits do not depend on the other columns. Threads split the columns, at multiples of 16 for
    /// speed, each with `x` from its first column on. A matrix of exactly two columns must not be split.
    ///
    /// # Panics
    /// If `x` is shorter than its shape.
    pub fn weigh_rows(self, x: Lines<'_>, weights: &[f32], rate: Option<f32>, out: &mut [f32]) {
        self.set.gemv_t(x, weights, rate, out);
    }
}
