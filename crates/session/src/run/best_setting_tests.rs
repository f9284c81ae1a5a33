//! Sweeps of a few trials, and which of their settings leads.

use super::{super::samples::SampleUnit, *};

const LOSS: Monitor = Monitor::LOSS;

/// A sweep of trials with these settings, seeds, folds and values; each is reported twice.
fn best<'a>(
    trials: impl IntoIterator<Item = (&'a str, u64, Option<u32>, f64)>,
    monitor: Monitor,
) -> Option<(String, usize, f64, usize)> {
    let mut settings = Settings::default();
    for (trial, (setting, seed, fold, value)) in trials.into_iter().enumerate() {
        let own = (trial, seeds(seed, fold), seed.to_string());
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
        mixed.take("", (0, seeds(0, None), String::new()), Status::Finished, Some((monitor, 0.5)));
        mixed.best().is_some()
    });
    assert_eq!(has_best, [true, false]);
}

/// A trial whose rows its seed draws.
fn of_seed(of: SeedsAndFold, value: f64) -> TrialValue {
    TrialValue { rows: Some(of[0].clone()), of, value }
}

fn samples(values: &[(u32, f64)]) -> Vec<Sample> {
    let value = |(seed, value): &(u32, f64)| of_seed(seeds((*seed).into(), None), *value);
    super::samples(&values.iter().map(value).collect::<Vec<_>>(), SampleUnit::Seed)
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
                let of = (trial, seeds(seed, Some(fold as u32)), String::new());
                settings.take(name, of, status, Some((LOSS, value)));
            };
            take(2 * trial, "a", Status::Finished, value);
            take(2 * trial + 1, "b", if is_hardest { lost } else { Status::Finished }, value + 0.125);
        }
        settings.best().map(|best| (best.setting.to_string(), best.value))
    };
    for lost in [Status::Diverged, Status::Stopped, Status::Interrupted] {
        assert_eq!(best(lost), Some(("a".to_owned(), 0.625)), "{lost:?}");
    }
    // Two folds of one seed tell more than one of each of two, and the run that both have compares them.
    let of = |values: &[(u64, &str, f64)]| {
        let value =
            |(seed, fold, value): &(u64, &str, f64)| of_seed([seed.to_string(), (*fold).to_owned()], *value);
        super::samples(&values.iter().map(value).collect::<Vec<_>>(), SampleUnit::Seed)
    };
    let one = of(&[(0, "0", 0.5), (0, "1", 0.25), (0, "2", 0.125)]);
    let two = of(&[(0, "0", 0.75), (1, "0", 0.0)]);
    let ranked = |samples, has_lost| Ranked { samples, has_lost };
    assert!(!ranked(&two, false).comes_last(&ranked(&one, false)));
    assert!(ranked(&two, true).comes_last(&ranked(&one, false)), "it lost the others");
    let paired = pairs(&two, &one).unwrap();
    assert_eq!(paired.values, [(0.75, 0.5)]);
    assert_eq!(paired.shared, Some(vec![vec![&["0".to_owned(), "0".to_owned()]]]));
    assert_eq!(order(&[ranked(&two, false), ranked(&one, false)], true, &|value| value), [1, 0]);
}

/// Settings that lack different folds are compared by the folds of each seed that both have: `b` is the better of the two on each of
/// these, though its mean over its own ones is higher.
#[test]
fn the_folds_that_both_have_decide() {
    let of = |values: &[(u64, u32, f64)]| {
        let value = |(seed, fold, value): &(u64, u32, f64)| of_seed(seeds(*seed, Some(*fold)), *value);
        super::samples(&values.iter().map(value).collect::<Vec<_>>(), SampleUnit::Seed)
    };
    let a = of(&[(0, 0, 0.25), (0, 1, 0.5), (1, 0, 0.375), (1, 1, 0.5)]);
    let b = of(&[(0, 1, 0.4375), (0, 2, 1.0), (1, 1, 0.375), (1, 2, 1.0), (2, 1, 0.75)]);
    let values = pairs(&a, &b).unwrap().values;
    assert_eq!(values, [(0.5, 0.4375), (0.5, 0.375)]);
    let paired = pairs(&a, &a).unwrap();
    assert_eq!(paired.values, [(0.375, 0.375), (0.4375, 0.4375)]);
    assert_eq!(paired.folds, [0.25, 0.5, 0.375, 0.5].map(|value| (value, value)));
    let ranked = |samples| Ranked { samples, has_lost: false };
    assert_eq!(order(&[ranked(&a), ranked(&b)], true, &|value| value), [1, 0]);
}

