//! The difference of two settings in a metric; paired if their values share keys, such as seeds.

use super::{
    dependence::Dependence,
    student::{ALMOST_NORMAL, quantile, two_sided_p},
};
use crate::run::{Sample, SeedsAndFold, mean, pairs};

/// Error probability of intervals: 5 %.
pub(in crate::report) const ALPHA: f64 = 0.05;

/// More runs are no advice.
pub(in crate::report) const MOST_RUNS: usize = 1_000_000;

/// A relative spread below this is attributed to rounding of sums.
pub(in crate::report) const ROUNDING: f64 = 1e-12;

/// The mean of one setting's values minus that of the other's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) struct MeanDifference {
    pub(in crate::report) mean: f64,
    /// Student's 95 % interval, or the range of values that are [in order](Dependence::InOrder); `None` if there are too few values
    /// to estimate their spread.
    pub(in crate::report) interval: Option<[f64; 2]>,
    /// Two-sided p-value.
    pub(in crate::report) p: Option<f64>,
    /// How many samples both have; 0 where all values of one are compared with all of the other.
    pub(in crate::report) pairs: usize,
    /// Whether the pairs are of some of the runs alone, since the settings lack different ones.
    pub(in crate::report) is_of_some: bool,
    /// The standard error and the degrees of freedom; `None` if there is no interval.
    error: Option<(f64, f64)>,
    /// How many values the error is of; of two settings the fewer.
    count: usize,
    /// The part of the squared error, in variances of a value, that does not shrink with the number of values.
    shared: f64,
}

impl MeanDifference {
    /// The interval with error probability `alpha`, or the range, whatever `alpha` is. Values that do not vary have no spread; if
    /// there are enough of them, their sign decides.
    pub(in crate::report) fn interval_at(&self, alpha: f64) -> Option<[f64; 2]> {
        match self.error {
            Some((error, degrees)) => {
                let half = quantile(alpha, degrees) * error;
                Some([self.mean - half, self.mean + half])
            }
            None => self.p.map_or(self.interval, |p| (p < alpha).then_some([self.mean; 2])),
        }
    }

    /// With how many runs of each setting the interval would exclude 0 if the mean and the spread stay; `None` if no number of runs
    /// would, since the part of the error that comes of shared rows stays.
    pub(in crate::report) fn decided_by(&self, alpha: f64) -> Option<usize> {
        let ((error, degrees), count) = (self.error?, self.count);
        let spread = error / (1.0 / count as f64 + self.shared).sqrt();
        // Welch's degrees of freedom grow with the number of runs, too.
        let degrees = |runs: usize| (degrees * (runs - 1) as f64 / (count - 1) as f64).min(ALMOST_NORMAL);
        let excludes_0 = |runs: usize| {
            let error = spread * (1.0 / runs as f64 + self.shared).sqrt();
            quantile(alpha, degrees(runs)) * error < self.mean.abs()
        };
        let (mut few, mut enough) = (count, count);
        while !excludes_0(enough) {
            (few, enough) = (enough, enough.checked_mul(2).filter(|runs| *runs <= MOST_RUNS)?);
        }
        while enough - few > 1 {
            let middle = few.midpoint(enough);
            *(if excludes_0(middle) { &mut enough } else { &mut few }) = middle;
        }
        Some(enough)
    }

    /// Whether its p-value is that of a sign test: all differences are equal, and tell no spread.
    pub(in crate::report) fn is_sign_test(&self) -> bool {
        self.error.is_none() && self.p.is_some() && self.mean != 0.0
    }

    /// Whether the interval excludes 0.
    pub(in crate::report) fn excludes_0(&self) -> bool {
        self.interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }

    /// The difference of the means of values that no rows pair, of which nothing tells how certain it is.
    pub(in crate::report) fn untested(own: &[Sample], other: &[Sample], factor: f64) -> Self {
        let [own, other] = [own, other].map(|all| mean(all.iter().map(|own| &own.value)));
        Self {
            mean: own - factor * other,
            interval: None,
            p: None,
            pairs: 0,
            is_of_some: false,
            error: None,
            count: 0,
            shared: 0.0,
        }
    }

