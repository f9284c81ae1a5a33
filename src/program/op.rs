//! The instructions.

use super::{
    Activation, LossKind, Phase, UpdateRule,
    layout::{BufferId, Slice},
};

/// One instruction and the phase its time counts under.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// What is done.
    pub op: Op,
    /// Where its time counts.
    pub phase: Phase,
}

/// An instruction. Shapes: `x` is `[rows, inputs]`, `y` is `[rows, outputs]`, a weight `[inputs, outputs]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Copies the batch's rows of features and targets; the position within the epoch is the device's own counter.
    Gather {
        /// `[all rows, width]`.
        features: BufferId,
        /// `[all rows, target_width]`.
        targets: BufferId,
        /// Which rows.
        source: RowSource,
        /// This device's first row within the global batch.
        first: usize,
        /// `[rows, width]`.
        x: Slice,
        /// `[rows, target_width]`.
        y: Slice,
        /// Rows of this device.
        rows: usize,
        /// Features per row.
        width: usize,
        /// Targets per row.
        target_width: usize,
    },
    /// y = f(x W + b).
    Linear {
        /// Input.
        x: Slice,
        /// `[inputs, outputs]`.
        weight: Slice,
        /// `[outputs]`.
        bias: Option<Slice>,
        /// f, where there is one.
        activation: Option<Activation>,
        /// Where x W + b is kept for the backward pass, if f needs it.
        pre: Option<Slice>,
        /// Output.
        y: Slice,
        /// Rows.
        rows: usize,
        /// Width of x.
        inputs: usize,
        /// Width of y.
        outputs: usize,
    },
    /// y = f(x), elementwise.
    Activate {
        /// f.
        activation: Activation,
        /// Input.
        x: Slice,
        /// Output.
        y: Slice,
        /// Rows.
        rows: usize,
        /// Width of both.
        width: usize,
    },
    /// y = x m / (1 - p), with m = 0 with probability p: a pure function of (seed, layer, step, row of the epoch, unit).
    Dropout {
        /// Input.
        x: Slice,
        /// Output.
        y: Slice,
        /// Probability of a zero.
        p: f32,
        /// Index of the layer in the Sequential.
        layer: u32,
        /// This device's first row within the global batch.
        first: usize,
        /// Rows.
        rows: usize,
        /// Width of both.
        width: usize,
    },
    /// Per-row losses (a sum over the row's outputs), whether each row is right, and the gradient of the mean over the
    /// global batch.
    Loss {
        /// Which.
        kind: LossKind,
        /// `[rows, width]`.
        prediction: Slice,
        /// `[rows, width]`, or `[rows]` class indices.
        target: Slice,
        /// `[rows]`.
        per_row: Slice,
        /// `[rows]`: 1 where the largest output is the label's, for classes.
        hits: Option<Slice>,
        /// `[rows, width]`: d mean / d prediction; `None` where nothing is learned.
        gradient: Option<Slice>,
        /// Rows of this device.
        rows: usize,
        /// Rows of the global batch.
        total_rows: usize,
        /// Outputs per row.
        width: usize,
    },
    /// dx = (dy Wᵀ) f'(saved), with f the activation that made x, where it is folded in here.
    InputGradient {
        /// `[rows, outputs]`.
        dy: Slice,
        /// `[inputs, outputs]`.
        weight: Slice,
        /// `[rows, inputs]`.
        dx: Slice,
        /// f and what its derivative is computed from.
        derivative: Option<(Activation, Slice)>,
        /// Rows.
        rows: usize,
        /// Width of dx.
        inputs: usize,
        /// Width of dy.
        outputs: usize,
    },
    /// dx = dy f'(saved), elementwise; dx may be dy.
    ActivateBackward {
        /// f.
        activation: Activation,
        /// f's input or output, as its derivative needs.
        saved: Slice,
        /// Gradient of the output, overwritten with that of the input.
        dy: Slice,
        /// Rows.
        rows: usize,
        /// Width.
        width: usize,
    },
    /// dy becomes dy m / (1 - p), with the mask of the forward pass.
    DropoutBackward {
        /// Gradient, in place.
        dy: Slice,
        /// Probability of a zero.
        p: f32,
        /// Index of the layer in the Sequential.
        layer: u32,
        /// This device's first row within the global batch.
        first: usize,
        /// Rows.
        rows: usize,
        /// Width.
        width: usize,
    },
    /// dW = xᵀ dy; or, with the plain SGD update folded in, W -= rate dW.
    WeightGradient {
        /// `[rows, inputs]`.
        x: Slice,
        /// `[rows, outputs]`.
        dy: Slice,
        /// `[inputs, outputs]`: the gradient, or the weight itself where the update is folded in.
        to: Slice,
        /// Whether `to` is the weight.
        update: bool,
        /// Rows.
        rows: usize,
        /// Width of x.
        inputs: usize,
        /// Width of dy.
        outputs: usize,
    },
    /// db = column sums of dy; or b -= rate db.
    BiasGradient {
        /// `[rows, outputs]`.
        dy: Slice,
        /// `[outputs]`.
        to: Slice,
        /// Whether `to` is the bias.
        update: bool,
        /// Rows.
        rows: usize,
        /// Width of dy.
        outputs: usize,
    },
    /// Sums over all devices of the run, in place: afterwards every device holds the same bits.
    AllReduce {
        /// Gradients and the cells behind them.
        of: Slice,
    },
    /// Sets numbers to zero.
    Zero {
        /// Which.
        of: Slice,
    },
    /// cell = L2 norm.
    Norm {
        /// Of these numbers.
        of: Slice,
        /// One number.
        cell: Slice,
    },
    /// Scales gradients by min(1, max_norm / (norm + 1e-6)), as `torch.nn.utils.clip_grad_norm_`.
    Clip {
        /// Gradients, in place.
        gradients: Slice,
        /// Their norm.
        norm: Slice,
        /// Greatest norm allowed.
        max_norm: f32,
    },
    /// One optimizer step over the flat buffers.
    Update {
        /// The rule.
        rule: UpdateRule,
        /// Parameters, in place.
        values: Slice,
        /// Gradients.
        gradients: Slice,
        /// One or two numbers per parameter, in place: momentum, or first then second moments.
        state: Option<Slice>,
    },
    /// cell = scale times the sum of `of`, in double precision.
    Mean {
        /// `[rows]`.
        of: Slice,
        /// One number.
        cell: Slice,
        /// 1 / rows for a mean over rows, 1 for their sum.
        scale: f64,
    },
    /// Appends the cells to the log at the device's slot counter, and raises the non-finite flag by the first (the loss).
    LogAppend {
        /// `[log_width]`.
        cells: Slice,
        /// The log.
        log: BufferId,
    },
    /// Adds to the device's sums in double precision. The epoch's raise the non-finite flag by the first cell, and take
    /// nothing more once it is raised; those of the validation know nothing of it.
    Accumulate {
        /// Cells to add, each times `rows`.
        cells: Slice,
        /// The weight: the rows that the cells are means of, 1 where they are sums.
        rows: usize,
        /// Which sums.
        sums: Accumulator,
    },
    /// Raises the non-finite flag if the cell is not finite.
    Watch {
        /// The loss.
        cell: Slice,
    },
}

