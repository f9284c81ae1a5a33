//! Notes below a ranking's table, which explain its intervals and p-values.

use std::fmt::Write;

use crate::{
    report::{
        comparison::Comparison,
        configurations::{FINISHED, STOPPED},
        grouping::{distinct, grouped},
        metric::Metric,
        ranking::{Candidate, Ranking},
        run::{RUNNING, Run, UNFINISHED},
        statistics::Dependence,
    },
    run::SampleUnit,
    units,
};

/// A mean of this many values is almost normally distributed, even if the values are skewed.
const MANY: usize = 30;

/// Why folds in the order of rows have no intervals.
pub(in crate::report) const IN_ORDER: &str = "  folds in the order of rows train on ever more, each on those of the one before: no interval or p-value is known to hold";

/// Says that values are not those of the runs' best epochs; empty if they are.
pub(in crate::report) fn last_epoch(metric: &Metric) -> String {
    match metric.is_last {
        true => format!("  {} of the last epoch: only some of the runs monitor it\n", metric.name),
        false => String::new(),
    }
}

/// Whether the values are of the last epoch, though the best epoch is known: a metric that is no column of metrics.csv has no other
/// value.
pub(in crate::report) fn is_of_last_epoch<'a>(metric: &Metric, runs: impl Iterator<Item = &'a Run>) -> bool {
    let name = metric.full_name();
    let has_other = |run: &Run| {
        run.figure("best_epoch").is_some() && run.monitor() != name && run.at_best(name).is_none()
    };
    let mut runs = runs.filter(|run| metric.value(run).is_some());
    metric.is_last || (name.starts_with("validation.") && runs.any(has_other))
}

/// Says which epoch the values are from.
fn epoch(comparison: &Comparison, ranking: &Ranking) -> String {
    let metric = &ranking.metric;
    if metric.is_last {
        return last_epoch(metric);
    }
    let runs = || ranking.settings.iter().flat_map(|own| &own.places).map(|&place| &comparison.runs[place]);
    let has_best = |run: &&Run| run.at_best(metric.full_name()).is_some();
    let monitored = distinct(runs().filter(has_best).map(|run| format!("`{}`", run.monitor())));
    if monitored.is_empty() {
        let words = "of the last epoch: `logging.metrics` records it for each run's best epoch";
        let is_so = is_of_last_epoch(metric, runs());
        return if is_so { format!("  {} {words}\n", metric.name) } else { String::new() };
    }
    let others =
        if runs().all(|run| has_best(&run)) { "" } else { ", of the last epoch where that is not known" };
    format!("  {} at each run's best {}{others}\n", metric.name, monitored.join(" or "))
}

/// Says that the rows which choose an epoch flatter it; empty where runs validate once, or the last value counts.
fn optimism(comparison: &Comparison, ranking: &Ranking) -> String {
    let metric = &ranking.metric;
    let runs = ranking.settings.iter().flat_map(|own| &own.places).map(|&place| &comparison.runs[place]);
    let name = metric.full_name();
    let is_chosen = |run: &&Run| {
        let is_monitored = run.monitor() == name && run.figure("best_value").is_some();
        !metric.is_last && name.starts_with("validation.") && (is_monitored || run.at_best(name).is_some())
    };
    match runs.filter(is_chosen).filter_map(Run::validations).max() {
        Some(most @ 2..) => format!(
            "  each run counts with the best of up to {} validations on the rows that judge it, which is optimistic: \
             `runner evaluate` on rows that `data.split.test` sets aside is not\n",
            units::count(most)
        ),
        _ => String::new(),
    }
}

impl Run {
    /// How often it validated; `None` if it did so at its end alone.
    fn validations(&self) -> Option<u64> {
        let count = |key: &str, figure: &str| {
            let every: u64 = self.axis(key)?.parse().ok().filter(|every| *every > 0)?;
            Some((self.number(figure)? as u64).div_ceil(every))
        };
        let by_steps = count("trainer.validate_every_steps", "steps");
        by_steps.or_else(|| count("trainer.validate_every_epochs", "epochs"))
    }
}

