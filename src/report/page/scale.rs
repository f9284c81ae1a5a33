//! Positions of an axis's values.

use crate::report::{
    grouping::distinct,
    plot::{Axis, tick_label},
    ranking::Ranking,
};

/// Maximum characters of a value beside an axis.
const MOST_CHARACTERS: usize = 12;

/// Maximum labels beside an axis with equally spaced values.
const MOST_LABELS: usize = 12;

/// Maximum number of values that are equally spaced; more numbers are placed on a continuous scale.
const MOST_LEVELS: usize = 8;

/// Maximum settings in a chart; if there are more, the best are drawn.
pub(super) const MOST_SETTINGS: usize = 500;

/// The axis of a ranking's metric.
pub(super) fn axis_of(ranking: &Ranking) -> Option<Axis> {
    let (low, high) = ends(ranking.settings.iter().map(|setting| setting.value))?;
    Some(Axis::new(low, high, 4, false))
}

pub(super) fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |ends, value| {
        Some(ends.map_or((value, value), |(low, high): (f64, f64)| (low.min(value), high.max(value))))
    })
}

/// The values of an axis, with numbers in ascending order.
pub(super) fn levels(ranking: &Ranking, key: usize) -> Vec<&str> {
    let mut levels = distinct(ranking.settings.iter().map(|setting| setting.values[key].as_str()));
    let number = |value: &str| value.parse::<f64>().unwrap_or(f64::INFINITY);
    levels.sort_by(|a, b| number(a).total_cmp(&number(b)).then_with(|| a.cmp(b)));
    levels
}

/// The end of a long value, such as a path.
pub(super) fn shortened(value: &str) -> String {
    match value.chars().count().checked_sub(MOST_CHARACTERS) {
        None | Some(0) => value.to_owned(),
        Some(more) => format!("…{}", value.chars().skip(more + 1).collect::<String>()),
    }
}

/// Whether the settings are far from a grid: sampled values are placed by size, even if they are few.
pub(super) fn is_sampled(ranking: &Ranking) -> bool {
    let cells = (0..ranking.keys.len()).map(|key| levels(ranking, key).len()).fold(1, usize::saturating_mul);
    ranking.settings.len().saturating_mul(2) < cells
}

/// How an axis's values are placed: equally spaced if they are few, otherwise by size.
pub(super) enum Scale<'a> {
    Levels(Vec<&'a str>),
    Numbers(Axis),
}

impl<'a> Scale<'a> {
    pub(super) fn new(ranking: &'a Ranking, key: usize) -> Self {
        let levels = levels(ranking, key);
        let numbers: Option<Vec<f64>> = levels.iter().map(|level| level.parse().ok()).collect();
        let are_many = levels.len() > MOST_LEVELS || is_sampled(ranking);
        match numbers.filter(|_| are_many).and_then(|numbers| ends(numbers.into_iter())) {
            Some((low, high)) => Self::Numbers(Axis::new(low, high, 4, false)),
            None => Self::Levels(levels),
        }
    }

    /// A value's position, from 0 to 1.
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
                levels.iter().step_by(every).map(|level| (self.place(level), shortened(level))).collect()
            }
            Self::Numbers(axis) => metric_labels(axis),
        }
    }
}

pub(super) fn metric_labels(y: &Axis) -> Vec<(f64, String)> {
    let within = y.ticks.iter().map(|&tick| (y.place(tick), tick_label(tick)));
    within.filter(|(share, _)| (0.0..=1.0).contains(share)).collect()
}
