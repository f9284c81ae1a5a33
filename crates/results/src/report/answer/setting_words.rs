//! Values and differences of settings in words, rounded alike in a table and in the sentences above it.

use std::ptr;

use crate::report::{
    metric::{Metric, Valued},
    ranking::{Candidate, Ranking},
    statistics::MeanDifference,
};

pub(in crate::report) struct SettingWords<'a> {
    metric: &'a Metric,
    of_differences: Metric,
    shown: &'a [&'a Candidate],
    /// The value of each with its interval.
    pub(in crate::report) values: Vec<String>,
    /// The difference of each from the best; `None` for the best itself.
    pub(in crate::report) differences: Vec<Option<String>>,
}

impl<'a> SettingWords<'a> {
    /// As a table has them in which these are `shown`.
    pub(in crate::report) fn new(ranking: &'a Ranking, shown: &'a [&'a Candidate]) -> Self {
        let metric = &ranking.metric;
        let values: Vec<Valued> = shown.iter().map(|setting| (setting.value, setting.interval)).collect();
        // What is equal but for rounding has no digits to show, and gives the others none.
        let told = |setting: &&Candidate| setting.difference.filter(|_| !ranking.equals_best(setting));
        let differences: Vec<MeanDifference> = shown.iter().filter_map(told).collect();
        let apart: Vec<Valued> = differences.iter().map(|own| (own.mean, own.interval)).collect();
        let of_differences = metric.of_differences();
        let words = differences.iter().zip(of_differences.in_column(&apart));
        let mut words = words.map(|(own, words)| signed(own, words)).collect::<Vec<_>>().into_iter();
        let in_words = |setting: &&Candidate| match told(setting) {
            Some(_) => words.next(),
            None => setting.difference.map(|_| "equal".to_owned()),
        };
        let differences = shown.iter().map(in_words).collect();
        Self { metric, of_differences, shown, values: metric.in_column(&values), differences }
    }

    /// The value of a setting, whether or not it is shown.
    pub(in crate::report) fn value(&self, setting: &Candidate) -> String {
        let shown = self.place(setting).map(|place| self.values[place].clone());
        shown.unwrap_or_else(|| self.metric.with_interval(setting.value, setting.interval))
    }

    /// The difference of a setting from the best; `None` of the best.
    pub(in crate::report) fn difference(&self, setting: &Candidate) -> Option<String> {
        let own = setting.difference?;
        let shown = self.place(setting).and_then(|place| self.differences[place].clone());
        Some(shown.unwrap_or_else(|| signed(&own, self.of_differences.with_interval(own.mean, own.interval))))
    }

    fn place(&self, setting: &Candidate) -> Option<usize> {
        self.shown.iter().position(|own| ptr::eq(*own, setting))
    }
}

/// With its interval, or else with its sign.
fn signed(difference: &MeanDifference, words: String) -> String {
    if difference.interval.is_none() && difference.mean > 0.0 { format!("+{words}") } else { words }
}
