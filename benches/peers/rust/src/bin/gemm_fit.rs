//! A hand-written training loop on the `gemm` crate's products. Bias, ReLU, loss and optimizer are plain
//! loops on one thread.

use std::process::ExitCode;

use gemm::Parallelism;
use rivals::{Data, Job, Loss, Optimizer, Order, Outcome, Targets, Train, Trained, picked, uniform};

fn main() -> ExitCode {
    rivals::run("gemm", |job, data| {
        let job = job.clone();
        Ok(Box::new(move |epochs| train(&job, &data, epochs)) as Train)
    })
}

fn train(job: &Job, data: &Data, epochs: usize) -> Outcome<Trained> {
    let mut network = Network::new(job);
    let mut order = Order::new(data.rows, job.batch);
    let mut trained = Trained::default();
    for _ in 0..epochs {
        for rows in order.shuffled() {
            let mut x = std::mem::take(&mut network.outputs[0]);
            picked(&data.x, job.inputs(), rows, &mut x);
            network.outputs[0] = x;
            network.forward(rows.len());
            trained.losses.push(network.loss(rows.len(), &data.y, rows.iter().map(|&row| row as usize)));
            network.backward(rows.len());
        }
        if let Some((rows, x, y)) = &data.held_out {
            trained.validate(|| {
                network.outputs[0].clone_from(x);
                network.forward(*rows);
                Ok(network.loss(*rows, y, 0..*rows))
            })?;
        }
    }
    Ok(trained)
}

/// Which operand of a product is transposed.
#[derive(Clone, Copy, PartialEq)]
enum Turned {
    Neither,
    Left,
    Right,
}

/// `c = alpha c + beta a b` for `a` of m x k and `b` of k x n, row-major except for the transposed operand.
struct Product {
    mkn: [usize; 3],
    turned: Turned,
    alpha: f32,
    beta: f32,
}

