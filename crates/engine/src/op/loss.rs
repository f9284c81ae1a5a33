//! Losses and their gradients, computed in one pass over the predictions.

use std::ops::Range;

use super::{
    Access, Cost, Emitter, Encoder, FUNCTION, Kind, Op, Operation, PARTIALS, Record, Refused, Size, Slice,
    WorkSplit,
    record::FLAG_WEIGHTED,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};
use crate::vector::{functions::exp, vectorized};

/// The function to minimize; defined in [`crate::spec::Loss`].
pub type LossKind = crate::spec::Loss;

/// In the order of `kernels/abi.cuh`.
pub(super) const KINDS: [LossKind; 4] =
    [LossKind::Mse, LossKind::L1, LossKind::Huber, LossKind::CrossEntropy];

/// The most outputs of a row that lanes of a compiled step keep in registers.
const REGISTER_WIDTH: usize = 64;

/// The loss of each row (a sum over the row's outputs), whether the row is classified correctly, and the
/// gradient of the mean over the global batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    pub kind: LossKind,
    /// `[rows, width]`.
    pub prediction: Slice,
    /// `[rows, width]`, or `[rows]` class indices; with `weighted` one wider, as the row's weight follows.
    pub target: Slice,
    /// Whether rows have weights. Then `per_row` is the weighted loss, in training multiplied by the step's `loss_scale`, so
    /// that its mean over rows is `(w * loss).sum() / w.sum()`, as that of PyTorch's `CrossEntropyLoss(weight=...)`.
    pub weighted: bool,
    /// `[rows]`.
    pub per_row: Slice,
    /// `[rows]`: 1 if the largest output is the label's, else 0; only for classes.
    pub hits: Option<Slice>,
    /// `[rows, width]`: d mean / d prediction; `None` in a validation.
    pub gradient: Option<Slice>,
    pub rows: usize,
    /// The first of these within the global batch, which has `total_rows`.
    pub first: usize,
    pub total_rows: usize,
    pub width: usize,
}

impl Operation for Loss {
    fn access(&self) -> Access {
        let written = [self.per_row, self.hits.unwrap_or_default(), self.gradient.unwrap_or_default()];
        Access::new([self.prediction, self.target], written)
    }

    fn cost(&self) -> Cost {
        let Self { rows, width, .. } = *self;
        let numbers = rows * (3 * width + 2);
        match self.kind.classifies() {
            true => Cost::with_functions(((FUNCTION + 4) * width + FUNCTION) * rows, numbers),
            false => Cost::new(4 * width * rows, numbers),
        }
    }

    fn reference(&self, memory: &mut Memory) {
        let (p, t) = (memory.get(self.prediction), memory.get(self.target));
        let (mut losses, right, mut d) = self.unweighted(&p, &t);
        if self.weighted {
            let scale = if self.gradient.is_some() { f64::from(memory.hyper.loss_scale) } else { 1.0 };
            for (row, target) in t.chunks_exact(self.line()).enumerate() {
                let weight = target[self.line() - 1] * scale;
                losses[row] *= weight;
                d[row * self.width..(row + 1) * self.width].iter_mut().for_each(|d| *d *= weight);
            }
        }
        memory.set(self.per_row, &losses);
        for (to, values) in [(self.hits, right), (self.gradient, d)] {
            if let Some(to) = to {
                memory.set(to, &values);
            }
        }
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self {
            kind, prediction, target, weighted, per_row, hits, gradient, rows, total_rows, width, ..
        } = *self;
        let line = self.line();
        split.each(rows, |rows| {
            let hits = hits.map_or(Slice::default(), |h| h.part(rows.clone()));
            let gradient = gradient.map_or(Slice::default(), |g| g.rows(&rows, width));
            let reads = [prediction.rows(&rows, width), target.rows(&rows, line)];
            (
                Job { kind, width, line, total_rows, weighted },
                Access::new(reads, [per_row.part(rows), hits, gradient]),
            )
        });
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let (wide, single) = (|of: Slice| of.rows(rows, self.width), |of: Slice| of.rows(rows, 1));
        let target = self.target.rows(rows, self.line());
        let (prediction, gradient) = (wide(self.prediction), self.gradient.map(wide));
        let (per_row, hits) = (single(self.per_row), self.hits.map(single));
        let (first, rows) = (self.first + rows.start, rows.len());
        Some(Self { prediction, target, per_row, hits, gradient, rows, first, ..self.clone() }.into())
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let places = [Some(self.prediction), Some(self.target), Some(self.per_row), self.hits, self.gradient];
        Ok(Record {
            first: e.int(self.first)?,
            total_rows: e.int(self.total_rows)?,
            loss: self.kind as i32,
            flags: if self.weighted { FLAG_WEIGHTED } else { 0 },
            at: e.optional(places)?,
            f: self.constants(self.total_rows),
            ..e.shaped(Kind::Loss, [self.rows, self.width, 0])?
        })
    }

