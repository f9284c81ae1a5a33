//! PyTorch's LayerNorm over the last dimension, with a weight and a bias.

use std::ops::Range;

use super::{
    Access, Backward, Cost, Encoder, FLAG_UPDATE, Kind, Lowering, Op, Operation, Record, Refused, Size,
    Slice,
    product::Strips,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};
use crate::vector::vectorized;

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, per row; the variance is divided by n, not n - 1.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    pub x: Slice,
    /// `[width]`.
    pub weight: Slice,
    /// `[width]`.
    pub bias: Slice,
    pub y: Slice,
    /// `[rows, 2]`: mean and 1 / sqrt(variance + eps), for the backward pass.
    pub stats: Option<Slice>,
    pub eps: f32,
    pub rows: usize,
    pub width: usize,
}

/// dx from dy. With z the normalized x and g = dy weight: dx = (g - mean g - z mean(g z)) / deviation.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormBackward {
    pub dy: Slice,
    pub x: Slice,
    /// `[width]`.
    pub weight: Slice,
    pub stats: Slice,
    pub dx: Slice,
    pub rows: usize,
    pub width: usize,
}

/// Gradients of weight and bias: column sums of dy z and of dy; or, with `update`, plain SGD steps along
/// them.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormGradient {
    pub dy: Slice,
    pub x: Slice,
    pub stats: Slice,
    /// `[width]`: the gradient of the weight, or the weight itself.
    pub weight: Slice,
    /// `[width]`: the gradient of the bias, or the bias itself.
    pub bias: Slice,
    pub update: bool,
    pub rows: usize,
    pub width: usize,
}

impl LayerNorm {
    /// Lowers layer `index`; returns its output. `parameters`: weight and bias.
    pub fn lower(
        l: &mut Lowering,
        index: usize,
        parameters: &[Slice],
        eps: f64,
        x: Slice,
        width: usize,
    ) -> Slice {
        let y = l.rows_of(&format!("{index}.output"), width);
        let stats = l.training.then(|| l.rows_of(&format!("{index}.stats"), 2));
        let parameter = |i: usize| parameters.get(i).copied().unwrap_or_default();
        let (weight, bias) = (parameter(0), parameter(1));
        l.forward(Self { x, weight, bias, y, stats, eps: eps as f32, rows: l.rows, width });
        y
    }
}

impl Operation for LayerNorm {
    fn access(&self) -> Access {
        Access::new([self.x, self.weight, self.bias], [self.y, self.stats.unwrap_or_default()])
    }

    fn cost(&self) -> Cost {
        Cost::new(8 * self.rows * self.width, 2 * self.rows * self.width)
    }

    fn reference(&self, memory: &mut Memory) {
        let (x, weight, bias) = (memory.get(self.x), memory.get(self.weight), memory.get(self.bias));
        let (mut y, mut stats) = (Vec::new(), Vec::new());
        for row in x.chunks(self.width) {
            let mean = row.iter().sum::<f64>() / self.width as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / self.width as f64;
            let deviation = (variance + f64::from(self.eps)).sqrt();
            y.extend(row.iter().zip(&weight).zip(&bias).map(|((x, w), b)| (x - mean) / deviation * w + b));
            stats.extend([mean, 1.0 / deviation]);
        }
        memory.set(self.y, &y);
        if let Some(to) = self.stats {
            memory.set(to, &stats);
        }
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { x, weight, bias, y, stats, eps, width, .. } = *self;
        split.each(self.rows, |rows| {
            let stats = stats.map_or(Slice::default(), |s| s.rows(&rows, 2));
            let reads = [x.rows(&rows, width), weight, bias];
            (Job::Forward { eps, width }, Access::new(reads, [y.rows(&rows, width), stats]))
        });
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let [x, y] = [self.x, self.y].map(|slice| slice.rows(rows, self.width));
        let stats = self.stats.map(|stats| stats.rows(rows, 2));
        Some(Self { x, y, stats, rows: rows.len(), ..self.clone() }.into())
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record {
            f: [self.eps, 0.0, 0.0, 0.0, 0.0, 0.0],
            at: e.optional([Some(self.x), Some(self.weight), Some(self.bias), Some(self.y), self.stats])?,
            ..e.shaped(Kind::LayerNorm, [self.rows, self.width, 0])?
        })
    }

    fn learns(&self) -> bool {
        true
    }

    fn backward(&self, l: &mut Lowering, backward: Backward<'_>) -> (Slice, bool) {
        let Self { x, weight, bias, rows, width, .. } = *self;
        let (dy, stats, update) = (backward.dy, self.stats.unwrap_or_default(), l.folds);
        let to = [l.gradient_of(weight), l.gradient_of(bias)];
        l.parameters(LayerNormGradient { dy, x, stats, weight: to[0], bias: to[1], update, rows, width });
        if backward.before.is_none() {
            return (dy, false);
        }
        let dx = l.rows_of(&format!("link_{}.input_gradient", backward.link), width);
        l.backward(LayerNormBackward { dy, x, weight, stats, dx, rows, width });
        (dx, false)
    }
}

