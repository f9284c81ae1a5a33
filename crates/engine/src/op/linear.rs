//! A fully connected layer: y = f(x W + b).

use std::ops::Range;

use super::{
    Access, ActivateBackward, Activation, Backward, BiasGradient, Cost, Emitter, Encoder, InputGradient,
    Kind, Lowering, Op, Operation, Record, Refused, Size, Slice, WeightGradient,
    emit::Operand,
    product::{self, is_slim},
    reference::Memory,
    split::Split,
};
use crate::vector::reference::product_of;

/// y = f(x W + b).
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    pub x: Slice,
    /// `[inputs, outputs]`.
    pub weight: Slice,
    /// `[outputs]`.
    pub bias: Option<Slice>,
    /// f, if there is one.
    pub activation: Option<Activation>,
    /// Where x W + b is stored for the backward pass, if f' needs it.
    pub pre: Option<Slice>,
    pub y: Slice,
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

impl Linear {
    /// Lowers layer `index` with the activation that follows it; returns its output. `parameters`: weight and
    /// bias.
    pub fn lower(
        l: &mut Lowering,
        index: usize,
        parameters: &[Slice],
        activation: Option<Activation>,
        x: Slice,
        [inputs, outputs]: [usize; 2],
    ) -> Slice {
        let y = l.rows_of(&format!("{index}.output"), outputs);
        let keeps = l.training && activation.is_some_and(Activation::derivative_needs_input);
        let pre = keeps.then(|| l.rows_of(&format!("{index}.pre_activation"), outputs));
        let weight = parameters.first().copied().unwrap_or_default();
        let bias = parameters.get(1).copied();
        l.forward(Self { x, weight, bias, activation, pre, y, rows: l.rows, inputs, outputs });
        y
    }
}

/// How its operands are stored.
const OPERANDS: [Operand; 2] = [Operand::AlongK, Operand::AlongSide];

impl Operation for Linear {
    fn access(&self) -> Access {
        let (bias, pre) = (self.bias.unwrap_or_default(), self.pre.unwrap_or_default());
        Access::new([self.x, self.weight, bias], [self.y, pre])
    }

    fn cost(&self) -> Cost {
        let Self { rows, inputs, outputs, .. } = *self;
        let kept = if self.pre.is_some() { rows * outputs } else { 0 };
        Cost::product([rows, inputs, outputs], rows * (inputs + outputs) + inputs * outputs + kept)
    }

    fn product(&self) -> Option<[usize; 3]> {
        Some([self.rows, self.inputs, self.outputs])
    }

    fn reference(&self, memory: &mut Memory) {
        let mut z =
            product_of(&memory.get(self.x), &memory.get(self.weight), [self.rows, self.inputs, self.outputs]);
        if let Some(bias) = self.bias {
            let bias = memory.get(bias);
            z.iter_mut().enumerate().for_each(|(i, z)| *z += bias[i % self.outputs]);
        }
        if let Some(pre) = self.pre {
            memory.set(pre, &z);
        }
        if let Some(f) = self.activation {
            z.iter_mut().for_each(|z| *z = f.value(*z));
        }
        memory.set(self.y, &z);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { x, weight, bias, activation, pre, y, rows, inputs, outputs } = *self;
        let shape = [rows, inputs, outputs];
        let operands = product::pack(split, (x, false), (weight, false), shape);
        let packed = operands.packed;
        let (widths, unit) = ([outputs, if pre.is_some() { outputs } else { 0 }], split.grain(rows));
        let features = split.in_place(x);
        product::split(split, shape, packed, unit, widths, |rows| {
            let shape = [rows.len(), inputs, outputs];
            let (keep, in_place) = (pre.is_some(), features.map(|fetch| fetch.from(rows.start)));
            let job =
                product::Job::Linear { shape, packed, bias: bias.is_some(), activation, keep, in_place };
            let kept = pre.map_or(Slice::default(), |z| z.rows(&rows, outputs));
            let left = operands.left(&rows).unwrap_or_else(|| x.rows(&rows, inputs));
            let reads = [left, operands.right, bias.unwrap_or_default()];
            (job, Access::new(reads, [y.rows(&rows, outputs), kept]))
        });
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        Ok(Record {
            activation: Activation::number(self.activation),
            flags: e.precision_flag(),
            at: e.optional([Some(self.x), Some(self.weight), self.bias, self.pre, Some(self.y)])?,
            ..e.shaped(Kind::Linear, [self.rows, self.inputs, self.outputs])?
        })
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let wide = |slice: Slice| slice.rows(rows, self.outputs);
        let (x, y, pre) = (self.x.rows(rows, self.inputs), wide(self.y), self.pre.map(wide));
        Some(Self { x, y, pre, rows: rows.len(), ..self.clone() }.into())
    }

    fn operands(&self) -> Option<[Operand; 2]> {
        Some(OPERANDS)
    }

    fn emit(&self, r: &Record, e: &Emitter) -> String {
        let shape = [r.rows, r.inputs, r.outputs];
        e.product(r, "linear_product(op, own)", shape, OPERANDS, None)
    }

    fn learns(&self) -> bool {
        true
    }

    fn folded_activation(&self) -> Option<(Activation, Slice)> {
        self.activation.map(|f| (f, self.pre.unwrap_or(self.y)))
    }

    fn backward(&self, l: &mut Lowering, backward: Backward<'_>) -> (Slice, bool) {
        let Self { x, weight, bias, rows, inputs, outputs, .. } = *self;
        let Backward { dy, through, link, before } = backward;
        if let Some((activation, saved)) = self.folded_activation().filter(|_| !through) {
            l.backward(ActivateBackward { activation, saved, dy, rows, width: outputs });
        }
        let update = l.folds;
        let to = l.gradient_of(weight);
        l.parameters(WeightGradient { x, dy, to, update, rows, inputs, outputs });
        if let Some(bias) = bias {
            let to = l.gradient_of(bias);
            l.parameters(BiasGradient { dy, to, update, rows, outputs });
        }
        let Some(before) = before else { return (dy, false) };
        let dx = l.rows_of(&format!("link_{link}.input_gradient"), inputs);
        let derivative = before.folded_activation();
        l.backward(InputGradient { dy, weight, dx, derivative, rows, inputs, outputs });
        (dx, derivative.is_some())
    }
}

pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    if is_slim(Kind::Linear, [r.rows, r.inputs, r.outputs]) {
        // 32 rows per block (kernels/linear.cu).
        return Size::new(u64::try_from(r.rows).unwrap_or(0).div_ceil(32), multiprocessors.saturating_mul(2));
    }
    product::size(r, [r.rows, r.inputs, r.outputs], multiprocessors)
}
