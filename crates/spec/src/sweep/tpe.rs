//! `sampler = "tpe"`: the first trials are drawn at random, later ones near those that did best.
//!
//! Tree-structured Parzen estimators (Bergstra et al., *Algorithms for Hyper-Parameter Optimization*, 2011), one for each
//! axis, over the numbers in [0, 1) from which [`Space::at`] makes values.

use std::collections::HashSet;

use runner_base::random::{self, Purpose};
use tpe::{TpeOptimizer, TpeOptimizerBuilder};

use super::{
    super::{
        experiment::{Experiment, TrialSpec},
        tree::{Node, Span},
    },
    space::Space,
};

/// Trials that are drawn at random.
pub const STARTUP: usize = 10;

/// Later trials are chosen in groups of this size, each by the results of all trials before it: so what is chosen does not
/// depend on `--jobs`.
pub const GROUP: usize = 5;

/// The share of trials that count as good.
const GOOD: f64 = 0.25;

/// How often a point that was there before is replaced.
const MOST_REPLACED: usize = 20;

/// What later trials are chosen from.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub spaces: Vec<(Space, Span)>,
    /// The numbers of the points that were drawn.
    pub drawn: Vec<Vec<f64>>,
    pub seed: u64,
}

/// Chooses the values of later trials by the results of earlier ones.
pub struct Proposer {
    search: Search,
    optimizers: Vec<TpeOptimizer>,
    seen: HashSet<String>,
}

impl Proposer {
    /// `None` where the trials of an experiment are all known.
    pub fn new<S>(experiment: &Experiment<S>) -> Option<Self> {
        let search = experiment.sweep.search.clone()?;
        let optimizers = search.spaces.iter().map(|(space, _)| optimizer(space)).collect::<Option<_>>()?;
        let mut proposer = Self { search, optimizers, seen: HashSet::new() };
        for trial in 0..STARTUP.min(proposer.search.drawn.len()) {
            let shown = shown(&proposer.values(trial));
            proposer.seen.insert(shown);
        }
        Some(proposer)
    }

    /// What came of a trial; smaller is better, infinite where it failed.
    pub fn tell(&mut self, trial: usize, cost: f64) {
        let cost = if cost.is_nan() { f64::INFINITY } else { cost };
        let axes = self.optimizers.iter_mut().zip(&self.search.spaces).zip(&self.search.drawn[trial]);
        for ((optimizer, (space, _)), unit) in axes {
            let at = match space {
                Space::Values(values) => (unit * values.len() as f64).floor(),
                _ => *unit,
            };
            // Neither is a cost NaN here, nor a number outside of its range.
            let _ = optimizer.tell(at, cost);
        }
    }

    /// A later trial, by what was told so far; `None` where its values make no spec.
    pub fn propose<S>(&mut self, experiment: &Experiment<S>, trial: usize) -> Option<TrialSpec<S>> {
        self.choose(trial)?;
        experiment.trial_of(trial, &self.values(trial))
    }

    /// Puts a point that was not there before in the place of the one that was drawn.
    fn choose(&mut self, trial: usize) -> Option<()> {
        let mut rng = random::stream(self.search.seed, Purpose::Sampler, trial as u64);
        for _ in 0..MOST_REPLACED {
            let axes = self.optimizers.iter_mut().zip(&self.search.spaces);
            let unit = |(optimizer, (space, _)): (&mut TpeOptimizer, &(Space, Span))| {
                let at = optimizer.ask(&mut rng).ok()?;
                Some(match space {
                    Space::Values(values) => (at.floor() + 0.5) / values.len() as f64,
                    _ => at.clamp(0.0, 1.0_f64.next_down()),
                })
            };
            self.search.drawn[trial] = axes.map(unit).collect::<Option<_>>()?;
            let shown = shown(&self.values(trial));
            if self.seen.insert(shown) {
                break;
            }
        }
        Some(())
    }

    fn values(&self, trial: usize) -> Vec<Node> {
        let axes = self.search.spaces.iter().zip(&self.search.drawn[trial]);
        axes.map(|((space, span), unit)| Node { span: *span, value: space.at(*unit) }).collect()
    }
}

/// An empty one for an axis.
fn optimizer(space: &Space) -> Option<TpeOptimizer> {
    let (estimator, range) = match space {
        Space::Values(values) => (tpe::histogram_estimator(), tpe::categorical_range(values.len())),
        _ => (tpe::parzen_estimator(), tpe::range(0.0, 1.0)),
    };
    TpeOptimizerBuilder::new().gamma(GOOD).build(estimator, range.ok()?).ok()
}

fn shown(values: &[Node]) -> String {
    values.iter().map(|node| node.value.display() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::tree::Value,
        super::sampler::{Sampler, draw},
        *,
    };

    /// Points around the best one of a bowl on a logarithmic scale come more often.
    #[test]
    fn later_points_lie_near_the_best() {
        let at = Span { source: 0, start: 0, end: 0 };
        let space = |text: &str| match Space::parse(text) {
            Ok(space) => (space, at),
            Err(e) => panic!("{}", e.message),
        };
        let spaces = vec![space("loguniform(1e-4, 1)"), space("choice(a, b, c)")];
        let cost = |values: &[Node]| {
            let [Node { value: Value::Float(lr), .. }, Node { value: Value::String(word), .. }] = values
            else {
                panic!("{values:?}")
            };
            (lr.log10() + 2.0).powi(2) + if word == "b" { 0.0 } else { 1.0 }
        };
        let of_axes: Vec<&Space> = spaces.iter().map(|(space, _)| space).collect();
        let drawn: Vec<Vec<f64>> =
            draw(Sampler::Tpe, &of_axes, 60, 0).into_iter().map(|(units, _)| units).collect();
        let costs_of = |later: bool| {
            let search = Search { spaces: spaces.clone(), drawn: drawn.clone(), seed: 0 };
            let mut proposer = Proposer {
                optimizers: spaces.iter().map(|(space, _)| optimizer(space).unwrap()).collect(),
                search,
                seen: HashSet::new(),
            };
            let mut costs = Vec::new();
            for trial in 0..60 {
                if later && trial >= STARTUP {
                    proposer.choose(trial).unwrap();
                }
                let cost = cost(&proposer.values(trial));
                proposer.tell(trial, cost);
                costs.push(cost);
            }
            costs.split_off(STARTUP).iter().sum::<f64>() / 50.0
        };
        assert!(costs_of(true) < 0.5 * costs_of(false), "{} {}", costs_of(true), costs_of(false));
        assert_eq!(costs_of(true), costs_of(true));
    }
}
