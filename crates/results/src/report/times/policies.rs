//! The cost of a logging policy: the runs of a sweep over `logging.policy`, each compared with the one that
//! logs least.
//!
//! Repeats of a sweep alternate (A B A B), with the same seed in each turn. A factor is computed within each
//! turn, so that it is not affected if the machine gets slower over time, and the factors' median and
//! interval are shown. What a step takes more follows from the factor and from the median step of the reference.

use std::{cmp::Ordering, collections::HashMap};

use super::{
    noise::too_noisy,
    repeats::{axes, interval, interval_title, word},
};
use crate::{
    report::{
        answer::p_value,
        configurations::Configuration,
        grid::{self, Column, Columns},
        grouping::distinct,
        key::short,
        run::Run,
        speeds::times,
        statistics::{Estimate, fewest_for_verdict, sign_test_in_words, verdicts},
    },
    run::POLICY,
    units,
};

/// The others are compared with the first of these that was run: it brings the host nothing, or does so most rarely.
const LEAST_FIRST: [&str; 4] = [NOTHING, "per_epoch", "buffered", "immediate"];

const NOTHING: &str = "off";

/// The table of costs, and its title.
pub(in crate::report) struct Costs {
    pub(in crate::report) title: String,
    pub(in crate::report) columns: Vec<Column>,
    /// What the p-values are, or why there is no verdict.
    pub(in crate::report) note: String,
    /// Number of columns that identify the rows.
    keys: usize,
}

impl Costs {
    /// The table for a terminal of `width` columns, and the note.
    pub(in crate::report) fn table(&self, width: u16) -> String {
        format!("{}  {}\n", grid::table(&self.columns, self.keys, width), self.note)
    }
}

/// The cost of a configuration's policy.
#[derive(Clone, Debug, Default)]
struct Cost {
    /// Its training time relative to that of the reference policy, by turns.
    factors: Vec<f64>,
    /// Seconds of the reference's median step, if both made as many steps.
    base_step_s: Option<f64>,
    verdict: Option<(Ordering, f64)>,
}

impl Cost {
    fn factor(&self) -> Option<Estimate> {
        Estimate::from_values(&self.factors)
    }

    /// Additional seconds per step.
    fn more_per_step(&self) -> Option<Estimate> {
        let (factor, step_s) = (self.factor()?, self.base_step_s?);
        let more = |factor: f64| (factor - 1.0) * step_s;
        Some(Estimate {
            median: more(factor.median),
            interval: factor.interval.map(|ends| ends.map(more)),
            ..factor
        })
    }
}

/// The costs of a job's configurations; `None` if policies were not swept, or no times compare.
pub(in crate::report) fn costs(runs: &[Run], configurations: &[Configuration]) -> Option<Costs> {
    let swept: Vec<Configuration> = configurations.iter().filter(|c| policy(c).is_some()).cloned().collect();
    let base = LEAST_FIRST.into_iter().find(|name| swept.iter().any(|c| policy(c) == Some(name)))?;
    if swept.iter().all(|c| policy(c) == Some(base)) {
        return None;
    }
    // The first of equal ones counts.
    let bases = swept.iter().rev().filter(|c| policy(c) == Some(base)).map(|c| (others(c), c));
    let bases: HashMap<_, &Configuration> = bases.collect();
    let row = |c| {
        let other = bases.get(&others(c)).filter(|_| policy(c) != Some(base));
        (c, other.map(|other| cost(runs, c, other)).unwrap_or_default())
    };
    let mut rows: Vec<(&Configuration, Cost)> = swept.iter().map(row).collect();
    let note = judge(&mut rows, runs)?;
    let kind = swept.first()?.first(runs).kind();
    let [_, time, _] = grid::done(&[kind]);
    let each = if kind == "matmul" { "product" } else { "step" };
    let title = interval_title(rows.iter().map(|(_, cost)| cost.factors.len()));
    let mut columns = Columns::new(&rows);
    let mut keys = axes(&swept);
    let titles: Vec<String> = keys.iter().map(|column| column.title.clone()).collect();
    keys.iter_mut().zip(short(&titles)).for_each(|(column, title)| column.title = title.to_owned());
    columns.extend(keys.iter().cloned());
    columns.numbers(time, |(c, _)| word(c.estimate(runs, "train_s"), units::seconds));
    columns.numbers(&format!("vs {base}"), |(_, cost)| word(cost.factor(), times));
    columns.numbers(&title, |(_, cost)| interval(cost.factor(), times));
    columns.numbers(&format!("more per {each}"), |(_, cost)| word(cost.more_per_step(), signed_seconds));
    columns.numbers(&title, |(_, cost)| interval(cost.more_per_step(), signed_seconds));
    columns.numbers("p", |(_, cost)| cost.verdict.map(|(_, p)| p_value(p)).unwrap_or_default());
    let to_nothing = base == NOTHING;
    columns.words("verdict", |(_, cost)| match cost.verdict {
        Some((Ordering::Greater, _)) => "slower".to_owned(),
        // No step is faster because it logs.
        Some((Ordering::Less, _)) if !to_nothing => "faster".to_owned(),
        Some(_) => "within noise".to_owned(),
        None => String::new(),
    });
    let (columns, keys) = (columns.known(), keys.len());
    Some(Costs { title: format!("what a logging policy costs, compared with `{base}`"), columns, note, keys })
}

