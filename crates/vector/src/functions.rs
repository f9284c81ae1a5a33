//! Elementwise functions in f32: polynomial approximations that vectorize, within about 2 ulp of the exact
//! values (erf: 4 ulp). A test compares them with the f64 references.

/// eˣ, from Cephes' `expf`: x = n ln 2 + r, then a polynomial in r times 2ⁿ. Returns 0 or infinity beyond the
/// range of normal numbers.
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

/// x / (1 + e⁻ˣ).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// The derivative of [`silu`] at `x`.
#[inline(always)]
pub fn silu_derivative(x: f32) -> f32 {
    let gate = sigmoid(x);
    gate * (1.0 + x * (1.0 - gate))
}

/// erf x: the rational approximation of Eigen and XLA (x P(x²) / Q(x²) on [-4, 4]). Beyond 3.92 it is 1 or -1, as the truth rounds
/// there: so that [`gelu`] of a large negative number is 0.
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
    let inside = c * p / q;
    if x.abs() > 3.92 { 1_f32.copysign(x) } else { inside }
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The derivative of [`gelu`] at `x`.
#[inline(always)]
pub fn gelu_derivative(x: f32) -> f32 {
    const INVERSE_SQRT_TAU: f32 = 0.398_942_3;
    0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)) + x * exp(-0.5 * x * x) * INVERSE_SQRT_TAU
}
