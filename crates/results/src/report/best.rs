//! The best value of a run's monitored metric.

use super::{
    comparison::Comparison,
    configurations::{FINISHED, STOPPED},
    grid::Column,
    grouping::distinct,
    ranking::Ranking,
    run::Run,
};
use crate::units;

impl Comparison {
    /// `stopped #17 was better at its best epoch: 0.05890`: a trial that, as it turns out, successive halving
    /// stopped too early. Nothing if the best value is a mean: a single lower value may be luck.
    pub(super) fn better_stopped(&self, ranking: &Ranking) -> String {
        let Ranking { metric, settings, status: FINISHED, left_out, .. } = ranking else {
            return String::new();
        };
        let Some(best) = settings.first().filter(|best| best.samples.len() == 1) else {
            return String::new();
        };
        let stopped = left_out.iter().filter(|&&place| self.runs[place].status == STOPPED);
        let values = stopped.filter_map(|&place| Some((place, metric.value(&self.runs[place])?)));
        let better = values.min_by(|a, b| metric.cost(a.1).total_cmp(&metric.cost(b.1)));
        let better = better.filter(|(_, value)| metric.cost(*value) < metric.cost(best.value));
        let Some((place, value)) = better else { return String::new() };
        let is_best = !metric.is_last && metric.full_name() == self.runs[place].monitor();
        let when = if is_best { " at its best epoch" } else { "" };
        format!("  stopped #{} was better{when}: {}\n", self.number(place), metric.word(value))
    }
}

/// `validation loss 0.1000 in epoch 7`; empty if nothing was validated.
pub(super) fn best(run: &Run) -> String {
    let value = value(run);
    if value.is_empty() { value } else { format!("{} {value}", name(run)) }
}

/// The best value of each run. If all runs monitor the same metric, the title names it, otherwise each cell
/// does.
pub(super) fn column(runs: &[Run]) -> Column {
    let names = distinct(runs.iter().filter(|run| run.figure("best_value").is_some()).map(name));
    let column = match &names[..] {
        [name] => Column::of_numbers(&format!("best {name}"), runs.iter().map(value)),
        _ => Column::of_numbers("best", runs.iter().map(best)),
    };
    column.with_exact(runs.iter().map(|run| run.number("best_value")))
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
