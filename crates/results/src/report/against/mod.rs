//! `compare A B`: the second of two sweeps against the first, setting by setting, and what sets the two apart.

mod apart;
mod matched;

pub(super) use matched::{Matched, Pair, Unjudged};

use std::collections::HashSet;

use super::{
    ReportError,
    answer::{IN_ORDER, OTHER_ROWS, SAME_ROWS, last_epoch, more, p_value, shared_training},
    comparison::Comparison,
    export::{Format, written},
    grid::{self, Column},
    grouping::distinct,
    key::short,
    metric::Metric,
    order::{Direction, Question},
    ranking::{Candidate, Ranking},
    statistics::{ALPHA, holm},
    text::section,
};
use crate::{host::escape_line, run::SampleUnit, units};
use apart::{Apart, SWEEPS};

/// Columns behind the keys.
const FIGURES: [&str; 5] = ["n", "first", "second", "difference", "p-value"];

/// Maximum lines on settings some of whose runs have no result.
const MOST_LOST: usize = 8;

/// The second group against the first.
pub struct Against<'a> {
    matched: Matched,
    metric: Metric,
    /// The p-values of the differences, corrected.
    p: Vec<Option<f64>>,
    /// Which of the pairs are shown, in what order.
    shown: Vec<usize>,
    /// Whether the two learn different tasks: then nothing tests their differences.
    are_tasks: bool,
    /// Sentences about what makes the two no fair comparison.
    warnings: Vec<String>,
    /// Sentences on what the intervals do not say.
    caveats: Vec<String>,
    apart: Apart,
    base: &'a Comparison,
    own: &'a Comparison,
}

impl<'a> Against<'a> {
    /// `Err` within `Ok` says that the two share no setting.
    ///
    /// # Errors
    /// No run has the metric, or the question orders by no column of the table.
    pub fn new(
        own: &'a Comparison,
        base: &'a Comparison,
        question: &Question,
    ) -> Result<Result<Self, String>, ReportError> {
        let metric = own.metric_against(base, question.metric.as_deref())?;
        let judged_apart = match &question.metric {
            Some(_) => None,
            None => own.judged_apart_from(base)?,
        };
        let matched = Matched::new(own, base, &metric, &[])?;
        if let Some(words) = matched.share_nothing() {
            return Ok(Err(words));
        }
        let pairs: Vec<_> = matched.pairs.iter().map(|pair| [&pair.base, &pair.own]).collect();
        let apart = Apart::new(&matched.keys, &pairs, [base, own], &metric);
        let has_other_rows = apart.task.is_none() && matched.have_other_rows();
        let rows = has_other_rows.then(|| format!("2 {OTHER_ROWS} (first; second): {SAME_ROWS}"));
        let task = apart.task.iter().cloned().chain(rows);
        let are_tasks = apart.task.is_some() || has_other_rows;
        let tested = |pair: &Pair| pair.difference.p.filter(|_| !are_tasks);
        let known: Vec<f64> = matched.pairs.iter().filter_map(tested).collect();
        let mut corrected = holm(&known, known.len()).into_iter();
        let p = matched.pairs.iter().map(|pair| tested(pair).and_then(|_| corrected.next()));
        let p = p.collect();
        let warnings = task.chain(judged_apart).collect();
        let caveats = matched.caveats(&metric, [own, base], ["second", "first"]);
        let mut against =
            Self { p, shown: Vec::new(), are_tasks, warnings, caveats, apart, matched, metric, base, own };
        against.shown = against.order(question)?;
        Ok(Ok(against))
    }

    fn order(&self, question: &Question) -> Result<Vec<usize>, ReportError> {
        let pairs = &self.matched.pairs;
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        if let Some(sort) = &question.sort {
            let (direction, word) = Direction::from_sort(sort);
            let names = short(&self.matched.keys);
            let key =
                names.iter().zip(&self.matched.keys).position(|(name, key)| *name == word || key == word);
            let text = |pair: usize| key.map_or("", |key| pairs[pair].own.values[key].as_str());
            let number = |pair: usize| match word {
                _ if key.is_some() => text(pair).parse().unwrap_or(f64::INFINITY),
                "n" => pairs[pair].own.samples.len() as f64,
                "first" => pairs[pair].base.value,
                "second" => pairs[pair].own.value,
                "difference" => pairs[pair].difference.mean,
                _ => self.p[pair].unwrap_or(f64::INFINITY),
            };
            if key.is_none() && !FIGURES.contains(&word) {
                let columns = [&names[..], &FIGURES].concat().join(", ");
                let message = format!("the settings of two sweeps have no column `{word}`");
                return Err(ReportError::query(message, Some(&format!("`--sort` takes one of {columns}"))));
            }
            order = direction.order(pairs.len(), number, text);
        }
        order.truncate(question.top);
        Ok(order)
    }

