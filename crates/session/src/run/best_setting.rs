//! The best setting of a sweep while it runs, ranked as `runner compare` does.

use std::collections::HashMap;

use crate::spec::Monitor;

/// The axis that numbers a sweep's repeats.
pub const REPEAT: &str = "repeat";

/// Keys that choose rows and random numbers; a setting is averaged over them.
pub const SEEDS: [&str; 4] = ["seed", "data.fold", "model.init_seed", "data.shuffle_seed"];

/// The best of the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BestSetting {
    /// The best of its trials.
    pub trial: usize,
    pub monitor: Monitor,
    /// The mean over its trials.
    pub value: f64,
    /// How many of them finished.
    pub count: usize,
}

/// The trials that finished, by setting: those that differ only in their seeds.
#[derive(Debug, Default)]
pub(super) struct Settings {
    trials: HashMap<String, Vec<(usize, f64)>>,
    best: Option<BestSetting>,
    monitor: Option<Monitor>,
    /// Whether trials are judged by different metrics.
    is_mixed: bool,
}

impl Settings {
    /// Takes a trial of a setting that finished, with its best value.
    pub fn add(&mut self, trial: usize, setting: String, (monitor, value): (Monitor, f64)) {
        self.is_mixed |= *self.monitor.get_or_insert(monitor) != monitor;
        let own = self.trials.entry(setting).or_default();
        if !value.is_finite() || own.iter().any(|(known, _)| *known == trial) {
            return;
        }
        own.push((trial, value));
        let mean = own.iter().map(|(_, value)| value).sum::<f64>() / own.len() as f64;
        let luckiest = own.iter().min_by(|a, b| monitor.cost(a.1).total_cmp(&monitor.cost(b.1)));
        let trial = luckiest.map_or(trial, |(trial, _)| *trial);
        let own = BestSetting { trial, monitor, value: mean, count: own.len() };
        let is_better = |best: &BestSetting| {
            own.count > best.count
                || (own.count == best.count && monitor.cost(own.value) < monitor.cost(best.value))
        };
        if self.best.as_ref().is_none_or(is_better) {
            self.best = Some(own);
        }
    }

    /// Settings with fewer trials come last: those that they lack may be the hard ones. `None` where trials are judged by
    /// different metrics.
    pub fn best(&self) -> Option<BestSetting> {
        self.best.filter(|_| !self.is_mixed)
    }
}

/// Whether trials with other values of an axis are of other settings.
pub(super) fn varies_setting(axis: &str) -> bool {
    axis != REPEAT && !SEEDS.contains(&axis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSS: Monitor = Monitor::ValidationLoss;

    #[test]
    fn the_best_mean_beats_the_luckiest_seed() {
        let settings_of = ["lr 0.1", "lr 0.1", "lr 0.2", "lr 0.2", "lr 0.3"];
        let best = |values: &[f64], monitor: Monitor| {
            let mut settings = Settings::default();
            for (trial, value) in values.iter().enumerate() {
                settings.add(trial, settings_of[trial].to_owned(), (monitor, *value));
                settings.add(trial, settings_of[trial].to_owned(), (monitor, *value)); // is known already
            }
            settings.best()
        };
        let of = |trial, monitor, value, count| Some(BestSetting { trial, monitor, value, count });
        assert_eq!(best(&[], LOSS), None);
        assert_eq!(best(&[f64::NAN], LOSS), None);
        // Until one setting has both seeds, the best trial is the best.
        assert_eq!(best(&[0.5], LOSS), of(0, LOSS, 0.5, 1));
        assert_eq!(best(&[0.5, 0.25, 0.125, 0.75], LOSS), of(1, LOSS, 0.375, 2));
        let with_one_seed = [0.5, 0.25, 0.125, 0.75, 0.0625];
        assert_eq!(best(&with_one_seed, LOSS), of(1, LOSS, 0.375, 2), "one seed may be luck");
        let r2 = Monitor::ValidationR2;
        assert_eq!(best(&[0.5, 0.25, 0.125, 0.75], r2), of(3, r2, 0.4375, 2));
        assert_eq!(best(&[0.5, f64::NAN, 0.125, 0.625], LOSS), of(2, LOSS, 0.375, 2));
        let mut several = Settings::default();
        several.add(0, "#0".to_owned(), (LOSS, 0.5));
        several.add(1, "#1".to_owned(), (LOSS, 0.25));
        assert_eq!(several.best(), of(1, LOSS, 0.25, 1));
        several.add(2, "#2".to_owned(), (r2, 0.25));
        assert_eq!(several.best(), None);
    }
}
