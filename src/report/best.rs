//! The best value of a run's monitored metric.

use super::{grid::Column, grouping::distinct, run::Run};
use crate::units;

/// `validation loss 0.1000 in epoch 7`; nothing where nothing was validated.
pub(super) fn best(run: &Run) -> String {
    let value = value(run);
    if value.is_empty() { value } else { format!("{} {value}", name(run)) }
}

/// The best of each run; the title names what all monitor, else each cell does.
pub(super) fn column(runs: &[Run]) -> Column {
    let names = distinct(runs.iter().filter(|run| run.figure("best_value").is_some()).map(name));
    match &names[..] {
        [name] => Column::of_numbers(&format!("best {name}"), runs.iter().map(value)),
        _ => Column::of_numbers("best", runs.iter().map(best)),
    }
}

fn name(run: &Run) -> String {
    run.monitor().replace('.', " ")
}

fn value(run: &Run) -> String {
    let known = run.number("best_value").zip(run.figure("best_epoch"));
    known.map(|(value, epoch)| format!("{} in epoch {epoch}", in_words(run, value))).unwrap_or_default()
}

fn in_words(run: &Run, value: f64) -> String {
    if run.monitor() == "validation.accuracy" { units::percent(value) } else { units::number(value) }
}