impl Operation for LayerNormBackward {
    fn access(&self) -> Access {
        Access::new([self.dy, self.x, self.weight, self.stats], [self.dx])
    }

    fn cost(&self) -> Cost {
        Cost::new(11 * self.rows * self.width, 3 * self.rows * self.width)
    }

    fn reference(&self, memory: &mut Memory) {
        let [dy, x, weight, stats] = [self.dy, self.x, self.weight, self.stats].map(|s| memory.get(s));
        let n = self.width as f64;
        let mut dx = vec![0.0; dy.len()];
        for row in 0..self.rows {
            let at = |i: usize| row * self.width + i;
            let z = |i: usize| (x[at(i)] - stats[2 * row]) * stats[2 * row + 1];
            let g = |i: usize| dy[at(i)] * weight[i];
            let mean_g = (0..self.width).map(g).sum::<f64>() / n;
            let mean_gz = (0..self.width).map(|i| g(i) * z(i)).sum::<f64>() / n;
            for i in 0..self.width {
                dx[at(i)] = (g(i) - mean_g - z(i) * mean_gz) * stats[2 * row + 1];
            }
        }
        memory.set(self.dx, &dx);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { dy, x, weight, stats, dx, width, .. } = *self;
        split.each(self.rows, |rows| {
            let reads = [dy.rows(&rows, width), x.rows(&rows, width), weight, stats.rows(&rows, 2)];
            (Job::Backward { width }, Access::new(reads, [dx.rows(&rows, width)]))
        });
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let [dy, x, dx] = [self.dy, self.x, self.dx].map(|slice| slice.rows(rows, self.width));
        Some(Self { dy, x, dx, stats: self.stats.rows(rows, 2), rows: rows.len(), ..self.clone() }.into())
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record {
            at: e.places([self.dy, self.x, self.weight, self.stats, self.dx])?,
            ..e.shaped(Kind::LayerNormBackward, [self.rows, self.width, 0])?
        })
    }
}

impl Operation for LayerNormGradient {
    fn access(&self) -> Access {
        Access::new([self.dy, self.x, self.stats], [self.weight, self.bias])
    }

    fn cost(&self) -> Cost {
        Cost::new(5 * self.rows * self.width, (2 * self.rows + 2) * self.width)
    }

    fn reference(&self, memory: &mut Memory) {
        let [dy, x, stats] = [self.dy, self.x, self.stats].map(|s| memory.get(s));
        let (mut weight, mut bias) = (vec![0.0; self.width], vec![0.0; self.width]);
        for (i, (dy, x)) in dy.iter().zip(&x).enumerate() {
            let (row, column) = (i / self.width, i % self.width);
            weight[column] += dy * (x - stats[2 * row]) * stats[2 * row + 1];
            bias[column] += dy;
        }
        memory.gradient(self.weight, &weight, self.update);
        memory.gradient(self.bias, &bias, self.update);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { dy, x, stats, weight, bias, update, width, .. } = *self;
        let sums = [(); 2].map(|()| if update { split.scratch(width) } else { Slice::default() });
        split.each(width, |c| {
            let first = c.start;
            let scratch = sums.map(|s| if update { s.part(c.clone()) } else { s });
            let writes = [weight.part(c.clone()), bias.part(c), scratch[0], scratch[1]];
            (Job::Gradient { width, first, update }, Access::new([dy, x, stats], writes))
        });
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record {
            flags: if self.update { FLAG_UPDATE } else { 0 },
            at: e.places([self.dy, self.x, self.stats, self.weight, self.bias])?,
            ..e.shaped(Kind::LayerNormGradient, [self.rows, self.width, 0])?
        })
    }
}

