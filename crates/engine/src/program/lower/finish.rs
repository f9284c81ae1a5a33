//! What follows the gradients: means over all devices, norms, the update, the log row.

use super::{Builder, LossParts, NORM_CELL};
use crate::{
    program::{Accumulator, Clip, Log, LogTarget, Mean, Norm, NormKind, Phase, Slice, Update},
    spec::{Metric, Policy},
};

impl Builder<'_> {
    /// This device's part of each metric that is a mean over the rows of the global batch.
    pub(super) fn means(&mut self, batch: usize, parts: &LossParts) {
        for (i, metric) in self.columns() {
            let cell = self.cell(i);
            match (metric, parts.hits) {
                (Metric::Loss, _) => {
                    self.l.push(Mean { of: parts.per_row, cell, scale: parts.scale }, Phase::Loss);
                }
                (Metric::Accuracy, Some(of)) => {
                    self.l.push(Mean { of, cell, scale: 1.0 / batch as f64 }, Phase::Log);
                }
                _ => {}
            }
        }
    }

    /// The parameters' norm, taken before the update changes it.
    pub(super) fn norm_before_update(&mut self) {
        for (i, _) in self.columns().filter(|(_, metric)| *metric == Metric::ParamNorm) {
            let of = self.l.layout.whole(self.l.layout.values);
            self.l.push(Norm { of, cell: self.cell(i), how: NormKind::Chunked }, Phase::Log);
        }
    }

    pub(super) fn update(&mut self) {
        let Some(gradients) = self.all_gradients() else { return };
        let column = self.columns().find(|(_, m)| *m == Metric::GradNorm).map(|(i, _)| i);
        if column.is_some() || self.o.clip.is_some() {
            let norm = self.cell(column.unwrap_or(NORM_CELL));
            let phase = if self.o.clip.is_some() { Phase::Optimizer } else { Phase::Log };
            self.l.push(Norm { of: gradients, cell: norm, how: NormKind::Chunked }, phase);
            if let Some(max_norm) = self.o.clip {
                self.l.push(Clip { gradients, norm, max_norm }, Phase::Optimizer);
            }
        }
        let state = self.state.map(|s| self.l.layout.whole(s));
        let values = self.l.layout.whole(self.l.layout.values);
        self.l.push(Update { rule: self.o.rule, values, gradients, state }, Phase::Optimizer);
    }

    pub(super) fn log(&mut self, rows: usize) {
        let cells = Slice { len: self.l.layout.log_width, ..self.cell(0) };
        let log = match self.o.policy {
            Policy::Immediate | Policy::Buffered => Log { cells, to: LogTarget::Row(self.l.layout.log) },
            Policy::PerEpoch => {
                let weighted = self.o.weighted;
                Log { cells, to: LogTarget::Sums { rows, weighted, sums: Accumulator::Epoch } }
            }
            Policy::Off => Log { cells: self.cell(0), to: LogTarget::Flag },
        };
        self.l.push(log, Phase::Log);
    }
}
