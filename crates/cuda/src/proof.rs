//! The test of a compiled step before its use: it and the interpreter run the same steps from the same state, and must agree as
//! closely as runs on two devices must. So if the generated code is wrong on a GPU, that costs time but no result.

use super::engines::Outcome;
use crate::{
    plan::{
        Engine,
        agreement::{Curve, Rule},
    },
    program::{LogTarget, Op, Precision, Programs},
};

/// What a compiled step has to prove.
pub struct Unproven {
    /// The engine that interprets the steps otherwise.
    interpreter: Engine,
    rule: Rule,
    /// In a regression: the targets of a row, and with its weight.
    widths: Option<[usize; 2]>,
    /// Elements per log row; 0 if steps log nothing.
    pub log_width: usize,
}

impl Unproven {
    pub fn new(programs: &Programs, precision: Precision, interpreter: Engine) -> Self {
        let ops = || programs.train.instructions.iter().map(|i| &i.op);
        let widths = ops().find_map(|op| match op {
            Op::Loss(loss) if !loss.kind.classifies() => Some([loss.width, loss.line()]),
            _ => None,
        });
        let rows = ops().any(|op| matches!(op, Op::Log(log) if matches!(log.to, LogTarget::Row(_))));
        Self {
            interpreter,
            rule: Rule { target_square: 0.0, precision },
            widths,
            log_width: if rows { programs.layout.log_width } else { 0 },
        }
    }

    /// Sets the mean square of the targets, which is part of the tolerance for losses near 0.
    pub fn judge_by(&mut self, targets: &[f32]) {
        if let Some([width, line]) = self.widths {
            let rows = targets.chunks_exact(line);
            let count = (rows.len() * width).max(1);
            let square: f64 = rows.flat_map(|row| &row[..width]).map(|t| f64::from(*t).powi(2)).sum();
            self.rule.target_square = square / count as f64;
        }
    }

    /// Why the interpreter runs the steps instead; `None` if the compiled step passed.
    pub fn verdict(&self, compiled: &Outcome, interpreted: &Outcome) -> Option<String> {
        let curve = |of: &Outcome| Curve {
            losses: of.losses.iter().map(|loss| f64::from(*loss)).collect(),
            parameters: of.values.clone(),
            ..Curve::default()
        };
        let difference = self.rule.difference(&curve(compiled), &curve(interpreted));
        (!self.rule.holds(&difference)).then(|| {
            format!(
                "the compiled step is not used: its loss differs from the interpreter's by {:.1e} times the limit of \
                 `runner parity`, its parameters by {:.1e}; please report this. The engine `{}` runs the steps",
                difference.of_limit,
                difference.parameters,
                self.interpreter.name()
            )
        })
    }
}
