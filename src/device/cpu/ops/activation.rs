//! Elementwise functions in f32: polynomial approximations that vectorize, within some 2 ulp of the true values (erf:
//! 4 ulp), held against the f64 references by a test.

use super::vectorized;
use crate::program::Activation;

/// eˣ. Cephes' `expf`: x = n ln 2 + r, a polynomial in r, times 2ⁿ; 0 and infinity beyond the range of normal numbers.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer in any instruction set.
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.3, 88.4);
    let n = (clamped * std::f32::consts::LOG2_E + ROUND) - ROUND;
    let r = (clamped - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5.000_000_3e-1;
    let mantissa = p * r * r + r + 1.0;
    let power = f32::from_bits((((n as i32) + 127) << 23) as u32);
    let value = mantissa * power;
    let value = if x < -87.3 { 0.0 } else { value };
    let value = if x > 88.7 { f32::INFINITY } else { value };
    // A NaN fails every comparison and passes through the clamp.
    if x.is_nan() { x } else { value }
}

/// tanh x: Cephes' `tanhf` polynomial below 0.625, else 1 - 2 / (e²ˣ + 1).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    p = p * z + 2.063_909e-2;
    p = p * z - 5.373_971_4e-2;
    p = p * z + 1.333_144_2e-1;
    p = p * z - 3.333_328e-1;
    let small = p * z * x + x;
    let large = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { small } else { large }
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// erf x: the rational approximation of Eigen and XLA (x P(x²) / Q(x²) on [-4, 4]).
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let c = x.clamp(-4.0, 4.0);
    let z = c * c;
    let mut p = -2.726_142_3e-10;
    p = p * z + 2.770_681_4e-8;
    p = p * z - 2.101_024e-6;
    p = p * z - 5.692_506_5e-5;
    p = p * z - 7.349_906_4e-4;
    p = p * z - 2.954_6e-3;
    p = p * z - 1.609_603_3e-2;
    let mut q = -1.456_607_2e-5;
    q = q * z - 2.133_740_6e-4;
    q = q * z - 1.682_827e-3;
    q = q * z - 7.373_329e-3;
    q = q * z - 1.426_473_9e-2;
    c * p / q
}

#[inline(always)]
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

#[inline(always)]
fn gelu_derivative(x: f32) -> f32 {
    const INVERSE_SQRT_TAU: f32 = 0.398_942_3;
    0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)) + x * exp(-0.5 * x * x) * INVERSE_SQRT_TAU
}

/// y = f(x).
pub fn activate(activation: Activation, x: &[f32], y: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || match activation {
            Activation::Relu => map(x, y, relu),
            Activation::Gelu => map(x, y, gelu),
            Activation::Tanh => map(x, y, tanh),
            Activation::Sigmoid => map(x, y, sigmoid),
        },
    );
}

/// y = f(y).
pub fn activate_in_place(activation: Activation, y: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || match activation {
            Activation::Relu => y.iter_mut().for_each(|y| *y = relu(*y)),
            Activation::Gelu => y.iter_mut().for_each(|y| *y = gelu(*y)),
            Activation::Tanh => y.iter_mut().for_each(|y| *y = tanh(*y)),
            Activation::Sigmoid => y.iter_mut().for_each(|y| *y = sigmoid(*y)),
        },
    );
}

/// dy becomes dy f'(saved), with f' as [`Activation::derivative_needs_input`] says.
pub fn activate_backward(activation: Activation, saved: &[f32], dy: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || match activation {
            // A selection, not a product: the gradient of a unit that is off is 0 even where dy is not finite.
            Activation::Relu => each(saved, dy, |s, d| if s > 0.0 { d } else { 0.0 }),
            Activation::Gelu => each(saved, dy, |s, d| d * gelu_derivative(s)),
            Activation::Tanh => each(saved, dy, |s, d| d * (1.0 - s * s)),
            Activation::Sigmoid => each(saved, dy, |s, d| d * (s * (1.0 - s))),
        },
    );
}

/// PyTorch's: a NaN stays a NaN.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = f(*x);
    }
}

#[inline(always)]
fn each(saved: &[f32], dy: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for (d, s) in dy.iter_mut().zip(saved) {
        *d = f(*s, *d);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::reference;

    fn worst(f: impl Fn(f32) -> f32, truth: impl Fn(f64) -> f64, range: f32) -> f64 {
        (-20_000..=20_000)
            .map(|i| i as f32 / 20_000.0 * range)
            .map(|x| {
                let (got, want) = (f64::from(f(x)), truth(f64::from(x)));
                (got - want).abs() / want.abs().max(1e-30)
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn approximations_are_close_to_the_truth() {
        assert!(worst(exp, f64::exp, 87.0) < 2e-7, "{}", worst(exp, f64::exp, 87.0));
        assert!(worst(tanh, f64::tanh, 10.0) < 3e-7, "{}", worst(tanh, f64::tanh, 10.0));
        let truth = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!(worst(sigmoid, truth, 80.0) < 3e-7, "{}", worst(sigmoid, truth, 80.0));
        assert!(worst(erf, reference::erf, 3.9) < 5e-7, "{}", worst(erf, reference::erf, 3.9));
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
        assert_eq!((tanh(50.0), tanh(-50.0), sigmoid(200.0)), (1.0, -1.0, 1.0));
        let mut y = [f32::NAN, -1.0, 2.0];
        activate_in_place(Activation::Relu, &mut y);
        assert!(y[0].is_nan() && y[1..] == [0.0, 2.0]);
    }
}
