//! Before a compiled step is used: it and the interpreter take the same steps from the same state, and must agree as runs on
//! two devices must. So generated code that is wrong on a GPU costs time, and no result.

use super::engines::Outcome;
use crate::{
    plan::agreement::{Curve, Rule},
    program::{LogTarget, Op, Precision, Programs},
    units,
};

/// What a compiled step must show.
pub struct Unproven {
    /// That it is faster, too: nobody has asked for it.
    must_be_faster: bool,
    rule: Rule,
    regression: bool,
    /// Numbers of a row of the log; 0 where steps leave none.
    pub log_width: usize,
}

impl Unproven {
    pub fn new(programs: &Programs, precision: Precision, must_be_faster: bool) -> Self {
        let ops = || programs.train.instructions.iter().map(|i| &i.op);
        let regression = ops().any(|op| matches!(op, Op::Loss(loss) if !loss.kind.classifies()));
        let rows = ops().any(|op| matches!(op, Op::Log(log) if matches!(log.to, LogTarget::Row(_))));
        Self {
            must_be_faster,
            rule: Rule { target_square: 0.0, precision },
            regression,
            log_width: if rows { programs.layout.log_width } else { 0 },
        }
    }

    /// Takes the mean square of the targets, by which losses near 0 are judged.
    pub fn judge_by(&mut self, targets: &[f32]) {
        if self.regression {
            let square: f64 = targets.iter().map(|t| f64::from(*t).powi(2)).sum();
            self.rule.target_square = square / targets.len().max(1) as f64;
        }
    }

    /// Why the interpreter runs the steps, if it does.
    pub fn verdict(&self, compiled: &Outcome, interpreted: &Outcome) -> Option<String> {
        let curve = |of: &Outcome| Curve {
            losses: of.losses.iter().map(|loss| f64::from(*loss)).collect(),
            parameters: of.values.clone(),
            ..Curve::default()
        };
        let difference = self.rule.difference(&curve(compiled), &curve(interpreted));
        let [own, other] = [compiled, interpreted].map(|outcome| outcome.seconds);
        if !self.rule.holds(&difference) {
            return Some(format!(
                "the compiled step is not used: its loss differs from the interpreter's by {:.1e} times the limit of \
                 `runner parity`, its parameters by {:.1e}; please report this. The engine `persistent` runs the steps",
                difference.of_limit, difference.parameters
            ));
        }
        (self.must_be_faster && own >= other).then(|| {
            format!(
                "the compiled step is not used: {} took it {}, and the engine `persistent` {}, which runs the steps",
                units::counted(compiled.losses.len().max(1) as u64, "step"),
                units::seconds(own),
                units::seconds(other)
            )
        })
    }
}
