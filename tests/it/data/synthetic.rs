//! `synthetic_regression` and `synthetic_classification`.

use std::path::Path;

use runner::{
    data::{Dataset, Task, open, outline},
    plan::{DatasetInfo, TargetSpread},
    spec::{Source, SyntheticClassification, SyntheticRegression},
};

use super::{MUCH, data, memory, problems};

fn spec(train_rows: usize, validation_rows: usize) -> SyntheticRegression {
    SyntheticRegression {
        weights: Some(vec![2.0, -3.4]),
        features: None,
        bias: 4.2,
        noise: 0.01,
        train_rows,
        validation_rows,
    }
}

fn classes(features: usize, classes: u32, train_rows: usize) -> Dataset {
    let spec =
        SyntheticClassification { features, classes, separation: 3.0, train_rows, validation_rows: 5000 };
    open(&data(Source::SyntheticClassification(spec)), Task::Classification, 1, MUCH).expect("rows")
}

fn made(spec: SyntheticRegression, seed: u64) -> Dataset {
    open(&data(Source::SyntheticRegression(spec)), Task::Regression, seed, MUCH).expect("rows")
}

#[test]
fn follows_its_formula() {
    let made = made(spec(100_000, 50), 7);
    assert_eq!((made.features, made.targets, made.classes), (2, 1, None));
    assert_eq!(made.truth, Some((vec![2.0, -3.4], 4.2)));
    let x = memory(&made.train);
    let (mut sum, mut square, mut noise) = (0.0, 0.0, 0.0);
    for (row, &y) in x.chunks_exact(2).zip(made.train.targets.iter()) {
        sum += f64::from(row[0]);
        square += f64::from(row[0]).powi(2);
        noise += (f64::from(y) - (2.0 * f64::from(row[0]) - 3.4 * f64::from(row[1]) + 4.2)).powi(2);
    }
    let n = made.train.rows as f64;
    // Five standard errors each.
    assert!((sum / n).abs() < 5.0 / n.sqrt());
    assert!((square / n - 1.0).abs() < 5.0 * (2.0 / n).sqrt());
    assert!(((noise / n).sqrt() / 0.01 - 1.0).abs() < 5.0 / (2.0 * n).sqrt());
    assert_eq!(made.validation.map(|part| (part.rows, part.targets.len())), Some((50, 50)));
}

#[test]
fn numbers_are_frozen() {
    let made = made(spec(2, 1), 0);
    assert_eq!(memory(&made.train), [-1.163_494_5, -0.797_479_15, 0.137_057_21, -0.970_752_1]);
    assert_eq!(**made.train.targets, [4.561_987_4, 7.770_292_3]);
    assert_eq!(made.validation.as_ref().map(memory), Some(&[0.613_401_9, 0.757_054_4][..]));
}

#[test]
fn training_rows_depend_on_the_seed_alone() {
    let (one, other) = (made(spec(100, 0), 3), made(spec(1000, 77), 3));
    assert_eq!(memory(&one.train), &memory(&other.train)[..200]);
    assert_eq!(one.train.targets[..], other.train.targets[..100]);
    assert!(one.validation.is_none());
    assert_ne!(memory(&one.train), memory(&made(spec(100, 0), 4).train));
    let validation = other.validation.expect("rows to validate on");
    assert_ne!(memory(&validation)[..100], memory(&one.train)[..100]);
}

#[test]
fn weights_are_drawn_so_that_targets_have_unit_variance() {
    let drawn = SyntheticRegression { weights: None, features: Some(400), bias: 0.0, ..spec(5000, 1000) };
    let (one, other) = (made(drawn.clone(), 1), made(SyntheticRegression { train_rows: 10, ..drawn }, 2));
    let (weights, bias) = one.truth.clone().expect("a truth");
    assert_eq!((weights.len(), bias), (400, 0.0));
    assert_eq!(one.truth, other.truth, "whatever the seed and the number of rows");
    let square: f64 = weights.iter().map(|w| w * w).sum();
    assert!((square - 1.0).abs() < 1e-12, "{square}");
    // Five standard errors of a variance.
    let variance = one.train.targets.iter().map(|y| f64::from(*y).powi(2)).sum::<f64>() / 5000.0;
    assert!((variance - 1.0).abs() < 5.0 * (2.0_f64 / 5000.0).sqrt(), "{variance}");
    let error = |x: &[f32], y: f32| {
        f64::from(y) - x.iter().zip(&weights).map(|(x, w)| f64::from(*x) * w).sum::<f64>()
    };
    let validation = one.validation.as_ref().expect("rows to validate on");
    let rows = memory(validation).chunks_exact(400).zip(validation.targets.iter());
    let mean = rows.map(|(x, y)| error(x, *y).powi(2)).sum::<f64>() / 1000.0;
    assert!((mean / 1e-4 - 1.0).abs() < 5.0 * (2.0_f64 / 1000.0).sqrt(), "{mean}");
    let told =
        format!("have a mean squared error of {} on those to validate on", runner::units::number(mean));
    assert!(one.notes[0].ends_with(&told), "{:?}: {told}", one.notes);
}

