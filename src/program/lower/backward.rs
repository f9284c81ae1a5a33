//! From the loss back: gradients of activations, then of parameters.

use super::{Builder, Learned, TapeEntry};
use crate::program::{Instruction, Op, Phase, layout::Slice};

impl Builder<'_> {
    /// Gradients of activations go to `out`, gradients of parameters to `later`.
    pub(super) fn backward(
        &mut self,
        rows: usize,
        first_row: usize,
        links: &[TapeEntry],
        gradient: Slice,
        out: &mut Vec<Instruction>,
        later: &mut Vec<Instruction>,
    ) {
        let Some(first) = links.iter().position(|l| matches!(l, TapeEntry::Linear { .. })) else { return };
        let mut push = |op| out.push(Instruction { op, phase: Phase::Backward });
        // `dy` is the gradient of a link's output; `through` tells that the link's own activation is already behind it.
        let (mut dy, mut through) = (gradient, false);
        for (i, link) in links.iter().enumerate().skip(first).rev() {
            match *link {
                TapeEntry::Activate { activation, saved, width } => {
                    push(Op::ActivateBackward { activation, saved, dy, rows, width });
                }
                TapeEntry::Dropout { p, layer, width } => {
                    push(Op::DropoutBackward { dy, p, layer, first: first_row, rows, width });
                }
                TapeEntry::Linear { learned, x, activation, inputs, outputs, .. } => {
                    if let Some((activation, saved)) = activation.filter(|_| !through) {
                        push(Op::ActivateBackward { activation, saved, dy, rows, width: outputs });
                    }
                    later.extend(self.parameter_gradients(learned, x, dy, rows, inputs, outputs));
                    if i == first {
                        break;
                    }
                    let dx = self.rows_of(&format!("link_{i}.input_gradient"), rows, inputs);
                    let derivative = match links[i - 1] {
                        TapeEntry::Linear { activation, .. } => activation,
                        _ => None,
                    };
                    through = derivative.is_some();
                    push(Op::InputGradient {
                        dy,
                        weight: learned.weight,
                        dx,
                        derivative,
                        rows,
                        inputs,
                        outputs,
                    });
                    dy = dx;
                    continue;
                }
            }
            through = false;
        }
    }

    pub(super) fn parameter_gradients(
        &self,
        learned: Learned,
        x: Slice,
        dy: Slice,
        rows: usize,
        inputs: usize,
        outputs: usize,
    ) -> Vec<Instruction> {
        let update = self.folds;
        let to = |s: Slice| Slice { buffer: self.gradients.unwrap_or(s.buffer), ..s };
        let weight = Op::WeightGradient { x, dy, to: to(learned.weight), update, rows, inputs, outputs };
        let bias = learned.bias.map(|b| Op::BiasGradient { dy, to: to(b), update, rows, outputs });
        [Some(weight), bias]
            .into_iter()
            .flatten()
            .map(|op| Instruction { op, phase: Phase::Backward })
            .collect()
    }
}
