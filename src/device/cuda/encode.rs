//! Instructions of a program as the records that kernels read.

use super::abi::{
    FLAG_BF16, FLAG_CHUNK, FLAG_ORDERED, FLAG_TF32, FLAG_UPDATE, FLAG_VALIDATION, Kind, NONE, Op as Record,
};
use crate::{
    plan::MOST_COUNTED,
    program::{Accumulator, Activation, Layout, LossKind, Op, RowSource, Slice, UpdateRule},
    spec,
};

/// The number format of products.
pub type Precision = spec::Precision;

/// Why an instruction has no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A size that kernels do not count so far.
    TooLarge(usize),
    /// A slice without a place; a defect of this program.
    NoPlace(Slice),
    /// Not a kernel's work: a sum over devices.
    AllReduce(Slice),
}

/// The record of an instruction; `place` gives the place of each slice in numbers from the arena's base.
pub fn encode(
    op: &Op,
    layout: &Layout,
    precision: Precision,
    mut place: impl FnMut(Slice) -> Option<u64>,
) -> Result<Record, Refused> {
    let int = |n: usize| counted(n).ok_or(Refused::TooLarge(n));
    let mut at = |slice: Slice| place(slice).ok_or(Refused::NoPlace(slice));
    let product = match precision {
        Precision::F32 => 0,
        Precision::Tf32 => FLAG_TF32,
        Precision::Bf16 => FLAG_BF16,
    };
    let mut r;
    match *op {
        Op::Gather { features, source, first, x, y, rows, width, target_width, .. } => {
            r = Record::new(Kind::Gather);
            (r.rows, r.inputs, r.outputs) = (int(rows)?, int(width)?, int(target_width)?);
            r.first = int(first)?;
            r.flags = match source {
                RowSource::Order(_) => FLAG_ORDERED,
                RowSource::Position => 0,
                RowSource::Chunk => FLAG_CHUNK,
            };
            if features == layout.validation_features {
                r.flags |= FLAG_VALIDATION;
            }
            (r.at[0], r.at[1]) = (at(x)?, at(y)?);
        }
        Op::Linear { x, weight, bias, activation, pre, y, rows, inputs, outputs } => {
            r = Record::new(Kind::Linear);
            (r.rows, r.inputs, r.outputs) = (int(rows)?, int(inputs)?, int(outputs)?);
            (r.activation, r.flags) = (activation_number(activation), product);
            (r.at[0], r.at[1], r.at[4]) = (at(x)?, at(weight)?, at(y)?);
            (r.at[2], r.at[3]) = (bias.map_or(Ok(NONE), &mut at)?, pre.map_or(Ok(NONE), &mut at)?);
        }
        Op::Activate { activation, x, y, rows, width } => {
            r = Record::new(Kind::Activate);
            (r.activation, r.n) = (activation_number(Some(activation)), int(rows.saturating_mul(width))?);
            (r.at[0], r.at[1]) = (at(x)?, at(y)?);
        }
        Op::Dropout { x, y, p, layer, first, rows, width } => {
            r = Record::new(Kind::Dropout);
            (r.rows, r.inputs, r.first) = (int(rows)?, int(width)?, int(first)?);
            (r.layer, r.f[0]) = (int(layer as usize)?, p);
            (r.at[0], r.at[1]) = (at(x)?, at(y)?);
        }
        Op::Loss { kind, prediction, target, per_row, hits, gradient, rows, total_rows, width } => {
            r = Record::new(Kind::Loss);
            (r.rows, r.inputs, r.total_rows) = (int(rows)?, int(width)?, int(total_rows)?);
            r.loss = loss_number(kind);
            (r.at[0], r.at[1], r.at[2]) = (at(prediction)?, at(target)?, at(per_row)?);
            (r.at[3], r.at[4]) = (hits.map_or(Ok(NONE), &mut at)?, gradient.map_or(Ok(NONE), &mut at)?);
        }
        Op::InputGradient { dy, weight, dx, derivative, rows, inputs, outputs } => {
            r = Record::new(Kind::InputGradient);
            (r.rows, r.inputs, r.outputs) = (int(rows)?, int(inputs)?, int(outputs)?);
            (r.activation, r.flags) = (activation_number(derivative.map(|(f, _)| f)), product);
            (r.at[0], r.at[1], r.at[2]) = (at(dy)?, at(weight)?, at(dx)?);
            r.at[3] = derivative.map_or(Ok(NONE), |(_, saved)| at(saved))?;
        }
        Op::ActivateBackward { activation, saved, dy, rows, width } => {
            r = Record::new(Kind::ActivateBackward);
            (r.activation, r.n) = (activation_number(Some(activation)), int(rows.saturating_mul(width))?);
            (r.at[0], r.at[1]) = (at(saved)?, at(dy)?);
        }
        Op::DropoutBackward { dy, p, layer, first, rows, width } => {
            r = Record::new(Kind::DropoutBackward);
            (r.rows, r.inputs, r.first) = (int(rows)?, int(width)?, int(first)?);
            (r.layer, r.f[0]) = (int(layer as usize)?, p);
            r.at[0] = at(dy)?;
        }
        Op::WeightGradient { x, dy, to, update, rows, inputs, outputs } => {
            r = Record::new(Kind::WeightGradient);
            (r.rows, r.inputs, r.outputs) = (int(rows)?, int(inputs)?, int(outputs)?);
            r.flags = product | if update { FLAG_UPDATE } else { 0 };
            (r.at[0], r.at[1], r.at[2]) = (at(x)?, at(dy)?, at(to)?);
        }
        Op::BiasGradient { dy, to, update, rows, outputs } => {
            r = Record::new(Kind::BiasGradient);
            (r.rows, r.outputs) = (int(rows)?, int(outputs)?);
            r.flags = if update { FLAG_UPDATE } else { 0 };
            (r.at[0], r.at[1]) = (at(dy)?, at(to)?);
        }
        Op::AllReduce { of } => {
            at(of)?;
            return Err(Refused::AllReduce(of));
        }
        Op::Zero { of } => {
            r = Record::new(Kind::Zero);
            (r.n, r.at[0]) = (int(of.len)?, at(of)?);
        }
        Op::Norm { of, cell } => {
            r = Record::new(Kind::Norm);
            r.n = int(of.len)?;
            (r.at[0], r.at[1]) = (at(of)?, at(cell)?);
        }
        Op::Clip { gradients, norm, max_norm } => {
            r = Record::new(Kind::Clip);
            (r.n, r.f[0]) = (int(gradients.len)?, max_norm);
            (r.at[0], r.at[1]) = (at(gradients)?, at(norm)?);
        }
        Op::Update { rule, values, gradients, state } => {
            r = Record::new(Kind::Update);
            r.n = int(values.len)?;
            (r.rule, r.f) = rule_numbers(rule);
            (r.at[0], r.at[1]) = (at(values)?, at(gradients)?);
            r.at[2] = state.map_or(Ok(NONE), &mut at)?;
        }
        Op::Mean { of, cell, scale } => {
            r = Record::new(Kind::Mean);
            (r.n, r.scale) = (int(of.len)?, scale);
            (r.at[0], r.at[1]) = (at(of)?, at(cell)?);
        }
        Op::LogAppend { cells, .. } => {
            r = Record::new(Kind::LogAppend);
            (r.n, r.at[0]) = (int(cells.len)?, at(cells)?);
        }
        Op::Accumulate { cells, rows, sums } => {
            r = Record::new(Kind::Accumulate);
            (r.n, r.rows, r.at[0]) = (int(cells.len)?, int(rows)?, at(cells)?);
            r.flags = if sums == Accumulator::Validation { FLAG_VALIDATION } else { 0 };
        }
        Op::Watch { cell } => {
            r = Record::new(Kind::Watch);
            r.at[0] = at(cell)?;
        }
    }
    // So are the numbers of matrices.
    for (a, b) in [(r.rows, r.inputs), (r.rows, r.outputs), (r.inputs, r.outputs)] {
        let elements = usize::try_from(i64::from(a) * i64::from(b)).unwrap_or(usize::MAX);
        int(elements)?;
    }
    Ok(r)
}

