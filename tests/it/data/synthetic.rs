//! `synthetic_regression`.

use std::path::Path;

use runner::{
    data::{Dataset, Task, open},
    spec::{Source, SyntheticRegression},
};

use super::{MUCH, data, memory, problems};

fn spec(train_rows: usize, validation_rows: usize) -> SyntheticRegression {
    SyntheticRegression { weights: vec![2.0, -3.4], bias: 4.2, noise: 0.01, train_rows, validation_rows }
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
