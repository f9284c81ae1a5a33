//! The products of a training step, computed by the CPU's executor and by the `gemm` crate.

use runner::{
    device::{
        Block, Clock, Executor, Grain, Ledger, Meters,
        cpu::{CpuExecutor, CpuSetup, ThreadMode},
    },
    host::prefer_huge_pages,
    program::{
        Buffer, BufferId, InputGradient, Instruction, Layout, Linear, Op, Phase, Program, Programs, Role,
        Slice, WeightGradient,
    },
    vector::matmul::Kernel,
};

/// How a product's operands are laid out in memory.
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
    /// Which of the three products it is.
    pub form: Form,
    /// Rows of the result, terms of each sum, columns of the result.
    pub mkn: [usize; 3],
}

impl Shape {
    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        2.0 * self.mkn.iter().map(|&d| d as f64).product::<f64>()
    }
}

/// All products of a step of a multilayer perceptron. The first layer's inputs need no gradient.
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

/// A product with its operands, which are small fixed numbers: a program with this one instruction, as in a
/// step, and plain slices for other libraries.
pub struct Product {
    shape: Shape,
    executor: CpuExecutor,
    left: Vec<f32>,
    right: Vec<f32>,
    out: Vec<f32>,
}

impl Product {
    /// Makes the operands; `threads` and `kernel` are those of [`ours`](Self::ours).
    pub fn new(shape: Shape, threads: usize, kernel: Kernel) -> Self {
        let [m, k, n] = shape.mkn;
        let numbers = |len: usize, salt: usize| {
            let mut numbers = Vec::with_capacity(len);
            prefer_huge_pages(numbers.spare_capacity_mut());
            numbers.extend((0..len).map(|i| ((i * 37 + salt) % 101) as f32 / 101.0 - 0.5));
            numbers
        };
        let (left, right, out) = (numbers(m * k, 1), numbers(k * n, 7), numbers(m * n, 0));
        let (programs, [a, b]) = programs(shape);
        let setup = CpuSetup { kernel, ..CpuSetup::cpu(programs, threads, 0, ThreadMode::Team) };
        let mut executor = CpuExecutor::new(setup).expect("memory and threads");
        executor
            .write(a, &left)
            .and_then(|_| executor.write(b, &right))
            .expect("operands as long as their shape");
        Self { shape, executor, left, right, out }
    }

    /// The product's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Repeats the product as a training step computes it, including packing, sharing and barriers.
    pub fn ours(&mut self, times: usize) {
        let block = Block { steps: times, ..Block::first(&[], times) };
        let (mut clock, mut ledger, mut ends) = (Clock::new(Grain::Blocks), Ledger::default(), Vec::new());
        let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends };
        self.executor.run(&block, &mut meters).expect("a product");
    }

    /// Computes the product with the `gemm` crate.
    pub fn gemm(&mut self, threads: usize) {
        let [m, k, n] = self.shape.mkn.map(|d| d as isize);
        let (left_column, left_row) = if self.shape.form == Form::WeightGradient { (m, 1) } else { (1, k) };
        let (right_column, right_row) = if self.shape.form == Form::InputGradient { (k, 1) } else { (1, n) };
        let parallelism = if threads > 1 {
            gemm_common::Parallelism::Rayon(threads)
        } else {
            gemm_common::Parallelism::None
        };
        let [rows, terms, columns] = self.shape.mkn;
        // The crate prefers results whose columns are contiguous: it computes the transpose of ours.
        // SAFETY: the three slices are as long as their shapes say, and strides are those of the shapes.
        unsafe {
            gemm_f32::gemm::f32::get_gemm_fn()(
                columns,
                rows,
                terms,
                self.out.as_mut_ptr(),
                n,
                1,
                false,
                self.right.as_ptr(),
                right_row,
                right_column,
                self.left.as_ptr(),
                left_row,
                left_column,
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

/// The product as a program of one row per step, and where its operands are.
fn programs(Shape { form, mkn: [m, k, n] }: Shape) -> (Programs, [Slice; 2]) {
    let mut buffers: Vec<Buffer> =
        (0..7).map(|i| Buffer { name: format!("data_{i}"), len: 0, role: Role::Data }).collect();
    let mut buffer = |len: usize| {
        let buffer = BufferId(buffers.len());
        buffers.push(Buffer { name: "operand".into(), len, role: Role::Activation });
        Slice { buffer, offset: 0, len }
    };
    let [a, b, to] = [m * k, k * n, m * n].map(&mut buffer);
    let op: Op = match form {
        Form::Forward => Linear {
            x: a,
            weight: b,
            bias: None,
            activation: None,
            pre: None,
            y: to,
            rows: m,
            inputs: k,
            outputs: n,
        }
        .into(),
        Form::WeightGradient => {
            WeightGradient { x: a, dy: b, to, update: false, rows: k, inputs: m, outputs: n }.into()
        }
        Form::InputGradient => {
            InputGradient { dy: a, weight: b, dx: to, derivative: None, rows: m, inputs: n, outputs: k }
                .into()
        }
    };
    let layout = Layout::bare(buffers);
    let instructions = vec![Instruction { op, phase: Phase::Forward }];
    let train = Program { batch: 1, rows: 1, instructions };
    (Programs { layout, train, train_last: None, validate: None, validate_last: None }, [a, b])
}