/// Three seeds for each of two splits: a split is one sample, also where a seed of it is lost, and pairs are of the seeds that both have.
#[test]
fn seeds_of_one_split_count_as_one() {
    let value = |(split, seed, value): (u32, u32, f64)| TrialValue {
        of: [format!("{seed} {split}"), String::new()],
        rows: Some(split.to_string()),
        value,
    };
    let of = |values: &[(u32, u32, f64)]| values.iter().copied().map(value).collect::<Vec<_>>();
    let whole = of(&[(0, 0, 0.25), (0, 1, 0.5), (0, 2, 0.75), (1, 0, 1.0), (1, 1, 1.25), (1, 2, 1.5)]);
    let some = of(&[(0, 0, 0.5), (0, 1, 0.75), (1, 0, 1.25), (1, 1, 1.5), (1, 2, 1.75)]);
    let known = |values: &[TrialValue]| -> Vec<_> {
        values.iter().map(|own| (own.of.clone(), own.rows.clone())).collect()
    };
    let unit =
        |settings: &[&[TrialValue]]| sample_unit(&settings.iter().map(|own| known(own)).collect::<Vec<_>>());
    assert_eq!(unit(&[&whole, &some]), SampleUnit::Split);
    assert_eq!(unit(&[&whole[..3], &whole[3..]]), SampleUnit::Seed, "each setting has one split");
    assert_eq!(unit(&[&[whole[0].clone(), whole[3].clone()]]), SampleUnit::Seed, "a seed for each split");
    let [whole, some] = [whole, some].map(|own| super::samples(&own, SampleUnit::Split));
    let means = |samples: &[Sample]| samples.iter().map(|own| own.value).collect::<Vec<_>>();
    assert_eq!([means(&whole), means(&some)], [[0.5, 1.25], [0.625, 1.5]]);
    assert_eq!(pairs(&some, &whole).unwrap().values, [(0.625, 0.375), (1.5, 1.25)]);
    // Seeds of one split alone: they are one sample of the other.
    let one = super::samples(&of(&[(1, 0, 2.0), (1, 1, 2.0), (1, 2, 5.0)]), SampleUnit::Seed);
    assert_eq!(one.len(), 3);
    assert_eq!(pairs(&one, &whole).unwrap().values, [(3.0, 1.25)]);
    // Each of two folds counts with the mean over its seeds.
    let of_fold = |(seed, fold, value): (u32, u32, f64)| TrialValue {
        of: [seed.to_string(), fold.to_string()],
        rows: Some("of all".to_owned()),
        value,
    };
    let folds = [(0, 0, 0.25), (0, 1, 1.0), (1, 0, 0.75), (1, 1, 2.0)].map(of_fold);
    assert_eq!(super::samples(&folds, SampleUnit::Split)[0].by_fold(), [0.5, 1.5]);
}

#[test]
fn a_setting_that_diverged_comes_behind() {
    let mut settings = Settings::default();
    for (trial, setting, seed, value) in [(0, "a", 0, 0.5), (1, "b", 0, 0.25), (2, "a", 1, 0.5)] {
        settings.take(
            setting,
            (trial, seeds(seed, None), seed.to_string()),
            Status::Finished,
            Some((LOSS, value)),
        );
    }
    let best = |settings: &Settings| settings.best().map(|best| best.setting.to_string());
    assert_eq!(best(&settings).as_deref(), Some("b"));
    settings.take("b", (3, seeds(1, None), "1".to_owned()), Status::Diverged, None);
    assert_eq!(best(&settings).as_deref(), Some("a"));
}

#[test]
fn folds_that_are_missing_are_counted() {
    let mut settings = Settings::default();
    let all = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)].map(|(seed, fold)| seeds(seed, Some(fold)));
    all.iter().for_each(|of| settings.know(of.clone()));
    let mut folds = all.iter().enumerate().map(|(trial, of)| {
        settings.take("a", (trial, of.clone(), of[0].clone()), Status::Finished, Some((LOSS, 0.5)));
        settings.best().map(|best| best.folds)
    });
    let wanted = [1, 2, 3, 4, 5].map(|finished| Some(Some([finished, 6])));
    assert!(folds.by_ref().take(5).eq(wanted));
    assert_eq!(folds.next(), Some(Some(None)), "it has all");
    let mut seeds_alone = Settings::default();
    [0, 1].into_iter().for_each(|seed| seeds_alone.know(seeds(seed, None)));
    seeds_alone.take("a", (0, seeds(0, None), "0".to_owned()), Status::Finished, Some((LOSS, 0.5)));
    assert_eq!(seeds_alone.best().map(|best| best.folds), Some(None), "its rows are not in folds");
}
