//! Sweeps of a few trials, and which of their settings leads.

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
        (0..2).for_each(|_| settings.take(setting, own.clone(), Status::Finished, Some((monitor, value))));
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
        let settings = ["lr 0.1", "lr 0.1", "lr 0.2", "lr 0.2", "lr 0.3"].into_iter().zip([0, 1, 0, 1, 0]);
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
        super::samples(values.iter().map(|(seed, fold)| ([seed.to_string(), (*fold).to_owned()], 0.5)), false)
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

#[test]
fn folds_that_are_missing_are_counted() {
    let mut settings = Settings::default();
    let all = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)].map(|(seed, fold)| seeds(seed, Some(fold)));
    all.iter().for_each(|of| settings.know(of.clone()));
    let mut folds = all.iter().enumerate().map(|(trial, of)| {
        settings.take("a", (trial, of.clone()), Status::Finished, Some((LOSS, 0.5)));
        settings.best().map(|best| best.folds)
    });
    let wanted = [1, 2, 3, 4, 5].map(|finished| Some(Some([finished, 6])));
    assert!(folds.by_ref().take(5).eq(wanted));
    assert_eq!(folds.next(), Some(Some(None)), "it has all");
    let mut seeds_alone = Settings::default();
    [0, 1].into_iter().for_each(|seed| seeds_alone.know(seeds(seed, None)));
    seeds_alone.take("a", (0, seeds(0, None)), Status::Finished, Some((LOSS, 0.5)));
    assert_eq!(seeds_alone.best().map(|best| best.folds), Some(None), "its rows are not in folds");
}
