//! Estimates held against sums whose shares are known.

use super::*;
use crate::random::Rng;

/// Runs whose axes were drawn evenly from 0 to 1 on a logarithmic scale, and what `metric` says of these draws and of
/// a normal number.
fn drawn(
    runs: usize,
    axes: usize,
    seed: u64,
    metric: impl Fn(&[f64], f64) -> f64,
) -> (Vec<Vec<String>>, Vec<f64>) {
    let mut stream = random::stream(seed, Purpose::Sampler, 0);
    let mut uniform = || (stream.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut texts = vec![Vec::new(); axes];
    let mut values = Vec::new();
    for _ in 0..runs {
        let point: Vec<f64> = (0..axes).map(|_| uniform()).collect();
        let noise = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        values.push(metric(&point, noise));
        texts
            .iter_mut()
            .zip(&point)
            .for_each(|(text, at)| text.push(format!("{}", 1e-4 * 1000_f64.powf(*at))));
    }
    (texts, values)
}

fn shares_of(texts: &[Vec<String>], values: &[f64]) -> Result<Vec<f64>, String> {
    let names = ["lr", "width", "decay", "batch"];
    let axis = |(name, texts): (&'static str, &'_ Vec<String>)| -> (&'static str, Vec<Option<String>>) {
        (name, texts.iter().map(|text| Some(text.clone()).filter(|text| !text.is_empty())).collect())
    };
    let axes: Vec<_> = names.into_iter().zip(texts).map(axis).collect();
    let axes: Vec<Axis<'_>> =
        axes.iter().map(|(name, texts)| (*name, texts.iter().map(Option::as_deref).collect())).collect();
    shares(&axes, values)
}

/// The variances of independent parts of a sum are as 9 : 4 : 1; single sweeps of sixty draws differ from that.
#[test]
fn shares_of_a_sum_are_those_of_its_parts() {
    const SWEEPS: u64 = 40;
    let sum = |at: &[f64], _| 3.0 * at[0] + 2.0 * at[1] + at[2];
    let mut means = [0.0; 4];
    for seed in 0..SWEEPS {
        let (texts, values) = drawn(60, 4, seed, sum);
        let shares = shares_of(&texts, &values).unwrap();
        means.iter_mut().zip(shares).for_each(|(mean, share)| *mean += share / SWEEPS as f64);
    }
    for (mean, wanted) in means.into_iter().zip([9.0 / 14.0, 4.0 / 14.0, 1.0 / 14.0, 0.0]) {
        assert!((mean - wanted).abs() < 0.04, "{means:?}");
    }
}

/// A valley is the first axis's alone; a threshold and noise have the shares that are said below.
#[test]
fn valleys_thresholds_and_noise_are_told() {
    let valley = |at: &[f64], _| (at[0] - 0.4).powi(2);
    let diverges = |at: &[f64], noise| if at[0] > 0.8 { 1e9 * (1.0 + at[1]) } else { at[1] + 0.1 * noise };
    let noisy = |at: &[f64], noise: f64| at[0] + noise / 12_f64.sqrt();
    let (texts, values) = drawn(60, 3, 1, valley);
    let shares_of_valley = shares_of(&texts, &values).unwrap();
    assert!(
        shares_of_valley[0] > 0.8 && shares_of_valley[1..].iter().all(|share| *share < 0.05),
        "{shares_of_valley:?}"
    );
    // The upper fifth ranks above all others, which is 3 * 0.2 * 0.8 = 0.48 of the variance: polynomials follow most of such a step.
    let mut cliff = [0.0; 3];
    for seed in 0..20 {
        let (texts, values) = drawn(100, 3, seed, diverges);
        let shares = shares_of(&texts, &values).unwrap();
        cliff.iter_mut().zip(shares).for_each(|(mean, share)| *mean += share / 20.0);
    }
    assert!(
        (0.33..0.48).contains(&cliff[0]) && (0.33..0.52).contains(&cliff[1]) && cliff[2] < 0.02,
        "{cliff:?}"
    );
    // Noise of the same variance as the axis: half is left.
    let (texts, values) = drawn(400, 3, 3, noisy);
    let half = shares_of(&texts, &values).unwrap();
    assert!((half[0] - 0.48).abs() < 0.08 && half[1..].iter().all(|share| *share < 0.03), "{half:?}");
}

/// In 5 % of sweeps at most is noise taken for what the axes do.
#[test]
fn noise_matters_nothing() {
    let told = (0..200).filter(|&seed| {
        let (texts, values) = drawn(30, 3, seed, |_, noise| noise);
        shares_of(&texts, &values).is_ok()
    });
    // Three standard deviations above the mean.
    let told = told.count();
    assert!(told <= 19, "{told} of 200");
}

/// The means of `repeats` runs of each setting, whose noise has a variance of 0.01.
fn repeated(
    texts: &[Vec<String>],
    values: &[f64],
    repeats: usize,
    seed: u64,
) -> (Vec<Vec<String>>, Vec<f64>) {
    let (_, noise) = drawn(values.len() * repeats, 1, seed + 1000, |_, noise| 0.1 * noise);
    let runs: Vec<Point<'_>> = noise
        .iter()
        .enumerate()
        .map(|(run, noise)| {
            let setting = run % values.len();
            (texts.iter().map(|axis| Some(&*axis[setting])).collect(), values[setting] + noise)
        })
        .collect();
    let settings = settings(&runs);
    let axis = |axis: usize| settings.iter().map(|(own, _)| own[axis].unwrap().to_owned()).collect();
    ((0..texts.len()).map(axis).collect(), settings.iter().map(|(_, value)| *value).collect())
}

/// Five seeds of each of twelve settings show what a setting does, but not that an axis does it.
#[test]
fn repeats_are_no_evidence_on_axes() {
    for axes in [2, 3] {
        let told = (0..200).filter(|&seed| {
            let (texts, values) = drawn(12, axes, seed, |_, noise| noise);
            let (texts, values) = repeated(&texts, &values, 5, seed);
            shares_of(&texts, &values).is_ok()
        });
        let told = told.count();
        assert!(told <= 19, "{told} of 200, {axes} axes");
    }
}

/// Variances as 4 : 1, and that of the mean of five seeds: 0.01 / 5 = 0.002, of 5 / 12 + 0.002 in all.
#[test]
fn a_sum_is_found_in_repeats() {
    const SWEEPS: u64 = 40;
    let mut means = [0.0; 3];
    for seed in 0..SWEEPS {
        let (texts, values) = drawn(40, 3, seed, |at, _| 2.0 * at[0] + at[1]);
        let (texts, values) = repeated(&texts, &values, 5, seed);
        assert_eq!(values.len(), 40);
        let shares = shares_of(&texts, &values).unwrap();
        means.iter_mut().zip(shares).for_each(|(mean, share)| *mean += share / SWEEPS as f64);
    }
    for (mean, wanted) in means.into_iter().zip([0.8, 0.2, 0.0]) {
        assert!((mean - wanted).abs() < 0.04, "{means:?}");
    }
}

/// A grid of 4 x 3 without three of its cells: ranks are the same sum in all of them.
#[test]
fn a_grid_may_lack_cells() {
    let cells = (0..4).flat_map(|row| (0..3).map(move |column| (row, column)));
    let cells: Vec<(i32, i32)> = cells.filter(|cell| ![(0, 1), (2, 2), (3, 0)].contains(cell)).collect();
    let texts = [
        cells.iter().map(|(row, _)| format!("w{row}")).collect(),
        cells.iter().map(|(_, column)| column.to_string()).collect(),
    ];
    let values: Vec<f64> = cells.iter().map(|(row, column)| f64::from(10 * row + column)).collect();
    let shares = shares_of(&texts, &values).unwrap();
    assert!(shares[0] > 0.9 && shares[1] < 0.1, "{shares:?}");
}

/// A momentum that only one of two optimizers has is judged within it; the rest is the optimizer's.
#[test]
fn a_conditional_axis_is_judged_where_it_varies() {
    let (mut texts, mut values) = drawn(80, 2, 5, |at, _| at[1]);
    for run in 0..80 {
        let is_sgd = run % 2 == 0;
        if !is_sgd {
            texts[1][run] = String::new();
        }
        // The optimizer moves ranks by half of all: 3/4 of the variance; within sgd 1/8 is left for its key.
        values[run] = if is_sgd { 10.0 + values[run] } else { f64::from(run as u32 * 7 % 80) / 80.0 };
        texts[0][run] = if is_sgd { "sgd" } else { "adam" }.to_owned();
    }
    let shares = shares_of(&texts, &values).unwrap();
    assert!((shares[0] - 0.75).abs() < 0.05 && (shares[1] - 0.125).abs() < 0.04, "{shares:?}");
}

#[test]
fn what_cannot_be_told_is_said() {
    let texts = |columns: &[&str]| -> Vec<Vec<String>> {
        columns.iter().map(|column| column.split(' ').map(str::to_owned).collect()).collect()
    };
    let reason = |columns: &[&str], values: &[f64]| shares_of(&texts(columns), values).unwrap_err();
    assert_eq!(
        reason(&["1 1 2", "1 2 1"], &[1.0, 2.0, 3.0]),
        "3 settings are too few for the values of 2 axes"
    );
    assert_eq!(
        reason(&["1 2 3 4 5", "2 4 6 8 10"], &[1.0, 2.0, 3.0, 5.0, 4.0]),
        "width changes only along with other axes"
    );
    assert_eq!(reason(&["1 2 3 4"], &[1.0; 4]), "all values are equal");
    assert_eq!(
        reason(&["1 2 3 4 5 6"], &[1.0, 6.0, 2.0, 5.0, 1.5, 5.5]),
        "6 settings do not tell what the axes do from chance"
    );
}

#[test]
fn medians_are_of_levels_or_of_thirds() {
    let levels = ["a", "b", "a"].map(Some);
    let wanted = [("a", 2.0), ("b", 5.0)].map(|(name, value)| (name.to_owned(), value)).to_vec();
    assert_eq!(medians(&levels, &[1.0, 5.0, 3.0]), (wanted, false));
    let numbers = ["7", "1", "2", "3", "4", "5", "6", "8", "9"].map(Some);
    let (thirds, are_ranges) = medians(&numbers, &[70.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 90.0]);
    let wanted = [("1 to 3", 20.0), ("4 to 6", 50.0), ("7 to 9", 80.0)];
    assert_eq!(thirds, wanted.map(|(name, value)| (name.to_owned(), value)));
    assert!(are_ranges);
}

/// A number that lies on the border of two thirds belongs to one of them.
#[test]
fn thirds_do_not_overlap() {
    let numbers = ["1", "2", "3", "3", "3", "4", "5", "6", "7"].map(Some);
    let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    let wanted = [("1 to 3", 3.0), ("4", 6.0), ("5 to 7", 8.0)];
    let wanted = wanted.map(|(name, value)| (name.to_owned(), value)).to_vec();
    assert_eq!(medians(&numbers, &values), (wanted, true));
}