/// Up to 32 lanes share a row.
pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    let lanes = u64::try_from(r.inputs / 2).unwrap_or(0).clamp(1, 32).next_power_of_two();
    Size::of_threads(r.product(r.rows, 1) * lanes, multiprocessors)
}

pub(super) fn gradient_size(r: &Record, multiprocessors: u32) -> Size {
    let strips = Strips { columns: r.inputs, width: 32, least_rows: 64, blocks_per_multiprocessor: 4 };
    strips.size(r.rows, multiprocessors)
}

/// What a thread does with its rows or its columns.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Reads x, weight, bias; writes y and, if they are kept, the rows' statistics.
    Forward { eps: f32, width: usize },
    /// Reads dy, x, weight, statistics; writes dx.
    Backward { width: usize },
    /// Reads dy, x, statistics; writes columns of both gradients; or, with `update`, of both parameters,
    /// using two scratch buffers of the same length.
    Gradient { width: usize, first: usize, update: bool },
}

impl Job {
    #[inline]
    pub(super) fn run(&self, ([a, b, c, d], [w0, w1, w2, w3]): Slices<'_>, context: &mut Context<'_>) {
        match *self {
            Self::Forward { eps, width } => vectorized(
                #[inline(always)]
                || forward([a, b, c], w0, w1, width, eps),
            ),
            Self::Backward { width } => vectorized(
                #[inline(always)]
                || backward([a, b, c, d], w0, width),
            ),
            Self::Gradient { width, first, update: false } => gradient([a, b, c], w0, w1, width, first),
            Self::Gradient { width, first, update: true } => {
                gradient([a, b, c], w2, w3, width, first);
                let rate = context.at.hyper.rate;
                for (parameters, gradients) in [(w0, w2), (w1, w3)] {
                    parameters.iter_mut().zip(gradients).for_each(|(w, g)| *w -= rate * *g);
                }
            }
        }
    }
}

/// Number of partial sums that are added up separately before they are joined, so that loops vectorize in a
/// fixed order.
const LANES: usize = 16;

/// The mean of f over two rows of equal width, in double precision.
#[inline(always)]
fn mean(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [0.0f64; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += f64::from(f(*a, *b));
        }
    }
    (sums.iter().sum::<f64>() / a.len() as f64) as f32
}

#[inline(always)]
fn forward([x, weight, bias]: [&[f32]; 3], y: &mut [f32], stats: &mut [f32], width: usize, eps: f32) {
    for (row, (x, y)) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).enumerate() {
        let center = mean(x, x, |x, _| x);
        let variance = mean(x, x, |x, _| (x - center) * (x - center));
        let scale = 1.0 / (variance + eps).sqrt();
        for (((y, x), w), b) in y.iter_mut().zip(x).zip(weight).zip(bias) {
            *y = (x - center) * scale * w + b;
        }
        if let Some(stats) = stats.get_mut(2 * row..2 * row + 2) {
            stats.copy_from_slice(&[center, scale]);
        }
    }
}

#[inline(always)]
fn backward([dy, x, weight, stats]: [&[f32]; 4], dx: &mut [f32], width: usize) {
    let rows = dy.chunks_exact(width).zip(x.chunks_exact(width)).zip(stats.as_chunks::<2>().0);
    for (((dy, x), &[center, scale]), dx) in rows.zip(dx.chunks_exact_mut(width)) {
        dx.iter_mut().zip(dy).zip(weight).for_each(|((g, d), w)| *g = d * w);
        let mean_g = mean(dx, x, |g, _| g);
        let mean_gz = mean(dx, x, |g, x| g * ((x - center) * scale));
        for (d, x) in dx.iter_mut().zip(x) {
            *d = (*d - mean_g - (x - center) * scale * mean_gz) * scale;
        }
    }
}

/// Column sums of dy z and of dy; the rows are added in order.
fn gradient([dy, x, stats]: [&[f32]; 3], weight: &mut [f32], bias: &mut [f32], width: usize, first: usize) {
    weight.fill(0.0);
    bias.fill(0.0);
    vectorized(
        #[inline(always)]
        || {
            let rows = dy.chunks_exact(width).zip(x.chunks_exact(width)).zip(stats.as_chunks::<2>().0);
            for ((dy, x), &[center, scale]) in rows {
                let columns = dy[first..].iter().zip(&x[first..]);
                for ((w, b), (dy, x)) in weight.iter_mut().zip(bias.iter_mut()).zip(columns) {
                    *w += dy * ((x - center) * scale);
                    *b += dy;
                }
            }
        },
    );
}