    /// For a terminal of `width` columns.
    pub fn text(&self, width: u16) -> String {
        let Matched { keys, pairs, .. } = &self.matched;
        let counted = units::counted(pairs.len() as u64, "shared setting");
        let is_in_order = pairs.iter().any(Pair::is_in_order);
        let better = |sign: f64| {
            let differs = |(pair, p): &(&Pair, &Option<f64>)| {
                let is_clear =
                    p.map_or(is_in_order && !self.are_tasks && pair.difference.excludes_0(), |p| p < ALPHA);
                // The seeds that it lacks may be the worst.
                let is_whole = pair.without_result[usize::from(sign < 0.0)].is_empty();
                is_clear && is_whole && sign * self.metric.cost(pair.difference.mean) < 0.0
            };
            pairs.iter().zip(&self.p).filter(differs).count()
        };
        let mut text: String = self.warnings.iter().map(|words| format!("{words}\n")).collect();
        let space = if text.is_empty() { "" } else { "\n" };
        text += &format!(
            "{space}{counted}, {}: second better in {}, worse in {}, unclear in {}\n",
            self.metric.name,
            better(1.0),
            better(-1.0),
            pairs.len() - better(1.0) - better(-1.0)
        );
        text.extend(self.caveats.iter().map(|words| format!("  {words}\n")));
        let of_base = pairs.iter().map(|pair| &pair.base).collect::<Vec<_>>();
        let of_own = pairs.iter().map(|pair| &pair.own).collect::<Vec<_>>();
        for (name, (group, shared)) in SWEEPS.iter().zip([(self.base, of_base), (self.own, of_own)]) {
            let folders = distinct(group.runs.iter().filter_map(|run| run.sweep.as_deref())).join(", ");
            text += &format!("  {name:<6}  {}\n", escape_line(&folders));
            text += &format!("          {}\n", unshared(group, &shared, &self.metric));
        }
        text += &format!("\n{}", grid::table(&self.columns(), keys.len(), width));
        text += &more(&self.shown, pairs.len(), "shared setting");
        text.extend(self.lost().iter().map(|words| format!("  {words}\n")));
        text += &self.of_intervals();
        text += &last_epoch(&self.metric);
        section(&mut text, "differences of spec", self.apart.spec.clone());
        text
    }

    /// What the intervals and p-values of the differences are.
    fn of_intervals(&self) -> String {
        let pairs = &self.matched.pairs;
        let is_in_order = pairs.iter().any(Pair::is_in_order);
        let tested = || pairs.iter().filter(|pair| pair.difference.p.is_some());
        let paired = tested().filter(|pair| pair.difference.pairs > 0).count();
        let units = distinct(tested().map(|pair| pair.own.each));
        let each = if let [each] = units[..] { each } else { SampleUnit::Seed };
        let how = match paired {
            0 => "unpaired".to_owned(),
            _ if paired == tested().count() => format!("paired by {each}"),
            _ => format!("paired by {each} where {each}s are shared"),
        };
        let mut text = match pairs.iter().find(|pair| pair.difference.p.is_none()) {
            Some(_) if is_in_order => {
                let are_paired = pairs.iter().any(|pair| pair.difference.pairs > 0);
                let how = if are_paired {
                    "differences of means, paired by fold [lowest, highest]"
                } else {
                    "differences of means over other folds: no range"
                };
                format!("  {how}\n{IN_ORDER}\n")
            }
            Some(pair) if tested().next().is_none() => format!("  {}\n", pair.too_few()),
            _ => {
                let p = if self.are_tasks { "" } else { "; p by Holm" };
                format!("  differences of means, {how} [95 %, Student]{p}\n")
            }
        };
        let settings = pairs.iter().flat_map(|pair| [&pair.own, &pair.base]);
        text.extend(shared_training(settings).map(|words| format!("  {words}\n")));
        text
    }

    /// Sentences about what makes the two no fair comparison, with which the text begins, and about what the intervals do not say.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        self.warnings.iter().chain(&self.caveats)
    }

    /// Sentences about settings some of whose runs have no result.
    pub fn lost(&self) -> Vec<String> {
        let lost = self.matched.lost_in_words([self.own, self.base], ["second: ", "first: "]);
        let mut lines: Vec<String> = lost.into_iter().map(|lost| lost.words).collect();
        let more = lines.len().saturating_sub(MOST_LOST);
        lines.truncate(MOST_LOST);
        lines.extend(
            (more > 0)
                .then(|| format!("runs without result in {}", units::counted(more as u64, "more setting"))),
        );
        lines
    }

    /// The table in a format of text.
    pub fn export(&self, format: Format) -> String {
        written(&self.columns(), format)
    }

    fn columns(&self) -> Vec<Column> {
        let pairs = || self.shown.iter().map(|&pair| &self.matched.pairs[pair]);
        let column =
            |title: &str, cell: &dyn Fn(&Pair) -> String| Column::of_numbers(title, pairs().map(cell));
        let mut columns: Vec<Column> = short(&self.matched.keys)
            .into_iter()
            .enumerate()
            .map(|(key, title)| column(title, &|pair| pair.own.values[key].clone()))
            .collect();
        let count = |pair: &Pair| {
            let [base, own] = [&pair.base, &pair.own].map(|setting| setting.samples.len());
            let counts = if base == own { own.to_string() } else { format!("{base}, {own}") };
            match pair.difference.pairs {
                0 => counts,
                shared if shared == base && shared == own && !pair.difference.is_of_some => counts,
                shared => format!("{counts}, {shared} shared"),
            }
        };
        let of_differences = self.metric.of_differences();
        let value = |setting: &Candidate| self.metric.with_interval(setting.value, setting.interval);
        let [n, first, second, difference, title_of_p] = FIGURES;
        columns.push(column(n, &count));
        columns.push(column(first, &|pair| value(&pair.base)));
        columns.push(column(second, &|pair| value(&pair.own)));
        columns.push(column(difference, &|pair| {
            of_differences.with_interval(pair.difference.mean, pair.difference.interval)
        }));
        if self.p.iter().any(Option::is_some) {
            let p = self.shown.iter().map(|&pair| self.p[pair].map(p_value).unwrap_or_default());
            columns.push(Column::of_numbers(title_of_p, p));
        }
        columns
    }
}

/// `best #3 lr 0.01, 0.0611 [0.0590, 0.0632]; not shared: 2 settings (#1, 2)`; empty if no run can be ranked.
fn unshared(sweep: &Comparison, shared: &[&Candidate], metric: &Metric) -> String {
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
