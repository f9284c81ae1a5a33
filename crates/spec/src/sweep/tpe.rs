//! The Tree-structured Parzen Estimator of Bergstra et al., *Algorithms for Hyper-Parameter Optimization*
//! (2011). It draws values that were frequent in good trials and rare in bad ones, independently for each
//! key. The crate `tpe` has the formulas.

use std::collections::HashSet;

use runner_base::random::{self, ChaCha8Rng, Purpose};
use tpe::{
    TpeOptimizer, TpeOptimizerBuilder, categorical_range, histogram_estimator, parzen_estimator, range,
};

use super::{super::tree::Value, conditions::Conditions, point::Point, space::Space};

/// The sampler needs this many results; earlier trials are drawn at random.
pub(crate) const STARTUP: usize = 10;

/// The share of trials that count as good, and the number of candidates of which the best is taken; both as
/// in hyperopt.
const GOOD: f64 = 0.25;
const CANDIDATES: usize = 24;

/// Give up after this many draws in a row that repeat earlier trials.
const MAX_VAIN: usize = 100;

/// Random streams with smaller numbers are those of the axes.
const TRIALS: u64 = 1 << 32;

/// An earlier trial.
pub struct Observed<'a> {
    /// Its values.
    pub point: &'a Point,
    /// Its result, lower is better; `None` if it failed or still runs.
    pub cost: Option<f64>,
}

/// Draws trials from earlier results.
#[derive(Clone, Debug)]
pub(crate) struct Tpe {
    pub spaces: Vec<Space>,
    pub seed: u64,
}

impl Tpe {
    /// A point that no trial has had; `None` if none came up.
    pub fn draw(&self, trial: usize, conditions: &Conditions, history: &[Observed<'_>]) -> Option<Point> {
        let mut rng = random::stream(self.seed, Purpose::Sampler, TRIALS + trial as u64);
        let axis =
            |(axis, space)| Learned::new(space, history.iter().map(|own| (own.point.place(axis), own.cost)));
        let mut axes: Vec<Learned<'_>> = self.spaces.iter().enumerate().map(axis).collect::<Option<_>>()?;
        let known: HashSet<Vec<String>> = history.iter().map(|own| own.point.cells()).collect();
        let mut draw = || {
            let values = axes.iter_mut().map(|axis| axis.suggest(&mut rng)).collect::<Option<_>>()?;
            Some(Point::new(&self.spaces, conditions, values))
        };
        (0..MAX_VAIN).find_map(|_| draw().filter(|point| !known.contains(&point.cells())))
    }
}

/// The estimator of one key's values, fed with all earlier trials.
struct Learned<'a> {
    space: &'a Space,
    /// For a list: its number of values, each a cell of width 1. Otherwise 1.
    cells: f64,
    optimizer: TpeOptimizer,
}

impl<'a> Learned<'a> {
    /// From the positions of a key's values and the costs of their trials.
    fn new(space: &'a Space, column: impl Iterator<Item = (f64, Option<f64>)>) -> Option<Self> {
        let (estimator, range, cells) = match space {
            Space::Values(values) => {
                (histogram_estimator(), categorical_range(values.len()), values.len() as f64)
            }
            _ => (parzen_estimator(), range(0.0, 1.0), 1.0),
        };
        let mut builder = TpeOptimizerBuilder::new();
        let mut optimizer = builder.gamma(GOOD).candidates(CANDIDATES).build(estimator, range.ok()?).ok()?;
        for (place, cost) in column {
            optimizer
                .tell(place * cells, cost.filter(|cost| !cost.is_nan()).unwrap_or(f64::INFINITY))
                .ok()?;
        }
        Some(Self { space, cells, optimizer })
    }

    /// A value that is likely in good trials and unlikely in bad ones.
    fn suggest(&mut self, rng: &mut ChaCha8Rng) -> Option<Value> {
        let place = self.optimizer.ask(rng).ok()?;
        Some(self.space.at(if self.cells > 1.0 { (place.floor() + 0.5) / self.cells } else { place }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACES: [&str; 4] = ["loguniform(1e-4, 1)", "uniform(-1, 1)", "int(1, 20)", "choice(a, b, c)"];

    /// A bowl whose minimum is at 0.01, 0.3, 7 and b.
    fn cost(point: &[String]) -> f64 {
        let number = |axis: usize| point[axis].parse::<f64>().unwrap();
        let far = [(number(0).log10() + 2.0) / 4.0, (number(1) - 0.3) / 2.0, (number(2) - 7.0) / 20.0];
        far.iter().map(|far| far * far).sum::<f64>() + if point[3] == "b" { 0.0 } else { 0.2 }
    }

    /// The lowest cost of 60 trials.
    fn best(seed: u64, is_random: bool) -> f64 {
        let spaces: Vec<Space> = SPACES.iter().filter_map(|text| Space::parse(text).ok()).collect();
        let random = super::super::sampler::draw(
            super::super::Sampler::Random,
            &spaces.iter().collect::<Vec<_>>(),
            &Conditions::NONE,
            60,
            seed,
        );
        let tpe = Tpe { spaces, seed };
        let mut trials: Vec<(Point, f64)> = Vec::new();
        for (trial, point) in random.into_iter().enumerate() {
            let history: Vec<Observed<'_>> =
                trials.iter().map(|(point, cost)| Observed { point, cost: Some(*cost) }).collect();
            let point = match is_random || trial < STARTUP {
                true => Point::new(&tpe.spaces, &Conditions::NONE, point),
                false => tpe.draw(trial, &Conditions::NONE, &history).unwrap(),
            };
            let cost = cost(&point.shown());
            trials.push((point, cost));
        }
        trials.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn it_finds_better_points_than_chance() {
        let mut costs =
            [false, true].map(|is_random| (0..20).map(|seed| best(seed, is_random)).collect::<Vec<_>>());
        let wins = costs[0].iter().zip(&costs[1]).filter(|(tpe, random)| tpe < random).count();
        costs.iter_mut().for_each(|costs| costs.sort_by(f64::total_cmp));
        let [tpe, random] = costs.map(|costs| costs[10]);
        assert!(wins >= 16 && tpe < random / 3.0, "{wins} wins, medians {tpe} and {random}");
    }
}
