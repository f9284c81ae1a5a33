//! Rows that are made: from known weights, to compare with the learned ones, or around a centre per class.
//!
//! `synthetic_regression`: a row has `x ~ N(0, 1)` and `y = x . w + b + noise * N(0, 1)`. The features of a row are drawn first,
//! then its noise.
//!
//! `synthetic_classification`: the directions of the centres are drawn, and scaled so that the root mean square of all their distances
//! is `separation`. A row's class is drawn first, uniformly, then its features, `x ~ N(centre, 1)`. The best classifier takes the nearest
//! centre; of two classes it mistakes the fraction `Phi(-separation / 2)`, where `Phi` is the distribution function of N(0, 1) (Duda,
//! Hart, Stork: *Pattern Classification*, 2001, section 2.6).
//!
//! Training and validation rows come from separate random streams of the run's seed. Weights and centres that are drawn follow from
//! their number alone: they are the task, which trainings with other seeds share.

use rand_distr::{Distribution, StandardNormal};

use super::{Dataset, Part, Store, memory};
use crate::{
    plan::TargetSpread,
    random::{self, ChaCha8Rng, Purpose},
    spec::{Problem, Source, Synthetic, SyntheticClassification, SyntheticRegression},
    units,
};

/// Indices of random streams: of the rows to train and to validate on, and of weights and centres.
const TRAIN: u64 = 0;
const VALIDATION: u64 = 1;
const PARAMETERS: u64 = 2;

/// In place of the run's seed for weights and centres.
const TASK_SEED: u64 = 0;

/// The best possible predictions are computed if they take no more multiplications than this: less than a second.
const MOST_WORK: usize = 1 << 30;

pub(super) fn regression(spec: &SyntheticRegression, seed: u64) -> Result<Dataset, Problem> {
    let made = spec.made();
    let weights = match &spec.weights {
        Some(weights) => weights.clone(),
        None => drawn_weights(&made)?,
    };
    let row = |rng: &mut ChaCha8Rng, features: &mut Vec<f32>| {
        let first = features.len();
        features.extend(weights.iter().map(|_| -> f32 { StandardNormal.sample(rng) }));
        let noise: f64 = StandardNormal.sample(rng);
        (dot(&features[first..], &weights) + spec.bias + spec.noise * noise) as f32
    };
    let mut dataset = dataset(&made, seed, row)?;
    if let Some((features, targets)) = validation(&dataset) {
        let squares = features.chunks_exact(weights.len()).zip(targets);
        let squares = squares.map(|(x, y)| (f64::from(*y) - dot(x, &weights) - spec.bias).powi(2));
        let error = squares.sum::<f64>() / targets.len() as f64;
        dataset.notes.push(format!(
            "the weights that made the rows have a mean squared error of {} on those to validate on",
            units::number(error)
        ));
    }
    dataset.truth = Some((weights, spec.bias));
    Ok(dataset)
}

pub(super) fn classification(spec: &SyntheticClassification, seed: u64) -> Result<Dataset, Problem> {
    let made = spec.made();
    let centres = drawn_centres(&made, spec.separation)?;
    let mut dataset = dataset(&made, seed, |rng, features| {
        let class = random::below(rng, spec.classes);
        let centre = &centres[class as usize * made.features..][..made.features];
        features.extend(centre.iter().map(|centre| {
            let off: f64 = StandardNormal.sample(rng);
            (centre + off) as f32
        }));
        class as f32
    })?;
    if let Some((features, targets)) = validation(&dataset)
        && targets.len().saturating_mul(centres.len()) <= MOST_WORK
    {
        let [loss, accuracy] = best_of_classes(features, targets, &centres, made.features);
        dataset.notes.push(format!(
            "the best model, which takes the nearest centre, has a loss of {} and an accuracy of {} on the rows to validate on",
            units::number(loss),
            units::percent(accuracy)
        ));
    }
    dataset.classes = Some(spec.classes as usize);
    Ok(dataset)
}

/// What planning needs of rows that are made, without making them: parts that have a number of rows, and none of them. `None` for other
/// sources.
pub(super) fn outline(source: &Source) -> Option<Dataset> {
    let made = source.synthetic()?;
    let part = |rows: usize| Part { rows, ..Part::of_memory(0, Vec::new(), Vec::new()) };
    let validation = (made.validation_rows > 0).then(|| part(made.validation_rows));
    let mut dataset = Dataset::new(part(made.train_rows), validation, made.features, 1);
    match source {
        Source::SyntheticClassification(own) => dataset.classes = Some(own.classes as usize),
        Source::SyntheticRegression(own) => {
            // Weights that are drawn have a length of 1.
            let squares = own.weights.as_ref().map_or(1.0, |weights| weights.iter().map(|w| w * w).sum());
            let deviation = (squares + own.noise.powi(2)).sqrt();
            dataset.target_spread = Some(TargetSpread { mean: own.bias, deviation });
        }
        _ => {}
    }
    Some(dataset)
}

