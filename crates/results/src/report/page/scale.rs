//! What is drawn over a sweep's axes, and where values stand on them.

use super::heat::SHADES;
use crate::{
    report::{
        comparison::Comparison,
        configurations::STOPPED,
        grouping::{distinct, levels},
        plot::{Axis, shortened, tick_label},
        ranking::Ranking,
    },
    units,
};

/// Maximum characters of a value beside an axis.
const MOST_CHARACTERS: usize = 12;

/// Numbers with more characters are rounded beside an axis.
const MOST_DIGITS: usize = 6;

/// Maximum labels beside an axis with equally spaced values.
const MOST_LABELS: usize = 12;

/// Maximum number of values that are equally spaced; more numbers are placed on a continuous scale.
const MOST_LEVELS: usize = 8;

/// Maximum settings in a chart; if there are more, the best are drawn.
pub(super) const MOST_SETTINGS: usize = 500;

/// The settings of a ranking, and beside them the trials that their sweep stopped early.
pub(super) struct Drawn<'a> {
    pub(super) ranking: &'a Ranking,
    /// The best first, as many as are drawn.
    pub(super) stopped: Vec<Stopped>,
    /// How many were stopped.
    all_stopped: usize,
    /// By key of the ranking, how its sweep chooses its values; `None` where it does not say.
    choices: Vec<Option<Choice>>,
}

/// How a sweep chooses the values of an axis.
#[derive(Clone, Copy)]
struct Choice {
    /// Evenly on a logarithmic axis.
    by_factors: bool,
    /// Draws from a range rather than a list.
    draws: bool,
}

/// A trial that was stopped.
pub(super) struct Stopped {
    pub(super) name: String,
    /// By key of the ranking.
    pub(super) values: Vec<String>,
    /// The best that it reached.
    pub(super) value: f64,
}

impl<'a> Drawn<'a> {
    pub(super) fn new(comparison: &Comparison, ranking: &'a Ranking) -> Self {
        let stopped = ranking.left_out.iter().filter_map(|&place| {
            let run = &comparison.runs[place];
            let value = ranking.metric.value(run).filter(|_| run.status == STOPPED)?;
            let values = ranking.keys.iter().map(|key| run.axis(key).unwrap_or("-").to_owned()).collect();
            Some(Stopped { name: ranking.name_left_out(comparison, place, false), values, value })
        });
        let mut stopped: Vec<Stopped> = stopped.collect();
        stopped.sort_by(|a, b| ranking.metric.cost(a.value).total_cmp(&ranking.metric.cost(b.value)));
        let all_stopped = stopped.len();
        stopped.truncate(MOST_SETTINGS.saturating_sub(ranking.settings.len()));
        let sweep = ranking.settings.first().and_then(|best| comparison.sweep_spec(best.places[0]));
        let choices = ranking.keys.iter().map(|key| {
            let (name, _) = sweep.as_ref()?.get(&format!("sweep.grid.{key}"))?.split_once('(')?;
            let (by_factors, draws) = match name.trim() {
                "loguniform" => (true, true),
                "logspace" => (true, false),
                "uniform" => (false, true),
                "linspace" => (false, false),
                _ => return None,
            };
            Some(Choice { by_factors, draws })
        });
        Self { ranking, stopped, all_stopped, choices: choices.collect() }
    }

    pub(super) fn of_settings(ranking: &'a Ranking) -> Self {
        Self { ranking, stopped: Vec::new(), all_stopped: 0, choices: vec![None; ranking.keys.len()] }
    }

    /// What is drawn otherwise, or not at all.
    pub(super) fn notes(&self) -> Vec<String> {
        let trials = units::counted(self.all_stopped as u64, "trial");
        let stopped = match self.stopped.len() {
            _ if self.all_stopped == 0 => None,
            0 => Some(format!("Not drawn: {trials} that their sweep stopped early.")),
            drawn => {
                let best =
                    if drawn < self.all_stopped { format!("the best {drawn} of ") } else { String::new() };
                Some(format!(
                    "Hollow: {best}{trials} that their sweep stopped early, at the best value that each had reached."
                ))
            }
        };
        let all = self.ranking.settings.len();
        let cut = (all > MOST_SETTINGS)
            .then(|| format!("The best {MOST_SETTINGS} of {} settings are drawn.", units::count(all as u64)));
        stopped.into_iter().chain(cut).collect()
    }

    /// The lowest and the highest value of the metric.
    fn ends(&self) -> Option<(f64, f64)> {
        let settings = self.ranking.settings.iter().map(|setting| setting.value);
        ends(settings.chain(self.stopped.iter().map(|own| own.value)))
    }

    /// The axis of the metric.
    pub(super) fn axis(&self) -> Option<Axis> {
        self.ends().map(|(low, high)| Axis::new(low, high, 4, false))
    }

    /// From 0 for the worst value to 9 for the best.
    pub(super) fn shades(&self) -> impl Fn(f64) -> usize + use<> {
        let (low, high) = self.ends().unwrap_or((0.0, 1.0));
        let axis = Axis::new(low, high, 4, false);
        let (from, to) = (axis.place(low), axis.place(high));
        let more_is_better = self.ranking.metric.more_is_better;
        move |value| {
            let share = if to > from { (axis.place(value) - from) / (to - from) } else { 0.5 };
            ((if more_is_better { share } else { 1.0 - share }) * SHADES) as usize
        }
    }

    fn levels(&self, key: usize) -> Vec<&str> {
        let settings = self.ranking.settings.iter().map(|setting| setting.values[key].as_str());
        levels(settings.chain(self.stopped.iter().map(|own| own.values[key].as_str())))
    }