/// What the table's values, intervals and p-values are.
pub(in crate::report) fn notes(comparison: &Comparison, ranking: &Ranking) -> String {
    let mut text = epoch(comparison, ranking);
    if ranking.status == STOPPED {
        text += "  none of them finished: their sweep stopped them, some sooner than others\n";
    }
    if ranking.settings.iter().all(|setting| setting.samples.len() < 2) {
        return text;
    }
    let is_paired = ranking.settings.iter().filter_map(|setting| setting.difference).all(|d| d.pairs > 0);
    text += &optimism(comparison, ranking);
    let what = |has_differences| match has_differences {
        false => "means",
        true if is_paired => "means and paired differences",
        true => "means and differences",
    };
    if ranking.settings.iter().any(Candidate::is_in_order) {
        let what = what(ranking.settings.len() > 1);
        let each = ranking.each;
        return text + &format!("  {what} over n {each}s [lowest, highest]\n{IN_ORDER}\n");
    }
    let what = what(ranking.pairs > 0);
    if ranking.settings.iter().all(|setting| setting.samples.len() < 2 || setting.lacks_rows()) {
        return text + &format!("  {what} over n {}s\n", ranking.each);
    }
    let _ = write!(text, "  {what} over n {}s [95 %, Student]", ranking.each); // a String takes every write
    if ranking.pairs > 0 {
        let pairs = units::counted(ranking.pairs as u64, "pair");
        let _ = write!(text, "; p by Holm, {pairs}"); // writing to a String cannot fail
        let is_apart =
            |setting: &&Candidate| setting.difference.is_some_and(|difference| difference.excludes_0());
        if ranking.rivals().filter(|rival| rival.p.is_some()).any(|rival| is_apart(&rival)) {
            text += "\n  an interval is of its pair alone, p of all pairs: only p tells settings apart";
        }
    }
    if ranking.settings.iter().filter_map(|own| own.difference).any(|own| own.is_sign_test()) {
        text +=
            &format!("\n  a difference that is the same in every {} has the p of a sign test", ranking.each);
    }
    let counts = ranking.settings.iter().map(|setting| setting.samples.len()).filter(|&count| count > 1);
    if counts.min().is_some_and(|fewest| fewest < MANY) {
        text += "\n  Student's intervals assume normally distributed values";
    }
    let intervals = ranking.settings.iter().filter_map(|setting| setting.interval);
    if let Some(words) = ranking.metric.cut_words(intervals) {
        let _ = write!(text, "\n  {words}"); // writing to a String cannot fail
    }
    if ranking.each == SampleUnit::Split {
        text += "\n  seeds of the same validation rows count as one split, by their mean";
    }
    text.extend(shared_training(ranking.settings.iter()).map(|words| format!("\n  {words}")));
    text + "\n"
}

/// What intervals allow for where splits or folds are drawn from one table.
pub(in crate::report) fn shared_training<'a>(
    mut settings: impl Iterator<Item = &'a Candidate>,
) -> Option<String> {
    let redrawn = settings.find(|own| matches!(own.dependence, Dependence::Redrawn(_)))?;
    Some(format!(
        "{}s have other validation rows of the same data: intervals and p allow for the training rows that they share \
         (Nadeau and Bengio, 2003)",
        redrawn.each
    ))
}

impl Comparison {
    /// `; so far #1 lr 0.03, validation loss 0.4653`: the best of the runs that are under way.
    pub(in crate::report) fn so_far(&self, ranking: &Ranking) -> String {
        let metric = &ranking.metric;
        let running = ranking.left_out.iter().filter(|&&place| self.runs[place].status == RUNNING);
        let values = running.filter_map(|&place| Some((place, metric.value(&self.runs[place])?)));
        let best = values.min_by(|a, b| metric.cost(a.1).total_cmp(&metric.cost(b.1)));
        let words = best.map(|(place, value)| {
            let values = ranking.keys.iter().map(|key| self.runs[place].axis(key).unwrap_or_default());
            let name = ranking.name_of(self, &[place], values);
            format!("; so far {name}, {} {}", metric.name, metric.word(value))
        });
        words.unwrap_or_default()
    }

    /// Lists runs that are not in the table, by how they ended.
    pub(in crate::report) fn left_out(&self, ranking: &Ranking) -> String {
        const FINAL: &str = "final model";
        let ended = ranking.left_out.iter().map(|&place| match &self.runs[place] {
            run if run.status == FINISHED && run.is_final_model() => (FINAL, place),
            run => (run.status.as_str(), place),
        });
        let word = |(status, places): &(&str, Vec<usize>)| {
            let numbers = self.numbers(places);
            let status = match *status {
                FINAL if places.len() > 1 => format!("{FINAL}s"),
                FINISHED => format!("without {}", ranking.metric.name),
                status => status.to_owned(),
            };
            let cost = |value: f64| ranking.metric.cost(value);
            let values =
                places.iter().filter_map(|&place| Some((place, ranking.metric.value(&self.runs[place])?)));
            let best = values.min_by(|a, b| cost(a.1).total_cmp(&cost(b.1)));
            let so_far = best.filter(|_| {
                [UNFINISHED, RUNNING, "interrupted", "waiting", STOPPED].contains(&status.as_str())
            });
            let of = |place: usize| match places.len() {
                1 => String::new(),
                _ => format!(" of {}", self.numbered(&[place])),
            };
            let so_far = so_far
                .map(|(place, best)| format!(", best so far {}{}", ranking.metric.word(best), of(place)));
            let so_far = so_far.unwrap_or_default();
            format!("{} {status} ({numbers}{so_far})", units::count(places.len() as u64))
        };
        let words: Vec<String> = grouped(ended).iter().map(word).collect();
        if words.is_empty() { String::new() } else { format!("  not ranked: {}\n", words.join("; ")) }
    }
}
