//! The ranks and p-values of settings.

use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};

use super::{pairs::compare_with_best, *};

fn setting(values: Vec<f64>) -> Candidate {
    Candidate {
        values: Vec::new(),
        places: Vec::new(),
        each: SampleUnit::Seed,
        dependence: Dependence::Independent,
        rows: JudgingRows::default(),
        combinations: [1; 2],
        lost: 0,
        incomplete: 0,
        value: values.iter().sum(),
        interval: None,
        samples: values
            .into_iter()
            .enumerate()
            .map(|(i, value)| Sample::new([([i.to_string(), String::new()], value)]))
            .collect(),
        difference: None,
        p: None,
    }
}

/// Sixteen settings with three seeds each: the expected values are from `scipy.stats.ttest_rel` over all
/// 120 pairs, with Holm's correction.
#[test]
fn p_is_holms_over_all_pairs() {
    let lines: Vec<(&str, &str)> = include_str!("../../../../../tests/fixtures/statistics/holm.csv")
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(','))
        .collect();
    let values = |text: &str| text.split(' ').map(|value| value.parse().unwrap()).collect();
    let mut settings: Vec<Candidate> = lines.iter().map(|(text, _)| setting(values(text))).collect();
    assert_eq!(compare_with_best(&mut settings), 120);
    for (setting, (values, p)) in settings.iter().zip(&lines).skip(1) {
        let wanted: f64 = p.parse().unwrap();
        assert!(setting.p.is_some_and(|p| (p - wanted).abs() < 1e-9), "{values}: {:?}", setting.p);
    }
}

/// If all settings are equal, a difference from the best is found in at most 5 % of sweeps, although the
/// best is chosen from the same figures.
#[test]
fn equal_settings_are_not_told_apart() {
    const SWEEPS: usize = 2000;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    let mut found = 0;
    for _ in 0..SWEEPS {
        let mut settings: Vec<Candidate> =
            (0..6).map(|_| setting((0..5).map(|_| normal()).collect())).collect();
        settings.sort_by(|a, b| a.value.total_cmp(&b.value));
        assert_eq!(compare_with_best(&mut settings), 15);
        found += usize::from(settings.iter().any(|setting| setting.p.is_some_and(|p| p < 0.05)));
    }
    assert!(found < SWEEPS / 20, "{found} of {SWEEPS}");
}

/// Two splits of two seeds each are more than three splits of one: the ranking counts seeds and folds, and so does its note.
#[test]
fn fewer_seeds_are_counted_as_the_ranking_counts() {
    let splits = |each: &[&[usize]], value: f64| {
        let of = |seeds: &&[usize]| {
            Sample::new(seeds.iter().map(|seed| ([seed.to_string(), String::new()], value)))
        };
        Candidate {
            each: SampleUnit::Split,
            samples: each.iter().map(of).collect(),
            value,
            ..setting(vec![value])
        }
    };
    let lacking = |settings: Vec<Candidate>| -> Vec<f64> {
        let metric = Metric::from_key(Key::full("validation.loss"), &[]);
        let ranking = Ranking {
            settings: sorted(settings, &metric),
            metric,
            keys: Vec::new(),
            pairs: 0,
            each: SampleUnit::Split,
            status: FINISHED,
            left_out: Vec::new(),
        };
        assert_eq!(ranking.settings[0].value, 0.3);
        ranking.lacking_seeds().map(|own| own.value).collect()
    };
    let four: &[&[usize]] = &[&[0, 1], &[2, 3]];
    assert_eq!(lacking(vec![splits(four, 0.3), splits(&[&[4], &[5], &[6]], 0.2)]), [0.2]);
    assert_eq!(lacking(vec![splits(four, 0.3), splits(&[&[4], &[5], &[6], &[7]], 0.4)]), [0.0; 0]);
}
