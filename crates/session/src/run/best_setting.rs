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
    trials: HashMap<Vec<String>, Vec<(usize, f64)>>,
    monitor: Option<Monitor>,
    /// Whether trials are judged by different metrics.
    is_mixed: bool,
}

impl Settings {
    /// Takes a trial that finished, with its best value. Without its axes, it is a setting of its own.
    pub fn add(&mut self, trial: usize, axes: Option<&[(String, String)]>, (monitor, value): (Monitor, f64)) {
        self.is_mixed |= *self.monitor.get_or_insert(monitor) != monitor;
        let told = |axes: &[(String, String)]| {
            axes.iter().filter(|(axis, _)| tells(axis)).map(|(_, value)| value.clone()).collect()
        };
        let setting = self.trials.entry(axes.map_or_else(|| vec![trial.to_string()], told)).or_default();
        if value.is_finite() && setting.iter().all(|(known, _)| *known != trial) {
            setting.push((trial, value));
        }
    }

    /// Settings with fewer trials come last: those that they lack may be the hard ones. `None` where trials are judged by
    /// different metrics.
    pub fn best(&self) -> Option<BestSetting> {
        let monitor = self.monitor.filter(|_| !self.is_mixed)?;
        let most = self.trials.values().map(Vec::len).max().filter(|most| *most > 0)?;
        let complete = self.trials.values().filter(|own| own.len() == most);
        let with_cost = complete.map(|own| {
            let value = own.iter().map(|(_, value)| value).sum::<f64>() / most as f64;
            (monitor.cost(value), own.iter().map(|(trial, _)| *trial).min(), value, own)
        });
        let (.., value, own) = with_cost.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        let (trial, _) = own.iter().min_by(|a, b| monitor.cost(a.1).total_cmp(&monitor.cost(b.1)))?;
        Some(BestSetting { trial: *trial, monitor, value, count: most })
    }
}

/// Whether an axis tells settings apart.
pub(super) fn tells(axis: &str) -> bool {
    axis != REPEAT && !SEEDS.contains(&axis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSS: Monitor = Monitor::ValidationLoss;

    fn axes(lr: &str, seed: &str) -> Vec<(String, String)> {
        [("optimizer.sgd.lr", lr), ("seed", seed)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec()
    }

    #[test]
    fn the_best_mean_beats_the_luckiest_seed() {
        let trials =
            [axes("0.1", "1"), axes("0.1", "2"), axes("0.2", "1"), axes("0.2", "2"), axes("0.3", "1")];
        let best = |values: &[f64], monitor: Monitor| {
            let mut settings = Settings::default();
            for (trial, value) in values.iter().enumerate() {
                settings.add(trial, Some(&trials[trial]), (monitor, *value));
                settings.add(trial, Some(&trials[trial]), (monitor, *value)); // is known already
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
        several.add(0, None, (LOSS, 0.5));
        several.add(1, None, (LOSS, 0.25));
        assert_eq!(several.best(), of(1, LOSS, 0.25, 1), "trials of unknown axes are not one setting");
        several.add(2, None, (r2, 0.25));
        assert_eq!(several.best(), None);
    }
}
