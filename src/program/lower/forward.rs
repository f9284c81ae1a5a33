//! From the rows to the loss of each, with what the backward pass needs.

use std::ops::Range;

use super::{Builder, TapeEntry};
use crate::{
    program::{Activation, Instruction, Op, Phase, RowSource, layout::Slice},
    spec::{Layer, Metric},
};

/// Where a loss is, row by row, and how it is added up.
pub(super) struct LossParts {
    pub(super) per_row: Slice,
    pub(super) hits: Option<Slice>,
    pub(super) gradient: Option<Slice>,
    pub(super) scale: f64,
}

impl Builder<'_> {
    pub(super) fn forward(
        &mut self,
        share: Range<usize>,
        training: bool,
        out: &mut Vec<Instruction>,
    ) -> (Vec<TapeEntry>, Slice, Slice) {
        let o = self.o;
        let l = &self.layout;
        let (rows, first) = (share.len(), share.start);
        let (features, targets) = match training {
            true => (l.train_features, l.train_targets),
            false => (l.validation_features, l.validation_targets),
        };
        let source = match training && o.ordered {
            _ if o.streamed => RowSource::Chunk,
            true => RowSource::Order(l.order),
            false => RowSource::Position,
        };
        let mut x = self.rows_of("batch_features", rows, o.features);
        let target = self.rows_of("batch_targets", rows, o.targets);
        let gather = Op::Gather {
            features,
            targets,
            source,
            first,
            x,
            y: target,
            rows,
            width: o.features,
            target_width: o.targets,
        };
        out.push(Instruction { op: gather, phase: Phase::Data });
        let mut links = Vec::new();
        let (mut width, mut i) = (o.features, 0);
        while i < o.layers.len() {
            let op = match (&o.layers[i], self.learned[i]) {
                (Layer::Linear(linear), Some(learned)) => {
                    let following = o.layers.get(i + 1).and_then(activation_of);
                    let outputs = linear.out_features;
                    let y = self.rows_of(&format!("{i}.output"), rows, outputs);
                    let pre = following
                        .filter(|f| training && f.derivative_needs_input())
                        .map(|_| self.rows_of(&format!("{i}.pre_activation"), rows, outputs));
                    let saved = following.map(|f| (f, pre.unwrap_or(y)));
                    links.push(TapeEntry::Linear { learned, x, activation: saved, inputs: width, outputs });
                    let op = Op::Linear {
                        x,
                        weight: learned.weight,
                        bias: learned.bias,
                        activation: following,
                        pre,
                        y,
                        rows,
                        inputs: width,
                        outputs,
                    };
                    i += usize::from(following.is_some());
                    (x, width) = (y, outputs);
                    Some(op)
                }
                (Layer::Dropout { p }, _) if training && *p > 0.0 => {
                    let (p, layer) = (*p as f32, i as u32);
                    let y = self.rows_of(&format!("{i}.output"), rows, width);
                    links.push(TapeEntry::Dropout { p, layer, width });
                    let op = Op::Dropout { x, y, p, layer, first, rows, width };
                    x = y;
                    Some(op)
                }
                (layer, _) => activation_of(layer).map(|activation| {
                    let y = self.rows_of(&format!("{i}.output"), rows, width);
                    let saved = if activation.derivative_needs_input() { x } else { y };
                    links.push(TapeEntry::Activate { activation, saved, width });
                    let op = Op::Activate { activation, x, y, rows, width };
                    x = y;
                    op
                }),
            };
            out.extend(op.map(|op| Instruction { op, phase: Phase::Forward }));
            i += 1;
        }
        (links, x, target)
    }

    /// The loss, and the cells `[loss, accuracy]` at `first`.
    pub(super) fn loss(
        &mut self,
        rows: usize,
        total_rows: usize,
        prediction: Slice,
        target: Slice,
        learn: bool,
        out: &mut Vec<Instruction>,
    ) -> LossParts {
        let width = prediction.len / rows;
        let per_row = self.rows_of("loss_per_row", rows, 1);
        let hits = (self.o.loss.classifies() && (!learn || self.o.metrics.contains(&Metric::Accuracy)))
            .then(|| self.rows_of("hits", rows, 1));
        let gradient = learn.then(|| self.rows_of("prediction_gradient", rows, width));
        let kind = self.o.loss;
        let op = Op::Loss { kind, prediction, target, per_row, hits, gradient, rows, total_rows, width };
        out.push(Instruction { op, phase: Phase::Loss });
        let terms = if kind.classifies() { total_rows } else { total_rows * width };
        LossParts { per_row, hits, gradient, scale: 1.0 / terms as f64 }
    }
}

pub(super) fn activation_of(layer: &Layer) -> Option<Activation> {
    match layer {
        Layer::Relu => Some(Activation::Relu),
        Layer::Gelu => Some(Activation::Gelu),
        Layer::Tanh => Some(Activation::Tanh),
        Layer::Sigmoid => Some(Activation::Sigmoid),
        Layer::Linear(_) | Layer::Dropout { .. } => None,
    }
}