/// Features and targets of the rows to validate on.
fn validation(dataset: &Dataset) -> Option<(&[f32], &[f32])> {
    let part = dataset.validation.as_ref()?;
    let Store::Memory(features) = &part.features else { return None };
    Some((features, &part.targets))
}

/// Cross-entropy and accuracy of the class probabilities that follow from the centres: `p(k | x)` is proportional to
/// `exp(-|x - centre_k|^2 / 2)`.
fn best_of_classes(features: &[f32], targets: &[f32], centres: &[f64], width: usize) -> [f64; 2] {
    let (mut loss, mut right) = (0.0, 0.0);
    for (x, class) in features.chunks_exact(width).zip(targets) {
        let scores = centres.chunks_exact(width).map(|centre| {
            let squares = x.iter().zip(centre).map(|(x, c)| (f64::from(*x) - c).powi(2));
            -0.5 * squares.sum::<f64>()
        });
        let scores: Vec<f64> = scores.collect();
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
        let own = *class as usize;
        loss += sum.ln() + highest - scores[own];
        // As in training, the first of equal scores is the prediction.
        let is_right = scores.iter().position(|score| *score == highest) == Some(own);
        right += f64::from(u8::from(is_right));
    }
    [loss, right].map(|sum| sum / targets.len() as f64)
}

/// A vector of length 1 in a random direction, so that targets have a variance of 1 and that of the noise.
fn drawn_weights(made: &Synthetic) -> Result<Vec<f64>, Problem> {
    let mut weights = normal_numbers(made, "weights")?;
    let length = weights.iter().map(|w| w * w).sum::<f64>().sqrt();
    weights.iter_mut().for_each(|w| *w /= length);
    Ok(weights)
}

/// A centre per class. Of `n` points, the mean squared distance of all pairs is `2 n / (n - 1)` times the mean squared distance from
/// their mean.
fn drawn_centres(made: &Synthetic, separation: f64) -> Result<Vec<f64>, Problem> {
    let mut centres = normal_numbers(made, "centres")?;
    let (width, count) = (made.features, made.parameter_vectors as f64);
    let mut mean = vec![0.0; width];
    for centre in centres.chunks_exact(width) {
        mean.iter_mut().zip(centre).for_each(|(mean, c)| *mean += c / count);
    }
    let squares = centres.chunks_exact(width).flat_map(|centre| centre.iter().zip(&mean));
    let from_mean = squares.map(|(c, mean)| (c - mean).powi(2)).sum::<f64>() / count;
    let scale = separation / (from_mean * 2.0 * count / (count - 1.0)).sqrt();
    centres.chunks_exact_mut(width).flat_map(|centre| centre.iter_mut().zip(&mean)).for_each(|(c, mean)| {
        *c = (*c - mean) * scale;
    });
    Ok(centres)
}

/// As many vectors of N(0, 1) as make the rows.
fn normal_numbers(made: &Synthetic, what: &str) -> Result<Vec<f64>, Problem> {
    let bytes = made.parameter_vectors as u128 * made.features as u128 * size_of::<f64>() as u128;
    let too_large = || {
        let message = format!("{what} of {} features need {} of memory", made.features, memory::size(bytes));
        Problem::at_key(made.parameters_key, message).hint("take fewer")
    };
    let count = made.parameter_vectors.checked_mul(made.features).ok_or_else(too_large)?;
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(count).map_err(|_| too_large())?;
    let mut rng = random::stream(TASK_SEED, Purpose::Data, PARAMETERS);
    numbers.extend((0..count).map(|_| Distribution::<f64>::sample(&StandardNormal, &mut rng)));
    Ok(numbers)
}

/// The rows to train and to validate on; `row` appends one row's features and returns its target.
fn dataset(
    made: &Synthetic,
    seed: u64,
    row: impl Fn(&mut ChaCha8Rng, &mut Vec<f32>) -> f32,
) -> Result<Dataset, Problem> {
    let part = |stream: u64, rows: usize, key: &'static str| {
        let too_many = |bytes| {
            let message =
                format!("{rows} rows of {} features need {} of memory", made.features, memory::size(bytes));
            Problem::at_key(key, message).hint("take fewer rows")
        };
        let mut features = memory::reserved(rows, made.features).map_err(too_many)?;
        let mut targets = memory::reserved(rows, 1).map_err(too_many)?;
        let mut rng = random::stream(seed, Purpose::Data, stream);
        targets.extend((0..rows).map(|_| row(&mut rng, &mut features)));
        if features.iter().chain(&targets).any(|value| !value.is_finite()) {
            let message = "its rows have numbers beyond those of f32, 3.4e38";
            return Err(Problem::at_key(made.table, message).hint("its numbers are too large"));
        }
        Ok(Part::of_memory(rows, features, targets))
    };
    let train = part(TRAIN, made.train_rows, made.train_key)?;
    let validation = match made.validation_rows {
        0 => None,
        rows => Some(part(VALIDATION, rows, made.validation_key)?),
    };
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
