//! Compares settings in pairs: differences from the best, and p-values that allow for its choice among all.

use std::collections::HashMap;

use super::{Candidate, Ranking};
use crate::report::{ReportError, comparison::Comparison, metric::Metric, statistics::holm};

/// With more pairs, only those with the best setting are tested; all others count as behind them, which makes p larger.
const MOST_PAIRS: usize = 1_000_000;

impl Ranking {
    /// Ranks the runs at `places`, folded over everything except the keys of `by`, or over seeds if there are
    /// none, and compares each setting with the best.
    pub(in crate::report) fn new(
        comparison: &Comparison,
        places: &[usize],
        metric: &Metric,
        by: &[String],
    ) -> Result<Self, ReportError> {
        let mut ranking = Self::sorted(comparison, places, metric, by)?;
        ranking.pairs = compare_with_best(&mut ranking.settings);
        Ok(ranking)
    }
}

/// Computes the differences from the first setting, and returns the number of pairs among which the first was
/// found; pairs of other rows are none.
pub(in crate::report) fn compare_with_best(settings: &mut [Candidate]) -> usize {
    let repeated = settings.iter().filter(|setting| setting.samples.len() > 1).count();
    let Some((best, others)) = settings.split_first_mut() else { return 0 };
    for other in others.iter_mut() {
        other.difference = Some(other.minus(best, 1.0));
    }
    if !best.dependence.has_interval() {
        return 0;
    }
    let pairs = repeated * repeated.saturating_sub(1) / 2;
    // Pairs with the best setting come first; the others are needed only for their ranks.
    let all: Vec<&Candidate> = std::iter::once(&*best).chain(&*others).collect();
    // A single value has no spread: of 100,000 settings with one each there is nothing to test.
    let several: Vec<usize> = (0..all.len()).filter(|&own| all[own].samples.len() > 1).collect();
    let firsts = several.iter().filter(|&&own| pairs <= MOST_PAIRS || own == 0);
    let tested = firsts.flat_map(|&i| several.iter().filter(move |&&j| j > i).map(move |&j| (i, j)));
    let mut apart = 0;
    let mut of_other_rows: HashMap<[usize; 2], bool> = HashMap::new();
    let tested = tested.filter(|&(i, j)| {
        let classes = [all[i], all[j]].map(|setting| setting.rows.class());
        let is_apart = *of_other_rows.entry(classes).or_insert_with(|| all[i].is_of_other_rows(all[j]));
        apart += usize::from(is_apart);
        !is_apart
    });
    let tested = tested.filter_map(|(i, j)| Some(((i, j), all[j].p_of_difference(all[i])?)));
    let (tested, p): (Vec<(usize, usize)>, Vec<f64>) = tested.unzip();
    let pairs = pairs - apart;
    for ((i, j), p) in tested.into_iter().zip(holm(&p, pairs)) {
        if i == 0 {
            others[j - 1].p = Some(p);
        }
    }
    pairs
}
