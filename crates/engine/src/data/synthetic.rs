//! Rows that are made: from known weights, to compare with the learned ones, or around a centre per class.
//!
//! `synthetic_regression`: a row has `x ~ N(0, 1)` and `y = x . w + b + noise * N(0, 1)`. The features of a row are drawn first,
//! then its noise.
//!
//! `synthetic_classification`: the centre of a class has coordinates from `N(0, separation^2 / (2 features))`, so that the squared
//! distance of two centres is `separation^2` on average, whatever the number of features. A row's class is drawn first, uniformly,
//! then its features, `x ~ N(centre, 1)`. Of two classes at that distance, the best classifier mistakes the fraction
//! `Phi(-separation / 2)`, where `Phi` is the distribution function of N(0, 1).
//!
//! Training rows, validation rows, and the weights or centres come from separate random streams.

use rand_distr::{Distribution, StandardNormal};

use super::{Dataset, Part, memory};
use crate::{
    random::{self, ChaCha8Rng, Purpose},
    spec::{Problem, Synthetic, SyntheticClassification, SyntheticRegression},
};

/// Indices of random streams: of the rows to train and to validate on, and of what makes both.
const TRAIN: usize = 0;
const VALIDATION: usize = 1;
const WORLD: u64 = 2;

pub(super) fn regression(spec: &SyntheticRegression, seed: u64) -> Result<Dataset, Problem> {
    let made = spec.made();
    let weights = match &spec.weights {
        Some(weights) => weights.clone(),
        None => normal_numbers(seed, [1, made.features], 1.0 / (made.features as f64).sqrt())
            .map_err(|bytes| too_large("data.synthetic_regression.features", &made, "weights", bytes))?,
    };
    let row = |rng: &mut ChaCha8Rng, features: &mut Vec<f32>| {
        let first = features.len();
        features.extend(weights.iter().map(|_| -> f32 { StandardNormal.sample(rng) }));
        let noise: f64 = StandardNormal.sample(rng);
        (dot(&features[first..], &weights) + spec.bias + spec.noise * noise) as f32
    };
    let mut dataset = dataset(&made, seed, row)?;
    dataset.truth = Some((weights, spec.bias));
    Ok(dataset)
}

pub(super) fn classification(spec: &SyntheticClassification, seed: u64) -> Result<Dataset, Problem> {
    let made = spec.made();
    let spread = spec.separation / (2.0 * made.features as f64).sqrt();
    let centres = normal_numbers(seed, [spec.classes as usize, made.features], spread)
        .map_err(|bytes| too_large("data.synthetic_classification.classes", &made, "centres", bytes))?;
    let mut dataset = dataset(&made, seed, |rng, features| {
        let class = random::below(rng, spec.classes);
        let centre = &centres[class as usize * made.features..][..made.features];
        features.extend(centre.iter().map(|centre| {
            let off: f64 = StandardNormal.sample(rng);
            (centre + off) as f32
        }));
        class as f32
    })?;
    dataset.classes = Some(spec.classes as usize);
    Ok(dataset)
}

fn too_large(key: &str, made: &Synthetic, what: &str, bytes: u128) -> Problem {
    let message = format!("{what} of {} features need {} of memory", made.features, memory::size(bytes));
    Problem::at_key(key, message).hint("take fewer")
}

/// Numbers from N(0, spread^2) that are the same for all rows of a seed; on failure the bytes that they would need.
fn normal_numbers(seed: u64, [lines, width]: [usize; 2], spread: f64) -> Result<Vec<f64>, u128> {
    let bytes = lines as u128 * width as u128 * size_of::<f64>() as u128;
    let count = lines.checked_mul(width).ok_or(bytes)?;
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(count).map_err(|_| bytes)?;
    let mut rng = random::stream(seed, Purpose::Data, WORLD);
    numbers.extend((0..count).map(|_| spread * Distribution::<f64>::sample(&StandardNormal, &mut rng)));
    Ok(numbers)
}

/// The rows to train and to validate on; `row` appends one row's features and returns its target.
fn dataset(
    made: &Synthetic,
    seed: u64,
    row: impl Fn(&mut ChaCha8Rng, &mut Vec<f32>) -> f32,
) -> Result<Dataset, Problem> {
    let part = |which: usize, rows: usize| {
        let too_many = |bytes| {
            let message =
                format!("{rows} rows of {} features need {} of memory", made.features, memory::size(bytes));
            Problem::at_key(made.keys[which], message).hint("take fewer rows")
        };
        let mut features = memory::reserved(rows, made.features).map_err(too_many)?;
        let mut targets = memory::reserved(rows, 1).map_err(too_many)?;
        let mut rng = random::stream(seed, Purpose::Data, which as u64);
        targets.extend((0..rows).map(|_| row(&mut rng, &mut features)));
        Ok(Part::of_memory(rows, features, targets))
    };
    let train = part(TRAIN, made.train_rows)?;
    let validation =
        (made.validation_rows > 0).then(|| part(VALIDATION, made.validation_rows)).transpose()?;
    Ok(Dataset::new(train, validation, made.features, 1))
}

/// Computed in f64 from the stored f32 features, so that the true weights fit them exactly. Four partial sums
/// hide the latency of additions.
fn dot(row: &[f32], weights: &[f64]) -> f64 {
    let (rows, row_rest) = row.as_chunks::<4>();
    let (weights, weight_rest) = weights.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for (x, w) in rows.iter().zip(weights) {
        for lane in 0..4 {
            sums[lane] += f64::from(x[lane]) * w[lane];
        }
    }
    let rest: f64 = row_rest.iter().zip(weight_rest).map(|(x, w)| f64::from(*x) * w).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}
