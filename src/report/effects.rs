//! Which axis matters: an analysis of variance over a complete grid.

use super::{
    grouping::{distinct, grouped},
    ranking::{Candidate, Ranking},
};

/// The effect of one axis of a grid.
pub(super) struct Effect {
    /// Its share of the variance.
    pub(super) share: f64,
    /// Its values, each with the mean of the metric over everything else.
    pub(super) levels: Vec<(String, f64)>,
}

/// How the variance of a metric is divided.
pub(super) struct Effects {
    /// By axis, in the order of the ranking's keys.
    pub(super) axes: Vec<Effect>,
    /// The share due to combinations of axes, beyond the effects of each.
    pub(super) interaction: f64,
    /// The share within settings; `None` without repeats.
    pub(super) seeds: Option<f64>,
}

impl Effects {
    /// # Errors
    /// A sentence on why the shares are not known.
    pub(super) fn new(ranking: &Ranking) -> Result<Self, String> {
        let settings = &ranking.settings;
        let values = |setting: &Candidate| -> Vec<f64> { setting.samples.iter().map(|(_, v)| *v).collect() };
        let levels = |key: usize| distinct(settings.iter().map(|setting| setting.values[key].clone()));
        // For sampled settings, the product of the numbers of levels may overflow.
        let counts: Vec<usize> = (0..ranking.keys.len()).map(|key| levels(key).len()).collect();
        let cells = counts.iter().copied().fold(1, usize::saturating_mul);
        let count = settings.first().map_or(0, |setting| setting.samples.len());
        if distinct(settings.iter().map(|setting| &setting.values)).len() < settings.len() {
            return Err(
                "settings with the same values ran on several machines, or are of several specs".to_owned()
            );
        }
        // If an axis was sampled, no two settings share a value of it.
        let is_drawn = cells > settings.len() && counts.contains(&settings.len());
        if settings.len() * 2 < cells || is_drawn {
            return Err("the settings are no grid".to_owned());
        }
        if settings.len() != cells {
            return Err(format!("{} of the grid's {cells} settings are ranked", settings.len()));
        }
        if settings.iter().any(|setting| setting.samples.len() != count) {
            return Err("some settings ran with more seeds or folds than others".to_owned());
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let all: Vec<f64> = settings.iter().flat_map(values).collect();
        let grand = mean(&all);
        let squares =
            |values: &mut dyn Iterator<Item = f64>| values.map(|v| (v - grand).powi(2)).sum::<f64>();
        let total = squares(&mut all.iter().copied());
        if total.is_nan() || total <= 0.0 {
            return Err("all values are equal".to_owned());
        }
        let share =
            |means: &[f64]| squares(&mut means.iter().copied()) * (all.len() / means.len()) as f64 / total;
        let axes: Vec<Effect> = (0..ranking.keys.len())
            .map(|key| {
                let by_level = grouped(settings.iter().map(|s| (s.values[key].clone(), mean(&values(s)))));
                let levels: Vec<(String, f64)> =
                    by_level.into_iter().map(|(level, means)| (level, mean(&means))).collect();
                let means: Vec<f64> = levels.iter().map(|(_, mean)| *mean).collect();
                Effect { share: share(&means), levels }
            })
            .collect();
        let between = share(&settings.iter().map(|setting| mean(&values(setting))).collect::<Vec<_>>());
        let alone: f64 = axes.iter().map(|effect| effect.share).sum();
        let seeds = (count > 1).then(|| (1.0 - between).max(0.0));
        Ok(Self { interaction: (between - alone).max(0.0), axes, seeds })
    }
}

/// Whether there is something to compare: several axes, or one with repeats.
pub(super) fn has_effects(ranking: &Ranking) -> bool {
    let settings = &ranking.settings;
    let repeated = settings.iter().any(|setting| setting.samples.len() > 1);
    let varies = |key: &usize| settings.iter().any(|own| own.values[*key] != settings[0].values[*key]);
    let axes = (0..ranking.keys.len()).filter(varies).count();
    settings.len() > 2 && (axes > 1 || (axes == 1 && repeated))
}
