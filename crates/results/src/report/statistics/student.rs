//! Student's t distribution, and Holm's correction for several comparisons.

/// Degrees of freedom with which Student's distribution is almost normal, and a little wider.
pub(in crate::report) const ALMOST_NORMAL: f64 = 1000.0;

/// The probability of a `t` at least this far from 0, on either side, with any degrees of freedom above 0: the regularized incomplete
/// beta function of n/2 and 1/2 at n / (n + t²) (Abramowitz and Stegun 26.7.1 and 26.5.8).
pub(in crate::report) fn two_sided_p(t: f64, degrees: f64) -> f64 {
    let (a, b, ratio) = (degrees / 2.0, 0.5, t * t / degrees);
    // The logarithms of x and 1 - x, exact also where one of them is almost 1.
    let [ln_x, ln_rest] = [-ratio.ln_1p(), -(1.0 / ratio).ln_1p()];
    let x = ln_x.exp();
    let front = (a * ln_x + b * ln_rest).exp() * gamma_ratio(a) / std::f64::consts::PI.sqrt();
    // The fraction converges fast on one side of the mean alone.
    let p = match x < (a + 1.0) / (a + b + 2.0) {
        true => front * beta_fraction(x, a, b) / a,
        false => 1.0 - front * beta_fraction(ln_rest.exp(), b, a) / b,
    };
    p.clamp(0.0, 1.0)
}

/// Γ(a + 1/2) / Γ(a): an expansion for large `a`, and steps of 1 down to others.
fn gamma_ratio(a: f64) -> f64 {
    const LARGE: f64 = 64.0;
    let steps = (LARGE - a).ceil().max(0.0) as usize;
    let large = a + steps as f64;
    let terms = [1.0, -1.0 / 8.0, 1.0 / 128.0, 5.0 / 1024.0, -21.0 / 32768.0, -399.0 / 262_144.0];
    let of_large = large.sqrt() * terms.iter().rev().fold(0.0, |sum, term| sum / large + term);
    (0..steps).fold(of_large, |ratio, step| ratio * (a + step as f64) / (a + step as f64 + 0.5))
}

/// The continued fraction of the incomplete beta function (W. J. Lentz, *Applied Optics* 15, 1976, computes such from the front).
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const MOST: usize = 10_000;
    let not_0 = |value: f64| if value.abs() < f64::MIN_POSITIVE { f64::MIN_POSITIVE } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / not_0(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..MOST {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / not_0(1.0 + term * d);
            c = not_0(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    fraction
}

/// The `t` whose two-sided probability of being exceeded is `p`.
pub(in crate::report) fn quantile(p: f64, degrees: f64) -> f64 {
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