/// Gives each cost its verdict, if there can be one; returns the note on that. `None` if no
/// times compare: those of virtual devices do not.
fn judge(rows: &mut [(&Configuration, Cost)], runs: &[Run]) -> Option<String> {
    let judged: Vec<&Run> = rows.iter().flat_map(|(c, _)| &c.places).map(|&place| &runs[place]).collect();
    let mut compared: Vec<&mut Cost> =
        rows.iter_mut().map(|(_, cost)| cost).filter(|cost| !cost.factors.is_empty()).collect();
    let fewest = fewest_for_verdict(compared.len());
    let at_once = units::counted(compared.len() as u64, "comparison");
    if compared.is_empty() {
        return None;
    }
    if let Some(words) = too_noisy(judged.iter().copied()) {
        return Some(format!("no verdict: {words}"));
    }
    let turns = distinct(judged.iter().filter_map(|run| run.repeat())).len();
    let finished = compared.iter().map(|cost| cost.factors.len()).max().unwrap_or(0);
    if finished < fewest {
        return Some(match turns >= fewest {
            true => format!(
                "no verdict: {finished} of {turns} turns finished with both; {fewest} can tell {at_once} from noise"
            ),
            false => {
                format!(
                    "no verdict: {at_once} at once can be told from noise by `sweep.repeats={fewest}` or more"
                )
            }
        });
    }
    let factors: Vec<Vec<f64>> = compared.iter().map(|cost| cost.factors.clone()).collect();
    compared.iter_mut().zip(verdicts(&factors)).for_each(|(cost, verdict)| cost.verdict = Some(verdict));
    Some(sign_test_in_words(&at_once))
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
            .filter(|(train_s, _)| *train_s > 0.0 && !run.is_virtual() && run.status == "finished")
    };
    let mut pairs = of.within_turns(against, runs, time);
    if pairs.len() < 2 {
        // One run of each is no repeat.
        pairs = time(of.first(runs)).zip(time(against.first(runs))).into_iter().collect();
    }
    let have_equal_steps =
        pairs.iter().all(|((_, steps), (_, base_steps))| *steps > 0.0 && steps == base_steps);
    let base_steps: Vec<f64> = pairs.iter().map(|(_, (base_s, steps))| base_s / steps).collect();
    let base_step = Estimate::from_values(&base_steps).filter(|_| have_equal_steps);
    Cost {
        factors: pairs.iter().map(|(own, base)| own.0 / base.0).collect(),
        base_step_s: base_step.map(|step| step.median),
        verdict: None,
    }
}

fn signed_seconds(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", units::seconds(-seconds)) } else { units::seconds(seconds) }
}