    /// Whether they are far from a grid: values that were drawn at random stand by their size, however few they are.
    pub(super) fn is_sampled(&self) -> bool {
        let keys = 0..self.ranking.keys.len();
        let cells = keys.map(|key| self.levels(key).len()).fold(1, usize::saturating_mul);
        (self.ranking.settings.len() + self.stopped.len()).saturating_mul(2) < cells
    }

    /// Where the values of a key stand.
    pub(super) fn scale(&self, key: usize) -> Scale<'_> {
        let levels = self.levels(key);
        let numbers: Option<Vec<f64>> = levels.iter().map(|level| level.parse().ok()).collect();
        let choice = self.choices[key];
        let draws = choice.is_some_and(|choice| choice.draws);
        let are_many = levels.len() > MOST_LEVELS || draws || self.is_sampled();
        let numbers = numbers.filter(|_| are_many);
        match numbers.as_ref().and_then(|numbers| ends(numbers.iter().copied())) {
            Some((low, high)) => {
                // A sampler that learns draws more of its values where the best are.
                let by_factors = choice
                    .filter(|_| low > 0.0)
                    .map(|choice| choice.by_factors)
                    .unwrap_or_else(|| spread_by_factors(numbers.as_deref().unwrap_or_default()));
                Scale::Numbers(Axis::new(low, high, 4, !by_factors))
            }
            None => Scale::Levels(levels),
        }
    }
}

/// Whether sorted values stand more evenly on a logarithmic axis: the one in the middle is nearer to the middle of the axis.
fn spread_by_factors(sorted: &[f64]) -> bool {
    let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else { return false };
    let middle = sorted[sorted.len() / 2];
    let off = |place: f64| (place - 0.5).abs();
    *low > 0.0 && off((middle / low).ln() / (high / low).ln()) < off((middle - low) / (high - low))
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |ends, value| {
        Some(ends.map_or((value, value), |(low, high): (f64, f64)| (low.min(value), high.max(value))))
    })
}

/// Values as labels: drawn numbers have six digits, of which three tell them apart.
fn rounded(levels: &[&str]) -> Vec<String> {
    let round = |level: &&str| {
        let value: f64 = level.parse().ok().filter(|_| level.len() > MOST_DIGITS && level.contains('.'))?;
        Some(tick_label(format!("{value:.2e}").parse().ok()?))
    };
    let words = levels.iter().map(|level| round(level).unwrap_or_else(|| shortened(level, MOST_CHARACTERS)));
    let words: Vec<String> = words.collect();
    let are_told = |words: &Vec<String>| distinct(words.iter()).len() == levels.len();
    if are_told(&words) {
        return words;
    }
    let ends: Vec<String> = levels.iter().map(|level| shortened(level, MOST_CHARACTERS)).collect();
    let is_list = levels.iter().any(|level| level.contains('+') && level.chars().count() > MOST_CHARACTERS);
    if are_told(&ends) || !is_list { ends } else { levels.iter().map(|level| begun(level)).collect() }
}

/// The beginning of layers, whose ends are alike: they have the same outputs.
fn begun(level: &str) -> String {
    match level.chars().count() <= MOST_CHARACTERS {
        true => level.to_owned(),
        false => level.chars().take(MOST_CHARACTERS - 1).chain(['\u{2026}']).collect(),
    }
}

/// Where the values of an axis stand: side by side where they are few, else by their size.
pub(super) enum Scale<'a> {
    Levels(Vec<&'a str>),
    Numbers(Axis),
}

impl Scale<'_> {
    /// From 0 to 1.
    pub(super) fn place(&self, value: &str) -> f64 {
        match self {
            Self::Levels(levels) => {
                let place = levels.iter().position(|level| *level == value).unwrap_or(0);
                (place as f64 + 0.5) / levels.len() as f64
            }
            Self::Numbers(axis) => value.parse().map_or(0.0, |value| axis.place(value)),
        }
    }

    pub(super) fn labels(&self) -> Vec<(f64, String)> {
        match self {
            Self::Levels(levels) => {
                let every = levels.len().div_ceil(MOST_LABELS).max(1);
                let words = rounded(levels);
                let labels = levels.iter().zip(words).step_by(every);
                labels.map(|(level, words)| (self.place(level), words)).collect()
            }
            Self::Numbers(axis) => {
                let within = axis.ticks.iter().map(|&tick| (axis.place(tick), tick_label(tick)));
                within.filter(|(share, _)| (0.0..=1.0).contains(share)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws of `uniform(0, 0.5)` reach small values, too, but most are not.
    #[test]
    fn values_choose_their_axis() {
        assert!(!spread_by_factors(&[0.003, 0.08, 0.17, 0.26, 0.31, 0.42, 0.49]));
        assert!(spread_by_factors(&[1e-4, 4e-4, 0.002, 0.01, 0.03, 0.1]));
        assert!(!spread_by_factors(&[0.0, 1.0, 1000.0]) && !spread_by_factors(&[]));
    }

    #[test]
    fn drawn_numbers_are_rounded_where_that_tells_them_apart() {
        assert_eq!(rounded(&["0.000230611", "0.0257297", "0.1"]), ["2.31e-4", "0.0257", "0.1"]);
        assert_eq!(rounded(&["0.0257297", "0.0257298"]), ["0.0257297", "0.0257298"]);
        let layers = ["linear32+relu+linear1", "linear64+gelu+linear1", "linear1"];
        assert_eq!(rounded(&layers), ["linear32+re\u{2026}", "linear64+ge\u{2026}", "linear1"]);
        assert_eq!(rounded(&["12345678", "a/long/path.csv"]), ["12345678", "…ng/path.csv"]);
    }
}
