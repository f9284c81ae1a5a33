//! Which setting of a sweep is the best: the one rule, of the line while it runs and of every comparison.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::cost::Cost;
pub use crate::spec::SEEDS;
use crate::{event::Status, spec::Monitor};

/// The axis that numbers a sweep's repeats.
pub const REPEAT: &str = "repeat";

/// The one of [`SEEDS`] that is the fold on which a run validates. The others together are its seed.
pub const FOLD: &str = "data.fold";

/// What a value is of: its seed, and the folds of this seed over which it is the mean.
pub type SeedAndFolds = (String, Vec<String>);

/// What a value of a setting is of, and the value. Only values of the same seed and folds can be paired.
pub type Sample = (Option<SeedAndFolds>, f64);

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
        let has_fewer = folds(self.samples) < folds(leader.samples);
        has_fewer && (self.has_lost || pairs(self.samples, leader.samples).is_none())
    }
}

/// The folds of all seeds; one of a seed without folds.
fn folds(samples: &[Sample]) -> usize {
    samples.iter().map(|(of, _)| of.as_ref().map_or(1, |(_, folds)| folds.len().max(1))).sum()
}

/// A value per seed, or per fold: the mean over its trials.
pub fn samples(values: impl IntoIterator<Item = ([String; 2], f64)>, by_fold: bool) -> Vec<Sample> {
    let mut of_seeds: BTreeMap<String, (BTreeSet<String>, Vec<f64>)> = BTreeMap::new();
    for ([seed, fold], value) in values {
        let (name, fold) = if by_fold { (fold, None) } else { (seed, Some(fold)) };
        let own = of_seeds.entry(name).or_default();
        own.0.extend(fold);
        own.1.push(value);
    }
    let of_seeds = of_seeds.into_iter();
    of_seeds.map(|(seed, (folds, of))| (Some((seed, folds.into_iter().collect())), mean(&of))).collect()
}

/// The values of the seeds that both have. None where settings are compared by the means of all their values: they share no seed,
/// or one of several.
pub fn pairs(own: &[Sample], other: &[Sample]) -> Option<Vec<(f64, f64)>> {
    let paired: Vec<(f64, f64)> = if have_same_seeds(own, other) {
        own.iter().zip(other).map(|(own, other)| (own.1, other.1)).collect()
    } else {
        let values: HashMap<&SeedAndFolds, f64> =
            other.iter().filter_map(|(of, value)| Some((of.as_ref()?, *value))).collect();
        own.iter().filter_map(|(of, value)| Some((*value, *values.get(of.as_ref()?)?))).collect()
    };
    (paired.len() > 1 || (paired.len() == 1 && own.len().min(other.len()) == 1)).then_some(paired)
}

fn have_same_seeds(own: &[Sample], other: &[Sample]) -> bool {
    let is_same = |(own, other): (&Sample, &Sample)| own.0.is_some() && own.0 == other.0;
    own.len() == other.len() && own.iter().zip(other).all(is_same)
}

