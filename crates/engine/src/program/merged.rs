//! What a GPU's launch computes beside its own result, since it has the operands in registers: the gradient of a layer's
//! input is also what the bias of the preceding layer sums, the losses of rows are what their mean sums.

use super::{
    ActivateBackward, Activation, BiasGradient, FLAG_RELU_INPUT, InputGradient, Kind, Linear, NONE, Op,
    Program, Record, Slice, WeightGradient, bf16_copies::is_slim_op,
};

impl Program {
    /// Lets `record`, the last launch of instruction `at`, compute what later instructions would; returns these, which are
    /// then done. Their results are the same but for the order of sums.
    pub fn merge(
        &self,
        at: usize,
        record: &mut Record,
        place: &dyn Fn(Slice) -> Option<u64>,
    ) -> [Option<usize>; 2] {
        match (&self.instructions[at].op, record.kind()) {
            (Op::Linear(op), Kind::Linear) => {
                let makes_x =
                    |(_, i): &(usize, &super::Instruction)| matches!(&i.op, Op::Linear(l) if l.y == op.x);
                let before = self.instructions[..at].iter().enumerate().rfind(makes_x);
                if before.is_some_and(|(of, _)| self.leaves_activation(of)) {
                    record.flags |= FLAG_RELU_INPUT;
                }
                [None; 2]
            }
            (own @ Op::InputGradient(op), Kind::InputGradient) if is_slim_op(own) => {
                let bias = self.bias_gradient(at, op.dx).and_then(|(of, to)| Some((of, place(to)?)));
                record.at[5] = bias.map_or(NONE, |(_, to)| to);
                let weight = self.weight_gradient(at, op).and_then(|(of, [x, to])| {
                    [record.at[3], record.at[4]] = [place(x)?, place(to)?];
                    Some(of)
                });
                [weight, bias.map(|(of, _)| of)]
            }
            (
                Op::InputGradient(InputGradient { dx: of, rows, inputs: width, .. }),
                Kind::ActivateBackward,
            )
            | (Op::ActivateBackward(ActivateBackward { dy: of, rows, width, .. }), _) => {
                let Some((bias, to)) = self.bias_gradient(at, *of) else { return [None; 2] };
                let (Some(to), Ok(rows), Ok(width)) =
                    (place(to), i32::try_from(*rows), i32::try_from(*width))
                else {
                    return [None; 2];
                };
                (record.rows, record.outputs, record.at[3]) = (rows, width, to);
                [Some(bias), None]
            }
            (Op::Loss(op), _) => [(5, Some(op.per_row)), (6, op.hits)].map(|(at_cell, of)| {
                let (mean, (cell, scale)) = self.mean(at, of?)?;
                // The launch has one scale.
                if record.at[5] != NONE && record.scale.to_bits() != scale.to_bits() {
                    return None;
                }
                (record.at[at_cell], record.scale) = (place(cell)?, scale);
                Some(mean)
            }),
            _ => [None; 2],
        }
    }

    /// The instruction that has the mean of `of`, its cell and its scale.
    fn mean(&self, at: usize, of: Slice) -> Option<(usize, (Slice, f64))> {
        self.later(at, |op| match op {
            Op::Mean(mean) => (mean.of == of).then_some((mean.cell, mean.scale)),
            _ => None,
        })
    }

    /// Whether instruction `at`, a layer that ends with RELU, may leave that to all that read its result: launches that
    /// read all of it once, from memory.
    pub fn leaves_activation(&self, at: usize) -> bool {
        let Op::Linear(Linear { activation: Some(Activation::Relu), y, .. }) = &self.instructions[at].op
        else {
            return false;
        };
        let mut merged = None;
        let mut readers = 0;
        for (n, instruction) in self.instructions.iter().enumerate().skip(at + 1) {
            if !instruction.op.access().touched().any(|slice| slice.overlaps(*y)) {
                continue;
            }
            readers += 1;
            let applies_it = match &instruction.op {
                own @ Op::Linear(op) => is_slim_op(own) && op.x == *y,
                own @ Op::InputGradient(op) => {
                    merged = self.weight_gradient(n, op).map(|(of, _)| of);
                    is_slim_op(own) && op.derivative == Some((Activation::Relu, *y))
                }
                _ => merged == Some(n),
            };
            if !applies_it {
                return false;
            }
        }
        readers > 0
    }

    /// The instruction that sums the columns of `of`, and where to.
    fn bias_gradient(&self, at: usize, of: Slice) -> Option<(usize, Slice)> {
        self.later(at, |op| match op {
            Op::BiasGradient(BiasGradient { dy, to, update: false, .. }) => (*dy == of).then_some(*to),
            _ => None,
        })
    }

    /// The instruction that computes the gradient of the same layer's weight, with its x and where to. The launch has x if the
    /// derivative is computed from it.
    fn weight_gradient(&self, at: usize, layer: &InputGradient) -> Option<(usize, [Slice; 2])> {
        let has = |x| layer.derivative.is_none_or(|(_, saved)| saved == x);
        let (dy, inputs) = (layer.dy, layer.inputs);
        self.later(at, |op| match op {
            Op::WeightGradient(WeightGradient { x, dy: own, to, update: false, inputs: width, .. }) => {
                (*own == dy && has(*x) && *width == inputs).then_some([*x, *to])
            }
            _ => None,
        })
    }

    /// The first later instruction for which `find` returns something, unless one in between touches what it writes or
    /// writes what it touches.
    fn later<T>(&self, at: usize, find: impl Fn(&Op) -> Option<T>) -> Option<(usize, T)> {
        let rest = &self.instructions[at + 1..];
        let (n, found) = rest.iter().enumerate().find_map(|(n, i)| Some((n, find(&i.op)?)))?;
        let access = rest[n].op.access();
        let is_free = rest[..n].iter().all(|between| !between.op.access().conflicts(&access));
        is_free.then_some((at + 1 + n, found))
    }
}