/// The best classifier of two normal distributions at a distance of d takes the nearer centre, and errs with probability
/// `Phi(-d/2)` (Duda, Hart, Stork: *Pattern Classification*, 2001, section 2.6).
#[test]
fn two_classes_overlap_as_their_distance_says() {
    let made = classes(64, 2, 40_000);
    assert_eq!((made.features, made.targets, made.classes), (64, 1, Some(2)));
    let mut sums = [vec![0.0; 64], vec![0.0; 64]];
    let mut counts = [0.0_f64; 2];
    for (x, class) in memory(&made.train).chunks_exact(64).zip(made.train.targets.iter()) {
        counts[*class as usize] += 1.0;
        sums[*class as usize].iter_mut().zip(x).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    assert!((counts[0] - 20_000.0).abs() < 5.0 * 100.0, "{counts:?}");
    let centre = |class: usize, i: usize| sums[class][i] / counts[class];
    let squared: f64 = (0..64).map(|i| (centre(0, i) - centre(1, i)).powi(2)).sum();
    // Each mean of 20,000 rows is off by N(0, 1/20000) per coordinate.
    let distance = (squared - 64.0 * 2.0 / 20_000.0).sqrt();
    assert!((distance - 3.0).abs() < 5.0 * (2.0_f64 / 20_000.0).sqrt(), "{distance}");
    let validation = made.validation.as_ref().expect("rows to validate on");
    let wrong = memory(validation).chunks_exact(64).zip(validation.targets.iter()).filter(|(x, class)| {
        let to = |class: usize| -> f64 {
            x.iter().enumerate().map(|(i, x)| (f64::from(*x) - centre(class, i)).powi(2)).sum()
        };
        (to(1) < to(0)) != (**class == 1.0)
    });
    let error = wrong.count() as f64 / 5000.0;
    // Phi(-1.5), within five standard errors of 5000 rows.
    assert!((error - 0.0668).abs() < 0.018, "{error}");
    let told = made.notes[0].split("accuracy of ").nth(1).and_then(|rest| rest.split(" %").next());
    let told: f64 = told.expect("the best accuracy").parse().expect("a number");
    assert!((told / 100.0 - (1.0 - error)).abs() < 0.004, "{told} and {error}");
}

/// Nothing tells them apart: each has the probability 1/4, and the first is predicted.
#[test]
fn classes_in_one_place_cannot_be_told_apart() {
    let spec = SyntheticClassification {
        features: 5,
        classes: 4,
        separation: 0.0,
        train_rows: 10,
        validation_rows: 100,
    };
    let made =
        open(&data(Source::SyntheticClassification(spec)), Task::Classification, 1, MUCH).expect("rows");
    let first =
        made.validation.expect("rows to validate on").targets.iter().filter(|class| **class == 0.0).count();
    let told = format!("a loss of 1.386 and an accuracy of {first}.0 % on the rows to validate on");
    assert_eq!(made.notes, [format!("the best model, which takes the nearest centre, has {told}")]);
}

#[test]
fn classes_are_frozen_and_alike_whatever_the_number_of_rows() {
    let (one, other) = (classes(2, 3, 4), classes(2, 3, 9));
    assert_eq!(memory(&one.train), &memory(&other.train)[..8]);
    assert_eq!(memory(&one.train)[..4], [0.820_697_07, 2.935_530_2, -1.185_536_9, 1.290_454_9]);
    assert_eq!(other.train.targets[..], [0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 1.0]);
}

#[test]
fn says_what_is_wrong() {
    assert_eq!(
        problems(Source::SyntheticRegression(spec(0, 3)), Task::Regression, Path::new("/")),
        "there is no row to train on\n  --> data\n"
    );
    assert_eq!(
        problems(Source::SyntheticRegression(spec(1 << 60, 0)), Task::Regression, Path::new("/")),
        "\
1152921504606846976 rows of 2 features need 8 EiB of memory
  --> data.synthetic_regression.train_rows
  hint: take fewer rows
"
    );
}

/// A plan without the rows has the facts of one with them; of the targets it has the formula's mean and deviation.
#[test]
fn an_outline_has_the_facts_of_the_rows() {
    let classes = SyntheticClassification {
        features: 7,
        classes: 3,
        separation: 2.0,
        train_rows: 60,
        validation_rows: 0,
    };
    let drawn = SyntheticRegression { weights: None, features: Some(5), noise: 0.5, ..spec(20_000, 30) };
    for (source, task) in [
        (Source::SyntheticRegression(spec(20_000, 7)), Task::Regression),
        (Source::SyntheticRegression(drawn), Task::Regression),
        (Source::SyntheticClassification(classes), Task::Classification),
    ] {
        let data = data(source);
        let made = open(&data, task, 3, MUCH).expect("rows").facts();
        let outline = outline(&data, false).expect("no files").expect("a shape").facts();
        let without = |facts: DatasetInfo| DatasetInfo { target_spread: None, digest: 0, ..facts };
        assert_eq!(without(outline), without(made));
        let spread = [made, outline].map(|facts| facts.target_spread);
        if let [Some(made), Some(outline)] = spread {
            let TargetSpread { mean, deviation } = outline;
            // Five standard errors.
            assert!((made.mean - mean).abs() < 5.0 * deviation / 20_000_f64.sqrt(), "{spread:?}");
            assert!((made.deviation / deviation - 1.0).abs() < 5.0 / 40_000_f64.sqrt(), "{spread:?}");
        } else {
            assert_eq!(spread, [None, None]);
        }
    }
}
