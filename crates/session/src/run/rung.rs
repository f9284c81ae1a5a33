//! One rung of successive halving: the trials that were judged there, in the order in which they are judged.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::cost::Cost;
use crate::spec::Halving;

/// The trials that were judged at a rung, by their places in the order.
#[derive(Default)]
pub(super) struct Rung {
    judged: BTreeMap<usize, Judged>,
    /// The best costs, with the worst of them on top, and all others, with the best of them on top. A trial is compared with the
    /// worst that goes on, so that judging a very long sweep takes no longer per trial.
    best: BinaryHeap<Cost>,
    others: BinaryHeap<Reverse<Cost>>,
    /// All trials before this place were judged, or never come here.
    pub settled: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Judged {
    /// How bad it was; infinite if it had no finite value.
    pub cost: f64,
    pub goes_on: bool,
    /// How many trials it was judged among: those up to its place.
    pub count: usize,
}

impl Rung {
    /// The judgement of the trial at a place.
    pub fn get(&self, place: usize) -> Option<Judged> {
        self.judged.get(&place).copied()
    }

    /// Whether the trial at a place goes on: it has a finite cost, and is among the best of those up to it.
    pub fn promotes(&mut self, halving: Halving, place: usize, cost: f64) -> bool {
        let promoted = halving.promoted(self.count_up_to(place));
        if !self.is_last(place) {
            // A trial that failed and runs again comes after those behind it.
            let better = self.judged.range(..place).filter(|(_, other)| other.cost <= cost).count();
            return cost.is_finite() && better < promoted;
        }
        while self.best.len() < promoted
            && let Some(Reverse(next)) = self.others.pop()
        {
            self.best.push(next);
        }
        let worst = self.best.peek().filter(|_| self.best.len() >= promoted);
        cost.is_finite() && worst.is_none_or(|worst| Cost::new(cost) < *worst)
    }

    /// Takes over a judgement; of several on one trial, the last counts.
    pub fn take(&mut self, place: usize, cost: f64, goes_on: bool) {
        let judged = Judged { cost, goes_on, count: self.count_up_to(place) };
        if self.judged.insert(place, judged).is_none() {
            self.best.push(Cost::new(cost));
            self.others.extend(self.best.pop().map(Reverse));
        } else {
            self.best.clear();
            self.others = self.judged.values().map(|judged| Reverse(Cost::new(judged.cost))).collect();
        }
    }

    /// Whether no trial behind this place was judged.
    fn is_last(&self, place: usize) -> bool {
        self.judged.last_key_value().is_none_or(|(last, _)| *last < place)
    }

    /// The number of trials up to a place, this one included.
    fn count_up_to(&self, place: usize) -> usize {
        1 + if self.is_last(place) { self.judged.len() } else { self.judged.range(..place).count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    /// Trials that tie, diverge, come late or are judged twice go on or not as the definition says.
    #[test]
    fn the_best_of_those_up_to_a_place_go_on() {
        for (factor, seed) in [(2, 1_u64), (3, 2), (7, 3)] {
            let halving = Halving { min_epochs: 1, factor };
            let (mut rung, mut known) = (Rung::default(), BTreeMap::new());
            let drawn = |turn: u64, of: u64| mix(mix(seed) ^ turn) % of;
            for turn in 0..600 {
                // One in eight takes the place of an earlier trial, whether that was judged or not.
                let late = drawn(turn, 8) == 0;
                let place = if late { drawn(turn + 1000, 3 * turn + 1) } else { 3 * turn } as usize;
                let cost = match drawn(turn + 2000, 40) {
                    0 => f64::INFINITY,
                    1 => -0.0,
                    cost => (cost as f64 - 20.0) / 8.0,
                };
                let before: Vec<f64> = known.range(..place).map(|(_, cost)| *cost).collect();
                let best = ((before.len() + 1) / factor as usize).max(1);
                let wanted = cost.is_finite() && before.iter().filter(|other| **other <= cost).count() < best;
                assert_eq!(rung.promotes(halving, place, cost), wanted, "factor {factor}, turn {turn}");
                rung.take(place, cost, wanted);
                known.insert(place, cost);
                let judged = rung.get(place).map(|judged| (judged.goes_on, judged.count));
                assert_eq!(judged, Some((wanted, before.len() + 1)));
            }
        }
    }
}
