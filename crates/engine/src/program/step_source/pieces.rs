//! The instructions of a compiled step in their order, with what each reads and writes there.

use super::{Access, Instruction, Learning, Op, Record, Slice, Step, Update};

/// An instruction of a step.
pub struct Piece<'a> {
    pub op: &'a Op,
    pub record: &'a Record,
    pub access: Access,
}

/// The pieces of a step, without those that fetch its rows ahead. If parameters are updated by the pieces that
/// compute their gradients, these pieces are placed where the update stood.
pub fn pieces<'a>(step: &Step<'a>, fetches_ahead: bool) -> Vec<Piece<'a>> {
    let instructions = &step.program.instructions;
    let update = instructions.iter().find_map(update_of).filter(|_| step.learning.is_some());
    let (mut pieces, mut learning) = (Vec::new(), Vec::new());
    for (instruction, record) in instructions.iter().zip(step.records).skip(usize::from(fetches_ahead)) {
        let op = &instruction.op;
        let mut access = op.access();
        match (update, op) {
            (Some(update), Op::WeightGradient(_) | Op::BiasGradient(_)) => {
                // The piece writes the parameter instead of its gradient. No other piece touches the
                // optimizer's state of it.
                let to = &mut access.writes[0];
                let offset = to.offset - update.gradients.offset + update.values.offset;
                *to = Slice { buffer: update.values.buffer, offset, len: to.len };
                learning.push(Piece { op, record, access });
            }
            (Some(_), Op::Update(_)) => pieces.append(&mut learning),
            _ => pieces.push(Piece { op, record, access }),
        }
    }
    pieces
}

/// The update, if it may directly follow each gradient: nothing else needs the gradients, and all of them are
/// made by products and column sums.
pub fn learning(instructions: &[Instruction], place: &dyn Fn(Slice) -> Option<u64>) -> Option<Learning> {
    let Update { rule, values, gradients, state } = instructions.iter().find_map(update_of)?;
    let touches =
        |access: Access| access.touched().any(|slice| slice.buffer == gradients.buffer && slice.len > 0);
    let alone = instructions.iter().all(|i| match &i.op {
        Op::WeightGradient(_) | Op::BiasGradient(_) | Op::Update(_) => true,
        op => !touches(op.access()),
    });
    let states = state.map_or(0, |state| state.len.checked_div(values.len).unwrap_or(0));
    let state = state.map_or(Some(None), |state| place(state).map(Some))?;
    alone.then_some(Learning {
        rule: rule.emit(),
        values: place(*values)?,
        gradients: place(*gradients)?,
        state,
        stride: values.len,
        states,
    })
}

fn update_of(instruction: &Instruction) -> Option<&Update> {
    if let Op::Update(update) = &instruction.op { Some(update) } else { None }
}
