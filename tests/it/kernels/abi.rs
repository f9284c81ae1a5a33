//! The kernels' records as this test lays them out, by itself: a twin that a slip in the program's own cannot deceive.

use runner::program::{
    Accumulator, Activation, Hyper, Layout, LossKind, Op as Instruction, RowSource, Slice, UpdateRule,
};

pub const NONE: u64 = u64::MAX;
pub const FLAG_UPDATE: i32 = 1;
const FLAG_ORDERED: i32 = 2;
const FLAG_VALIDATION: i32 = 4;
pub const FLAG_TF32: i32 = 8;
pub const FLAG_BF16: i32 = 16;
const FLAG_CHUNK: i32 = 32;

/// See `kernels/common.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Op {
    pub kind: i32,
    pub rows: i32,
    pub inputs: i32,
    pub outputs: i32,
    pub activation: i32,
    pub loss: i32,
    pub rule: i32,
    pub flags: i32,
    pub layer: i32,
    pub first: i32,
    pub total_rows: i32,
    pub n: i32,
    pub f: [f32; 6],
    pub scale: f64,
    pub at: [u64; 8],
}

/// See `kernels/common.cuh`. The first ten are addresses.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Run {
    pub data: [u64; 4],
    pub order: u64,
    pub log: u64,
    pub hyper: u64,
    pub sums: u64,
    pub non_finite: u64,
    pub partial: u64,
    pub seed: u64,
    pub step: u64,
    pub position: u64,
    pub offset: u64,
    pub batch: u64,
    pub index: u32,
    pub slot: u32,
}

/// `Hyper` in the order of the kernels' fields.
pub fn hyper(h: &Hyper) -> [f32; 4] {
    [h.rate, h.first, h.correction, h.decay_factor]
}

const KERNELS: [&str; 18] = [
    "op_gather",
    "op_linear",
    "op_activate",
    "op_dropout",
    "op_loss",
    "op_input_gradient",
    "op_activate_backward",
    "op_dropout_backward",
    "op_weight_gradient",
    "op_bias_gradient",
    "op_norm",
    "op_clip",
    "op_update",
    "op_mean",
    "op_log_append",
    "op_accumulate",
    "op_watch",
    "op_zero",
];

impl Op {
    fn new(kind: i32) -> Self {
        let zero = Self {
            kind,
            rows: 0,
            inputs: 0,
            outputs: 0,
            activation: 0,
            loss: 0,
            rule: 0,
            flags: 0,
            layer: 0,
            first: 0,
            total_rows: 0,
            n: 0,
            f: [0.0; 6],
            scale: 0.0,
            at: [NONE; 8],
        };
        assert_eq!((size_of::<Self>(), size_of::<Run>(), size_of::<Hyper>()), (144, 128, 16));
        zero
    }

    /// The stand-alone kernel that does it.
    pub fn kernel(&self) -> &'static str {
        KERNELS[self.kind as usize]
    }

    fn at<const N: usize>(mut self, places: [u64; N]) -> Self {
        self.at[..N].copy_from_slice(&places);
        self
    }

    fn shape(mut self, rows: usize, inputs: usize, outputs: usize) -> Self {
        (self.rows, self.inputs, self.outputs) = (rows as i32, inputs as i32, outputs as i32);
        self
    }

    fn flag(mut self, flag: i32, is: bool) -> Self {
        self.flags |= if is { flag } else { 0 };
        self
    }

    fn n(mut self, n: usize) -> Self {
        self.n = n as i32;
        self
    }
}

fn number(activation: Option<Activation>) -> i32 {
    match activation {
        None => 0,
        Some(Activation::Relu) => 1,
        Some(Activation::Gelu) => 2,
        Some(Activation::Tanh) => 3,
        Some(Activation::Sigmoid) => 4,
    }
}

