//! The best setting of a sweep while it runs, ranked as `runner compare` does.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
    sync::Arc,
};

use super::cost::Cost;
use crate::spec::Monitor;
pub use crate::spec::SEEDS;

/// The axis that numbers a sweep's repeats.
pub const REPEAT: &str = "repeat";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct BestSetting {
    /// Its values.
    pub setting: Arc<str>,
    pub trial: usize,
    pub monitor: Monitor,
    /// The mean over its seeds.
    pub value: f64,
    /// How many of these finished.
    pub count: usize,
}

/// A trial that finished, with its best value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub trial: usize,
    pub seed: u64,
    pub fold: Option<u32>,
    pub value: f64,
}

/// The trials that finished, by setting: those that differ only in their seeds and folds.
#[derive(Debug, Default)]
pub(super) struct Settings {
    settings: HashMap<Arc<str>, TrialsOfSetting>,
    ranks: BTreeMap<Rank, Arc<str>>,
    /// Those that changed since they were ranked.
    changed: HashSet<Arc<str>>,
    /// The seeds and the folds of trials, also of those that did not finish.
    seeds: BTreeSet<u64>,
    folds: BTreeSet<Option<u32>>,
    /// Whether the samples of a setting are its folds. They are its seeds where there are several: the folds of one seed share most
    /// of their rows.
    by_fold: bool,
    monitor: Option<Monitor>,
    /// Whether trials are judged by different metrics.
    is_mixed: bool,
}

/// The best comes first. Settings with fewer samples come last: those that they lack may be the hard ones. Of equal ones, that
/// with the first trial is first.
type Rank = (Reverse<usize>, Cost, usize);

#[derive(Debug, Default)]
struct TrialsOfSetting {
    /// By sample, then by number.
    trials: Vec<Finished>,
    rank: Option<Rank>,
}

impl Settings {
    /// Takes note of the seed and the fold of a trial.
    pub fn know(&mut self, (seed, fold): (u64, Option<u32>)) {
        self.seeds.insert(seed);
        self.folds.insert(fold);
        let by_fold = self.folds.len() > 1 && self.seeds.len() < 2;
        if mem::replace(&mut self.by_fold, by_fold) != by_fold {
            for (name, own) in &mut self.settings {
                own.trials.sort_by_key(|trial| trial.place(by_fold));
                self.changed.insert(Arc::clone(name));
            }
        }
    }

    /// Takes a trial of a setting that finished, and is known.
    pub fn add(&mut self, setting: &str, finished: Finished, monitor: Monitor) {
        self.is_mixed |= *self.monitor.get_or_insert(monitor) != monitor;
        if !finished.value.is_finite() {
            return;
        }
        let name: Arc<str> = setting.into();
        let (own, by_fold) = (self.settings.entry(Arc::clone(&name)).or_default(), self.by_fold);
        let found = own.trials.binary_search_by_key(&finished.place(by_fold), |trial| trial.place(by_fold));
        if let Err(place) = found {
            own.trials.insert(place, finished);
            self.changed.insert(name);
        }
    }

    fn rank(&mut self, name: &Arc<str>) {
        let (Some(own), Some(monitor)) = (self.settings.get_mut(name), self.monitor) else { return };
        if let Some(before) = own.rank.take() {
            self.ranks.remove(&before);
        }
        let (value, count) = own.value(self.by_fold);
        let first = own.trials.iter().map(|trial| trial.trial).min().unwrap_or_default();
        let rank = (Reverse(count), Cost::new(monitor.cost(value)), first);
        own.rank = Some(rank);
        self.ranks.insert(rank, Arc::clone(name));
    }

    /// `None` where no trial finished, or trials are judged by different metrics.
    pub fn best(&mut self) -> Option<BestSetting> {
        mem::take(&mut self.changed).iter().for_each(|name| self.rank(name));
        let monitor = self.monitor.filter(|_| !self.is_mixed)?;
        let (_, setting) = self.ranks.first_key_value()?;
        let own = self.settings.get(setting)?;
        let (value, count) = own.value(self.by_fold);
        let luckiest = own.trials.iter().min_by_key(|own| (Cost::new(monitor.cost(own.value)), own.trial))?;
        Some(BestSetting { setting: Arc::clone(setting), trial: luckiest.trial, monitor, value, count })
    }
}

impl Finished {
    /// Its sample, then its number.
    fn place(&self, by_fold: bool) -> ((u64, Option<u32>), usize) {
        (if by_fold { (0, self.fold) } else { (self.seed, None) }, self.trial)
    }
}

impl TrialsOfSetting {
    /// The mean over its samples of the means over their trials, and the number of samples.
    fn value(&self, by_fold: bool) -> (f64, usize) {
        let samples = self.trials.chunk_by(|a, b| a.place(by_fold).0 == b.place(by_fold).0);
        let means: Vec<f64> = samples.map(|own| mean(own.iter().map(|trial| &trial.value))).collect();
        (mean(&means), means.len())
    }
}

