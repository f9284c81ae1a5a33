//! The truth for each instruction: plain loops in f64, written for reading. Every device is held against it.

use super::{Accumulator, Activation, BufferId, Hyper, LossKind, Op, Program, RowSource, Slice, UpdateRule};

/// The memory of a reference run, and the counters that a device keeps for itself.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By [`BufferId`].
    pub buffers: Vec<Vec<f64>>,
    /// First row of the global batch within the epoch (or of the chunk within the validation rows).
    pub position: usize,
    /// The same within a streamed chunk, in this device's own rows.
    pub offset: usize,
    /// Optimizer steps done.
    pub step: u64,
    /// The next row of the log.
    pub slot: usize,
    /// The run's seed, for dropout.
    pub seed: u64,
    /// What the update uses in this step.
    pub hyper: Hyper,
    /// Running sums of the epoch and of the validation.
    pub sums: [Vec<f64>; 2],
    /// Whether a loss was not finite.
    pub non_finite: bool,
}

impl Memory {
    fn get(&self, s: Slice) -> Vec<f64> {
        self.buffers[s.buffer.0][s.offset..s.offset + s.len].to_vec()
    }

    fn set(&mut self, s: Slice, values: &[f64]) {
        self.buffers[s.buffer.0][s.offset..s.offset + s.len].copy_from_slice(values);
    }

    /// Runs a whole program.
    pub fn run(&mut self, program: &Program) {
        for instruction in &program.instructions {
            self.execute(&instruction.op);
        }
    }

    /// Runs one instruction.
    pub fn execute(&mut self, op: &Op) {
        match *op {
            Op::Gather { features, targets, source, first, x, y, rows, width, target_width } => {
                self.gather(features, source, first, x, rows, width);
                self.gather(targets, source, first, y, rows, target_width);
            }
            Op::Linear { x, weight, bias, activation, pre, y, rows, inputs, outputs } => {
                let mut z = product(&self.get(x), &self.get(weight), rows, inputs, outputs);
                if let Some(bias) = bias {
                    let bias = self.get(bias);
                    z.iter_mut().enumerate().for_each(|(i, z)| *z += bias[i % outputs]);
                }
                if let Some(pre) = pre {
                    self.set(pre, &z);
                }
                if let Some(f) = activation {
                    z.iter_mut().for_each(|z| *z = f.value(*z));
                }
                self.set(y, &z);
            }
            Op::Activate { activation, x, y, .. } => {
                let v: Vec<f64> = self.get(x).into_iter().map(|x| activation.value(x)).collect();
                self.set(y, &v);
            }
            Op::Dropout { x, y, p, layer, first, rows, width } => {
                let v = self.masked(self.get(x), p, layer, first, rows, width);
                self.set(y, &v);
            }
            Op::DropoutBackward { dy, p, layer, first, rows, width } => {
                let v = self.masked(self.get(dy), p, layer, first, rows, width);
                self.set(dy, &v);
            }
            Op::Loss { kind, prediction, target, per_row, hits, gradient, rows, total_rows, width } => {
                let (p, t) = (self.get(prediction), self.get(target));
                let (losses, right, d) = loss(kind, &p, &t, rows, total_rows, width);
                self.set(per_row, &losses);
                if let Some(hits) = hits {
                    self.set(hits, &right);
                }
                if let Some(gradient) = gradient {
                    self.set(gradient, &d);
                }
            }
            Op::InputGradient { dy, weight, dx, derivative, rows, inputs, outputs } => {
                let w = transposed(&self.get(weight), inputs, outputs);
                let mut d = product(&self.get(dy), &w, rows, outputs, inputs);
                if let Some((f, saved)) = derivative {
                    let saved = self.get(saved);
                    d.iter_mut().zip(saved).for_each(|(d, s)| *d *= f.derivative(s));
                }
                self.set(dx, &d);
            }
            Op::ActivateBackward { activation, saved, dy, .. } => {
                let saved = self.get(saved);
                let d: Vec<f64> =
                    self.get(dy).into_iter().zip(saved).map(|(d, s)| d * activation.derivative(s)).collect();
                self.set(dy, &d);
            }
            Op::WeightGradient { x, dy, to, update, rows, inputs, outputs } => {
                let x = transposed(&self.get(x), rows, inputs);
                let d = product(&x, &self.get(dy), inputs, rows, outputs);
                self.gradient(to, &d, update);
            }
            Op::BiasGradient { dy, to, update, outputs, .. } => {
                let mut d = vec![0.0; outputs];
                self.get(dy).iter().enumerate().for_each(|(i, v)| d[i % outputs] += v);
                self.gradient(to, &d, update);
            }
            // A reference has no other device.
            Op::AllReduce { .. } => {}
            Op::Zero { of } => self.set(of, &vec![0.0; of.len]),
            Op::Norm { of, cell } => {
                let norm = self.get(of).iter().map(|v| v * v).sum::<f64>().sqrt();
                self.set(cell, &[norm]);
            }
            Op::Clip { gradients, norm, max_norm } => {
                let factor = (f64::from(max_norm) / (self.get(norm)[0] + 1e-6)).min(1.0);
                let g: Vec<f64> = self.get(gradients).into_iter().map(|g| g * factor).collect();
                self.set(gradients, &g);
            }
            Op::Update { rule, values, gradients, state } => self.update(rule, values, gradients, state),
            Op::Mean { of, cell, scale } => {
                let mean = self.get(of).iter().sum::<f64>() * scale;
                self.set(cell, &[mean]);
            }
            Op::LogAppend { cells, log } => {
                let v = self.get(cells);
                self.non_finite |= !v[0].is_finite();
                self.set(Slice { buffer: log, offset: self.slot * v.len(), len: v.len() }, &v);
                self.slot += 1;
            }
            Op::Accumulate { cells, rows, sums } => {
                let v = self.get(cells);
                if sums == Accumulator::Epoch {
                    if self.non_finite {
                        return;
                    }
                    self.non_finite = !v[0].is_finite();
                }
                let to = &mut self.sums[usize::from(sums == Accumulator::Validation)];
                to.resize(v.len(), 0.0);
                to.iter_mut().zip(v).for_each(|(s, v)| *s += v * rows as f64);
            }
            Op::Watch { cell } => self.non_finite |= !self.get(cell)[0].is_finite(),
        }
    }

