//! The shift between two groups of independent values, by ranks.
//!
//! We assume that one group is distributed like the other, but for a shift. All m n differences between a value of one and a value
//! of the other are sorted. The interval from the k-th smallest to the k-th largest covers the shift with probability
//! 1 - 2 P(U < k), where U is the statistic of Mann and Whitney (1947) for two equal groups (D. F. Bauer, *Journal of the American
//! Statistical Association* 67 (1972); `wilcox.test` of R gives the same). A few disturbed values hardly widen it, but they do
//! widen the interval of each group's median.

use super::{
    estimates::median,
    student::{ALMOST_NORMAL, quantile},
};

/// Of groups of more values U is taken as normal, as R does.
const MOST_EXACT: usize = 50;

/// How far values of one group lie above those of another.
pub(in crate::report) struct Shift {
    /// The median of all differences (J. L. Hodges and E. L. Lehmann, *Annals of Mathematical Statistics* 34 (1963)). The
    /// difference of the two medians may lie outside the interval, and even have another sign.
    pub(in crate::report) median: f64,
    /// `None` with too few values.
    pub(in crate::report) interval: Option<[f64; 2]>,
}

impl Shift {
    /// The shift of `own` against `other`, neither empty, with an interval of error probability `alpha`.
    pub(in crate::report) fn new(own: &[f64], other: &[f64], alpha: f64) -> Self {
        let mut differences: Vec<f64> =
            own.iter().flat_map(|own| other.iter().map(move |other| own - other)).collect();
        differences.sort_unstable_by(f64::total_cmp);
        let left_out = left_out(own.len(), other.len(), alpha);
        let interval = left_out.map(|out| [differences[out], differences[differences.len() - 1 - out]]);
        Self { median: median(&differences), interval }
    }
}

/// How many values of each group are needed for an interval.
pub(in crate::report) fn fewest_each(alpha: f64) -> usize {
    // Equal groups have (2 n)! / (n!)^2 orders, one with the least U and one with the largest.
    let mut share = 1.0;
    let is_enough = |count: &usize| {
        let n = *count as f64;
        share *= n / (4.0 * n - 2.0);
        2.0 * share <= alpha
    };
    (1..).find(is_enough).unwrap_or(usize::MAX)
}

/// How many differences the interval leaves out at either end.
fn left_out(own: usize, other: usize, alpha: f64) -> Option<usize> {
    if own.max(other) > MOST_EXACT {
        let [m, n] = [own as f64, other as f64];
        let half = quantile(alpha, ALMOST_NORMAL) * (m * n * (m + n + 1.0) / 12.0).sqrt();
        let left_out = (m * n / 2.0 - half).floor();
        return (left_out >= 1.0).then_some(left_out as usize - 1);
    }
    let mut below = 0.0;
    let mut is_covered = |probability: &f64| {
        below += probability;
        2.0 * below <= alpha
    };
    distribution(own, other).iter().take_while(|probability| is_covered(probability)).count().checked_sub(1)
}

/// The probability of each value of U, 0 to `own * other`, if all orders are equally likely.
fn distribution(own: usize, other: usize) -> Vec<f64> {
    // The largest value is one of `own`, and above all of `other`, or one of `other`, which adds nothing.
    let mut of_fewer: Vec<Vec<f64>> = vec![vec![1.0]; other + 1];
    for m in 1..=own {
        let mut of_these = vec![vec![1.0]];
        for n in 1..=other {
            let share = m as f64 / (m + n) as f64;
            let mut all = vec![0.0; m * n + 1];
            of_fewer[n].iter().enumerate().for_each(|(u, p)| all[u + n] += share * p);
            of_these[n - 1].iter().enumerate().for_each(|(u, p)| all[u] += (1.0 - share) * p);
            of_these.push(all);
        }
        of_fewer = of_these;
    }
    of_fewer.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::{
        Xoshiro256PlusPlus,
        rand_core::{Rng, SeedableRng},
    };

    use super::*;

    /// The critical values of U in tables, two-sided at 5 % and 1 %: that many differences are left out.
    #[test]
    fn ranks_are_those_of_tables() {
        let critical = |own, other| [0.05, 0.01].map(|alpha| left_out(own, other, alpha));
        assert_eq!(critical(3, 3), [None, None]);
        assert_eq!(critical(4, 4), [Some(0), None]);
        assert_eq!(critical(5, 5), [Some(2), Some(0)]);
        assert_eq!(critical(8, 8), [Some(13), Some(7)]);
        assert_eq!(critical(5, 9), [Some(7), Some(3)]);
        assert_eq!(critical(20, 20), [Some(127), Some(105)]);
        assert_eq!([0.05, 0.01, 0.001].map(fewest_each), [4, 5, 7]);
        // The normal approximation goes on where the exact values end.
        let exact = left_out(50, 50, 0.05).unwrap();
        let next = left_out(51, 50, 0.05).unwrap();
        assert!((exact..exact + 40).contains(&next), "{exact} {next}");
    }

    /// Times of a busy machine: most runs are alike, one in ten is disturbed.
    #[test]
    fn the_coverage_is_that_which_was_asked_for() {
        const EXPERIMENTS: usize = 20_000;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut uniform = move || 1.0 - (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut time = || 1.0 + 0.05 * uniform() + if uniform() < 0.1 { -3.0 * uniform().ln() } else { 0.0 };
        for (own, other) in [(4, 4), (8, 8), (6, 12)] {
            let mut held = 0;
            for _ in 0..EXPERIMENTS {
                let [own, other] = [own, other].map(|count| (0..count).map(|_| time()).collect::<Vec<_>>());
                let [low, high] = Shift::new(&own, &other, 0.05).interval.unwrap();
                held += usize::from(low <= 0.0 && 0.0 <= high);
            }
            let share = held as f64 / EXPERIMENTS as f64;
            // What is left out is a whole number of differences: at least 95 %. Four standard deviations.
            assert!((0.944..0.98).contains(&share), "{own} {other}: {share}");
        }
    }

    /// A run on either side that something slowed does not hide a change by a factor of four.
    #[test]
    fn disturbed_runs_do_not_decide() {
        let slow = [119.0, 121.0, 118.0, 122.0, 120.0, 119.5, 120.5, 60.0];
        let fast = [519.0, 521.0, 518.0, 522.0, 520.0, 519.5, 520.5, 90.0];
        let [low, high] = Shift::new(&slow, &fast, 0.05).interval.unwrap();
        assert!(-410.0 < low && low < -399.0 && -401.0 < high && high < -390.0, "{low} {high}");
        assert!(Shift::new(&slow[..3], &fast, 0.05).interval.is_some());
        assert_eq!(Shift::new(&slow[..3], &fast[..3], 0.05).interval, None);
    }
}