/// The mean; if all values are equal, exactly that value, without rounding. Not a number without values.
pub fn mean<'a>(values: impl IntoIterator<Item = &'a f64, IntoIter: Clone>) -> f64 {
    let values = values.into_iter();
    let mut rest = values.clone();
    let first = rest.next().copied().unwrap_or(f64::NAN);
    match rest.all(|value| *value == first) {
        true => first,
        false => values.clone().sum::<f64>() / values.count() as f64,
    }
}

/// Whether trials with other values of an axis are of other settings.
pub(super) fn varies_setting(axis: &str) -> bool {
    axis != REPEAT && !SEEDS.contains(&axis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSS: Monitor = Monitor::LOSS;

    /// A sweep of trials with these settings, seeds, folds and values; each is reported twice.
    fn best<'a>(
        trials: impl IntoIterator<Item = (&'a str, u64, Option<u32>, f64)>,
        monitor: Monitor,
    ) -> Option<(String, usize, f64, usize)> {
        let mut settings = Settings::default();
        for (trial, (setting, seed, fold, value)) in trials.into_iter().enumerate() {
            settings.know((seed, fold));
            (0..2).for_each(|_| settings.add(setting, Finished { trial, seed, fold, value }, monitor));
        }
        settings.best().map(|best| (best.setting.to_string(), best.trial, best.value, best.count))
    }

    fn is(setting: &str, trial: usize, value: f64, count: usize) -> Option<(String, usize, f64, usize)> {
        Some((setting.to_owned(), trial, value, count))
    }

    #[test]
    fn the_best_mean_beats_the_luckiest_seed() {
        let of_seeds = |values: &[f64], monitor| {
            let settings =
                ["lr 0.1", "lr 0.1", "lr 0.2", "lr 0.2", "lr 0.3"].into_iter().zip([0, 1, 0, 1, 0]);
            best(settings.zip(values).map(|((setting, seed), value)| (setting, seed, None, *value)), monitor)
        };
        assert_eq!(of_seeds(&[], LOSS), None);
        assert_eq!(of_seeds(&[f64::NAN], LOSS), None);
        // Until one setting has both seeds, the best trial is the best.
        assert_eq!(of_seeds(&[0.5], LOSS), is("lr 0.1", 0, 0.5, 1));
        assert_eq!(of_seeds(&[0.5, 0.25, 0.125, 0.75], LOSS), is("lr 0.1", 1, 0.375, 2));
        let with_one_seed = [0.5, 0.25, 0.125, 0.75, 0.0625];
        assert_eq!(of_seeds(&with_one_seed, LOSS), is("lr 0.1", 1, 0.375, 2), "one seed may be luck");
        let r2 = Monitor::R2;
        assert_eq!(of_seeds(&[0.5, 0.25, 0.125, 0.75], r2), is("lr 0.2", 3, 0.4375, 2));
        assert_eq!(of_seeds(&[0.5, f64::NAN, 0.125, 0.625], LOSS), is("lr 0.2", 2, 0.375, 2));
        let mut mixed = Settings::default();
        let has_best = [LOSS, r2].map(|monitor| {
            mixed.add("", Finished { trial: 0, seed: 0, fold: None, value: 0.5 }, monitor);
            mixed.best().is_some()
        });
        assert_eq!(has_best, [true, false]);
    }

    /// The values of `tests/it/best_setting.rs`, where `compare` names the same setting, trial, mean and count.
    #[test]
    fn the_folds_of_a_seed_count_as_one() {
        let of = |values: &[f64]| {
            let trials = [("a", 0, 0), ("b", 0, 0), ("a", 0, 1), ("b", 0, 1), ("a", 1, 0), ("b", 1, 0)];
            let trials = trials.into_iter().zip(values);
            best(trials.map(|((setting, seed, fold), value)| (setting, seed, Some(fold), *value)), LOSS)
        };
        // The trials of `a` have the mean 0.5, those of `b` 0.4375.
        let values = [0.75, 0.5, 0.625, 0.25, 0.125, 0.5625];
        assert_eq!(of(&values), is("a", 4, 0.40625, 2));
        // One with fewer seeds comes last.
        assert_eq!(of(&values[..5]), is("a", 4, 0.40625, 2));
        // With one seed, each fold is a value; one with fewer folds comes last, and one that gets worse gives way.
        assert_eq!(of(&values[..1]), is("a", 0, 0.75, 1));
        assert_eq!(of(&values[..2]), is("b", 1, 0.5, 1));
        assert_eq!(of(&values[..3]), is("a", 2, 0.6875, 2));
        assert_eq!(of(&values[..4]), is("b", 3, 0.375, 2));
        assert_eq!(of(&[0.25, 0.375, 0.75, 0.5]), is("b", 1, 0.4375, 2));
        // Of equal ones the first is best.
        assert_eq!(of(&[0.5, 0.5, 0.75, 0.75]), is("a", 0, 0.625, 2));
    }
}