    fn gather(
        &mut self,
        from: BufferId,
        source: RowSource,
        first: usize,
        to: Slice,
        rows: usize,
        width: usize,
    ) {
        let mut v = Vec::with_capacity(rows * width);
        for i in 0..rows {
            let position = self.position + first + i;
            let row = match source {
                RowSource::Order(order) => self.buffers[order.0][position] as usize,
                RowSource::Position => position,
                RowSource::Chunk => self.offset + i,
            };
            v.extend_from_slice(&self.buffers[from.0][row * width..(row + 1) * width]);
        }
        self.set(to, &v);
    }

    fn masked(
        &self,
        mut v: Vec<f64>,
        p: f32,
        layer: u32,
        first: usize,
        rows: usize,
        width: usize,
    ) -> Vec<f64> {
        for row in 0..rows {
            let place = (self.position + first + row) as u64;
            for unit in 0..width {
                let kept = dropout_keeps(self.seed, layer, self.step, place, unit as u32, p);
                let factor = if kept { 1.0 / (1.0 - f64::from(p)) } else { 0.0 };
                v[row * width + unit] *= factor;
            }
        }
        v
    }

    fn gradient(&mut self, to: Slice, d: &[f64], update: bool) {
        if update {
            let rate = f64::from(self.hyper.rate);
            let v: Vec<f64> = self.get(to).iter().zip(d).map(|(v, d)| v - rate * d).collect();
            self.set(to, &v);
        } else {
            self.set(to, d);
        }
    }

    /// The rules of `torch.optim`, from its documentation's algorithms.
    fn update(&mut self, rule: UpdateRule, values: Slice, gradients: Slice, state: Option<Slice>) {
        let (mut w, g) = (self.get(values), self.get(gradients));
        let mut s = state.map(|s| self.get(s)).unwrap_or_default();
        let n = w.len();
        let h = self.hyper;
        let (rate, first, correction) = (f64::from(h.rate), f64::from(h.first), f64::from(h.correction));
        for i in 0..n {
            match rule {
                UpdateRule::Sgd { momentum, nesterov, weight_decay } => {
                    let mut d = g[i] + f64::from(weight_decay) * w[i];
                    if momentum {
                        s[i] = first * s[i] + d;
                        d = if nesterov { d + first * s[i] } else { s[i] };
                    }
                    w[i] -= rate * d;
                }
                UpdateRule::Adam { beta2, one_minus_beta2, eps, weight_decay, decoupled } => {
                    let mut d = g[i];
                    if decoupled {
                        w[i] *= f64::from(h.decay_factor);
                    } else {
                        d += f64::from(weight_decay) * w[i];
                    }
                    s[i] += first * (d - s[i]);
                    s[n + i] = f64::from(beta2) * s[n + i] + f64::from(one_minus_beta2) * d * d;
                    w[i] -= rate * s[i] / (s[n + i].sqrt() * correction + f64::from(eps));
                }
            }
        }
        self.set(values, &w);
        if let Some(state) = state {
            self.set(state, &s);
        }
    }
}

