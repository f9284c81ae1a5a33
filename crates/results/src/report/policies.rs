//! The cost of a logging policy: the runs of a sweep over `logging.policy`, each compared with the one that
//! logs nothing.
//!
//! Repeats of a sweep alternate (A B A B), with the same seed in each turn. A factor is computed within each
//! turn, so that it is not affected if the machine gets slower over time, and the factors' median and
//! interval are shown.

use std::collections::HashMap;

use super::{
    configurations::Configuration,
    grid::{self, Column, Columns},
    repeats::{axes, interval, interval_title, word},
    run::Run,
    speeds::times,
    statistics::Estimate,
};
use crate::units;

/// The axis of policies.
const POLICY: &str = "logging.policy";

/// The policy that the others are compared with, if it was run.
const NOTHING: &str = "off";

/// The table of costs, and its title.
pub(super) struct Costs {
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    /// Number of columns that identify the rows.
    keys: usize,
}

impl Costs {
    /// The table for a terminal of `width` columns.
    pub(super) fn table(&self, width: u16) -> String {
        grid::table(&self.columns, self.keys, width)
    }
}

/// The cost of a configuration's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    /// Its training time relative to that of the reference policy.
    factor: Option<Estimate>,
    /// Additional seconds per step.
    more_per_step_s: Option<Estimate>,
}

/// The costs of a job's configurations; `None` if policies were not swept.
pub(super) fn costs(runs: &[Run], configurations: &[Configuration]) -> Option<Costs> {
    let swept: Vec<Configuration> = configurations.iter().filter(|c| policy(c).is_some()).cloned().collect();
    let base = if swept.iter().any(|c| policy(c) == Some(NOTHING)) {
        NOTHING.to_owned()
    } else {
        policy(swept.first()?)?.to_owned()
    };
    if swept.iter().all(|c| policy(c) == Some(&base)) {
        return None;
    }
    // The first of equal ones counts.
    let bases = swept.iter().rev().filter(|c| policy(c) == Some(&base)).map(|c| (others(c), c));
    let bases: HashMap<_, &Configuration> = bases.collect();
    let row = |c| {
        let other = bases.get(&others(c)).filter(|_| policy(c) != Some(&base));
        (c, other.map(|other| cost(runs, c, other)).unwrap_or_default())
    };
    let rows: Vec<(&Configuration, Cost)> = swept.iter().map(row).collect();
    let title = interval_title(swept.iter().map(Configuration::count));
    let kind = swept.first()?.first(runs).kind();
    let [_, time, _] = grid::done(&[kind]);
    let each = if kind == "matmul" { "product" } else { "step" };
    let mut columns = Columns::new(&rows);
    columns.extend(axes(&swept));
    columns.numbers(time, |(c, _)| word(c.estimate(runs, "train_s"), units::seconds));
    columns.numbers(&title, |(c, _)| interval(c.estimate(runs, "train_s"), units::seconds));
    columns.numbers("logging", |(c, _)| word(c.estimate(runs, "logging_share"), units::percent));
    columns.numbers(&format!("{time} vs {base}"), |(_, cost)| word(cost.factor, times));
    columns.numbers(&title, |(_, cost)| interval(cost.factor, times));
    let to_nothing = base == NOTHING;
    columns.numbers(&format!("more per {each}"), |(_, cost)| more(cost.more_per_step_s, to_nothing));
    let (columns, keys) = (columns.known(), axes(&swept).len());
    Some(Costs { title: format!("what a logging policy costs, compared with `{base}`"), columns, keys })
}

fn policy(configuration: &Configuration) -> Option<&str> {
    configuration.axes.iter().find(|(key, _)| key == POLICY).map(|(_, value)| value.as_str())
}

/// All axes except the policy.
fn others(configuration: &Configuration) -> Vec<&(String, String)> {
    configuration.axes.iter().filter(|(key, _)| key != POLICY).collect()
}

fn cost(runs: &[Run], of: &Configuration, against: &Configuration) -> Cost {
    let time = |run: &Run| {
        run.number("train_s")
            .zip(run.number("steps"))
            .filter(|_| !run.is_virtual() && run.status == "finished")
    };
    let mut pairs = of.within_turns(against, runs, time);
    if pairs.len() < 2 {
        // One run of each is no repeat.
        pairs = time(of.first(runs)).zip(time(against.first(runs))).into_iter().collect();
    }
    let factors: Vec<f64> =
        pairs.iter().filter(|(_, (base, _))| *base > 0.0).map(|(own, base)| own.0 / base.0).collect();
    let more: Vec<f64> = pairs
        .iter()
        .filter(|((_, steps), (_, base_steps))| *steps > 0.0 && steps == base_steps)
        .map(|(own, base)| (own.0 - base.0) / own.1)
        .collect();
    Cost { factor: Estimate::from_values(&factors), more_per_step_s: Estimate::from_values(&more) }
}

/// Seconds by which a step takes longer or shorter, if that exceeds noise. Compared with no logging, it
/// cannot be shorter.
fn more(seconds: Option<Estimate>, to_nothing: bool) -> String {
    let is_noise = |estimate: Estimate| {
        let [low, high] = estimate.interval.unwrap_or([estimate.median; 2]);
        low <= 0.0 && (high >= 0.0 || to_nothing)
    };
    match seconds {
        Some(estimate) if is_noise(estimate) => "within noise".to_owned(),
        Some(estimate) if estimate.median < 0.0 => format!("-{}", units::seconds(-estimate.median)),
        estimate => word(estimate, units::seconds),
    }
}
