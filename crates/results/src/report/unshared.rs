//! What two sweeps do not share: the settings of one alone, and its best.

use std::collections::HashSet;

use super::{
    comparison::Comparison,
    metric::Metric,
    ranking::{Candidate, Ranking},
};
use crate::units;

/// `best #3 lr 0.01, 0.0611 [0.0590, 0.0632]; not shared: 2 settings (#1, 2)`; empty if no run can be ranked.
pub(super) fn unshared(sweep: &Comparison, shared: &[&Candidate], metric: &Metric) -> String {
    let places: Vec<usize> = (0..sweep.runs.len()).collect();
    let Ok(ranking) = Ranking::new(sweep, &places, metric, &[]) else { return String::new() };
    let Some(best) = ranking.settings.first() else { return String::new() };
    let value = metric.with_interval(best.value, best.interval);
    let shared: HashSet<usize> = shared.iter().flat_map(|setting| setting.places.iter().copied()).collect();
    let is_alone = |setting: &&Candidate| setting.places.iter().all(|place| !shared.contains(place));
    let alone = ranking.settings.iter().filter(is_alone);
    let places: Vec<usize> = alone.map(|setting| setting.places[0]).collect();
    let alone = match places.len() {
        0 => String::new(),
        count => {
            let settings = units::counted(count as u64, "setting");
            format!("; not shared: {settings} ({})", sweep.numbers(&places))
        }
    };
    format!("best {}, {value}{alone}", ranking.name(sweep, best))
}
