//! The Tree-structured Parzen Estimator of Bergstra et al., *Algorithms for Hyper-Parameter Optimization*
//! (2011). It draws values that were frequent in good trials and rare in bad ones, independently for each
//! key. The crate `tpe` has the formulas.

use runner_base::random::{self, ChaCha8Rng, Purpose};
use tpe::{
    TpeOptimizer, TpeOptimizerBuilder, categorical_range, histogram_estimator, parzen_estimator, range,
};

use super::{super::tree::Value, conditions::Conditions, history::History, point::Point, space::Space};

/// The sampler needs this many results; earlier trials are drawn at random.
pub(crate) const STARTUP: usize = 10;

/// Later trials whose number is a multiple of this are drawn at random, too.
pub(super) const EXPLORE: usize = 10;

/// The share of trials that count as good, as in hyperopt, and their most, as in hyperopt and Optuna: the fewer there are,
/// the wider is the least width around each.
const GOOD: f64 = 0.25;
const MOST_GOOD: usize = 25;

/// Other trials that are looked at, evenly from the best to the worst; more would hardly say more, and each draw takes longer.
const MOST_OTHERS: usize = 500;

/// Values of which the best is taken: as in hyperopt.
const CANDIDATES: usize = 24;

/// Give up after this many draws in a row that repeat earlier trials.
const MOST_DUPLICATES: usize = 100;

/// Random streams with smaller numbers are those of the axes.
const TRIALS: u64 = 1 << 32;

/// Draws trials from the results of earlier ones.
#[derive(Clone, Debug)]
pub(crate) struct Tpe {
    pub spaces: Vec<Space>,
    pub seed: u64,
}

impl Tpe {
    /// A point that no trial has had; `None` where none came up.
    pub fn draw(
        &self,
        trial: usize,
        conditions: &Conditions,
        history: &History,
        costs: &[Option<f64>],
    ) -> Option<Point> {
        let mut rng = random::stream(self.seed, Purpose::Sampler, TRIALS + trial as u64);
        let cost = |trial: usize| costs.get(trial).copied().flatten().filter(|cost| !cost.is_nan());
        let mut all: Vec<(f64, &Point)> =
            history.iter().map(|(trial, point)| (cost(trial).unwrap_or(f64::INFINITY), point)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let good = ((all.len() as f64 * GOOD).ceil() as usize).min(MOST_GOOD);
        let (good, others) = all.split_at(good);
        let good: Vec<&Point> = good.iter().map(|(_, point)| *point).collect();
        let step = others.len().div_ceil(MOST_OTHERS).max(1);
        let others: Vec<&Point> = others.iter().step_by(step).map(|(_, point)| *point).collect();
        let axis = |(axis, space)| {
            let places = |points: &[&Point]| points.iter().map(|point| point.place(axis)).collect();
            Learned::new(space, places(&good), places(&others))
        };
        let mut axes: Vec<Learned<'_>> = self.spaces.iter().enumerate().map(axis).collect::<Option<_>>()?;
        let mut draw = || {
            let values = axes.iter_mut().map(|axis| axis.suggest(&mut rng)).collect::<Option<_>>()?;
            Some(Point::new(&self.spaces, conditions, values))
        };
        (0..MOST_DUPLICATES).find_map(|_| draw().filter(|point| !history.has(point)))
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
    /// From the places of values in good trials and in others.
    fn new(space: &'a Space, good: Vec<f64>, others: Vec<f64>) -> Option<Self> {
        let (estimator, range, cells) = match space {
            Space::Values(values) => {
                (histogram_estimator(), categorical_range(values.len()), values.len() as f64)
            }
            _ => (parzen_estimator(), range(0.0, 1.0), 1.0),
        };
        // The optimizer rounds this share of all trials up.
        let share = (good.len() as f64 - 0.5) / (good.len() + others.len()) as f64;
        let mut builder = TpeOptimizerBuilder::new();
        let mut optimizer = builder.gamma(share).candidates(CANDIDATES).build(estimator, range.ok()?).ok()?;
        let ranked = good.into_iter().map(|place| (place, 0.0)).chain(others.into_iter().map(|p| (p, 1.0)));
        for (place, rank) in ranked {
            optimizer.tell(place * cells, rank).ok()?;
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

    /// The costs of this number of trials, one after the other.
    fn costs(seed: u64, trials: usize, cost: fn(&[String]) -> f64, learns: bool) -> Vec<f64> {
        let spaces: Vec<Space> = SPACES.iter().filter_map(|text| Space::parse(text).ok()).collect();
        let all: Vec<&Space> = spaces.iter().collect();
        let random =
            super::super::sampler::draw(super::super::Sampler::Random, &all, &Conditions::NONE, trials, seed);
        let tpe = Tpe { spaces, seed };
        let (mut history, mut costs) = (History::default(), Vec::new());
        for (trial, point) in random.into_iter().enumerate() {
            let point = match learns && trial >= STARTUP && !trial.is_multiple_of(EXPLORE) {
                true => tpe.draw(trial, &Conditions::NONE, &history, &costs).unwrap(),
                false => Point::new(&tpe.spaces, &Conditions::NONE, point),
            };
            costs.push(Some(cost(&point.shown())));
            history.insert(trial, point);
        }
        costs.into_iter().flatten().collect()
    }

    fn lowest(costs: &[f64]) -> f64 {
        costs.iter().copied().fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn it_finds_better_points_than_chance() {
        let mut best = [true, false]
            .map(|learns| (0..20).map(|seed| lowest(&costs(seed, 60, cost, learns))).collect::<Vec<_>>());
        let wins = best[0].iter().zip(&best[1]).filter(|(tpe, random)| tpe < random).count();
        best.iter_mut().for_each(|costs| costs.sort_by(f64::total_cmp));
        let [tpe, random] = best.map(|costs| costs[10]);
        assert!(wins >= 16 && tpe < random / 3.0, "{wins} wins, medians {tpe} and {random}");
    }

    /// Beside the wide bowl is a narrow one that is deeper: a search that stays near its best so far never comes there.
    #[test]
    fn a_long_search_goes_on_to_look_elsewhere() {
        fn two_bowls(point: &[String]) -> f64 {
            let far = (point[0].parse::<f64>().unwrap().log10() + 3.5).abs();
            if far < 0.05 { far - 1.0 } else { cost(point) }
        }
        let found = (0..5).filter(|seed| lowest(&costs(*seed, 300, two_bowls, true)) < -0.95).count();
        assert!(found >= 4, "{found} of 5");
    }
}
