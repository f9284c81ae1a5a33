//! What follows the gradients: means over all devices, norms, the update, the row of the log.

use super::{Builder, LossParts};
use crate::{
    program::{Accumulator, Instruction, Op, Phase, layout::Slice},
    spec::{Metric, Policy},
};

impl Builder<'_> {
    /// The metrics that are means over the rows of the global batch: this device's part of each.
    pub(super) fn means(&mut self, batch: usize, parts: &LossParts, out: &mut Vec<Instruction>) {
        for (i, metric) in self.columns() {
            let cell = self.cell(i);
            let (op, phase) = match (metric, parts.hits) {
                (Metric::Loss, _) => (Op::Mean { of: parts.per_row, cell, scale: parts.scale }, Phase::Loss),
                (Metric::Accuracy, Some(of)) => {
                    (Op::Mean { of, cell, scale: 1.0 / batch as f64 }, Phase::Log)
                }
                _ => continue,
            };
            out.push(Instruction { op, phase });
        }
    }

    /// The parameters' norm, which an update would change.
    pub(super) fn norm_before_update(&self, out: &mut Vec<Instruction>) {
        for (i, _) in self.columns().filter(|(_, metric)| *metric == Metric::ParamNorm) {
            let op = Op::Norm { of: self.layout.whole(self.layout.values), cell: self.cell(i) };
            out.push(Instruction { op, phase: Phase::Log });
        }
    }

    pub(super) fn update(&mut self, out: &mut Vec<Instruction>) {
        let Some(gradients) = self.all_gradients() else { return };
        let column = self.columns().find(|(_, m)| *m == Metric::GradNorm).map(|(i, _)| i);
        if column.is_some() || self.o.clip.is_some() {
            let cell = self.cell(column.unwrap_or(7));
            let phase = if self.o.clip.is_some() { Phase::Optimizer } else { Phase::Log };
            out.push(Instruction { op: Op::Norm { of: gradients, cell }, phase });
            if let Some(max_norm) = self.o.clip {
                let op = Op::Clip { gradients, norm: cell, max_norm };
                out.push(Instruction { op, phase: Phase::Optimizer });
            }
        }
        let state = self.state.map(|s| self.layout.whole(s));
        let values = self.layout.whole(self.layout.values);
        let op = Op::Update { rule: self.o.rule, values, gradients, state };
        out.push(Instruction { op, phase: Phase::Optimizer });
    }

    pub(super) fn log(&mut self, rows: usize, out: &mut Vec<Instruction>) {
        let cells = Slice { len: self.layout.log_width, ..self.cell(0) };
        let op = match self.o.policy {
            Policy::Immediate | Policy::Buffered => Op::LogAppend { cells, log: self.layout.log },
            Policy::PerEpoch => Op::Accumulate { cells, rows, sums: Accumulator::Epoch },
            Policy::Off => Op::Watch { cell: self.cell(0) },
        };
        out.push(Instruction { op, phase: Phase::Log });
    }
}
