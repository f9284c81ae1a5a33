//! `synthetic_regression`: rows generated from known weights, to compare with the learned ones.
//!
//! A row is `x ~ N(0, 1)`, `y = x . w + b + noise * N(0, 1)`, drawn in this order: the features of a row, then its noise.
//! Training and validation rows come from separate random streams.

use rand_distr::{Distribution, StandardNormal};

use super::{Dataset, Part, Task, memory};
use crate::{
    random::{self, Purpose},
    spec::{Problem, SyntheticRegression},
};

const TABLE: &str = "data.synthetic_regression";

pub(super) fn open(spec: &SyntheticRegression, task: Task, seed: u64) -> Result<Dataset, Vec<Problem>> {
    let problems = check(spec, task);
    if !problems.is_empty() {
        return Err(problems);
    }
    let train = rows(spec, seed, 0, spec.train_rows).map_err(|problem| vec![problem])?;
    let validation = match spec.validation_rows {
        0 => None,
        count => Some(rows(spec, seed, 1, count).map_err(|problem| vec![problem])?),
    };
    Ok(Dataset {
        train,
        validation,
        features: spec.weights.len(),
        targets: 1,
        classes: None,
        preprocessing: serde_json::Value::Null,
        truth: Some((spec.weights.clone(), spec.bias)),
        notes: Vec::new(),
        files: Vec::new(),
    })
}

fn check(spec: &SyntheticRegression, task: Task) -> Vec<Problem> {
    let mut problems = Vec::new();
    if task == Task::Classification {
        let message = "`cross_entropy` needs classes, and `data.synthetic_regression` makes numbers";
        problems.push(Problem::at_key("model.loss", message).hint("use `loss = \"mse\"`"));
    }
    if spec.weights.is_empty() {
        let message = "no weights: expected one number per feature";
        problems.push(Problem::at_key(format!("{TABLE}.weights"), message).hint("for two: `[2.0, -3.4]`"));
    }
    for (index, weight) in spec.weights.iter().enumerate().filter(|(_, weight)| !weight.is_finite()) {
        problems.push(not_finite(format!("{TABLE}.weights.{index}"), *weight));
    }
    if !spec.bias.is_finite() {
        problems.push(not_finite(format!("{TABLE}.bias"), spec.bias));
    }
    if !(spec.noise.is_finite() && spec.noise >= 0.0) {
        let message = format!("`{}` is no standard deviation: expected 0 or more", spec.noise);
        problems.push(Problem::at_key(format!("{TABLE}.noise"), message));
    }
    problems
}

fn not_finite(key: String, value: f64) -> Problem {
    Problem::at_key(key, format!("`{value}` is not a finite number"))
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
    Ok(Part::in_memory(rows, features, targets))
}

/// In f64 from the stored f32 features, so that the true weights are exact for them. Four partial sums hide the latency of
/// additions.
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
