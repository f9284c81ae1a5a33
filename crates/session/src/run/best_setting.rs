//! Which setting of a sweep is the best: the one rule, of the line while it runs and of every comparison.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    cost::Cost,
    samples::{Sample, SeedsAndFold, TrialValue, differ, mean, pairs, sample_unit, samples},
};
pub use crate::spec::SEEDS;
use crate::{event::Status, spec::Monitor};

/// The axis that numbers a sweep's repeats.
pub const REPEAT: &str = "repeat";

/// The one of [`SEEDS`] that is the fold on which a run validates. The others together are its seed.
pub const FOLD: &str = "data.fold";

/// A setting that is to be ranked.
pub struct Ranked<'a> {
    /// Sorted by their seeds.
    pub samples: &'a [Sample],
    /// Whether runs of it diverged or were stopped by the sweep, so that the seeds it lacks were the hard ones.
    pub has_lost: bool,
}

impl Ranked<'_> {
    /// Whether it is ranked behind all that can be compared with the leader: its seeds are fewer, and either have nothing to do with
    /// the leader's, or are those that were left when others were lost. Those that it lacks may be the hard ones. A seed counts
    /// once for each of its folds.
    pub fn comes_last(&self, leader: &Self) -> bool {
        self.count() < leader.count() && (self.has_lost || pairs(self.samples, leader.samples).is_none())
    }

    /// The folds of all its seeds; a seed without folds counts as one.
    pub fn count(&self) -> usize {
        self.samples.iter().map(|own| own.of.len().max(1)).sum()
    }
}

/// The settings, best first. Two are compared by their means over the seeds that both have. The best mean of the settings with
/// most seeds leads; of each other set of seeds the best mean takes the lead if it is ahead of the leader, and not only
/// by luck. If `seeds_matter`, some [come last](Ranked::comes_last). All others follow by their difference from the leader; of equal ones the
/// first is first.
pub fn order(settings: &[Ranked<'_>], seeds_matter: bool, cost: &dyn Fn(f64) -> f64) -> Vec<usize> {
    let mean_cost = |own: &Ranked<'_>| Cost::new(cost(mean(own.samples.iter().map(|own| &own.value))));
    let costs: Vec<Cost> = settings.iter().map(mean_cost).collect();
    let mut firsts: HashMap<(bool, Vec<&[SeedsAndFold]>), usize> = HashMap::new();
    for (place, own) in settings.iter().enumerate() {
        let seeds = own.samples.iter().map(|own| &*own.of).collect();
        let first = firsts.entry((own.has_lost, seeds)).or_insert(place);
        if costs[place] < costs[*first] {
            *first = place;
        }
    }
    let mut firsts: Vec<usize> = firsts.into_values().collect();
    firsts.sort_by_key(|&place| (Reverse(settings[place].count()), costs[place], place));
    let behind = |own: usize, leader: usize| behind(&settings[own], &settings[leader], seeds_matter, cost);
    let takes_lead = |own: usize, leader: usize| {
        let is_ahead = behind(own, leader) < (false, Cost::new(0.0));
        is_ahead && !may_be_luck(settings[own].samples, settings[leader].samples, cost)
    };
    let lead = |leader, own| if takes_lead(own, leader) { own } else { leader };
    let Some(leader) = firsts.into_iter().reduce(lead) else { return Vec::new() };
    let mut order: Vec<usize> = (0..settings.len()).collect();
    order.sort_by_cached_key(|&own| (own != leader, behind(own, leader), own));
    order
}

/// Whether a setting shares one seed with a leader of several, of which another did as well on the same folds: one pair says nothing
/// about the spread, the leader's other values do.
fn may_be_luck(own: &[Sample], leader: &[Sample], cost: &dyn Fn(f64) -> f64) -> bool {
    let [own] = own else { return false };
    let mut others = leader.iter().filter_map(|other| other.on_folds_of(own));
    leader.len() > 1 && others.any(|other| Cost::new(cost(other)) <= Cost::new(cost(own.value)))
}

/// Whether a setting comes last, and by how much it is behind another.
fn behind(
    own: &Ranked<'_>,
    leader: &Ranked<'_>,
    seeds_matter: bool,
    cost: &dyn Fn(f64) -> f64,
) -> (bool, Cost) {
    let pairs = pairs(own.samples, leader.samples);
    let is_last = seeds_matter && own.comes_last(leader);
    let means = |pairs: &[(f64, f64)]| {
        [mean(pairs.iter().map(|(own, _)| own)), mean(pairs.iter().map(|(_, other)| other))]
    };
    let all = |own: &Ranked<'_>| mean(own.samples.iter().map(|own| &own.value));
    let [own, leader] = pairs.map_or_else(|| [all(own), all(leader)], |pairs| means(&pairs.values));
    (is_last, Cost::new(cost(own) - cost(leader)))
}

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
    /// On how many folds of all seeds it finished, and how many there are, unless it did on all.
    pub folds: Option<[usize; 2]>,
}