    /// The difference of `own` and `other` times `factor`; `dependence` says what the values have in common, of pairs what those of
    /// these seeds and folds have.
    pub(in crate::report) fn new(
        own: &[Sample],
        other: &[Sample],
        factor: f64,
        dependence: impl FnOnce(Option<&[Vec<&SeedsAndFold>]>) -> Dependence,
    ) -> Self {
        Self::without_interval(own, other, factor, dependence).with_interval()
    }

    /// The same without an interval, for its p-value, which is cheaper to compute.
    pub(in crate::report) fn without_interval(
        own: &[Sample],
        other: &[Sample],
        factor: f64,
        dependence: impl FnOnce(Option<&[Vec<&SeedsAndFold>]>) -> Dependence,
    ) -> Self {
        if let Some(paired) = pairs(own, other) {
            let apart = |(own, other): &(f64, f64)| own - factor * other;
            let dependence = dependence(paired.shared.as_deref());
            let values: Vec<f64> = paired.values.iter().map(apart).collect();
            let moments = Moments::new(&values, || paired.folds.iter().map(apart).collect(), dependence);
            let is_of_some = paired.shared.is_some();
            return Self { pairs: values.len(), is_of_some, ..Self::from_moments(&moments) };
        }
        let dependence = dependence(None);
        let of = |samples, factor: f64| Moments::of_samples(samples, |value| factor * value, dependence);
        Self::welch(&of(own, 1.0), &of(other, factor))
    }

    /// How far the mean of some samples is above a bound.
    pub(in crate::report) fn from_bound(samples: &[Sample], bound: f64, dependence: Dependence) -> Self {
        Self::from_moments(&Moments::of_samples(samples, |value| value - bound, dependence)).with_interval()
    }

    fn with_interval(self) -> Self {
        match self.error {
            Some(_) => Self { interval: self.interval_at(ALPHA), ..self },
            None => self,
        }
    }

    fn from_moments(moments: &Moments) -> Self {
        let plain = Self::student(moments.mean, 0.0, 0.0, moments);
        match moments.dependence {
            Dependence::InOrder => {
                return Self { interval: moments.range.filter(|_| moments.count > 1), ..plain };
            }
            dependence if !dependence.has_interval() => return plain,
            _ => {}
        }
        if moments.variance.sqrt() <= ROUNDING * moments.mean.abs() && moments.count > 1 {
            // Equal values give a sign but no spread, so use the sign test.
            let p = if moments.mean == 0.0 { 1.0 } else { 0.5_f64.powf(moments.count as f64 - 1.0) };
            return Self { p: Some(p), ..plain };
        }
        let error = moments.error_squared().sqrt();
        Self::student(moments.mean, error, moments.count.saturating_sub(1) as f64, moments)
    }

    /// For unequal variances (B. L. Welch, 1947).
    fn welch(own: &Moments, other: &Moments) -> Self {
        let mean = own.mean - other.mean;
        let [a, b] = [own, other].map(Moments::error_squared);
        let share = |part: f64, count: usize| part * part / count.saturating_sub(1) as f64;
        let degrees = (a + b).powi(2) / (share(a, own.count) + share(b, other.count));
        let is_known = own.count > 1 && other.count > 1 && degrees.is_finite();
        let is_known = is_known && own.dependence.has_interval();
        let degrees = if is_known { degrees } else { 0.0 };
        let fewer = if own.count < other.count { own } else { other };
        Self::student(mean, (a + b).sqrt(), degrees, fewer)
    }

    fn student(mean: f64, error: f64, degrees: f64, moments: &Moments) -> Self {
        let is_known = degrees > 0.0 && error > 0.0 && error.is_finite();
        Self {
            mean,
            interval: None,
            p: is_known.then(|| two_sided_p(mean / error, degrees)),
            pairs: 0,
            is_of_some: false,
            error: is_known.then_some((error, degrees)),
            count: moments.count,
            shared: moments.dependence.shared(),
        }
    }
}

/// The mean of samples, and the spread of their values.
struct Moments {
    mean: f64,
    /// The lowest and the highest sample; `None` if there is none.
    range: Option<[f64; 2]>,
    /// The number of samples; of [redrawn](Dependence::Redrawn) rows that of all their folds.
    count: usize,
    /// The variance of these, with divisor n - 1.
    variance: f64,
    dependence: Dependence,
}

