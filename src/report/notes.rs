//! Notes below a ranking's table, which explain its intervals and p-values.

use std::fmt::Write;

use super::{
    configurations::STOPPED,
    ranking::{Candidate, Ranking},
};
use crate::units;

/// A mean of this many values is almost normally distributed, even if the values are skewed.
const MANY: usize = 30;

/// What the table's intervals and p-values are.
pub(super) fn notes(ranking: &Ranking) -> String {
    let mut text = match ranking.metric.is_last {
        true => format!("  {} of the last epoch: only some of the runs monitor it\n", ranking.metric.name),
        false => String::new(),
    };
    if ranking.status == STOPPED {
        text += "  none of them finished: their sweep stopped them, some sooner than others\n";
    }
    if ranking.settings.iter().all(|setting| setting.samples.len() < 2) {
        return text;
    }
    let is_paired = ranking.settings.iter().filter_map(|setting| setting.difference).all(|d| d.is_paired);
    let what = match ranking.pairs {
        0 => "means",
        _ if is_paired => "means and paired differences",
        _ => "means and differences",
    };
    let _ = write!(text, "  {what} over n {}s [95 %, Student]", ranking.each); // a String takes every write
    if ranking.pairs > 0 {
        let pairs = units::counted(ranking.pairs as u64, "pair");
        let _ = write!(text, "; p by Holm, {pairs}"); // writing to a String cannot fail
        let is_apart = |setting: &&Candidate| {
            let interval = setting.difference.and_then(|difference| difference.interval);
            interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
        };
        if ranking.rivals().filter(|rival| rival.p.is_some()).any(|rival| is_apart(&rival)) {
            text += "\n  an interval is of its pair alone, p of all pairs: only p tells settings apart";
        }
    }
    let counts = ranking.settings.iter().map(|setting| setting.samples.len()).filter(|&count| count > 1);
    if counts.min().is_some_and(|fewest| fewest < MANY) {
        text += "\n  Student's intervals assume normally distributed values";
    }
    if ranking.each == "fold" {
        text += "\n  folds share rows of training: the true intervals are wider, and p is larger (Nadeau and Bengio, 2003)";
    }
    text + "\n"
}