/// The trials that finished, by setting: those that differ only in their seeds and folds.
#[derive(Debug, Default)]
pub(super) struct Settings {
    settings: HashMap<Arc<str>, TrialsOfSetting>,
    /// Those of trials, also of such that did not finish.
    seeds_and_folds: BTreeSet<SeedsAndFold>,
    monitor: Option<Monitor>,
    /// Whether trials are judged by different metrics.
    is_mixed: bool,
}

#[derive(Debug, Default)]
struct TrialsOfSetting {
    /// By number.
    trials: BTreeMap<usize, TrialValue>,
    has_lost: bool,
}

impl Settings {
    /// Takes note of the seeds and the fold of a trial.
    pub fn know(&mut self, of: SeedsAndFold) {
        self.seeds_and_folds.insert(of);
    }

    /// Takes note of how a trial of a setting ended, and of its best value; `rows` is what its validation rows are known by.
    pub fn take(
        &mut self,
        setting: &str,
        (trial, of, rows): (usize, SeedsAndFold, String),
        status: Status,
        best: Option<(Monitor, f64)>,
    ) {
        self.know(of.clone());
        let own = self.settings.entry(setting.into()).or_default();
        match (status, best) {
            (Status::Diverged | Status::Stopped, _) => own.has_lost = true,
            (Status::Finished, Some((monitor, value))) => {
                self.is_mixed |= *self.monitor.get_or_insert(monitor) != monitor;
                if value.is_finite() {
                    own.trials.insert(trial, TrialValue { of, rows: Some(rows), value });
                }
            }
            _ => {}
        }
    }

    pub fn has_one_seed(&self) -> bool {
        !differ(self.seeds_and_folds.iter(), 0)
    }

    /// `None` where no trial finished, or trials are judged by different metrics.
    pub fn best(&self) -> Option<BestSetting> {
        let monitor = self.monitor.filter(|_| !self.is_mixed)?;
        let first = |own: &TrialsOfSetting| own.trials.first_key_value().map(|(trial, _)| *trial);
        let known = self.settings.iter().filter_map(|(name, own)| Some((first(own)?, name, own)));
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|(first, ..)| *first);
        let values: Vec<Vec<TrialValue>> =
            known.iter().map(|(.., own)| own.trials.values().cloned().collect()).collect();
        // Trials that have not finished tell seeds from folds, too.
        let all = self.seeds_and_folds.iter().map(|of| (of.clone(), None)).collect();
        let of_values =
            |own: &Vec<TrialValue>| own.iter().map(|own| (own.of.clone(), own.rows.clone())).collect();
        let settings: Vec<_> = values.iter().map(of_values).chain([all]).collect();
        let unit = sample_unit(&settings);
        let samples: Vec<Vec<Sample>> = values.iter().map(|own| samples(own, unit)).collect();
        let ranked = known.iter().zip(&samples);
        let ranked = ranked.map(|((.., own), samples)| Ranked { samples, has_lost: own.has_lost });
        let cost = |value: f64| monitor.cost(value);
        let best = *order(&ranked.collect::<Vec<_>>(), true, &cost).first()?;
        let (_, setting, own) = &known[best];
        let luckiest = own.trials.iter().min_by_key(|(trial, own)| (Cost::new(cost(own.value)), **trial));
        Some(BestSetting {
            setting: Arc::clone(setting),
            trial: luckiest.map(|(trial, _)| *trial)?,
            monitor,
            value: mean(samples[best].iter().map(|own| &own.value)),
            count: samples[best].len(),
            folds: missing_folds(own.trials.values().map(|own| &own.of), &self.seeds_and_folds),
        })
    }
}

/// On how many folds of all seeds a setting finished, and how many there are; `None` if it did on all, or nothing is validated on
/// several folds.
pub fn missing_folds<'a>(
    finished: impl Iterator<Item = &'a SeedsAndFold>,
    all: &BTreeSet<SeedsAndFold>,
) -> Option<[usize; 2]> {
    let finished = finished.collect::<BTreeSet<_>>().len();
    (differ(all.iter(), 1) && finished < all.len()).then_some([finished, all.len()])
}

/// Whether trials with other values of an axis are of other settings.
pub fn varies_setting(axis: &str) -> bool {
    axis != REPEAT && !SEEDS.contains(&axis)
}

#[cfg(test)]
#[path = "best_setting_tests.rs"]
mod tests;
