//! `synthetic_regression`: rows generated from known weights, to compare with the learned ones.
//!
//! A row has `x ~ N(0, 1)` and `y = x . w + b + noise * N(0, 1)`. The features of a row are drawn first, then
//! its noise. Training and validation rows come from separate random streams.

use rand_distr::{Distribution, StandardNormal};

use super::{Dataset, Part, memory};
use crate::{
    random::{self, Purpose},
    spec::{Problem, SyntheticRegression},
};

const TABLE: &str = "data.synthetic_regression";

pub(super) fn open(spec: &SyntheticRegression, seed: u64) -> Result<Dataset, Problem> {
    let train = rows(spec, seed, 0, spec.train_rows)?;
    let validation = match spec.validation_rows {
        0 => None,
        count => Some(rows(spec, seed, 1, count)?),
    };
    let truth = Some((spec.weights.clone(), spec.bias));
    Ok(Dataset { truth, ..Dataset::new(train, validation, spec.weights.len(), 1) })
}

/// `rows` rows of stream `index`, in the layout that training reads.
fn rows(spec: &SyntheticRegression, seed: u64, index: u64, rows: usize) -> Result<Part, Problem> {
    let width = spec.weights.len();
    let key = if index == 0 { "train_rows" } else { "validation_rows" };
    let too_many = |bytes: u128| {
        let message = format!("{rows} rows of {width} features need {} of memory", memory::size(bytes));
        Problem::at_key(format!("{TABLE}.{key}"), message).hint("take fewer rows")
    };
    let mut features = memory::reserved(rows, width).map_err(too_many)?;
    let mut targets = memory::reserved(rows, 1).map_err(too_many)?;
    let mut rng = random::stream(seed, Purpose::Data, index);
    for row in 0..rows {
        features.extend((0..width).map(|_| -> f32 { StandardNormal.sample(&mut rng) }));
        let noise: f64 = StandardNormal.sample(&mut rng);
        let exact = dot(&features[row * width..], &spec.weights) + spec.bias;
        targets.push((exact + spec.noise * noise) as f32);
    }
    Ok(Part::of_memory(rows, features, targets))
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
