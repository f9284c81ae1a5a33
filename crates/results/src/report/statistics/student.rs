//! Student's t distribution, and Holm's correction for several comparisons.

/// Degrees of freedom with which Student's distribution is almost normal, and a little wider.
pub(in crate::report) const ALMOST_NORMAL: usize = 1000;

/// The probability of a `t` at least this far from 0, on either side (Abramowitz and Stegun 26.7.3 and
/// 26.7.4).
pub(in crate::report) fn two_sided_p(t: f64, degrees: usize) -> f64 {
    let theta = (t.abs() / (degrees as f64).sqrt()).atan();
    let (sin, cos) = theta.sin_cos();
    let is_odd = degrees % 2 == 1;
    let mut term = if is_odd { cos } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    let mut k = if is_odd { 2 } else { 1 };
    while k + 1 < degrees {
        term *= cos * cos * k as f64 / (k + 1) as f64;
        sum += term;
        k += 2;
    }
    let within = if is_odd { (theta + sin * sum) * std::f64::consts::FRAC_2_PI } else { sin * sum };
    (1.0 - within).clamp(0.0, 1.0)
}

/// The `t` whose two-sided probability of being exceeded is `p`.
pub(in crate::report) fn quantile(p: f64, degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided_p(high, degrees) > p && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        *(if two_sided_p(middle, degrees) > p { &mut low } else { &mut high }) = middle;
    }
    high
}

/// Holm's adjusted p-values, where `p` are some of `family` tests. The other tests are assumed to rank behind
/// them, which can only make the values larger (S. Holm, *A simple sequentially rejective multiple test
/// procedure*, 1979).
pub(in crate::report) fn holm(p: &[f64], family: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let (mut adjusted, mut largest) = (vec![1.0; p.len()], 0.0_f64);
    for (rank, &place) in order.iter().enumerate() {
        largest = largest.max(p[place] * family.saturating_sub(rank) as f64).min(1.0);
        adjusted[place] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from scipy.stats 1.17: `2 * t.sf(x, df)` and `t.ppf(0.975, df)`.
    #[test]
    fn p_and_quantiles_are_scipys() {
        for line in include_str!("../../../../../tests/fixtures/statistics/student.csv").lines().skip(1) {
            let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
            let [degrees, t, p, quantile_95] = cells[..] else { panic!("{line}") };
            let degrees = degrees as usize;
            assert!((two_sided_p(t, degrees) - p).abs() < 1e-12, "{line}: {}", two_sided_p(t, degrees));
            assert!((quantile(0.05, degrees) / quantile_95 - 1.0).abs() < 1e-9, "{line}");
        }
    }

    #[test]
    fn holm_is_that_of_the_book() {
        let near = |found: Vec<f64>, wanted: &[f64]| {
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        };
        near(holm(&[0.01, 0.04, 0.03, 0.005], 4), &[0.03, 0.06, 0.06, 0.02]);
        near(holm(&[0.5, 0.9], 2), &[1.0, 1.0]);
        near(holm(&[0.01, 0.02], 6), &[0.06, 0.1]);
    }
}
