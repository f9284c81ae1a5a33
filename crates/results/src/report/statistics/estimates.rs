//! Statistics of repeated measurements: the median, and an interval that covers the true median with the
//! stated probability.
//!
//! With n sorted values, the interval from the j-th smallest to the j-th largest covers the true median with
//! probability 1 - 2 P(B < j), where B is binomial (n tosses of a fair coin), whatever the distribution of
//! the values (H. A. David and H. N. Nagaraja, *Order Statistics* (2003), section 7.1). The narrowest
//! interval that covers 95 % is used. With fewer than six values, even the widest, from the smallest to the
//! largest, covers less, and its actual probability is printed: 50 % for two values, 75 % for three, 93.75 %
//! for five.

use std::cmp::Ordering;

use super::student::holm;

/// A change below this factor is not worth a word.
const LEAST_CHANGE: f64 = 1.02;

/// A verdict needs a p below this.
const LEVEL: f64 = 0.05;

/// The intended probability of covering the true median, if there are enough values.
const COVERAGE: f64 = 0.95;

/// The median of some values, and an interval for the true median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The number of values.
    pub count: usize,
    /// The middle value, or the mean of the two middle values.
    pub median: f64,
    /// Lower and upper end; `None` for a single value.
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    /// `None` without values, or if one is NaN.
    pub fn from_values(values: &[f64]) -> Option<Self> {
        Self::covering(COVERAGE, values)
    }

    /// An estimate whose interval covers the true median with this probability, if there are enough values.
    pub(in crate::report) fn covering(coverage: f64, values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| v.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (count, outside) = (sorted.len(), outside(sorted.len(), coverage));
        let interval = (count > 1).then(|| [sorted[outside], sorted[count - 1 - outside]]);
        Some(Self { count, median: median(&sorted), interval })
    }

    /// The interval's width over the median.
    pub fn relative_width(&self) -> Option<f64> {
        let [low, high] = self.interval?;
        (self.median != 0.0).then(|| (high - low) / self.median.abs())
    }
}

/// The probability that the interval of `count` values covers the true median.
pub(in crate::report) fn coverage(count: usize) -> f64 {
    covered(count, outside(count, COVERAGE))
}

/// Whether `count` values are too few for an interval with the intended probability.
pub(in crate::report) fn are_too_few(count: usize) -> bool {
    count < fewest(COVERAGE)
}

/// The number of values needed for an interval with this probability (less than 1).
pub(in crate::report) fn fewest(coverage: f64) -> usize {
    (2..).find(|&count| covered(count, 0) >= coverage).unwrap_or(usize::MAX)
}

/// The number of values that the interval leaves out on either side.
fn outside(count: usize, coverage: f64) -> usize {
    let covered = below(count).map(|below| 1.0 - 2.0 * below).enumerate().skip(1);
    covered
        .take(count.div_ceil(2).saturating_sub(1))
        .take_while(|(_, covered)| *covered >= coverage)
        .last()
        .map_or(0, |(outside, _)| outside)
}

/// The probability that the true median lies within all values except `outside` on either side.
fn covered(count: usize, outside: usize) -> f64 {
    1.0 - 2.0 * below(count).nth(outside).unwrap_or(0.5)
}

/// Whether each list of ratios is above or below 1 by at least `LEAST_CHANGE`, or neither, beyond noise; and its p, by the sign
/// test, corrected for all lists by Holm.
pub fn verdicts(ratios: &[Vec<f64>]) -> Vec<(Ordering, f64)> {
    let verdict = |ratios: &Vec<f64>| {
        let median = Estimate::from_values(ratios).map_or(1.0, |ratio| ratio.median);
        match (median > LEAST_CHANGE, median < 1.0 / LEAST_CHANGE) {
            (true, _) => (Ordering::Greater, sign_test(ratios, LEAST_CHANGE)),
            (_, true) => (Ordering::Less, sign_test(ratios, 1.0 / LEAST_CHANGE)),
            _ => (Ordering::Equal, 1.0),
        }
    };
    let (found, p): (Vec<Ordering>, Vec<f64>) = ratios.iter().map(verdict).unzip();
    let corrected = found.into_iter().zip(holm(&p, p.len()));
    corrected.map(|(found, p)| (if p < LEVEL { found } else { Ordering::Equal }, p)).collect()
}

/// What the p-values of [`verdicts`] are, of `lists` such as `3 comparisons`.
pub fn sign_test_in_words(lists: &str) -> String {
    let least = 100.0 * (LEAST_CHANGE - 1.0);
    format!("p: sign test against changes below {least:.0} %, by Holm for {lists} at once")
}

/// The least number of ratios with which one of `lists` can get a verdict, whatever the others hold.
pub(in crate::report) fn fewest_for_verdict(lists: usize) -> usize {
    (1..)
        .find(|&count| 2.0 * 0.5_f64.powi(count) * (lists as f64) < LEVEL)
        .map_or(usize::MAX, |count| count as usize)
}

