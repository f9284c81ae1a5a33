//! The forward pass: from the rows to the loss of each row.

use super::Builder;
use crate::{
    program::{Activate, Activation, Dropout, Gather, LayerNorm, Linear, Loss, Phase, RowSource, Slice},
    spec::{Layer, Metric},
};

/// Where the losses of the rows are, and how they are summed.
pub(super) struct LossParts {
    pub(super) per_row: Slice,
    pub(super) hits: Option<Slice>,
    pub(super) gradient: Option<Slice>,
    pub(super) scale: f64,
}

impl Builder<'_> {
    /// Gathers the rows and applies all layers; returns the prediction and the target.
    pub(super) fn forward(&mut self) -> (Slice, Slice) {
        let o = self.o;
        let (x, target) = self.gather();
        let (mut x, mut width, mut i) = (x, o.features, 0);
        while let Some(layer) = o.layers.get(i) {
            let (l, outputs) = (&mut self.l, layer.outputs(width));
            match layer {
                Layer::Linear(_) => {
                    let following = o.layers.get(i + 1).and_then(Activation::of_layer);
                    x = Linear::lower(l, i, &self.parameters[i], following, x, [width, outputs]);
                    i += usize::from(following.is_some());
                }
                Layer::LayerNorm { eps } => x = LayerNorm::lower(l, i, &self.parameters[i], *eps, x, width),
                Layer::Dropout { p } if l.training && *p > 0.0 => x = Dropout::lower(l, i, *p, x, width),
                layer => {
                    if let Some(activation) = Activation::of_layer(layer) {
                        x = Activate::lower(l, i, activation, x, width);
                    }
                }
            }
            (width, i) = (outputs, i + 1);
        }
        (x, target)
    }

    fn gather(&mut self) -> (Slice, Slice) {
        let (o, training) = (self.o, self.l.training);
        let x = self.l.rows_of("batch_features", o.features);
        let target_width = o.targets + usize::from(o.weighted);
        let y = self.l.rows_of("batch_targets", target_width);
        let layout = &self.l.layout;
        let (features, targets) = match training {
            true => (layout.train_features, layout.train_targets),
            false => (layout.validation_features, layout.validation_targets),
        };
        let source = match training && o.ordered {
            _ if o.streamed => RowSource::Chunk,
            true => RowSource::Order(layout.order),
            false => RowSource::Position,
        };
        let (rows, first) = (self.l.rows, self.l.first);
        let gather = Gather { features, targets, source, first, x, y, rows, width: o.features, target_width };
        self.l.push(gather, Phase::Data);
        (x, y)
    }

    /// Computes the loss of each row; the gradient is scaled for a global batch of `total_rows`.
    pub(super) fn loss(&mut self, total_rows: usize, prediction: Slice, target: Slice) -> LossParts {
        let (kind, rows, learn) = (self.o.loss, self.l.rows, self.l.training);
        let width = prediction.len / rows;
        let per_row = self.l.rows_of("loss_per_row", 1);
        let hits = (kind.classifies() && (!learn || self.o.metrics.contains(&Metric::Accuracy)))
            .then(|| self.l.rows_of("hits", 1));
        let gradient = learn.then(|| self.l.rows_of("prediction_gradient", width));
        let (weighted, first) = (self.o.weighted, self.l.first);
        let loss = Loss {
            kind,
            prediction,
            target,
            weighted,
            per_row,
            hits,
            gradient,
            rows,
            first,
            total_rows,
            width,
        };
        self.l.push(loss, Phase::Loss);
        let terms = if kind.classifies() { total_rows } else { total_rows * width };
        LossParts { per_row, hits, gradient, scale: 1.0 / terms as f64 }
    }
}