impl Product {
    fn run(self, a: &[f32], b: &[f32], c: &mut [f32], parallelism: Parallelism) {
        let [m, k, n] = self.mkn;
        assert!(a.len() >= m * k && b.len() >= k * n && c.len() >= m * n);
        let (a_row, a_column) = if self.turned == Turned::Left { (1, m) } else { (k, 1) };
        let (b_row, b_column) = if self.turned == Turned::Right { (1, k) } else { (n, 1) };
        let strides = [n, 1, a_row, a_column, b_row, b_column].map(|stride| stride as isize);
        let [c_row, c_column, a_row, a_column, b_row, b_column] = strides;
        // SAFETY: with these strides every element lies within its slice, by the lengths above.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                c.as_mut_ptr(),
                c_column,
                c_row,
                self.alpha != 0.0,
                a.as_ptr(),
                a_column,
                a_row,
                b.as_ptr(),
                b_column,
                b_row,
                self.alpha,
                self.beta,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

struct Network {
    widths: Vec<usize>,
    loss: Loss,
    parallelism: Parallelism,
    layers: Vec<Layer>,
    /// The batch, then the output of each layer.
    outputs: Vec<Vec<f32>>,
    /// The gradient at the output of the current layer, and of the one before it.
    gradients: [Vec<f32>; 2],
}

struct Layer {
    weight: Parameter,
    bias: Parameter,
}

impl Network {
    fn new(job: &Job) -> Self {
        let mut random = fastrand::Rng::with_seed(0);
        let mut layer = |pair: &[usize]| {
            let mut parameter = |len| Parameter::new(uniform(&mut random, len, pair[0]), job);
            Layer { weight: parameter(pair[0] * pair[1]), bias: parameter(pair[1]) }
        };
        Self {
            widths: job.widths.clone(),
            loss: job.loss,
            parallelism: if job.threads > 1 { Parallelism::Rayon(job.threads) } else { Parallelism::None },
            layers: job.widths.windows(2).map(&mut layer).collect(),
            outputs: vec![Vec::new(); job.widths.len()],
            gradients: [Vec::new(), Vec::new()],
        }
    }

    fn forward(&mut self, rows: usize) {
        for (index, layer) in self.layers.iter().enumerate() {
            let (inputs, outputs) = (self.widths[index], self.widths[index + 1]);
            let (before, after) = self.outputs.split_at_mut(index + 1);
            let output = &mut after[0];
            output.resize(rows * outputs, 0.0);
            for row in output.chunks_exact_mut(outputs) {
                row.copy_from_slice(&layer.bias.values);
            }
            let product =
                Product { mkn: [rows, inputs, outputs], turned: Turned::Neither, alpha: 1.0, beta: 1.0 };
            product.run(&before[index], &layer.weight.values, output, self.parallelism);
            if index + 1 < self.layers.len() {
                output.iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
    }

    /// The mean loss over the batch; its gradient is stored for `backward`.
    fn loss(&mut self, rows: usize, targets: &Targets, picked: impl Iterator<Item = usize>) -> f32 {
        let width = self.widths[self.widths.len() - 1];
        let output = &self.outputs[self.layers.len()];
        let gradient = &mut self.gradients[0];
        gradient.clone_from(output);
        let mut total = 0.0;
        for (row, target) in gradient.chunks_exact_mut(width).zip(picked) {
            match (targets, self.loss) {
                (Targets::Values(values), Loss::Mse) => {
                    for (value, target) in row.iter_mut().zip(&values[target * width..]) {
                        let off = *value - target;
                        total += off * off / width as f32;
                        *value = 2.0 * off / (rows * width) as f32;
                    }
                }
                (Targets::Classes(classes), Loss::CrossEntropy) => {
                    let class = classes[target] as usize;
                    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let own = row[class] - most;
                    row.iter_mut().for_each(|value| *value = (*value - most).exp());
                    let sum: f32 = row.iter().sum();
                    total += sum.ln() - own;
                    let scale = 1.0 / (sum * rows as f32);
                    row.iter_mut().for_each(|value| *value *= scale);
                    row[class] -= 1.0 / rows as f32;
                }
                _ => unreachable!("targets are read as the loss wants them"),
            }
        }
        total / rows as f32
    }

    /// One optimizer step with the gradient that `loss` stored.
    fn backward(&mut self, rows: usize) {
        for (index, layer) in self.layers.iter_mut().enumerate().rev() {
            let (inputs, outputs) = (self.widths[index], self.widths[index + 1]);
            let [gradient, previous] = &mut self.gradients;
            let input = &self.outputs[index];
            if index > 0 {
                previous.resize(rows * inputs, 0.0);
                let product =
                    Product { mkn: [rows, outputs, inputs], turned: Turned::Right, alpha: 0.0, beta: 1.0 };
                product.run(gradient, &layer.weight.values, previous, self.parallelism);
                for (value, output) in previous.iter_mut().zip(input) {
                    *value = if *output > 0.0 { *value } else { 0.0 };
                }
            }
            let of_weight =
                |alpha, beta| Product { mkn: [inputs, rows, outputs], turned: Turned::Left, alpha, beta };
            layer.weight.step(|values, alpha, beta| {
                of_weight(alpha, beta).run(input, gradient, values, self.parallelism);
            });
            layer.bias.step(|values, alpha, beta| {
                values.iter_mut().for_each(|value| *value *= alpha);
                for row in gradient.chunks_exact(outputs) {
                    values.iter_mut().zip(row).for_each(|(value, g)| *value += beta * g);
                }
            });
            self.gradients.swap(0, 1);
        }
    }
}

struct Parameter {
    values: Vec<f32>,
    lr: f32,
    adam: Option<Adam>,
}

struct Adam {
    gradient: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    steps: i32,
}

impl Parameter {
    fn new(values: Vec<f32>, job: &Job) -> Self {
        let zeros = || vec![0.0; values.len()];
        let adam = (job.optimizer == Optimizer::Adam).then(|| Adam {
            gradient: zeros(),
            first: zeros(),
            second: zeros(),
            steps: 0,
        });
        Self { lr: job.lr as f32, adam, values }
    }

    /// `add(values, alpha, beta)` sets values to `alpha values + beta gradient`.
    fn step(&mut self, add: impl FnOnce(&mut [f32], f32, f32)) {
        let Some(adam) = &mut self.adam else {
            return add(&mut self.values, 1.0, -self.lr);
        };
        add(&mut adam.gradient, 0.0, 1.0);
        adam.steps += 1;
        let (b1, b2) = (0.9f32, 0.999f32);
        let rate = self.lr / (1.0 - b1.powi(adam.steps));
        let scale = 1.0 / (1.0 - b2.powi(adam.steps)).sqrt();
        let moments = adam.first.iter_mut().zip(&mut adam.second);
        for ((value, g), (m, v)) in self.values.iter_mut().zip(&adam.gradient).zip(moments) {
            *m = b1 * *m + (1.0 - b1) * g;
            *v = b2 * *v + (1.0 - b2) * g * g;
            *value -= rate * *m / (v.sqrt() * scale + 1e-8);
        }
    }
}
