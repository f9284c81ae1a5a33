//! Dropout: the mask is a pure function of (seed, layer, step, global row, unit) and is computed, never kept.

use super::vectorized;
use crate::program::reference::{dropout_draw, dropout_key, dropout_threshold};

/// Which draws a share of rows takes.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// The run's seed.
    pub seed: u64,
    /// Index of the layer in the Sequential.
    pub layer: u32,
    /// Optimizer steps done.
    pub step: u64,
    /// Number, within the epoch, of the share's first row.
    pub first_row: u64,
    /// Probability of a zero.
    pub p: f32,
    /// Units per row.
    pub width: usize,
}

/// y = x m / (1 - p).
pub fn dropout(mask: Mask, x: &[f32], y: &mut [f32]) {
    for (row, (x, y)) in x.chunks_exact(mask.width).zip(y.chunks_exact_mut(mask.width)).enumerate() {
        let (key, threshold, scale) = mask.row(row);
        vectorized(
            #[inline(always)]
            || {
                for (unit, (y, x)) in y.iter_mut().zip(x).enumerate() {
                    *y = if dropout_draw(key, unit as u32) >= threshold { x * scale } else { 0.0 };
                }
            },
        );
    }
}

/// dy becomes dy m / (1 - p).
pub fn dropout_in_place(mask: Mask, dy: &mut [f32]) {
    for (row, dy) in dy.chunks_exact_mut(mask.width).enumerate() {
        let (key, threshold, scale) = mask.row(row);
        vectorized(
            #[inline(always)]
            || {
                for (unit, d) in dy.iter_mut().enumerate() {
                    *d = if dropout_draw(key, unit as u32) >= threshold { *d * scale } else { 0.0 };
                }
            },
        );
    }
}

impl Mask {
    fn row(&self, row: usize) -> (u32, u32, f32) {
        let key = dropout_key(self.seed, self.layer, self.step, self.first_row + row as u64);
        (key, dropout_threshold(self.p), 1.0 / (1.0 - self.p))
    }
}
