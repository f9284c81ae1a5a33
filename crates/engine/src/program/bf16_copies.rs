//! Where a step keeps bfloat16 copies of the operands of its large products, for GPUs whose library multiplies
//! them.
//!
//! Every step makes its copies anew, each after its operand was written and before the first product that
//! reads it; all products of the step use it. So no copy outlives a step, and the copies of all programs lie in
//! the same memory.

use super::{Op, Program, Programs, SLIM, Slice, aligned, is_large};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bf16Copies {
    /// The operands, and the first element of each copy. An element of the arena holds two of a copy.
    places: Vec<(Slice, usize)>,
    pub elements: usize,
}

impl Bf16Copies {
    pub fn new(program: &Program) -> Self {
        let mut own = Self::default();
        for operand in program.instructions.iter().filter_map(|i| library_operands(&i.op)).flatten() {
            if own.place(operand).is_none() {
                own.places.push((operand, own.elements));
                own.elements += aligned(operand.len.div_ceil(2));
            }
        }
        own
    }

    /// The elements that any of the programs needs.
    pub fn elements(programs: &Programs) -> usize {
        let Programs { train, train_last, validate, validate_last, .. } = programs;
        let all = [Some(train), train_last.as_ref(), validate.as_ref(), validate_last.as_ref()];
        all.into_iter().flatten().map(|program| Self::new(program).elements).max().unwrap_or(0)
    }

    pub fn place(&self, operand: Slice) -> Option<usize> {
        self.places.iter().find(|(of, _)| *of == operand).map(|(_, place)| *place)
    }
}

/// The two operands of a product of the library: the first of what it reads.
pub fn library_operands(op: &Op) -> Option<[Slice; 2]> {
    op.product().filter(|shape| is_large(*shape))?;
    // See `is_large_product` of device/cuda/launch/kernel.rs.
    if matches!(op, Op::InputGradient(op) if op.outputs <= SLIM as usize) {
        return None;
    }
    let [left, right, ..] = op.access().reads;
    Some([left, right])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{BufferId, InputGradient, Instruction, Linear, Phase, WeightGradient, Zero};

    /// The operands of one layer's three products are x, its weight and dy: each has one copy.
    #[test]
    fn an_operand_of_several_products_has_one_copy() {
        let slice = |buffer, offset, len| Slice { buffer: BufferId(buffer), offset, len };
        let program = |rows: usize| {
            let (inputs, outputs) = (300, 501);
            let (x, dy) = (slice(0, 0, rows * inputs), slice(1, 0, rows * outputs));
            let (weight, to) = (slice(2, 16, inputs * outputs), slice(3, 16, inputs * outputs));
            let (y, dx) = (slice(4, 0, rows * outputs), slice(5, 0, rows * inputs));
            let (bias, activation, pre, derivative, update) = (None, None, None, None, false);
            let ops: [Op; 4] = [
                Linear { x, weight, bias, activation, pre, y, rows, inputs, outputs }.into(),
                InputGradient { dy, weight, dx, derivative, rows, inputs, outputs }.into(),
                WeightGradient { x, dy, to, update, rows, inputs, outputs }.into(),
                Zero { of: to }.into(),
            ];
            let instructions = ops.map(|op| Instruction { op, phase: Phase::Forward }).to_vec();
            (Program { batch: rows, rows, instructions }, [x, weight, dy, y, dx, to])
        };
        let (large, [x, weight, dy, others @ ..]) = program(200);
        let copies = Bf16Copies::new(&large);
        let [of_x, of_weight, of_dy] = [x.len / 2, weight.len / 2, dy.len / 2].map(aligned);
        assert_eq!([x, weight, dy].map(|of| copies.place(of)), [0, of_x, of_x + of_weight].map(Some));
        assert_eq!(copies.elements, of_x + of_weight + of_dy);
        assert_eq!(others.map(|of| copies.place(of)), [None; 3]);
        assert_eq!(Bf16Copies::new(&program(8).0), Bf16Copies::default(), "small products have none");
    }
}