impl Moments {
    /// `values` are those of samples, `folds` makes those of all their folds.
    fn new(values: &[f64], folds: impl FnOnce() -> Vec<f64>, dependence: Dependence) -> Self {
        let end = |end: fn(f64, f64) -> f64| values.iter().copied().reduce(end);
        let range = end(f64::min).zip(end(f64::max)).map(|(low, high)| [low, high]);
        let (count, variance) = match dependence {
            Dependence::Redrawn(_) => spread(&folds()),
            _ => spread(values),
        };
        Self { mean: mean(values), range, count, variance, dependence }
    }

    /// Of samples, of whose values `above` makes those that count.
    fn of_samples(samples: &[Sample], above: impl Fn(f64) -> f64, dependence: Dependence) -> Self {
        let values: Vec<f64> = samples.iter().map(|own| above(own.value)).collect();
        let folds = || samples.iter().flat_map(Sample::by_fold).map(&above).collect();
        Self::new(&values, folds, dependence)
    }

    /// The squared standard error of the mean: the variance times 1/n, plus validation rows over training rows where each value is
    /// of another random split or fold of the same rows. Its n trainings share rows, so the values spread less than their mean strays
    /// (C. Nadeau and Y. Bengio, *Machine Learning* 52 (2003), section 3, the corrected resampled t-test; R. R. Bouckaert and E. Frank,
    /// *PAKDD* 2004, for the folds of one seed or several).
    fn error_squared(&self) -> f64 {
        self.variance * (1.0 / self.count as f64 + self.dependence.shared())
    }
}

