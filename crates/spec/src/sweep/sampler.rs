//! Samples trials at random or by a Sobol sequence.

use std::collections::HashSet;

use runner_base::random::{self, GOLDEN, Purpose};

use super::{
    super::{reader::words, tree::Value},
    conditions::Conditions,
    space::Space,
};

words! {
    /// How the trials of a sweep are chosen.
    pub(crate) enum Sampler {
        /// The product of all values.
        Grid = "grid",
        /// `trials` points, each value drawn by itself.
        Random = "random",
        /// `trials` points of a Sobol sequence with Owen scrambling: they fill the space evenly.
        Sobol = "sobol",
        /// `trials` points: ten at random, most others near the best so far, by a Tree-structured Parzen Estimator.
        Tpe = "tpe",
    }
}

/// Give up after this many draws in a row without a new point.
const MOST_DUPLICATES: usize = 10_000;

/// Limits of the Sobol sequence: points, and axes.
pub(super) const SOBOL_POINTS: usize = 1 << 16;
pub(super) const SOBOL_AXES: usize = sobol_burley::NUM_DIMENSIONS as usize;

/// Draws up to `trials` different points; fewer if no new ones come up.
pub(super) fn draw(
    sampler: Sampler,
    spaces: &[&Space],
    conditions: &Conditions,
    trials: usize,
    seed: u64,
) -> Vec<Vec<Value>> {
    let last = if sampler == Sampler::Sobol { SOBOL_POINTS } else { usize::MAX };
    let (mut points, mut seen, mut duplicates) = (Vec::with_capacity(trials), HashSet::new(), 0);
    for draw in 0..last {
        if points.len() == trials || duplicates == MOST_DUPLICATES {
            break;
        }
        let unit = |axis: usize| match sampler {
            Sampler::Sobol => sobol_burley::sample(draw as u32, axis as u32, random::mix(seed) as u32).into(),
            _ => {
                let key = random::key(seed, Purpose::Sampler, axis as u64);
                let word = random::mix(key.wrapping_add((draw as u64 + 1).wrapping_mul(GOLDEN)));
                (word >> 11) as f64 / (1_u64 << 53) as f64
            }
        };
        let point: Vec<Value> = spaces.iter().enumerate().map(|(axis, space)| space.at(unit(axis))).collect();
        duplicates += 1;
        if seen.insert(conditions.shown(&point.iter().collect::<Vec<_>>())) {
            points.push(point);
            duplicates = 0;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sampler: Sampler, spaces: &[&str], trials: usize, seed: u64) -> Vec<String> {
        let spaces: Vec<Space> = spaces
            .iter()
            .map(|text| Space::parse(text).unwrap_or_else(|e| panic!("{}", e.message)))
            .collect();
        let spaces: Vec<&Space> = spaces.iter().collect();
        let points = draw(sampler, &spaces, &Conditions::NONE, trials, seed);
        points.iter().map(|p| p.iter().map(Value::display).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn points_depend_on_the_seed_alone() {
        let spaces = ["loguniform(1e-4, 1e-1)", "int(8, 64)", "choice(a, b)"];
        for sampler in [Sampler::Random, Sampler::Sobol] {
            let eight = drawn(sampler, &spaces, 8, 0);
            assert_eq!(eight[..4], drawn(sampler, &spaces, 4, 0), "fewer trials are the first ones");
            assert_ne!(eight, drawn(sampler, &spaces, 8, 1));
        }
        // Pinned values: a resumed sweep must draw the same points again.
        assert_eq!(drawn(Sampler::Random, &spaces, 2, 0), ["0.0209976 46 a", "0.00180608 31 a"]);
        assert_eq!(drawn(Sampler::Sobol, &spaces, 2, 0), ["0.000611591 38 b", "0.082024 34 a"]);
    }

    #[test]
    fn no_point_comes_twice() {
        assert_eq!(drawn(Sampler::Random, &["int(1, 3)"], 3, 0).len(), 3);
        assert_eq!(drawn(Sampler::Random, &["choice(a, b)", "int(1, 2)"], 9, 0).len(), 4);
        assert_eq!(drawn(Sampler::Sobol, &["int(1, 3)"], 9, 0).len(), 3);
    }

    #[test]
    fn sobol_points_fill_the_space_evenly() {
        let in_order = |sampler| {
            let mut cells: Vec<u32> = drawn(sampler, &["uniform(0, 1)"], 16, 5)
                .iter()
                .map(|x| (x.parse::<f64>().unwrap_or(f64::NAN) * 16.0) as u32)
                .collect();
            cells.sort_unstable();
            cells.dedup();
            cells.len()
        };
        assert_eq!(in_order(Sampler::Sobol), 16);
        assert!(in_order(Sampler::Random) < 16);
    }
}
