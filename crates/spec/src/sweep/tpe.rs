//! The Tree-structured Parzen Estimator of Bergstra et al., *Algorithms for Hyper-Parameter Optimization* (2011): a trial's
//! values are drawn where earlier trials did well and seldom badly, each key by itself. The crate `tpe` has the formulas.

use runner_base::random::{self, ChaCha8Rng, Purpose};
use tpe::{TpeOptimizerBuilder, categorical_range, histogram_estimator, parzen_estimator, range};

use super::{super::tree::Value, conditions::Conditions, space::Space};

/// As many trials are drawn at random before results decide.
pub(crate) const STARTUP: usize = 10;

/// The share of trials that count as good, and the values of which the best is taken: as in hyperopt.
const GOOD: f64 = 0.25;
const CANDIDATES: usize = 24;

/// Draws that may repeat earlier trials, one after the other.
const MAX_VAIN: usize = 100;

/// Random streams below this number are those of axes.
const TRIALS: u64 = 1 << 32;

/// What an earlier trial was.
pub struct Observed<'a> {
    /// Its axes, as in [`super::super::TrialSpec`].
    pub axes: &'a [(String, String)],
    /// How bad it was; `None` for one that failed, or that still runs.
    pub cost: Option<f64>,
}

impl Observed<'_> {
    pub(crate) fn is_at(&self, point: &[String]) -> bool {
        self.axes.iter().map(|(_, shown)| shown).eq(point)
    }
}

/// Draws trials from the results of earlier ones.
#[derive(Clone, Debug)]
pub(crate) struct Tpe {
    pub spaces: Vec<Space>,
    pub seed: u64,
}

impl Tpe {
    /// A point that no trial has had, as shown: an empty text for a key that does not vary. `None` where none came up.
    pub fn draw(
        &self,
        trial: usize,
        conditions: &Conditions,
        history: &[Observed<'_>],
    ) -> Option<Vec<String>> {
        let mut rng = random::stream(self.seed, Purpose::Sampler, TRIALS + trial as u64);
        let mut draw = || {
            let values = self.spaces.iter().enumerate().map(|(axis, space)| {
                let column = history.iter().map(|own| (own.axes[axis].1.as_str(), own.cost));
                space.suggest(column, &mut rng)
            });
            let values: Vec<Value> = values.collect::<Option<_>>()?;
            Some(conditions.shown(&values.iter().collect::<Vec<_>>()))
        };
        let is_new = |point: &Vec<String>| !history.iter().any(|own| own.is_at(point));
        (0..MAX_VAIN).find_map(|_| draw().filter(is_new))
    }
}

impl Space {
    /// A value that is likely in good trials and unlikely in bad ones, by the values of earlier trials as shown.
    fn suggest<'a>(
        &self,
        column: impl Iterator<Item = (&'a str, Option<f64>)>,
        rng: &mut ChaCha8Rng,
    ) -> Option<Value> {
        let (estimator, range, cells) = match self {
            Self::Values(values) => {
                (histogram_estimator(), categorical_range(values.len()), values.len() as f64)
            }
            _ => (parzen_estimator(), range(0.0, 1.0), 1.0),
        };
        let mut builder = TpeOptimizerBuilder::new();
        let mut optimizer = builder.gamma(GOOD).candidates(CANDIDATES).build(estimator, range.ok()?).ok()?;
        for (shown, cost) in column {
            let place = self.value_of(shown).map_or(f64::NAN, |value| self.place_of(&value) * cells);
            optimizer.tell(place, cost.filter(|cost| !cost.is_nan()).unwrap_or(f64::INFINITY)).ok()?;
        }
        let place = optimizer.ask(rng).ok()?;
        Some(self.at(if cells > 1.0 { (place.floor() + 0.5) / cells } else { place }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACES: [&str; 4] = ["loguniform(1e-4, 1)", "uniform(-1, 1)", "int(1, 20)", "choice(a, b, c)"];

    /// A bowl with its ground at 0.01, 0.3, 7 and b.
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
        let mut trials: Vec<(Vec<(String, String)>, f64)> = Vec::new();
        for (trial, point) in random.iter().enumerate() {
            let history: Vec<Observed<'_>> =
                trials.iter().map(|(axes, cost)| Observed { axes, cost: Some(*cost) }).collect();
            let drawn = || tpe.draw(trial, &Conditions::NONE, &history).unwrap();
            let point = match is_random || trial < STARTUP {
                true => point.iter().map(Value::display).collect(),
                false => drawn(),
            };
            let cost = cost(&point);
            trials.push((point.into_iter().map(|value| (String::new(), value)).collect(), cost));
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
