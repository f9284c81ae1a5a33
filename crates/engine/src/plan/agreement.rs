//! The parity criterion: whether two runs agree within rounding. `runner parity` compares devices by it, and
//! a GPU's compiled steps are checked against the interpreter by it.

use crate::spec::Precision;

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The devices' names.
    pub devices: String,
    /// A description of the steps' rows.
    pub rows: String,
    /// The loss of every step.
    pub losses: Vec<f64>,
    /// The flat buffer of parameters after the last step.
    pub parameters: Vec<f32>,
}

/// In a step, losses `a` and `b` may differ by `r |b| + s t`. For a regression, `t` is the mean square of the
/// targets, since a loss near 0 is a difference of numbers of that size; for a classification, `t` is 0. In
/// f32, `r` is 1e-5 and `s` is 1e-9.
///
/// If products round their operands with a relative error `u`, then `r` is `32 u` and `s` is `r` squared.
/// This is an estimate of the effect on a loss, which no library guarantees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    pub target_square: f64,
    pub precision: Precision,
}

/// Steps that are judged. Every step amplifies rounding differences, so in later steps the difference depends
/// on the model and no longer on how sums are computed.
pub const JUDGED: usize = 200;

/// The difference of two curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The step (from 1) whose difference is the largest share of its limit.
    pub step: usize,
    /// The difference of the losses at that step.
    pub loss: f64,
    /// Its share of the limit.
    pub of_limit: f64,
    /// The worst of the steps after the judged ones, if there are any.
    pub later: Option<Later>,
    /// Norm of the parameters' difference, relative to the reference's norm.
    pub parameters: f64,
}

/// The worst step after the judged ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Later {
    /// 1-based.
    pub step: usize,
    /// Its share of the limit, if it were judged.
    pub of_limit: f64,
}

impl Rule {
    /// The factors `r` and `s` of the limit.
    pub fn parts(self) -> [f64; 2] {
        // Mantissas of 10 and 7 bits, plus the implicit one.
        let rounded = |bits: i32| 32.0 * 2f64.powi(-(bits + 1));
        match self.precision {
            Precision::F32 => [1e-5, 1e-9],
            Precision::Tf32 => [rounded(10), rounded(10).powi(2)],
            Precision::Bf16 => [rounded(7), rounded(7).powi(2)],
        }
    }

    /// Limit of the parameters' relative difference, taken as one vector.
    pub fn parameters(self) -> f64 {
        match self.precision {
            Precision::F32 => 1e-4,
            _ => self.parts()[0],
        }
    }

    /// Limit of the losses' difference for the reference `b`.
    pub fn limit(self, b: f64) -> f64 {
        let [of_loss, of_targets] = self.parts();
        of_loss * b.abs() + of_targets * self.target_square
    }

    /// Compares `curve` with `reference`. If the curves are equal, the reported step is the first.
    pub fn difference(self, curve: &Curve, reference: &Curve) -> Difference {
        let mut worst = Difference { step: 1, loss: 0.0, of_limit: 0.0, later: None, parameters: 0.0 };
        for (i, (a, b)) in curve.losses.iter().zip(&reference.losses).enumerate() {
            let loss = (a - b).abs();
            let of_limit = if loss == 0.0 { 0.0 } else { loss / self.limit(*b) };
            // NaN exceeds any limit.
            let of_limit = if of_limit.is_nan() { f64::INFINITY } else { of_limit };
            let step = i + 1;
            if i >= JUDGED {
                let later = worst.later.get_or_insert(Later { step, of_limit });
                if of_limit > later.of_limit {
                    *later = Later { step, of_limit };
                }
            } else if of_limit > worst.of_limit {
                worst = Difference { step, loss, of_limit, ..worst };
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

    /// Whether a difference is within the limits. The parameters are compared after the last step, so if
    /// there are steps beyond the judged ones, they only have to be finite.
    pub fn holds(self, difference: &Difference) -> bool {
        let parameters = if difference.later.is_some() { f64::MAX } else { self.parameters() };
        difference.of_limit <= 1.0 && difference.parameters <= parameters
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
        let rule = Rule { target_square: 10.0, precision: Precision::F32 };
        let equal = rule.difference(&reference, &reference);
        assert_eq!(equal, Difference { step: 1, loss: 0.0, of_limit: 0.0, later: None, parameters: 0.0 });
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
        let rule = Rule { target_square: 0.0, precision: Precision::F32 };
        let holds = |losses: &[f64], parameters: &[f32]| {
            rule.holds(&rule.difference(&curve(losses, parameters), &reference))
        };
        assert!(holds(&[1.0, 1.0 + 0.9e-5], &[1.0 + 0.9e-4]));
        assert!(!holds(&[1.0, 1.0 + 1.1e-5], &[1.0]));
        assert!(!holds(&[1.0, 1.0], &[1.0 + 1.1e-4]));
        assert!(!holds(&[1.0, f64::NAN], &[1.0]));
        assert!(!holds(&[1.0, 1.0], &[f32::NAN]));
        assert!(!holds(&[1.0], &[1.0]));
        assert!(!holds(&[1.0, 1.0], &[]));
    }

    #[test]
    fn steps_beyond_the_judged_ones_are_shown_and_not_judged() {
        let rule = Rule { target_square: 0.0, precision: Precision::F32 };
        let reference = curve(&[1.0; JUDGED + 3], &[1.0]);
        let mut losses = [1.0; JUDGED + 3];
        (losses[JUDGED], losses[JUDGED + 1]) = (1.0 + 2e-5, 1.0 + 4e-5);
        let found = rule.difference(&curve(&losses, &[1.5]), &reference);
        let later = found.later.unwrap();
        assert_eq!((found.of_limit, later.step), (0.0, JUDGED + 2));
        assert!((later.of_limit - 4.0).abs() < 1e-6 && rule.holds(&found), "{found:?}");
        assert!(!rule.holds(&rule.difference(&curve(&losses, &[f32::NAN]), &reference)));
        losses[JUDGED - 1] = 1.0 + 2e-5;
        assert!(!rule.holds(&rule.difference(&curve(&losses, &[1.0]), &reference)));
    }

    #[test]
    fn rounded_operands_have_wider_limits() {
        let parts = |precision| Rule { target_square: 1.0, precision }.parts();
        assert_eq!(parts(Precision::Tf32), [0.015625, 0.015625 * 0.015625]);
        assert_eq!(parts(Precision::Bf16), [0.125, 0.125 * 0.125]);
        let rule = Rule { target_square: 0.0, precision: Precision::Tf32 };
        let reference = curve(&[1.0], &[1.0]);
        assert!(rule.holds(&rule.difference(&curve(&[1.015], &[1.015]), &reference)));
        assert!(!rule.holds(&rule.difference(&curve(&[1.016], &[1.0]), &reference)));
    }
}