/// A record of an instruction; `place` gives a slice's offset in the arena.
pub fn encode(op: &Instruction, layout: &Layout, place: impl Fn(Slice) -> u64) -> Op {
    let maybe = |slice: Option<Slice>| slice.map_or(NONE, &place);
    match *op {
        Instruction::Gather { features, source, first, x, y, rows, width, target_width, .. } => {
            let op = Op::new(0).at([place(x), place(y)]).shape(rows, width, target_width);
            let op = Op { first: first as i32, ..op };
            op.flag(FLAG_ORDERED, matches!(source, RowSource::Order(_)))
                .flag(FLAG_CHUNK, source == RowSource::Chunk)
                .flag(FLAG_VALIDATION, features == layout.validation_features)
        }
        Instruction::Linear { x, weight, bias, activation, pre, y, rows, inputs, outputs } => {
            let op = Op::new(1).at([place(x), place(weight), maybe(bias), maybe(pre), place(y)]);
            Op { activation: number(activation), ..op.shape(rows, inputs, outputs) }
        }
        Instruction::Activate { activation, x, y, rows, width } => {
            let op = Op::new(2).at([place(x), place(y)]).n(rows * width);
            Op { activation: number(Some(activation)), ..op }
        }
        Instruction::Dropout { x, y, p, layer, first, rows, width } => {
            let op = Op::new(3).at([place(x), place(y)]).shape(rows, width, 0);
            Op { layer: layer as i32, first: first as i32, f: [p, 0.0, 0.0, 0.0, 0.0, 0.0], ..op }
        }
        Instruction::Loss { kind, prediction, target, per_row, hits, gradient, rows, total_rows, width } => {
            let op = Op::new(4);
            let op = op.at([place(prediction), place(target), place(per_row), maybe(hits), maybe(gradient)]);
            let loss = match kind {
                LossKind::Mse => 0,
                LossKind::L1 => 1,
                LossKind::Huber => 2,
                LossKind::CrossEntropy => 3,
            };
            Op { loss, total_rows: total_rows as i32, ..op.shape(rows, width, 0) }
        }
        Instruction::InputGradient { dy, weight, dx, derivative, rows, inputs, outputs } => {
            let saved = derivative.map(|(_, saved)| saved);
            let op = Op::new(5).at([place(dy), place(weight), place(dx), maybe(saved)]);
            Op { activation: number(derivative.map(|d| d.0)), ..op.shape(rows, inputs, outputs) }
        }
        Instruction::ActivateBackward { activation, saved, dy, rows, width } => {
            let op = Op::new(6).at([place(saved), place(dy)]).n(rows * width);
            Op { activation: number(Some(activation)), ..op }
        }
        Instruction::DropoutBackward { dy, p, layer, first, rows, width } => {
            let op = Op::new(7).at([place(dy)]).shape(rows, width, 0);
            Op { layer: layer as i32, first: first as i32, f: [p, 0.0, 0.0, 0.0, 0.0, 0.0], ..op }
        }
        Instruction::WeightGradient { x, dy, to, update, rows, inputs, outputs } => Op::new(8)
            .at([place(x), place(dy), place(to)])
            .shape(rows, inputs, outputs)
            .flag(FLAG_UPDATE, update),
        Instruction::BiasGradient { dy, to, update, rows, outputs } => {
            Op::new(9).at([place(dy), place(to)]).shape(rows, 0, outputs).flag(FLAG_UPDATE, update)
        }
        Instruction::Norm { of, cell } => Op::new(10).at([place(of), place(cell)]).n(of.len),
        Instruction::Clip { gradients, norm, max_norm } => {
            let op = Op::new(11).at([place(gradients), place(norm)]).n(gradients.len);
            Op { f: [max_norm, 0.0, 0.0, 0.0, 0.0, 0.0], ..op }
        }
        Instruction::Update { rule, values, gradients, state } => {
            let op = Op::new(12).at([place(values), place(gradients), maybe(state)]).n(values.len);
            match rule {
                UpdateRule::Sgd { momentum, nesterov, weight_decay } => Op {
                    rule: i32::from(momentum) + i32::from(momentum && nesterov),
                    f: [weight_decay, 0.0, 0.0, 0.0, 0.0, 0.0],
                    ..op
                },
                UpdateRule::Adam { beta2, one_minus_beta2, eps, weight_decay, decoupled } => Op {
                    rule: if decoupled { 4 } else { 3 },
                    f: [weight_decay, beta2, one_minus_beta2, eps, 0.0, 0.0],
                    ..op
                },
            }
        }
        Instruction::Mean { of, cell, scale } => {
            Op { scale, ..Op::new(13).at([place(of), place(cell)]).n(of.len) }
        }
        Instruction::LogAppend { cells, .. } => Op::new(14).at([place(cells)]).n(cells.len),
        Instruction::Accumulate { cells, rows, sums } => {
            let op = Op::new(15).at([place(cells)]).shape(rows, 0, 0).n(cells.len);
            op.flag(FLAG_VALIDATION, sums == Accumulator::Validation)
        }
        Instruction::Watch { cell } => Op::new(16).at([place(cell)]),
        Instruction::Zero { of } => Op::new(17).at([place(of)]).n(of.len),
        Instruction::AllReduce { .. } => panic!("no kernel sums over devices"),
    }
}
