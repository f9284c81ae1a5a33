//! `--sort` and `--top`: which lines of a table are shown, and in what order.

use std::collections::HashMap;

use super::{
    ReportError,
    comparison::Comparison,
    key::{Key, short},
    logged::more_is_better,
    metric::Metric,
    ranking::{Candidate, Ranking},
    run::Run,
    statistics::Estimate,
};

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct Question {
    /// The metric to rank by; by default what the runs are judged by.
    pub metric: Option<String>,
    /// A column to sort by; descending with a leading `-`.
    pub sort: Option<String>,
    /// Maximum number of lines in a table.
    pub top: usize,
    /// Folds over everything except these keys.
    pub by: Vec<String>,
}

/// Lines of a table without `--top`.
pub const TOP: usize = 20;

impl Default for Question {
    fn default() -> Self {
        Self { metric: None, sort: None, top: TOP, by: Vec::new() }
    }
}

/// Where `--sort` puts the smallest value.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Direction {
    Ascending,
    Descending,
}

impl Direction {
    /// Also the column's name, without the `-` of the descending order.
    pub(super) fn from_sort(sort: &str) -> (Self, &str) {
        sort.strip_prefix('-').map_or((Self::Ascending, sort), |name| (Self::Descending, name))
    }

    /// The lines `0..count` in the order of their numbers, equal ones by their texts.
    pub(super) fn order<'t>(
        self,
        count: usize,
        number: impl Fn(usize) -> f64,
        text: impl Fn(usize) -> &'t str,
    ) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| number(a).total_cmp(&number(b)).then_with(|| text(a).cmp(text(b))));
        if self == Self::Descending {
            order.reverse();
        }
        order
    }
}

/// Figures shown beside the metric if there is room, with their titles.
pub(super) const BESIDE: [(&str, &str); 4] = [
    ("validation.accuracy", "accuracy"),
    ("validation.loss", "loss"),
    ("train_s", "time"),
    ("steps_per_s", "steps/s"),
];

impl Comparison {
    /// Which lines of a table are shown, in order. Each line has several runs, whose median is used for
    /// sorting.
    pub(super) fn shown(&self, question: &Question, lines: &[&[usize]]) -> Result<Vec<usize>, ReportError> {
        let mut shown: Vec<usize> = (0..lines.len()).collect();
        if let Some(word) = &question.sort {
            let (direction, word) = Direction::from_sort(word);
            let key = self.sorted_by(word)?;
            let value = |place: usize| key.value(&self.runs[place]);
            let text = |line: usize| lines[line].first().and_then(|&place| value(place)).unwrap_or_default();
            let number = |line: usize| {
                let numbers = lines[line].iter().filter_map(|&place| value(place)?.parse().ok());
                Estimate::from_values(&numbers.collect::<Vec<f64>>()).map_or(f64::INFINITY, |e| e.median)
            };
            shown = direction.order(lines.len(), number, text);
        }
        shown.truncate(question.top);
        Ok(shown)
    }

    /// What a word of `--sort` stands for: a key, a figure, or a title beside the metric.
    fn sorted_by(&self, word: &str) -> Result<Key, ReportError> {
        let beside = BESIDE.iter().find(|(_, title)| *title == word).map(|(name, _)| *name);
        Key::new(word, &self.runs).or_else(|e| match beside {
            Some(name) => Key::new(name, &self.runs),
            None => Err(e),
        })
    }

    /// A line below a table without its last lines, where these are the best by what it is sorted by.
    pub(super) fn worst_first(&self, question: &Question) -> Option<String> {
        let (direction, word) = Direction::from_sort(question.sort.as_deref()?);
        let key = self.sorted_by(word).ok()?;
        let is_more =
            direction == Direction::Ascending && more_is_better(key.name()) && key.is_outcome(&self.runs);
        is_more.then(|| format!("  the lowest come first: `--sort=-{word}` takes the best\n"))
    }

    /// The settings that a question shows, in its order.
    pub(super) fn shown_settings<'a>(
        &self,
        ranking: &'a Ranking,
        question: &Question,
    ) -> Result<Vec<&'a Candidate>, ReportError> {
        let places: Vec<&[usize]> = ranking.settings.iter().map(|setting| &setting.places[..]).collect();
        let order = ranking.by_title(question).map_or_else(|| self.shown(question, &places), Ok)?;
        Ok(order.into_iter().map(|place| &ranking.settings[place]).collect())
    }

    /// The runs that a question shows: in its order, else those of the best setting first where it names a metric or takes fewer
    /// than all. Only runs that finished can be the best.
    pub(super) fn shown_runs(&self, question: &Question) -> Result<Vec<usize>, ReportError> {
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        let takes_best = question.top < order.len() && question.sort.is_none() && !self.is_about_times();
        let metric = match &question.metric {
            Some(name) => Some(Metric::new(name, &self.runs)?),
            None if takes_best => match &Metric::declared(&self.runs, &order)[..] {
                [(metric, _)] => Some(metric.clone()),
                _ => None,
            },
            None => None,
        };
        if let Some(metric) = metric {
            let ranking = Ranking::sorted(self, &order, &metric, &[])?;
            let ranked = ranking.settings.iter().flat_map(|setting| &setting.places).copied();
            let rank: HashMap<usize, usize> = ranked.zip(0..).collect();
            let cost = |run: &Run| metric.value(run).map_or(f64::INFINITY, |value| metric.cost(value));
            order.sort_by(|&a, &b| {
                let [rank_a, rank_b] = [a, b].map(|place| rank.get(&place).copied().unwrap_or(usize::MAX));
                rank_a.cmp(&rank_b).then_with(|| cost(&self.runs[a]).total_cmp(&cost(&self.runs[b])))
            });
        }
        let lines: Vec<&[usize]> = order.iter().map(std::slice::from_ref).collect();
        Ok(self.shown(question, &lines)?.into_iter().map(|line| order[line]).collect())
    }
}

impl Ranking {
    /// The settings that a question shows, where it orders them by the title of a column that is of settings, not of runs.
    fn by_title(&self, question: &Question) -> Option<Vec<usize>> {
        let sort = question.sort.as_deref()?;
        let (direction, word) = Direction::from_sort(sort);

        if short(&self.keys).contains(&word) || self.keys.iter().any(|key| key == word) {
            return None;
        }
        let figure: &dyn Fn(&Candidate) -> f64 = match word {
            "n" => &|own| own.samples.len() as f64,
            "p-value" => &|own| own.p.unwrap_or(f64::INFINITY),
            "vs best" => &|own| own.difference.map_or(0.0, |difference| difference.mean),
            title if title == self.metric.name => &|own| own.value,
            _ => return None,
        };
        let mut order = direction.order(self.settings.len(), |own| figure(&self.settings[own]), |_| "");
        order.truncate(question.top);
        Some(order)
    }
}