/// The number of some values, and their variance with divisor n - 1.
fn spread(values: &[f64]) -> (usize, f64) {
    let (count, mean) = (values.len(), mean(values));
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (count, squares / (count as f64 - 1.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::{
        Xoshiro256PlusPlus,
        rand_core::{Rng, SeedableRng},
    };

    use super::*;

    /// How often, over many experiments whose true difference is 0, the interval holds 0: where p is no less than its alpha.
    fn coverage(mut experiment: impl FnMut() -> MeanDifference) -> f64 {
        const EXPERIMENTS: usize = 20_000;
        let held = (0..EXPERIMENTS).filter(|_| experiment().p.is_some_and(|p| p >= ALPHA)).count();
        held as f64 / EXPERIMENTS as f64
    }

    fn of_values(values: &[f64], dependence: Dependence) -> MeanDifference {
        let samples: Vec<Sample> = values.iter().map(|value| Sample::unpaired(*value)).collect();
        MeanDifference::from_bound(&samples, 0.0, dependence)
    }

    /// 95 % where values spread normally, as the notes below a table say. Values of an exponential distribution are very
    /// skewed: an interval of a few of them covers 88 to 91 %.
    #[test]
    fn the_coverage_is_that_of_normal_values() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut uniform = move || 1.0 - (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        for count in [2, 3, 5, 10] {
            // Box and Muller (1958).
            let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
            let mut values = |spread: f64| (0..count).map(|_| spread * normal()).collect::<Vec<f64>>();
            // Four standard deviations of the share.
            let share = coverage(|| of_values(&values(1.0), Dependence::Independent));
            assert!((share - 0.95).abs() < 0.007, "{count}: {share}");
            // Welch's intervals of few values are a little narrow where their spreads differ.
            let [few, many] = [1.0, 3.0];
            let share = coverage(|| {
                let [own, other] = [few, many]
                    .map(|spread| Moments::new(&values(spread), Vec::new, Dependence::Independent));
                MeanDifference::welch(&own, &other)
            });
            assert!(share > 0.93, "{count}: {share}");
            let share = coverage(|| {
                let skewed: Vec<f64> = (0..count).map(|_| -uniform().ln() - 1.0).collect();
                of_values(&skewed, Dependence::Independent)
            });
            assert!((0.875..0.915).contains(&share), "{count}: {share}");
        }
    }

    /// An interval holds 0 exactly where p says so.
    #[test]
    fn intervals_and_p_values_agree() {
        for shift in [0.0, 0.5, 1.0, 2.0, 3.0] {
            let values = [shift - 1.0, shift, shift + 0.5, shift + 2.0];
            let found = of_values(&values, Dependence::Independent);
            let [low, high] = found.interval.unwrap();
            assert_eq!(low <= 0.0 && high >= 0.0, found.p.unwrap() >= ALPHA, "{found:?}");
        }
    }

    fn samples(text: &str, keys: bool) -> Vec<Sample> {
        let values = text.split(' ').enumerate();
        let of = |i: usize| [i.to_string(), String::new()];
        let sample = |(i, value): (usize, &str)| match value.parse().unwrap() {
            value if keys => Sample::new([(of(i), value)]),
            value => Sample::unpaired(value),
        };
        values.map(sample).collect()
    }

    /// The number of runs is the least with which the interval excludes 0, of the same mean and spread.
    #[test]
    fn enough_runs_exclude_0() {
        // Mean 0.125, spread 0.0354: t of 2 runs is 12.7, of 3 runs 4.30.
        let few = of_values(&[0.1, 0.15], Dependence::Independent);
        assert_eq!((few.excludes_0(), few.decided_by(ALPHA)), (false, Some(3)));
        for (values, shared) in [(&[0.5, -0.3, 0.9, 0.1][..], 0.0), (&[0.5, 0.1, 0.9, -0.1], 0.05)] {
            let found = of_values(values, Dependence::Redrawn(shared));
            let runs = found.decided_by(ALPHA).unwrap();
            let half = |runs: usize| {
                quantile(ALPHA, runs as f64 - 1.0) * (spread(values).1 * (1.0 / runs as f64 + shared)).sqrt()
            };
            assert!(half(runs) < found.mean && found.mean <= half(runs - 1), "{runs}: {found:?}");
        }
        // What comes of shared rows alone is more than the mean.
        let shared = of_values(&[0.5, -0.3, 0.9, 0.1], Dependence::Redrawn(1.0));
        assert_eq!(shared.decided_by(ALPHA), None);
    }

    /// The values are those of `scipy.stats.ttest_rel` and `ttest_ind(equal_var=False)` with their confidence
    /// intervals.
    #[test]
    fn differences_are_scipys() {
        for line in include_str!("../../../../../tests/fixtures/statistics/differences.csv").lines().skip(1) {
            let [kind, a, b, mean, low, high, p] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let is_paired = kind == "paired";
            let found = MeanDifference::new(&samples(a, is_paired), &samples(b, is_paired), 1.0, |_| {
                Dependence::Independent
            });
            let [mean, low, high, p] = [mean, low, high, p].map(|cell| cell.parse::<f64>().unwrap());
            let interval = found.interval.unwrap();
            let width = (interval[1] - interval[0]) / (high - low);
            assert!((found.mean - mean).abs() < 1e-12 && (found.pairs > 0) == is_paired, "{line}");
            assert!((width - 1.0).abs() < 1e-9, "{line}: {interval:?}");
            assert!((found.p.unwrap() / p - 1.0).abs() < 1e-9, "{line}: {found:?}");
        }
    }

    #[test]
    fn one_run_each_cannot_tell() {
        let one =
            MeanDifference::new(&samples("3", true), &samples("1", true), 1.0, |_| Dependence::Independent);
        assert_eq!((one.mean, one.interval, one.p), (2.0, None, None));
        let other_seeds = MeanDifference::new(&samples("3", false), &samples("1 2", false), 1.0, |_| {
            Dependence::Independent
        });
        assert_eq!((other_seeds.mean, other_seeds.interval, other_seeds.p), (1.5, None, None));
        let equal = MeanDifference::new(&samples("3 4", true), &samples("1 2", true), 1.0, |_| {
            Dependence::Independent
        });
        assert_eq!((equal.interval, equal.p, equal.is_sign_test()), (None, Some(0.5), true));
    }

    /// Folds in the order of rows have no interval and no p-value, but a range; without pairs not even that.
    #[test]
    fn folds_in_order_have_a_range() {
        let new =
            |own: &[Sample], other: &[Sample]| MeanDifference::new(own, other, 1.0, |_| Dependence::InOrder);
        let own = [samples("3 5 7", true), samples("1 2 6", true)];
        let found = new(&own[0], &own[1]);
        assert_eq!((found.mean, found.interval, found.p), (2.0, Some([1.0, 3.0]), None));
        assert_eq!((found.interval_at(0.001), found.excludes_0()), (Some([1.0, 3.0]), true));
        let others = samples("1 2 6", false);
        let unpaired = new(&own[0], &others);
        assert_eq!((unpaired.mean, unpaired.interval, unpaired.p), (2.0, None, None));
        assert_eq!(new(&own[0][..1], &own[1]).interval, None, "one fold");
    }
}
