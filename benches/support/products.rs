//! The products of a training step, by our own kernel and by the `gemm` crate.

use runner::device::cpu::matmul::{Epilogue, Kernel, Lhs, Rhs, Source};

/// How the operands of a product lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `x w`: forward.
    Forward,
    /// `xᵀ dy`: the gradient of the weights.
    WeightGradient,
    /// `dy wᵀ`: the gradient of the inputs.
    InputGradient,
}

/// One product, `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Which of the three.
    pub form: Form,
    /// Rows of the result, terms of a sum, columns of the result.
    pub mkn: [usize; 3],
}

impl Shape {
    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        2.0 * self.mkn.iter().map(|&d| d as f64).product::<f64>()
    }
}

/// All products of a step of a multilayer perceptron. The first layer's inputs need no gradient.
#[allow(dead_code, reason = "the other bench that shares this module does")]
pub fn of_step(batch: usize, widths: &[usize]) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (layer, pair) in widths.windows(2).enumerate() {
        let &[inputs, outputs] = pair else { continue };
        shapes.push(Shape { form: Form::Forward, mkn: [batch, inputs, outputs] });
        shapes.push(Shape { form: Form::WeightGradient, mkn: [inputs, batch, outputs] });
        if layer > 0 {
            shapes.push(Shape { form: Form::InputGradient, mkn: [batch, outputs, inputs] });
        }
    }
    shapes
}

/// A product with its operands, their numbers small and fixed.
pub struct Product {
    shape: Shape,
    left: Vec<f32>,
    right: Vec<f32>,
    packed: Vec<f32>,
    out: Vec<f32>,
}

impl Product {
    /// Makes the operands.
    pub fn new(kernel: Kernel, shape: Shape) -> Self {
        let [m, k, n] = shape.mkn;
        let numbers = |len: usize, salt: usize| {
            (0..len).map(|i| ((i * 37 + salt) % 101) as f32 / 101.0 - 0.5).collect::<Vec<f32>>()
        };
        let packed = vec![0.0; kernel.packed_len(k, n)];
        Self { shape, left: numbers(m * k, 1), right: numbers(k * n, 7), packed, out: vec![0.0; m * n] }
    }

    /// By our own kernel, the right operand packed first, both by `threads` threads that are started for it.
    pub fn ours(&mut self, kernel: Kernel, threads: usize) {
        let Self { shape, left, right, packed, out } = self;
        let [m, k, n] = shape.mkn;
        let source = match shape.form {
            Form::InputGradient => Source::Transposed(right),
            Form::Forward | Form::WeightGradient => Source::Rows(right),
        };
        let units = kernel.units(k, n);
        let pack = |(first, last), part: &mut [f32]| kernel.pack(source, [k, n], first..last, part);
        shared(threads, units, packed, |first, last| kernel.unit_range(k, n, first..last).len(), pack);
        let multiply = |(first, last), part: &mut [f32]| {
            let lhs = match shape.form {
                Form::WeightGradient => Lhs::Columns { data: &left[first..], stride: m },
                Form::Forward | Form::InputGradient => Lhs::Rows { data: &left[first * k..], stride: k },
            };
            kernel.multiply(lhs, Rhs::Packed(packed), [last - first, k, n], part, Epilogue::Store);
        };
        shared(threads, m, out, |first, last| (last - first) * n, multiply);
    }

    /// By the `gemm` crate.
    pub fn gemm(&mut self, threads: usize) {
        let [m, k, n] = self.shape.mkn.map(|d| d as isize);
        let (left_column, left_row) = if self.shape.form == Form::WeightGradient { (m, 1) } else { (1, k) };
        let (right_column, right_row) = if self.shape.form == Form::InputGradient { (k, 1) } else { (1, n) };
        let parallelism =
            if threads > 1 { gemm::Parallelism::Rayon(threads) } else { gemm::Parallelism::None };
        let [rows, terms, columns] = self.shape.mkn;
        // SAFETY: the three slices are as long as their shapes say, and strides are those of the shapes.
        unsafe {
            gemm::gemm(
                rows,
                columns,
                terms,
                self.out.as_mut_ptr(),
                1,
                n,
                false,
                self.left.as_ptr(),
                left_column,
                left_row,
                self.right.as_ptr(),
                right_column,
                right_row,
                0.0_f32,
                1.0_f32,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

/// Splits `count` things, and the slice they lie in, over threads.
fn shared(
    threads: usize,
    count: usize,
    mut data: &mut [f32],
    len: impl Fn(usize, usize) -> usize,
    work: impl Fn((usize, usize), &mut [f32]) + Sync,
) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (first, last) = (count * thread / threads, count * (thread + 1) / threads);
            let (part, rest) = std::mem::take(&mut data).split_at_mut(len(first, last));
            data = rest;
            let work = &work;
            if thread + 1 < threads {
                scope.spawn(move || work((first, last), part));
            } else {
                work((first, last), part);
            }
        }
    });
}
