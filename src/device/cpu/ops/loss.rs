//! Losses with their gradients, in one pass over the predictions.

use super::{activation::exp, vectorized};
use crate::program::LossKind;

/// What a loss writes for a share of rows; see [`crate::program::Op::Loss`].
pub struct Out<'a> {
    /// `[rows]`.
    pub per_row: &'a mut [f32],
    /// `[rows]`, or empty.
    pub hits: &'a mut [f32],
    /// `[rows, width]`, or empty.
    pub gradient: &'a mut [f32],
}

/// Losses of numbers. `terms` is what the mean is over: all rows of the batch times the width.
pub fn regression(
    kind: LossKind,
    prediction: &[f32],
    target: &[f32],
    width: usize,
    terms: f32,
    out: &mut Out<'_>,
) {
    vectorized(
        #[inline(always)]
        || match kind {
            LossKind::Mse => pass(prediction, target, width, out, |d| (d * d, 2.0 * d / terms)),
            LossKind::L1 => pass(prediction, target, width, out, |d| {
                (d.abs(), if d == 0.0 { 0.0 } else { (1.0f32 / terms).copysign(d) })
            }),
            LossKind::Huber => pass(prediction, target, width, out, |d| {
                let inside = d.abs() <= 1.0;
                let loss = if inside { 0.5 * d * d } else { d.abs() - 0.5 };
                (loss, if inside { d / terms } else { (1.0f32 / terms).copysign(d) })
            }),
            LossKind::CrossEntropy => {}
        },
    );
}

#[inline(always)]
fn pass(p: &[f32], t: &[f32], width: usize, out: &mut Out<'_>, f: impl Fn(f32) -> (f32, f32)) {
    if width == 1 && !out.gradient.is_empty() {
        for (((p, t), l), g) in p.iter().zip(t).zip(&mut *out.per_row).zip(&mut *out.gradient) {
            (*l, *g) = f(p - t);
        }
        return;
    }
    for (((p, t), l), row) in p.chunks_exact(width).zip(t.chunks_exact(width)).zip(&mut *out.per_row).zip(0..)
    {
        *l = p.iter().zip(t).map(|(p, t)| f(p - t).0).sum();
        if let Some(g) = out.gradient.get_mut(row * width..(row + 1) * width) {
            g.iter_mut().zip(p).zip(t).for_each(|((g, p), t)| *g = f(p - t).1);
        }
    }
}

/// Cross-entropy over class indices: log-sum-exp with the largest output taken out first. `rows` is the batch's.
pub fn cross_entropy(prediction: &[f32], target: &[f32], width: usize, rows: f32, out: &mut Out<'_>) {
    vectorized(
        #[inline(always)]
        || {
            if out.gradient.is_empty() {
                values(prediction, target, width, out);
            } else {
                values_and_gradients(prediction, target, width, 1.0 / rows, out);
            }
        },
    );
}

/// In three passes, so that the exponentials of all rows are taken in one: rows are often narrower than a vector.
#[inline(always)]
fn values_and_gradients(prediction: &[f32], target: &[f32], width: usize, scale: f32, out: &mut Out<'_>) {
    for (row, (p, g)) in prediction.chunks_exact(width).zip(out.gradient.chunks_exact_mut(width)).enumerate()
    {
        let max = largest(p);
        out.per_row[row] = max;
        g.iter_mut().zip(p).for_each(|(g, p)| *g = p - max);
    }
    out.gradient.iter_mut().for_each(|g| *g = exp(*g));
    for (row, (p, g)) in prediction.chunks_exact(width).zip(out.gradient.chunks_exact_mut(width)).enumerate()
    {
        let (max, class) = (out.per_row[row], target[row] as usize);
        let total: f32 = g.iter().sum();
        let factor = scale / total;
        g.iter_mut().for_each(|g| *g *= factor);
        g[class] -= scale;
        finish(row, p, class, max, total, out.per_row, out.hits);
    }
}

#[inline(always)]
fn values(prediction: &[f32], target: &[f32], width: usize, out: &mut Out<'_>) {
    for (row, (p, t)) in prediction.chunks_exact(width).zip(target).enumerate() {
        let max = largest(p);
        let total: f32 = p.iter().map(|v| exp(v - max)).sum();
        finish(row, p, *t as usize, max, total, out.per_row, out.hits);
    }
}

#[inline(always)]
fn finish(row: usize, p: &[f32], class: usize, max: f32, total: f32, per_row: &mut [f32], hits: &mut [f32]) {
    per_row[row] = total.ln() + max - p[class];
    if let Some(hit) = hits.get_mut(row) {
        // Ties go to the first, as in `torch.argmax`.
        *hit = if p[class] == max && !p[..class].contains(&max) { 1.0 } else { 0.0 };
    }
}

/// A NaN wins, so that it reaches the loss.
#[inline(always)]
fn largest(p: &[f32]) -> f32 {
    p.iter().fold(f32::NEG_INFINITY, |m, v| if *v > m || v.is_nan() { *v } else { m })
}