/// A size as kernels count; `None` where they do not count so far.
pub fn counted(n: usize) -> Option<i32> {
    i32::try_from(n).ok().filter(|_| n <= MOST_COUNTED)
}

/// As kernels count activations.
pub fn activation_number(activation: Option<Activation>) -> i32 {
    match activation {
        None => 0,
        Some(Activation::Relu) => 1,
        Some(Activation::Gelu) => 2,
        Some(Activation::Tanh) => 3,
        Some(Activation::Sigmoid) => 4,
    }
}

fn loss_number(kind: LossKind) -> i32 {
    match kind {
        LossKind::Mse => 0,
        LossKind::L1 => 1,
        LossKind::Huber => 2,
        LossKind::CrossEntropy => 3,
    }
}

fn rule_numbers(rule: UpdateRule) -> (i32, [f32; 6]) {
    match rule {
        UpdateRule::Sgd { momentum, nesterov, weight_decay } => {
            let number = if nesterov { 2 } else { i32::from(momentum) };
            (number, [weight_decay, 0.0, 0.0, 0.0, 0.0, 0.0])
        }
        UpdateRule::Adam { beta2, one_minus_beta2, eps, weight_decay, decoupled } => {
            (3 + i32::from(decoupled), [weight_decay, beta2, one_minus_beta2, eps, 0.0, 0.0])
        }
    }
}