impl Op {
    /// Every slice that it reads or writes, in the order of its fields.
    pub fn each_slice(&self, mut each: impl FnMut(Slice)) {
        let mut all = |slices: &[Option<Slice>]| slices.iter().flatten().for_each(|slice| each(*slice));
        match *self {
            Self::Gather { x, y, .. } | Self::Activate { x, y, .. } | Self::Dropout { x, y, .. } => {
                all(&[Some(x), Some(y)]);
            }
            Self::Linear { x, weight, bias, pre, y, .. } => all(&[Some(x), Some(weight), bias, pre, Some(y)]),
            Self::Loss { prediction, target, per_row, hits, gradient, .. } => {
                all(&[Some(prediction), Some(target), Some(per_row), hits, gradient]);
            }
            Self::InputGradient { dy, weight, dx, derivative, .. } => {
                all(&[Some(dy), Some(weight), Some(dx), derivative.map(|(_, saved)| saved)]);
            }
            Self::ActivateBackward { saved, dy, .. } => all(&[Some(saved), Some(dy)]),
            Self::DropoutBackward { dy, .. } => all(&[Some(dy)]),
            Self::WeightGradient { x, dy, to, .. } => all(&[Some(x), Some(dy), Some(to)]),
            Self::BiasGradient { dy, to, .. } => all(&[Some(dy), Some(to)]),
            Self::AllReduce { of } | Self::Zero { of } => all(&[Some(of)]),
            Self::Norm { of, cell } | Self::Mean { of, cell, .. } => all(&[Some(of), Some(cell)]),
            Self::Clip { gradients, norm, .. } => all(&[Some(gradients), Some(norm)]),
            Self::Update { values, gradients, state, .. } => all(&[Some(values), Some(gradients), state]),
            Self::LogAppend { cells, .. } | Self::Accumulate { cells, .. } => all(&[Some(cells)]),
            Self::Watch { cell } => all(&[Some(cell)]),
        }
    }
}

/// Which row of the data is row i of a device's share of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSource {
    /// The one that this buffer, the epoch's order, names at `position + first + i`.
    Order(BufferId),
    /// Row `position + first + i` itself.
    Position,
    /// Row `offset + i` of a streamed chunk, which holds this device's rows only.
    Chunk,
}

/// The sets of running sums that a device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulator {
    /// Of the epoch's training steps.
    Epoch,
    /// Of the validation rows.
    Validation,
}
