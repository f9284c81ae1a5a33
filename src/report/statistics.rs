//! Statistics of repeated measurements: the median, and how sure it is.
//!
//! The interval is the percentile bootstrap of the median: B. Efron and R. J. Tibshirani, *An Introduction to the
//! Bootstrap* (1993), section 13.3. Of n values n are drawn with replacement, [`RESAMPLES`] times; the interval is cut
//! from the sorted medians of these samples. The seed is fixed, so that the same runs always have the same interval.
//!
//! No interval made of n values is surer than 1 - 2^(1-n), the probability that the true median lies between the
//! smallest and the largest of them (H. A. David and H. N. Nagaraja, *Order Statistics* (2003), section 7.1): 50 % for
//! two values, 75 % for three, 93.75 % for five. Six are the fewest that can give 95 %.

use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};

/// Samples that are drawn. One less than a multiple of 40, so that 2.5 % of one more is a whole number (A. C. Davison and
/// D. V. Hinkley, *Bootstrap Methods and their Application* (1997), section 2.4).
const RESAMPLES: usize = 39_999;

/// What the interval is to hold, of all such intervals.
const SURENESS: f64 = 0.95;

/// Where the drawing starts.
const SEED: u64 = 1;

/// The median of some values, and the interval that the true one lies in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// How many values.
    pub count: usize,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// Lower and upper end; a single value has none.
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    /// `None` without values, or with one that is no number.
    pub fn from_values(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| v.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let interval = (sorted.len() > 1).then(|| bootstrap(&sorted));
        Some(Self { count: sorted.len(), median: median(&sorted), interval })
    }

    /// The interval's width over the median.
    pub fn relative_width(&self) -> Option<f64> {
        let [low, high] = self.interval?;
        (self.median != 0.0).then(|| (high - low) / self.median.abs())
    }
}

/// How sure an interval of `count` values can be at most.
pub(super) fn most_sureness(count: usize) -> f64 {
    1.0 - 0.5_f64.powf(count as f64 - 1.0)
}

/// Whether `count` values are too few for an interval to be as sure as it is meant to be.
pub(super) fn are_too_few(count: usize) -> bool {
    most_sureness(count) < SURENESS
}

fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

fn bootstrap(sorted: &[f64]) -> [f64; 2] {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    // Multiplied and shifted: the bias of n parts in 2⁶⁴ is of no account.
    let mut below = |n: usize| ((u128::from(random.next_u64()) * n as u128) >> 64) as usize;
    let mut sample = vec![0; sorted.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            // Places in order stand for values in order, and sort faster.
            sample.fill_with(|| below(sorted.len()));
            sample.sort_unstable();
            let half = sample.len() / 2;
            let upper = sorted[sample[half]];
            if sample.len().is_multiple_of(2) {
                f64::midpoint(sorted[sample[half - 1]], upper)
            } else {
                upper
            }
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let tail = ((RESAMPLES + 1) as f64 * (1.0 - SURENESS) / 2.0).round() as usize;
    [medians[tail - 1], medians[RESAMPLES - tail]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bootstrap distribution of the median of an odd number of values in closed form (B. Efron, *Bootstrap methods:
    /// another look at the jackknife*, Annals of Statistics 7 (1979), section 3): the median of a sample is at most the
    /// k-th value where more than half of the draws are, each with probability k/n. The percentile interval needs no
    /// drawing then.
    fn exact(sorted: &[f64]) -> [f64; 2] {
        let n = sorted.len();
        assert!(!n.is_multiple_of(2));
        let choose = |k: usize| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
        let at_most = |k: usize| -> f64 {
            let p = k as f64 / n as f64;
            (n / 2 + 1..=n).map(|j| choose(j) * p.powi(j as i32) * (1.0 - p).powi((n - j) as i32)).sum()
        };
        let quantile = |q: f64| (1..=n).find(|&k| at_most(k) >= q).map(|k| sorted[k - 1]).unwrap();
        [quantile(0.025), quantile(0.975)]
    }

    #[test]
    fn the_interval_is_that_of_the_closed_form() {
        for n in [3, 5, 7, 9, 11, 15, 21, 31, 51] {
            let sorted: Vec<f64> = (0..n).map(|i| (f64::from(i) * 0.37).exp()).collect();
            assert_eq!(Estimate::from_values(&sorted).unwrap().interval, Some(exact(&sorted)), "of {n}");
        }
    }

    /// Made by `scipy.stats.bootstrap((x,), numpy.median, method="percentile", n_resamples=100_000)` of SciPy 1.17.1; other
    /// seeds give the same.
    #[test]
    fn the_interval_is_that_of_scipy() {
        let values = [12.1, 11.8, 12.9, 12.0, 13.4, 11.9, 12.2, 15.0, 12.3, 12.4];
        let estimate = Estimate::from_values(&values).unwrap();
        assert_eq!((estimate.count, estimate.median), (10, 12.25));
        assert_eq!(estimate.interval, Some([12.0, 12.9]));
        let values = [0.1031, 0.0998, 0.1102, 0.1015, 0.1007, 0.1340, 0.1012, 0.0991];
        assert_eq!(Estimate::from_values(&values).unwrap().interval, Some([0.0998, 0.1102]));
    }

    #[test]
    fn few_values() {
        assert_eq!(Estimate::from_values(&[]), None);
        assert_eq!(Estimate::from_values(&[1.0, f64::NAN]), None);
        let one = Estimate::from_values(&[2.0]).unwrap();
        assert_eq!((one.median, one.interval, one.relative_width()), (2.0, None, None));
        let two = Estimate::from_values(&[3.0, 1.0]).unwrap();
        assert_eq!((two.median, two.interval, two.relative_width()), (2.0, Some([1.0, 3.0]), Some(1.0)));
        assert_eq!(Estimate::from_values(&[4.0; 8]).unwrap().interval, Some([4.0, 4.0]));
    }

    #[test]
    fn six_values_are_the_fewest_that_can_be_sure() {
        assert_eq!([2, 3, 5].map(most_sureness), [0.5, 0.75, 0.9375]);
        assert_eq!([2, 3, 4, 5, 6, 7].map(are_too_few), [true, true, true, true, false, false]);
    }

    /// As sure as it says it is: over many experiments with a known median, the interval holds it about so often.
    #[test]
    fn the_interval_holds_the_true_median_as_often_as_it_should() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut held = 0;
        const EXPERIMENTS: usize = 400;
        for _ in 0..EXPERIMENTS {
            // Skewed, as times are: exponential, whose median is ln 2.
            let values: Vec<f64> = (0..15).map(|_| -(1.0 - uniform()).ln()).collect();
            let [low, high] = Estimate::from_values(&values).unwrap().interval.unwrap();
            held += usize::from((low..=high).contains(&std::f64::consts::LN_2));
        }
        let share = held as f64 / EXPERIMENTS as f64;
        // 0.95 within three standard deviations of 400 throws; the percentile interval of 15 values is slightly generous.
        assert!((0.917..=0.985).contains(&share), "{share}");
    }
}
