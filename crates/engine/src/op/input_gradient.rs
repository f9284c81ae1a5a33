//! The gradient of a Linear layer's input: dx = dy Wᵀ.

use std::ops::Range;

use super::{
    Access, Activation, Cost, Emitter, Encoder, Kind, Op, Operation, Record, Refused, SLIM, Size, Slice,
    emit::Operand, product, reference::Memory, split::Split,
};
use crate::vector::reference::{product_of, transposed};

/// dx = (dy Wᵀ) f'(saved), where f is the activation that made x, if its derivative is fused here.
#[derive(Clone, Debug, PartialEq)]
pub struct InputGradient {
    /// `[rows, outputs]`.
    pub dy: Slice,
    /// `[inputs, outputs]`.
    pub weight: Slice,
    /// `[rows, inputs]`.
    pub dx: Slice,
    /// f, and the values from which its derivative is computed.
    pub derivative: Option<(Activation, Slice)>,
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

/// How its operands are stored.
const OPERANDS: [Operand; 2] = [Operand::AlongK, Operand::AlongK];

impl Operation for InputGradient {
    fn access(&self) -> Access {
        let saved = self.derivative.map_or(Slice::default(), |(_, saved)| saved);
        Access::new([self.dy, self.weight, saved], [self.dx])
    }

    fn cost(&self) -> Cost {
        let Self { rows, inputs, outputs, .. } = *self;
        let saved = if self.derivative.is_some() { rows * inputs } else { 0 };
        Cost::product([rows, outputs, inputs], rows * (inputs + outputs) + inputs * outputs + saved)
    }

    fn product(&self) -> Option<[usize; 3]> {
        Some([self.rows, self.outputs, self.inputs])
    }

    fn reference(&self, memory: &mut Memory) {
        let w = transposed(&memory.get(self.weight), self.inputs, self.outputs);
        let mut d = product_of(&memory.get(self.dy), &w, [self.rows, self.outputs, self.inputs]);
        if let Some((f, saved)) = self.derivative {
            let saved = memory.get(saved);
            d.iter_mut().zip(saved).for_each(|(d, s)| *d *= f.derivative(s));
        }
        memory.set(self.dx, &d);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { dy, weight, dx, derivative, rows, inputs, outputs } = *self;
        let shape = [rows, outputs, inputs];
        let operands = product::pack(split, (dy, false), (weight, true), shape);
        let packed = operands.packed;
        let unit = split.grain(rows);
        product::split(split, shape, packed, unit, [inputs, 0], |rows| {
            let shape = [rows.len(), outputs, inputs];
            let derivative_of = derivative.map(|(f, _)| f);
            let job = product::Job::InputGradient { shape, packed, derivative: derivative_of };
            let saved = derivative.map_or(Slice::default(), |(_, saved)| saved.rows(&rows, inputs));
            let left = operands.left(&rows).unwrap_or_else(|| dy.rows(&rows, outputs));
            (job, Access::new([left, operands.right, saved], [dx.rows(&rows, inputs)]))
        });
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let saved = self.derivative.map(|(_, saved)| saved);
        Ok(Record {
            activation: Activation::number(self.derivative.map(|(f, _)| f)),
            flags: e.precision_flag(),
            at: e.optional([Some(self.dy), Some(self.weight), Some(self.dx), saved])?,
            ..e.shaped(Kind::InputGradient, [self.rows, self.inputs, self.outputs])?
        })
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let wide = |slice: Slice| slice.rows(rows, self.inputs);
        let derivative = self.derivative.map(|(f, saved)| (f, wide(saved)));
        let (dy, dx) = (self.dy.rows(rows, self.outputs), wide(self.dx));
        Some(Self { dy, dx, derivative, rows: rows.len(), ..self.clone() }.into())
    }

    fn operands(&self) -> Option<[Operand; 2]> {
        Some(OPERANDS)
    }

    fn emit(&self, r: &Record, e: &Emitter) -> String {
        let shape = [r.rows, r.outputs, r.inputs];
        e.product(r, "input_gradient_product(op, own)", shape, OPERANDS, None)
    }
}

pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    if r.outputs > SLIM {
        return product::size(r, [r.rows, r.outputs, r.inputs], multiprocessors);
    }
    // As kernels/input_gradient.cu divides the columns.
    let relu = r.activation == Activation::number(Some(Activation::Relu));
    let width = if r.outputs <= 10 && r.inputs % 2 == 0 && relu { 64 } else { 32 };
    let strips = product::Strips { columns: r.inputs, width, least_rows: 32, blocks_per_multiprocessor: 2 };
    strips.size(r.rows, multiprocessors)
}
