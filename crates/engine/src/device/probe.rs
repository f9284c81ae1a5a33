//! Small programs for measuring the speeds of a device.

use std::time::{Duration, Instant};

use super::{Block, DeviceError, Executor, Meters};
use crate::{
    program::{Hyper, Options, Programs, lower},
    spec::{Layer, Linear, Loss},
};

/// Steps per block of a probe.
pub const STEPS: usize = 64;

/// Numbers of ReLUs of the two models that measure instructions: the difference of their times is the cost of
/// the extra instructions.
pub const SHORT_AND_LONG: [usize; 2] = [2, 34];

/// Two measurements of a cost agree if their ratio is at most this.
const AGREEMENT: f64 = 1.5;

/// The mean of the first two measurements that agree: one that was delayed agrees with none. If no two agree,
/// returns all of them.
pub fn agreed<E>(most: usize, mut take: impl FnMut() -> Result<f64, E>) -> Result<Result<f64, Vec<f64>>, E> {
    let mut taken: Vec<f64> = Vec::new();
    for _ in 0..most {
        let own = take()?;
        let near = |other: &&f64| other.min(own) > 0.0 && other.max(own) <= AGREEMENT * other.min(own);
        if let Some(other) = taken.iter().find(near) {
            return Ok(Ok(f64::midpoint(own, *other)));
        }
        taken.push(own);
    }
    Ok(Err(taken))
}

/// The relative interquartile range: that of the values divided by their median; 0 for few values.
pub fn spread(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let (count, median) = (values.len(), values.get(values.len() / 2).copied().unwrap_or(0.0));
    if count < 5 || median <= 0.0 { 0.0 } else { (values[count * 3 / 4] - values[count / 4]) / median }
}

/// A take with its disturbance: the first that is disturbed by no more than `steady`, else the least disturbed of them all.
/// None begins later than `within`.
pub fn steadiest<T, E>(
    most: usize,
    within: Duration,
    steady: f64,
    mut take: impl FnMut() -> Result<(T, f64), E>,
) -> Result<(T, f64), E> {
    let begun = Instant::now();
    let mut best = take()?;
    for _ in 1..most {
        if best.1 <= steady || begun.elapsed() > within {
            break;
        }
        let next = take()?;
        if next.1 < best.1 {
            best = next;
        }
    }
    Ok(best)
}

/// A model on a single number with `activations` ReLUs, which does next to no work.
pub fn tiny(activations: usize) -> Programs {
    let mut layers = vec![linear(1, 1)];
    layers.resize(1 + activations, Layer::Relu);
    programs(&layers, 1, 1)
}

/// Products of `width` by `width` matrices, and next to nothing else.
pub fn wide(width: usize) -> Programs {
    programs(&[linear(width, width), linear(width, width), linear(width, width)], width, width)
}

/// An executor of one of these programs, with constant rows.
pub struct Probe<E> {
    pub executor: E,
    rows: usize,
    hyper: Vec<Hyper>,
}

impl<E: Executor> Probe<E> {
    pub fn new(mut executor: E, programs: &Programs) -> Result<Self, DeviceError> {
        let (layout, batch) = (&programs.layout, programs.train.batch);
        let rows = STEPS * batch;
        // The programs above have as many features and targets as rows.
        executor.bind(layout.train_features, &vec![0.5; rows * batch].into())?;
        executor.bind(layout.train_targets, &vec![0.25; rows * batch].into())?;
        executor.bind_order(&(0..rows as u32).collect::<Vec<_>>().into())?;
        // These rates leave the weights unchanged.
        let hyper = vec![Hyper { correction: 1.0, decay_factor: 1.0, ..Hyper::default() }; STEPS];
        Ok(Self { executor, rows, hyper })
    }

    /// Runs a block from the first row on.
    pub fn run(&mut self, steps: usize, meters: &mut Meters<'_>) -> Result<(), DeviceError> {
        self.executor.run(&Block::first(&self.hyper[..steps], self.rows), meters).map(drop)
    }
}

fn linear(inputs: usize, outputs: usize) -> Layer {
    Layer::Linear(Linear { out_features: outputs, in_features: Some(inputs), bias: true })
}

fn programs(layers: &[Layer], features: usize, batch: usize) -> Programs {
    lower(&Options {
        log_slots: STEPS,
        ordered: true,
        fold_update: true,
        ..Options::new(layers, Loss::Mse, [features; 2], batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(takes: &[f64]) -> Result<f64, Vec<f64>> {
        let mut takes = takes.iter();
        agreed(3, || takes.next().copied().ok_or(())).unwrap_or(Err(Vec::new()))
    }

    #[test]
    fn a_cost_counts_once_two_takes_agree() {
        assert_eq!(agree(&[1.0, 1.2]), Ok(1.1));
        assert_eq!(agree(&[4.56, 0.09, 0.11]), Ok(0.1));
        assert_eq!(agree(&[0.09, 3700.0, 4.56]), Err(vec![0.09, 3700.0, 4.56]));
        // A difference of two times that is not positive says nothing, however often it occurs.
        assert_eq!(agree(&[-1.0, -1.0, 0.0]), Err(vec![-1.0, -1.0, 0.0]));
    }

    #[test]
    fn a_rate_is_taken_again_until_it_is_steady() {
        let steadiest = |takes: &[(f64, f64)]| {
            let mut left = takes.iter().copied();
            let taken = steadiest(3, Duration::MAX, 0.2, || left.next().ok_or("no take is left"));
            (taken, left.count())
        };
        assert_eq!(steadiest(&[(1.0, 0.2), (2.0, 0.0)]), (Ok((1.0, 0.2)), 1), "steady at once");
        assert_eq!(steadiest(&[(1.0, 1.08), (2.0, 0.1), (3.0, 0.0)]), (Ok((2.0, 0.1)), 1));
        assert_eq!(steadiest(&[(1.0, 1.08), (2.0, 0.3), (3.0, 0.4), (4.0, 0.0)]), (Ok((2.0, 0.3)), 1));
    }

    #[test]
    fn the_middle_half_is_the_spread() {
        assert_eq!(spread(&mut [5.0, 1.0, 4.0, 100.0, 2.0, 3.0, 6.0, 0.0]), 1.0);
        assert_eq!(spread(&mut [1.0, 9.0]), 0.0);
    }
}
