//! What the intervals and p-values of a ranking are, below its table.

use std::fmt::Write;

use super::{
    configurations::STOPPED,
    ranking::{Candidate, Ranking},
    statistics::coverage,
};
use crate::units;

/// A mean of this many values spreads almost normally, even if the values are skewed.
const MANY: usize = 30;

/// What the table's intervals and p-values are.
pub(super) fn notes(ranking: &Ranking) -> String {
    let counts = ranking.settings.iter().map(|setting| setting.samples.len()).filter(|&count| count > 1);
    let mut text = match ranking.metric.is_last {
        true => format!("  {} of the last epoch: only some of the runs monitor it\n", ranking.metric.name),
        false => String::new(),
    };
    if ranking.status == STOPPED {
        text += "  none of them finished: their sweep stopped them, some sooner than others\n";
    }
    let Some(fewest) = counts.min() else { return text };
    let is_paired = ranking.settings.iter().filter_map(|setting| setting.difference).all(|d| d.is_paired);
    text += &match (ranking.metric.is_learned, ranking.pairs) {
        (true, 0) => format!("  means over n {}s [95 %, Student]", ranking.each),
        (true, _) if is_paired => {
            format!("  means and paired differences over n {}s [95 %, Student]", ranking.each)
        }
        (true, _) => {
            format!("  means and differences over n {}s [95 %, Student]", ranking.each)
        }
        (false, _) => {
            format!("  medians of n runs [covered {} of the time]", units::percent(coverage(fewest)))
        }
    };
    if ranking.pairs > 0 {
        if !ranking.metric.is_learned {
            text += ", differences of means [95 %, Student]";
        }
        let pairs = units::counted(ranking.pairs as u64, "pair");
        let _ = write!(text, "; p by Holm, {pairs}"); // a String takes every write
        let is_apart = |setting: &&Candidate| {
            let interval = setting.difference.and_then(|difference| difference.interval);
            interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
        };
        if ranking.rivals().filter(|rival| rival.p.is_some()).any(|rival| is_apart(&rival)) {
            text += "\n  an interval is of its pair alone, p of all pairs: only p tells settings apart";
        }
    }
    if fewest < MANY && text.contains("Student") {
        text += "\n  Student's intervals assume values that spread normally";
    }
    if ranking.each == "fold" {
        text += "\n  folds share rows of training: the true intervals are wider, and p is larger (Nadeau and Bengio, 2003)";
    }
    text + "\n"
}