    fn emit(&self, r: &Record, e: &Emitter) -> String {
        let [_, last] = e.rows;
        let last = Record { total_rows: last as i32, f: self.constants(last), ..*r };
        let in_registers = self.kind.classifies() && self.width <= REGISTER_WIDTH;
        match e.split {
            WorkSplit::Threads { blocks: 1 } if in_registers => {
                format!("{} cross_entropy_op<{}>(op, own, at, s);", e.record_text(r, &last), self.width)
            }
            _ => e.call(r, &last),
        }
    }
}

impl Loss {
    /// Elements of a row of targets, with its weight.
    pub fn line(&self) -> usize {
        usize::from(self.weighted) + if self.kind.classifies() { 1 } else { self.width }
    }

    /// Losses per row, hits, and the gradient of the mean over `total_rows`, without weights, as PyTorch defines them with
    /// `reduction="mean"`.
    pub(crate) fn unweighted(&self, p: &[f64], t: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let (&Self { kind, rows, total_rows: total, width, .. }, line) = (self, self.line());
        let mut losses = vec![0.0; rows];
        let mut hits = vec![0.0; rows];
        let mut gradient = vec![0.0; rows * width];
        let n = (total * width) as f64;
        for r in 0..rows {
            let row = &p[r * width..(r + 1) * width];
            if kind == LossKind::CrossEntropy {
                let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
                let class = t[r * line] as usize;
                losses[r] = sum.ln() + max - row[class];
                hits[r] = f64::from(row.iter().position(|v| *v == max) == Some(class));
                for j in 0..width {
                    let indicator = f64::from(j == class);
                    gradient[r * width + j] = ((row[j] - max).exp() / sum - indicator) / total as f64;
                }
                continue;
            }
            for j in 0..width {
                let d = row[j] - t[r * line + j];
                let (l, g) = match kind {
                    LossKind::Mse => (d * d, 2.0 * d),
                    LossKind::L1 => (d.abs(), if d == 0.0 { 0.0 } else { d.signum() }),
                    LossKind::Huber if d.abs() <= 1.0 => (0.5 * d * d, d),
                    LossKind::Huber => (d.abs() - 0.5, d.signum()),
                    LossKind::CrossEntropy => (0.0, 0.0),
                };
                losses[r] += l;
                gradient[r * width + j] = g / n;
            }
        }
        (losses, hits, gradient)
    }

    /// The weight of a term in the mean over these rows.
    fn constants(&self, rows: usize) -> [f32; 6] {
        let terms = if self.kind.classifies() { 1 } else { self.width };
        [1.0 / (rows as f32 * terms as f32), 0.0, 0.0, 0.0, 0.0, 0.0]
    }
}

/// Up to 32 lanes share a row. Each block has a place for its partial sums.
pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    let lanes = u64::try_from(r.inputs / 2).unwrap_or(0).clamp(1, 32).next_power_of_two();
    Size::of_threads(r.product(r.rows, 1) * lanes, multiprocessors.min(PARTIALS as u32 / 4))
}

/// Reads prediction, target; writes per_row, hits, gradient.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    kind: LossKind,
    width: usize,
    /// Elements of a row of targets.
    line: usize,
    total_rows: usize,
    weighted: bool,
}

impl Job {
    #[inline]
    pub(super) fn run(
        &self,
        ([prediction, target, ..], [per_row, hits, gradient, _]): Slices<'_>,
        context: &mut Context<'_>,
    ) {
        let Self { kind, width, line, total_rows, weighted } = *self;
        let mut out = Out { per_row, hits, gradient };
        let scale = if out.gradient.is_empty() { 1.0 } else { context.at.hyper.loss_scale };
        if kind.classifies() {
            let labels = Labels { target, scale: weighted.then_some(scale) };
            cross_entropy(prediction, &labels, width, total_rows as f32, &mut out);
            return;
        }
        regression(kind, prediction, target, [width, line], (total_rows * width) as f32, &mut out);
        if weighted {
            scale_rows(target, width, scale, &mut out);
        }
    }
}

/// The results of a loss for some rows.
struct Out<'a> {
    /// `[rows]`.
    per_row: &'a mut [f32],
    /// `[rows]`, or empty.
    hits: &'a mut [f32],
    /// `[rows, width]`, or empty.
    gradient: &'a mut [f32],
}

/// Regression losses. `widths` are the elements of a row of predictions and of a row of targets. `terms` is the number of terms in
/// the mean: rows of the global batch times the width.
fn regression(
    kind: LossKind,
    prediction: &[f32],
    target: &[f32],
    widths: [usize; 2],
    terms: f32,
    out: &mut Out<'_>,
) {
    vectorized(
        #[inline(always)]
        || match kind {
            LossKind::Mse => pass(prediction, target, widths, out, |d| (d * d, 2.0 * d / terms)),
            LossKind::L1 => pass(prediction, target, widths, out, |d| {
                (d.abs(), if d == 0.0 { 0.0 } else { (1.0f32 / terms).copysign(d) })
            }),
            LossKind::Huber => pass(prediction, target, widths, out, |d| {
                let inside = d.abs() <= 1.0;
                let loss = if inside { 0.5 * d * d } else { d.abs() - 0.5 };
                (loss, if inside { d / terms } else { (1.0f32 / terms).copysign(d) })
            }),
            LossKind::CrossEntropy => {}
        },
    );
}

