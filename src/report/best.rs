//! The best value of a run's monitored metric.

use super::run::Run;
use crate::units;

/// `0.1000 in epoch 7`; nothing where nothing was validated.
pub(super) fn best(run: &Run) -> String {
    let known = run.number("best_value").zip(run.figure("best_epoch"));
    known.map(|(value, epoch)| format!("{} in epoch {epoch}", in_words(run, value))).unwrap_or_default()
}

fn in_words(run: &Run, value: f64) -> String {
    if run.monitor() == "validation.accuracy" { units::percent(value) } else { units::number(value) }
}