/// The two-sided p of the sign test: whether the median of some values may be `median`. Values equal to it do not count.
fn sign_test(values: &[f64], median: f64) -> f64 {
    let [above, below_it] = [f64::gt, f64::lt].map(|is| values.iter().filter(|v| is(v, &median)).count());
    below(above + below_it).nth(above.min(below_it)).map_or(1.0, |p| (2.0 * p).min(1.0))
}

/// The probabilities of at most `k` heads in `count` tosses of a coin, for k = 0, 1, ... Computed with
/// logarithms, because 0.5^1075 is 0 in f64.
fn below(count: usize) -> impl Iterator<Item = f64> {
    let mut log = -(count as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    (0..=count).map(move |k| {
        below += log.exp();
        log += ((count - k) as f64 / (k + 1) as f64).ln();
        below
    })
}

/// The median of sorted values, of which there is one at least.
pub(in crate::report) fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::{
        Xoshiro256PlusPlus,
        rand_core::{Rng, SeedableRng},
    };

    use super::*;

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

    /// Compared with tables of the sign test: ranks and coverage of the median's interval.
    #[test]
    fn ranks_and_coverage_are_those_of_tables() {
        let places = |count: usize| outside(count, COVERAGE) + 1;
        assert_eq!([2, 5, 6, 8, 9, 10, 15, 20, 25].map(places), [1, 1, 1, 1, 2, 2, 4, 6, 8]);
        let percent = |count| (coverage(count) * 1e4).round() / 100.0;
        assert_eq!([2, 3, 5, 6].map(percent), [50.0, 75.0, 93.75, 96.88]);
        assert_eq!([9, 10, 15, 20].map(percent), [96.09, 97.85, 96.48, 95.86]);
        // By the normal approximation, 0.98 sqrt(n) ranks from the middle. 0.5^2000 is 0 in f64.
        assert_eq!([2000, 10_000].map(places), [956, 4902]);
        assert!((0.95..0.952).contains(&coverage(10_000)));
        assert_eq!([2, 3, 4, 5, 6, 7].map(are_too_few), [true, true, true, true, false, false]);
        assert_eq!([0.5, 0.95, 0.99].map(fewest), [2, 6, 8]);
    }

    /// Values of `scipy.stats.binomtest(k, n).pvalue`.
    #[test]
    fn the_sign_test_is_scipys() {
        let of = |above: usize, below: usize| {
            let values = [vec![1.5; above], vec![0.5; below], vec![1.0; 3]].concat();
            (sign_test(&values, 1.0) * 1e6).round() / 1e6
        };
        assert_eq!([of(9, 0), of(0, 9), of(8, 1)], [0.003906, 0.003906, 0.039062]);
        assert_eq!([of(5, 4), of(5, 5), of(0, 0), of(15, 5)], [1.0, 1.0, 1.0, 0.041389]);
    }

    /// Of nine lists with the same change the ninth repeat gives the first verdict.
    #[test]
    fn verdicts_are_corrected_for_all_lists() {
        assert_eq!([1, 2, 3, 9, 12].map(fewest_for_verdict), [6, 7, 7, 9, 9]);
        let lists = |count: usize| [vec![vec![1.5; count]], vec![vec![1.0; count]; 8]].concat();
        let first = |count: usize| verdicts(&lists(count))[0];
        assert_eq!((first(8).0, first(9).0), (Ordering::Equal, Ordering::Greater));
        assert!((first(9).1 - 9.0 * 2.0 / 512.0).abs() < 1e-12);
        assert_eq!(verdicts(&[vec![0.5; 6]])[0].0, Ordering::Less);
        assert_eq!(verdicts(&[vec![1.015; 30]]), [(Ordering::Equal, 1.0)], "too small to matter");
    }

    /// Over many experiments with a known median, the interval covers it with the stated probability, for few
    /// and for many values of a skewed distribution like that of times.
    #[test]
    fn the_coverage_is_true() {
        const EXPERIMENTS: usize = 20_000;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        for count in [2, 3, 5, 7, 10, 15] {
            let mut held = 0;
            for _ in 0..EXPERIMENTS {
                // Exponential: the median is ln 2.
                let values: Vec<f64> = (0..count).map(|_| -(1.0 - uniform()).ln()).collect();
                let [low, high] = Estimate::from_values(&values).unwrap().interval.unwrap();
                held += usize::from((low..=high).contains(&std::f64::consts::LN_2));
            }
            let share = held as f64 / EXPERIMENTS as f64;
            // Four standard deviations.
            assert!((share - coverage(count)).abs() < 0.015, "{count}: {share} {}", coverage(count));
        }
    }
}
