//! When two runs did the same mathematics.

/// What a run on some devices came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Their names.
    pub devices: String,
    /// Of a step, in words.
    pub rows: String,
    /// The loss of every step.
    pub losses: Vec<f64>,
    /// The flat buffer at the end.
    pub parameters: Vec<f32>,
}

/// Losses `a` and `b` of the same step may differ by `1e-5 |b| + 1e-9 t`, where `t` is the mean square of the targets
/// for a regression, since a loss near 0 is a difference of numbers of that size, and 0 for a classification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    pub target_square: f64,
}

/// Parameters may differ by this much of the length of all of them, taken as one vector.
pub const PARAMETERS: f64 = 1e-4;

/// How far a curve is from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The step (1-based) that comes nearest to the limit, or goes furthest beyond it.
    pub step: usize,
    /// The difference of its losses.
    pub loss: f64,
    /// Its part of the limit there.
    pub of_limit: f64,
    /// The length of the difference of the parameters over the length of the reference's.
    pub parameters: f64,
}

impl Rule {
    /// What the losses may differ by where the reference is `b`.
    pub fn limit(self, b: f64) -> f64 {
        1e-5 * b.abs() + 1e-9 * self.target_square
    }

    /// `curve` held against `reference`. Of equal curves the step is the first.
    pub fn difference(self, curve: &Curve, reference: &Curve) -> Difference {
        let mut worst = Difference { step: 1, loss: 0.0, of_limit: 0.0, parameters: 0.0 };
        for (i, (a, b)) in curve.losses.iter().zip(&reference.losses).enumerate() {
            let loss = (a - b).abs();
            let of_limit = if loss == 0.0 { 0.0 } else { loss / self.limit(*b) };
            // What is not a number is beyond any limit.
            let of_limit = if of_limit.is_nan() { f64::INFINITY } else { of_limit };
            if of_limit > worst.of_limit {
                worst = Difference { step: i + 1, loss, of_limit, ..worst };
            }
        }
        if curve.losses.len() != reference.losses.len() {
            worst.of_limit = f64::INFINITY;
        }
        let square = |differ: &dyn Fn(usize) -> f64| (0..reference.parameters.len()).map(differ).sum::<f64>();
        let at = |parameters: &[f32], i: usize| parameters.get(i).map_or(f64::NAN, |v| f64::from(*v));
        let apart = square(&|i| (at(&curve.parameters, i) - at(&reference.parameters, i)).powi(2));
        let all = square(&|i| at(&reference.parameters, i).powi(2));
        let parameters = if apart == 0.0 { 0.0 } else { (apart / all).sqrt() };
        Difference { parameters: if parameters.is_nan() { f64::INFINITY } else { parameters }, ..worst }
    }
}

impl Difference {
    /// Whether it is small enough.
    pub fn holds(&self) -> bool {
        self.of_limit <= 1.0 && self.parameters <= PARAMETERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(losses: &[f64], parameters: &[f32]) -> Curve {
        Curve { losses: losses.to_vec(), parameters: parameters.to_vec(), ..Curve::default() }
    }

    #[test]
    fn the_step_nearest_to_its_limit_is_named() {
        let reference = curve(&[2.0, 1.0, 0.0], &[3.0, 4.0]);
        let rule = Rule { target_square: 10.0 };
        let equal = rule.difference(&reference, &reference);
        assert_eq!(equal, Difference { step: 1, loss: 0.0, of_limit: 0.0, parameters: 0.0 });
        // Limits: 2.001e-5, 1.001e-5, 1e-8.
        let other = curve(&[2.0 + 1e-5, 1.0 - 0.9e-5, 0.5e-8], &[3.0, 4.0005]);
        let found = rule.difference(&other, &reference);
        assert_eq!(found.step, 2);
        assert!((found.of_limit - 0.9e-5 / 1.001e-5).abs() < 1e-9, "{found:?}");
        assert!((found.parameters / 1e-4 - 1.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn what_is_too_far_or_no_number_does_not_hold() {
        let reference = curve(&[1.0, 1.0], &[1.0]);
        let rule = Rule { target_square: 0.0 };
        let holds = |losses: &[f64], parameters: &[f32]| {
            rule.difference(&curve(losses, parameters), &reference).holds()
        };
        assert!(holds(&[1.0, 1.0 + 0.9e-5], &[1.0 + 0.9e-4]));
        assert!(!holds(&[1.0, 1.0 + 1.1e-5], &[1.0]));
        assert!(!holds(&[1.0, 1.0], &[1.0 + 1.1e-4]));
        assert!(!holds(&[1.0, f64::NAN], &[1.0]));
        assert!(!holds(&[1.0, 1.0], &[f32::NAN]));
        assert!(!holds(&[1.0], &[1.0]));
        assert!(!holds(&[1.0, 1.0], &[]));
    }
}
