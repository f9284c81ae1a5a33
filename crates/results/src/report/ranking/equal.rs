//! Settings that learn the same but for rounding.

use super::{Candidate, Ranking};
use crate::run::{Sample, concerns_learning};

/// How far losses of the same mathematics may lie apart, relative to them: as `runner parity` allows in f32.
const SAME: f64 = 1e-5;

impl Ranking {
    /// Whether a setting differs from the best in keys alone that do not change what is learned, and from its values by rounding.
    pub(in crate::report) fn equals_best(&self, setting: &Candidate) -> bool {
        let best = &self.settings[0];
        let differs = |key: &usize| best.values[*key] != setting.values[*key];
        let mut keys = (0..self.keys.len()).filter(differs).peekable();
        let are_same = |own: &Sample, other: &Sample| {
            let largest = own.value.abs().max(other.value.abs());
            own.of == other.of && (own.value - other.value).abs() <= SAME * largest
        };
        let mut samples = best.samples.iter().zip(&setting.samples);
        self.metric.is_learned
            && keys.peek().is_some()
            && keys.all(|key| !concerns_learning(&self.keys[key]))
            && setting.samples.len() == best.samples.len()
            && samples.all(|(own, other)| are_same(own, other))
            && !best.is_of_other_rows(setting)
    }

    /// Settings that equal the best, of which they are not told.
    pub(in crate::report) fn equals(&self) -> impl Iterator<Item = &Candidate> {
        self.settings.iter().skip(1).filter(|setting| self.equals_best(setting))
    }

    /// Whether there are several settings, and none is better than another.
    pub(in crate::report) fn are_all_equal(&self) -> bool {
        self.settings.len() > 1 && self.equals().count() + 1 == self.settings.len()
    }
}
