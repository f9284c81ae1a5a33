//! The result of `--fail-if` as JSON, for other programs.

use serde_json::{Value, json};

use super::{Condition, Outcome};
use crate::report::against::Pair;

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Passes => "passed",
            Self::Fails => "failed",
            Self::Undecided => "undecided",
        }
    }
}

impl Condition {
    /// A setting, its bound, and how far it is above that, with an interval of error probability `alpha`. Numbers that are not known
    /// are null.
    pub(super) fn json(&self, name: &str, pair: &Pair, alpha: f64, outcome: Outcome) -> Value {
        let Pair { own, base, .. } = pair;
        let [value, of_base] = [own, base].map(|setting| self.statistic_of(setting));
        let above = self.above(pair, alpha);
        let (bound, baseline_n) = match self.is_relative {
            true => (self.factor * of_base, Some(base.samples.len())),
            false => (self.factor, None),
        };
        let kind = match above.interval {
            Some(_) if pair.is_in_order() => Some("range"),
            Some(_) => Some("confidence"),
            None => None,
        };
        let [low, high] = [0, 1].map(|end| above.interval.map(|interval| interval[end]));
        json!({
            "setting": name, "n": own.samples.len(), "value": value, "bound": bound, "baseline_n": baseline_n,
            "difference": above.value, "difference_low": low, "difference_high": high, "interval": kind,
            "confidence": (kind == Some("confidence")).then_some(1.0 - alpha), "result": outcome.name(),
        })
    }
}
