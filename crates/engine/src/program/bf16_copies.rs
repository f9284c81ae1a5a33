//! Where a step keeps bfloat16 copies of the operands of its large products, for GPUs whose library multiplies
//! them.
//!
//! Every step makes its copies anew, each after its operand was written and before the first product that
//! reads it; all products of the step use it. So no copy outlives a step, and the copies of all programs lie in
//! the same memory.

use super::{Kind, Op, Program, Programs, Slice, aligned, counted, is_large, product::is_slim};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bf16Copies {
    /// The operands, and the first element of each copy. An element of the arena holds two of a copy.
    places: Vec<(Slice, usize)>,
    pub elements: usize,
}

impl Bf16Copies {
    pub fn new(program: &Program) -> Self {
        let mut own = Self::default();
        for operand in program.instructions.iter().flat_map(|i| copied(&i.op)) {
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
    if is_slim_op(op) {
        return None;
    }
    let [left, right, ..] = op.access().reads;
    Some([left, right])
}

/// What a step keeps copies of for an op: the operands of a product of the library, and the rows that a kernel of this
/// project would read instead of it.
fn copied(op: &Op) -> impl Iterator<Item = Slice> {
    let rows = match op {
        Op::Linear(layer) if op.product().is_some_and(is_large) && is_slim_op(op) => Some(layer.x),
        _ => None,
    };
    library_operands(op).into_iter().flatten().chain(rows)
}

/// See [`is_slim`].
pub(super) fn is_slim_op(op: &Op) -> bool {
    let (kind, shape) = match op {
        Op::Linear(op) => (Kind::Linear, [op.rows, op.inputs, op.outputs]),
        Op::InputGradient(op) => (Kind::InputGradient, [op.rows, op.inputs, op.outputs]),
        _ => return false,
    };
    is_slim(kind, shape.map(|n| counted(n).unwrap_or(i32::MAX)))
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