/// The settings, best first. Two are compared by their means over the seeds that both have. The best mean of the settings with
/// most seeds leads; of each other set of seeds the best mean takes the lead if it is ahead of the leader, and not only
/// by luck. If `seeds_matter`, some [come last](Ranked::comes_last). All others follow by their difference from the leader; of equal ones the
/// first is first.
pub fn order(settings: &[Ranked<'_>], seeds_matter: bool, cost: &dyn Fn(f64) -> f64) -> Vec<usize> {
    let mean_cost = |own: &Ranked<'_>| Cost::new(cost(mean(own.samples.iter().map(|(_, value)| value))));
    let costs: Vec<Cost> = settings.iter().map(mean_cost).collect();
    let mut firsts: HashMap<(bool, Vec<Option<&SeedAndFolds>>), usize> = HashMap::new();
    for (place, own) in settings.iter().enumerate() {
        let seeds = own.samples.iter().map(|(of, _)| of.as_ref()).collect();
        let first = firsts.entry((own.has_lost, seeds)).or_insert(place);
        if costs[place] < costs[*first] {
            *first = place;
        }
    }
    let mut firsts: Vec<usize> = firsts.into_values().collect();
    firsts.sort_by_key(|&place| (Reverse(folds(settings[place].samples)), costs[place], place));
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

/// Whether a setting shares one seed with a leader of several, of which another did as well: one pair says nothing about the spread,
/// the leader's other values do.
fn may_be_luck(own: &[Sample], leader: &[Sample], cost: &dyn Fn(f64) -> f64) -> bool {
    let [(_, value)] = own else { return false };
    leader.len() > 1 && leader.iter().any(|(_, other)| Cost::new(cost(*other)) <= Cost::new(cost(*value)))
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
    let all = |own: &Ranked<'_>| mean(own.samples.iter().map(|(_, value)| value));
    let [own, leader] = pairs.map_or_else(|| [all(own), all(leader)], |pairs| means(&pairs));
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
}

/// What random numbers and rows a trial has: its seeds and its fold, as text.
pub type SeedsAndFold = [String; 2];

/// The trials that finished, by setting: those that differ only in their seeds and folds.
#[derive(Debug, Default)]
pub(super) struct Settings {
    settings: HashMap<Arc<str>, TrialsOfSetting>,
    /// The seeds and the folds of trials, also of those that did not finish.
    seeds: BTreeSet<String>,
    folds: BTreeSet<String>,
    monitor: Option<Monitor>,
    /// Whether trials are judged by different metrics.
    is_mixed: bool,
}

#[derive(Debug, Default)]
struct TrialsOfSetting {
    /// By number.
    trials: BTreeMap<usize, (SeedsAndFold, f64)>,
    has_lost: bool,
}

impl Settings {
    /// Takes note of the seeds and the fold of a trial.
    pub fn know(&mut self, [seeds, fold]: SeedsAndFold) {
        self.seeds.insert(seeds);
        self.folds.insert(fold);
    }

    /// Takes note of how a trial of a setting ended, and of its best value.
    pub fn take(
        &mut self,
        setting: &str,
        (trial, seeds): (usize, SeedsAndFold),
        status: Status,
        best: Option<(Monitor, f64)>,
    ) {
        self.know(seeds.clone());
        let own = self.settings.entry(setting.into()).or_default();
        match (status, best) {
            (Status::Diverged | Status::Stopped, _) => own.has_lost = true,
            (Status::Finished, Some((monitor, value))) => {
                self.is_mixed |= *self.monitor.get_or_insert(monitor) != monitor;
                if value.is_finite() {
                    own.trials.insert(trial, (seeds, value));
                }
            }
            _ => {}
        }
    }

    /// `None` where no trial finished, or trials are judged by different metrics.
    pub fn best(&self) -> Option<BestSetting> {
        let monitor = self.monitor.filter(|_| !self.is_mixed)?;
        // The folds of one seed share most of their rows.
        let by_fold = self.folds.len() > 1 && self.seeds.len() < 2;
        let first = |own: &TrialsOfSetting| own.trials.first_key_value().map(|(trial, _)| *trial);
        let known = self.settings.iter().filter_map(|(name, own)| Some((first(own)?, name, own)));
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|(first, ..)| *first);
        let samples: Vec<Vec<Sample>> =
            known.iter().map(|(.., own)| samples(own.trials.values().cloned(), by_fold)).collect();
        let ranked = known.iter().zip(&samples);
        let ranked = ranked.map(|((.., own), samples)| Ranked { samples, has_lost: own.has_lost });
        let cost = |value: f64| monitor.cost(value);
        let best = *order(&ranked.collect::<Vec<_>>(), true, &cost).first()?;
        let (_, setting, own) = &known[best];
        let luckiest = own.trials.iter().min_by_key(|(trial, (_, value))| (Cost::new(cost(*value)), **trial));
        Some(BestSetting {
            setting: Arc::clone(setting),
            trial: luckiest.map(|(trial, _)| *trial)?,
            monitor,
            value: mean(samples[best].iter().map(|(_, value)| value)),
            count: samples[best].len(),
        })
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
pub fn varies_setting(axis: &str) -> bool {
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
            let own = (trial, seeds(seed, fold));
            (0..2)
                .for_each(|_| settings.take(setting, own.clone(), Status::Finished, Some((monitor, value))));
        }
        settings.best().map(|best| (best.setting.to_string(), best.trial, best.value, best.count))
    }

    fn seeds(seed: u64, fold: Option<u32>) -> SeedsAndFold {
        [seed.to_string(), format!("{fold:?}")]
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
        assert_eq!(of_seeds(&[0.5], LOSS), is("lr 0.1", 0, 0.5, 1));
        assert_eq!(of_seeds(&[0.5, 0.25, 0.125, 0.75], LOSS), is("lr 0.1", 1, 0.375, 2));
        // On the seed that all have, one with that seed alone may be the best, or not.
        assert_eq!(of_seeds(&[0.5, 0.25, 0.125, 0.75, 0.0625], LOSS), is("lr 0.3", 4, 0.0625, 1));
        assert_eq!(of_seeds(&[0.125, 0.75, 0.5, 0.75, 0.25], LOSS), is("lr 0.1", 0, 0.4375, 2));
        let r2 = Monitor::R2;
        assert_eq!(of_seeds(&[0.5, 0.25, 0.125, 0.75], r2), is("lr 0.2", 3, 0.4375, 2));
        assert_eq!(of_seeds(&[0.5, f64::NAN, 0.125, 0.625], LOSS), is("lr 0.2", 2, 0.375, 2));
        let mut mixed = Settings::default();
        let has_best = [LOSS, r2].map(|monitor| {
            mixed.take("", (0, seeds(0, None)), Status::Finished, Some((monitor, 0.5)));
            mixed.best().is_some()
        });
        assert_eq!(has_best, [true, false]);
    }

    fn samples(values: &[(u32, f64)]) -> Vec<Sample> {
        let values = values.iter().map(|(seed, value)| (seeds((*seed).into(), None), *value));
        super::samples(values, false)
    }

    /// Orders settings of these seeds and values; those at `lost` lost seeds.
    fn ordered(settings: &[&[(u32, f64)]], lost: &[usize]) -> Vec<usize> {
        let samples: Vec<Vec<Sample>> = settings.iter().map(|own| samples(own)).collect();
        let ranked = samples.iter().enumerate();
        let ranked = ranked.map(|(place, samples)| Ranked { samples, has_lost: lost.contains(&place) });
        order(&ranked.collect::<Vec<_>>(), true, &|value| value)
    }

    /// The first setting has one seed more than the second, which is better on each of those that both have.
    #[test]
    fn seeds_that_both_have_decide() {
        let worse: &[(u32, f64)] = &[(0, 1.9), (1, 2.0), (2, 2.1), (3, 1.9)];
        let better: &[(u32, f64)] = &[(0, 0.1), (1, 0.2), (2, 0.1)];
        assert_eq!(ordered(&[worse, better], &[]), [1, 0]);
        assert_eq!(ordered(&[worse, &better[..1]], &[]), [1, 0]);
        // An easy seed alone makes no setting better.
        assert_eq!(ordered(&[&[(0, 0.1), (1, 3.0)], &[(0, 0.2)]], &[]), [0, 1]);
        // Seeds that were lost may be the hard ones, and of none in common nothing is known.
        assert_eq!(ordered(&[worse, better], &[1]), [0, 1]);
        assert_eq!(ordered(&[worse, &[(7, 0.1)]], &[]), [0, 1]);
        assert_eq!(ordered(&[&[(1, 0.2), (2, 0.4)], &[(7, 0.1), (8, 0.3)]], &[]), [1, 0]);
        // The others follow by what they are behind the best, and those that come last are behind these.
        let best: &[(u32, f64)] = &[(0, 0.1), (1, 0.1), (2, 0.1)];
        assert_eq!(ordered(&[worse, &[(9, 0.0)], better, best], &[]), [3, 2, 0, 1]);
    }

    /// One shared seed says nothing about the spread among seeds.
    #[test]
    fn a_single_seed_leads_only_beyond_the_spread_of_several() {
        let of = |single| {
            let several = [("a", 0, None, 0.15), ("a", 1, None, 0.13), ("a", 2, None, 0.14)];
            best(several.into_iter().chain([("b", 0, None, single)]), LOSS)
        };
        assert_eq!(of(0.147), is("a", 1, 0.14, 3));
        assert_eq!(of(0.13), is("a", 1, 0.14, 3));
        assert_eq!(of(0.12), is("b", 3, 0.12, 1));
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
        // On the seed that both have, `b` is ahead, but not of the other seed of `a`.
        assert_eq!(of(&values[..5]), is("a", 4, 0.40625, 2));
        // With one seed, each fold is a value.
        assert_eq!(of(&values[..1]), is("a", 0, 0.75, 1));
        assert_eq!(of(&values[..2]), is("b", 1, 0.5, 1));
        assert_eq!(of(&values[..3]), is("b", 1, 0.5, 1));
        assert_eq!(of(&values[..4]), is("b", 3, 0.375, 2));
        assert_eq!(of(&[0.25, 0.375, 0.75, 0.5]), is("b", 1, 0.4375, 2));
        // Of equal ones the first is best.
        assert_eq!(of(&[0.5, 0.5, 0.75, 0.75]), is("a", 0, 0.625, 2));
    }

    /// Setting `b` is worse on each fold, and loses the hardest one of each seed: its means are of the others.
    #[test]
    fn a_seed_without_some_of_its_folds_is_no_match_for_a_whole_one() {
        let best = |lost: Status| {
            let mut settings = Settings::default();
            for (trial, (seed, fold)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
                let (value, is_hardest) = ([0.25, 1.0][fold], fold == 1);
                let mut take = |trial, name, status, value| {
                    settings.take(name, (trial, seeds(seed, Some(fold as u32))), status, Some((LOSS, value)));
                };
                take(2 * trial, "a", Status::Finished, value);
                take(2 * trial + 1, "b", if is_hardest { lost } else { Status::Finished }, value + 0.125);
            }
            settings.best().map(|best| (best.setting.to_string(), best.value))
        };
        for lost in [Status::Diverged, Status::Stopped, Status::Interrupted] {
            assert_eq!(best(lost), Some(("a".to_owned(), 0.625)), "{lost:?}");
        }
        // Two folds of one seed tell more than one of each of two.
        let of = |values: &[(u64, &str)]| {
            super::samples(
                values.iter().map(|(seed, fold)| ([seed.to_string(), (*fold).to_owned()], 0.5)),
                false,
            )
        };
        let [one, two] = [of(&[(0, "0"), (0, "1"), (0, "2")]), of(&[(0, "0"), (1, "0")])];
        let ranked = |samples| Ranked { samples, has_lost: false };
        assert!(ranked(&two).comes_last(&ranked(&one)) && !ranked(&one).comes_last(&ranked(&two)));
        assert_eq!(pairs(&one, &two), None);
    }

    #[test]
    fn a_setting_that_diverged_comes_behind() {
        let mut settings = Settings::default();
        for (trial, setting, seed, value) in [(0, "a", 0, 0.5), (1, "b", 0, 0.25), (2, "a", 1, 0.5)] {
            settings.take(setting, (trial, seeds(seed, None)), Status::Finished, Some((LOSS, value)));
        }
        let best = |settings: &Settings| settings.best().map(|best| best.setting.to_string());
        assert_eq!(best(&settings).as_deref(), Some("b"));
        settings.take("b", (3, seeds(1, None)), Status::Diverged, None);
        assert_eq!(best(&settings).as_deref(), Some("a"));
    }
}