#[inline(always)]
fn pass(p: &[f32], t: &[f32], [width, line]: [usize; 2], out: &mut Out<'_>, f: impl Fn(f32) -> (f32, f32)) {
    if line == 1 && !out.gradient.is_empty() {
        for (((p, t), l), g) in p.iter().zip(t).zip(&mut *out.per_row).zip(&mut *out.gradient) {
            (*l, *g) = f(p - t);
        }
        return;
    }
    let rows = p.chunks_exact(width).zip(t.chunks_exact(line));
    for (((p, t), l), row) in rows.zip(&mut *out.per_row).zip(0..) {
        *l = p.iter().zip(t).map(|(p, t)| f(p - t).0).sum();
        if let Some(g) = out.gradient.get_mut(row * width..(row + 1) * width) {
            g.iter_mut().zip(p).zip(t).for_each(|((g, p), t)| *g = f(p - t).1);
        }
    }
}

/// Multiplies the losses of rows and their gradients by the rows' weights times `scale`.
fn scale_rows(target: &[f32], width: usize, scale: f32, out: &mut Out<'_>) {
    let weights = target.iter().skip(width).step_by(width + 1).map(|weight| weight * scale);
    out.per_row.iter_mut().zip(weights.clone()).for_each(|(loss, weight)| *loss *= weight);
    for (row, weight) in out.gradient.chunks_exact_mut(width).zip(weights) {
        row.iter_mut().for_each(|g| *g *= weight);
    }
}

/// The classes of rows, perhaps with weights.
struct Labels<'a> {
    /// `[rows]`, or with weights `[rows, 2]`.
    target: &'a [f32],
    /// With weights: what all of them are multiplied by.
    scale: Option<f32>,
}

impl Labels<'_> {
    /// The class of a row, and by how much its loss is multiplied.
    #[inline(always)]
    fn label(&self, row: usize) -> (usize, f32) {
        match self.scale {
            None => (self.target[row] as usize, 1.0),
            Some(scale) => (self.target[2 * row] as usize, self.target[2 * row + 1] * scale),
        }
    }
}

/// Cross-entropy over class indices: log-sum-exp after subtracting the largest output. `rows` is that of the
/// global batch.
fn cross_entropy(prediction: &[f32], labels: &Labels<'_>, width: usize, rows: f32, out: &mut Out<'_>) {
    vectorized(
        #[inline(always)]
        || {
            if out.gradient.is_empty() {
                values(prediction, labels, width, out);
            } else {
                values_and_gradients(prediction, labels, width, 1.0 / rows, out);
            }
        },
    );
}

/// Works in three passes, so that all rows' exponentials are computed in one loop: a row is often narrower
/// than a vector.
#[inline(always)]
fn values_and_gradients(
    prediction: &[f32],
    labels: &Labels<'_>,
    width: usize,
    scale: f32,
    out: &mut Out<'_>,
) {
    for (row, (p, g)) in prediction.chunks_exact(width).zip(out.gradient.chunks_exact_mut(width)).enumerate()
    {
        let max = largest(p);
        out.per_row[row] = max;
        g.iter_mut().zip(p).for_each(|(g, p)| *g = p - max);
    }
    out.gradient.iter_mut().for_each(|g| *g = exp(*g));
    for (row, (p, g)) in prediction.chunks_exact(width).zip(out.gradient.chunks_exact_mut(width)).enumerate()
    {
        let (max, (class, weight)) = (out.per_row[row], labels.label(row));
        let (total, scale): (f32, f32) = (g.iter().sum(), scale * weight);
        let factor = scale / total;
        g.iter_mut().for_each(|g| *g *= factor);
        g[class] -= scale;
        finish(row, p, (class, weight), [max, total], out.per_row, out.hits);
    }
}

#[inline(always)]
fn values(prediction: &[f32], labels: &Labels<'_>, width: usize, out: &mut Out<'_>) {
    for (row, p) in prediction.chunks_exact(width).enumerate() {
        let max = largest(p);
        let total: f32 = p.iter().map(|v| exp(v - max)).sum();
        finish(row, p, labels.label(row), [max, total], out.per_row, out.hits);
    }
}

#[inline(always)]
fn finish(
    row: usize,
    p: &[f32],
    (class, weight): (usize, f32),
    [max, total]: [f32; 2],
    per_row: &mut [f32],
    hits: &mut [f32],
) {
    per_row[row] = (total.ln() + max - p[class]) * weight;
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
