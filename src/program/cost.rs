//! What an instruction costs at least: floating-point operations, and bytes read and written once each.

use std::{iter::Sum, ops::Add};

use super::{Activation, Op, UpdateRule};

/// Floating-point operations and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// A multiply-add counts as two.
    pub flops: f64,
    /// Bytes that pass between an instruction and memory if nothing stays in a cache between instructions.
    pub bytes: f64,
}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { flops: self.flops + other.flops, bytes: self.bytes + other.bytes }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// Multiply-adds from which a GPU's products are left to a library, whose tuned tiles and tensor cores then pay for a call
/// of its own: an estimate.
pub const LARGE_PRODUCT: f64 = 2e7;

/// Operations of an exponential: range reduction and a polynomial.
const FUNCTION: usize = 20;

impl Activation {
    fn operations(self) -> usize {
        if self == Self::Relu { 1 } else { FUNCTION }
    }
}

impl Op {
    /// Whether this is a matrix product, which runs at another rate than all else.
    pub fn is_product(&self) -> bool {
        matches!(self, Op::Linear { .. } | Op::InputGradient { .. } | Op::WeightGradient { .. })
    }

    /// Multiply-adds of a matrix product; 0 for all else.
    pub fn multiply_adds(&self) -> f64 {
        match *self {
            Op::Linear { rows, inputs, outputs, .. }
            | Op::InputGradient { rows, inputs, outputs, .. }
            | Op::WeightGradient { rows, inputs, outputs, .. } => {
                rows as f64 * inputs as f64 * outputs as f64
            }
            _ => 0.0,
        }
    }

    /// The operations of [`Self::cost`] that are those of functions: an exponential, random bits, and the square root and
    /// division of Adam, which a vector unit does in half the time of a function. 0 for what only adds and multiplies,
    /// and for products.
    pub fn function_operations(&self) -> f64 {
        match *self {
            Op::Activate { activation: Activation::Relu, .. } => 0.0,
            Op::ActivateBackward { activation, .. } if activation != Activation::Gelu => 0.0,
            Op::Activate { .. } | Op::ActivateBackward { .. } => self.cost().flops,
            Op::Dropout { .. } | Op::DropoutBackward { .. } => self.cost().flops,
            Op::Loss { kind, .. } if kind.classifies() => self.cost().flops,
            Op::Update { rule: UpdateRule::Adam { .. }, values, .. } => (FUNCTION / 2 * values.len) as f64,
            _ => 0.0,
        }
    }

    /// The cost of one run. An exponential, and a function made of one, counts as some twenty operations.
    pub fn cost(&self) -> Cost {
        let product = |a: usize, b: usize, c: usize| 2.0 * a as f64 * b as f64 * c as f64;
        let (flops, elements) = match *self {
            Op::Gather { rows, width, target_width, .. } => (0.0, rows * (2 * (width + target_width) + 1)),
            Op::Linear { rows, inputs, outputs, ref pre, .. } => {
                let kept = if pre.is_some() { rows * outputs } else { 0 };
                (product(rows, inputs, outputs), rows * (inputs + outputs) + inputs * outputs + kept)
            }
            Op::InputGradient { rows, inputs, outputs, ref derivative, .. } => {
                let saved = if derivative.is_some() { rows * inputs } else { 0 };
                (product(rows, inputs, outputs), rows * (inputs + outputs) + inputs * outputs + saved)
            }
            Op::WeightGradient { rows, inputs, outputs, update, .. } => {
                let written = inputs * outputs * if update { 2 } else { 1 };
                (product(rows, inputs, outputs), rows * (inputs + outputs) + written)
            }
            Op::BiasGradient { rows, outputs, .. } => ((rows * outputs) as f64, (rows + 1) * outputs),
            Op::Activate { activation, rows, width, .. } => {
                ((activation.operations() * rows * width) as f64, 2 * rows * width)
            }
            Op::ActivateBackward { activation, rows, width, .. } => {
                let operations = if activation == Activation::Gelu { FUNCTION } else { 2 };
                ((operations * rows * width) as f64, 3 * rows * width)
            }
            Op::Dropout { rows, width, .. } | Op::DropoutBackward { rows, width, .. } => {
                ((8 * rows * width) as f64, 2 * rows * width)
            }
            Op::Loss { kind, rows, width, .. } => {
                let operations =
                    if kind.classifies() { (FUNCTION + 4) * width + FUNCTION } else { 4 * width };
                ((operations * rows) as f64, rows * (3 * width + 2))
            }
            Op::AllReduce { of } => (of.len as f64, 2 * of.len),
            Op::Zero { of } => (0.0, of.len),
            Op::Norm { of, .. } => (2.0 * of.len as f64, of.len),
            Op::Clip { gradients, .. } => (gradients.len as f64, 2 * gradients.len),
            Op::Update { rule, values, .. } => {
                let (flops, elements) = match rule {
                    UpdateRule::Sgd { momentum: false, .. } => (2, 3),
                    UpdateRule::Sgd { momentum: true, .. } => (4, 5),
                    // A square root and a division take as long as some twenty operations.
                    UpdateRule::Adam { .. } => (32, 7),
                };
                ((flops * values.len) as f64, elements * values.len)
            }
            Op::Mean { of, .. } => (of.len as f64, of.len),
            Op::LogAppend { cells, .. } | Op::Accumulate { cells, .. } => (0.0, 2 * cells.len),
            Op::Watch { .. } => (0.0, 1),
        };
        Cost { flops, bytes: elements as f64 * 4.0 }
    }
}