/// `[m, k] x [k, n]`.
fn product(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for p in 0..k {
            for j in 0..n {
                c[i * n + j] += a[i * k + p] * b[p * n + j];
            }
        }
    }
    c
}

fn transposed(a: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns).map(|i| a[(i % rows) * columns + i / rows]).collect()
}

/// Per-row losses, hits, and the gradient of the mean over `total` rows. PyTorch's definitions with
/// `reduction="mean"`.
fn loss(
    kind: LossKind,
    p: &[f64],
    t: &[f64],
    rows: usize,
    total: usize,
    width: usize,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let mut losses = vec![0.0; rows];
    let mut hits = vec![0.0; rows];
    let mut gradient = vec![0.0; rows * width];
    let n = (total * width) as f64;
    for r in 0..rows {
        let row = &p[r * width..(r + 1) * width];
        if kind == LossKind::CrossEntropy {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
            let class = t[r] as usize;
            losses[r] = sum.ln() + max - row[class];
            hits[r] = f64::from(row.iter().position(|v| *v == max) == Some(class));
            for j in 0..width {
                let indicator = f64::from(j == class);
                gradient[r * width + j] = ((row[j] - max).exp() / sum - indicator) / total as f64;
            }
            continue;
        }
        for j in 0..width {
            let d = row[j] - t[r * width + j];
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

impl Activation {
    /// f(x) in double precision.
    pub fn value(self, x: f64) -> f64 {
        match self {
            Self::Relu => x.max(0.0),
            Self::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        }
    }

    /// f'(x), from x for those that need their input, from f(x) for the others.
    pub fn derivative(self, saved: f64) -> f64 {
        match self {
            Self::Relu => f64::from(saved > 0.0),
            Self::Gelu => {
                let density = (-0.5 * saved * saved).exp() / (2.0 * std::f64::consts::PI).sqrt();
                0.5 * (1.0 + erf(saved * std::f64::consts::FRAC_1_SQRT_2)) + saved * density
            }
            Self::Tanh => 1.0 - saved * saved,
            Self::Sigmoid => saved * (1.0 - saved),
        }
    }
}

/// The error function by its Maclaurin series, and by the continued fraction of its complement beyond 2.5 (Abramowitz
/// and Stegun 7.1.5 and 7.1.14): some 1e-15 everywhere.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let tail = (1..=60).rev().fold(0.0, |t, n| n as f64 / 2.0 / (a + t));
        1.0 - (-a * a).exp() / ((a + tail) * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

/// Whether dropout keeps a unit. One 32-bit number per (seed, layer, step, row within the epoch, unit), by SplitMix64's
/// finalizer over the mixed coordinates (Steele, Lea, Flood 2014), compared with p.
pub fn dropout_keeps(seed: u64, layer: u32, step: u64, row: u64, unit: u32, p: f32) -> bool {
    let key = dropout_key(seed, layer, step, row);
    dropout_draw(key, unit) >= dropout_threshold(p)
}

/// The part of a dropout draw that a whole row shares.
pub fn dropout_key(seed: u64, layer: u32, step: u64, row: u64) -> u32 {
    let mut z = seed ^ (u64::from(layer) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for coordinate in [step, row] {
        z = (z ^ coordinate).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
    }
    (z >> 32) as u32 ^ z as u32
}

/// One draw, uniform over 32 bits: the `lowbias32` mix (Wellons 2018) of key and unit, in 32-bit arithmetic so that
/// vector units of every device do it alike.
#[inline(always)]
pub fn dropout_draw(key: u32, unit: u32) -> u32 {
    let mut x = key ^ unit.wrapping_mul(0x9E37_79B9);
    x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

/// Draws below this are zeroed.
pub fn dropout_threshold(p: f32) -> u32 {
    (f64::from(p) * 4_294_967_296.0) as u32
}
