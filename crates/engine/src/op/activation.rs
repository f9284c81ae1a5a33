//! Elementwise functions that are ops of their own because no product fuses them, and their derivatives.

use std::ops::Range;

use super::{
    Access, Backward, Cost, Encoder, FUNCTION, Kind, Lowering, NONE, Op, Operation, Record, Refused, Size,
    Slice,
    product::Strips,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};
use crate::{
    spec::Layer,
    vector::{
        functions::{gelu, gelu_derivative, sigmoid, silu, silu_derivative, tanh},
        vectorized,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// max(0, x).
    Relu,
    /// x Φ(x).
    Gelu,
    /// x / (1 + e⁻ˣ).
    Silu,
    Tanh,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
}

impl Activation {
    /// In the order of `kernels/abi.cuh`, where 0 stands for no activation.
    pub const ALL: [Self; 5] = [Self::Relu, Self::Gelu, Self::Silu, Self::Tanh, Self::Sigmoid];

    /// Its number in the kernels.
    pub fn number(activation: Option<Self>) -> i32 {
        activation.map_or(0, |f| f as i32 + 1)
    }

    /// Whether the derivative is computed from the input. Otherwise it is computed from the output, and the
    /// input is not kept.
    pub fn derivative_needs_input(self) -> bool {
        matches!(self, Self::Gelu | Self::Silu)
    }

    pub fn of_layer(layer: &Layer) -> Option<Self> {
        match layer {
            Layer::Relu => Some(Self::Relu),
            Layer::Gelu => Some(Self::Gelu),
            Layer::Silu => Some(Self::Silu),
            Layer::Tanh => Some(Self::Tanh),
            Layer::Sigmoid => Some(Self::Sigmoid),
            _ => None,
        }
    }
}

/// A function that is inlined where it is passed on: the compiler leaves a long one as a call for each number, which is not vectorized.
macro_rules! inlined {
    ($f:ident) => {
        #[inline(always)]
        |x| $f(x)
    };
}

/// y = f(x), elementwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Activate {
    pub activation: Activation,
    pub x: Slice,
    pub y: Slice,
    pub rows: usize,
    pub width: usize,
}

/// dx = dy f'(saved), elementwise; dx may be dy.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivateBackward {
    pub activation: Activation,
    /// The input or the output of f, whichever its derivative needs.
    pub saved: Slice,
    /// Gradient of the output; overwritten with the gradient of the input.
    pub dy: Slice,
    pub rows: usize,
    pub width: usize,
}

impl Activate {
    pub fn lower(l: &mut Lowering, index: usize, activation: Activation, x: Slice, width: usize) -> Slice {
        let y = l.rows_of(&format!("{index}.output"), width);
        l.forward(Self { activation, x, y, rows: l.rows, width });
        y
    }
}

impl Operation for Activate {
    fn access(&self) -> Access {
        Access::new([self.x], [self.y])
    }

    fn cost(&self) -> Cost {
        let n = self.rows * self.width;
        match self.activation {
            Activation::Relu => Cost::new(n, 2 * n),
            _ => Cost::with_functions(FUNCTION * n, 2 * n),
        }
    }

    fn reference(&self, memory: &mut Memory) {
        let y: Vec<f64> = memory.get(self.x).into_iter().map(|x| self.activation.value(x)).collect();
        memory.set(self.y, &y);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { activation, x, y, width, .. } = *self;
        split.each(self.rows, |rows| {
            (Job::Forward(activation), Access::new([x.rows(&rows, width)], [y.rows(&rows, width)]))
        });
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let [x, y] = [self.x, self.y].map(|slice| slice.rows(rows, self.width));
        Some(Self { x, y, rows: rows.len(), ..self.clone() }.into())
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let (activation, n) =
            (Activation::number(Some(self.activation)), self.rows.saturating_mul(self.width));
        Ok(Record { activation, ..e.numbered(Kind::Activate, n, [self.x, self.y])? })
    }

    fn backward(&self, l: &mut Lowering, Backward { dy, .. }: Backward<'_>) -> (Slice, bool) {
        let Self { activation, x, y, rows, width } = *self;
        let saved = if activation.derivative_needs_input() { x } else { y };
        l.backward(ActivateBackward { activation, saved, dy, rows, width });
        (dy, false)
    }
}

impl Operation for ActivateBackward {
    fn access(&self) -> Access {
        Access::new([self.saved], [self.dy])
    }

    fn cost(&self) -> Cost {
        let n = self.rows * self.width;
        match self.activation {
            Activation::Gelu | Activation::Silu => Cost::with_functions(FUNCTION * n, 3 * n),
            _ => Cost::new(2 * n, 3 * n),
        }
    }

    fn reference(&self, memory: &mut Memory) {
        let (dy, saved) = (memory.get(self.dy), memory.get(self.saved));
        let dx: Vec<f64> =
            dy.into_iter().zip(saved).map(|(d, s)| d * self.activation.derivative(s)).collect();
        memory.set(self.dy, &dx);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { activation, saved, dy, width, .. } = *self;
        split.each(self.rows, |rows| {
            (Job::Backward(activation), Access::new([saved.rows(&rows, width)], [dy.rows(&rows, width)]))
        });
    }

    fn of_rows(&self, rows: &Range<usize>) -> Option<Op> {
        let [saved, dy] = [self.saved, self.dy].map(|slice| slice.rows(rows, self.width));
        Some(Self { saved, dy, rows: rows.len(), ..self.clone() }.into())
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let (activation, n) =
            (Activation::number(Some(self.activation)), self.rows.saturating_mul(self.width));
        Ok(Record { activation, ..e.numbered(Kind::ActivateBackward, n, [self.saved, self.dy])? })
    }
}

/// Reads x, writes y; or reads saved, writes dy.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// y = f(x).
    Forward(Activation),
    /// dy f'(saved), in place.
    Backward(Activation),
}

impl Job {
    #[inline]
    pub(super) fn run(&self, ([from, ..], [to, ..]): Slices<'_>, _: &mut Context<'_>) {
        match *self {
            Self::Forward(f) => activate(f, from, to),
            Self::Backward(f) => activate_backward(f, from, to),
        }
    }
}

/// Four elements per thread, up to as many threads as a multiprocessor holds: only memory is waited for.
pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    Size::of_quads(r, multiprocessors.saturating_mul(2))
}

/// With column sums, blocks share strips of columns as kernels/activation.cu divides them.
pub(super) fn backward_size(r: &Record, multiprocessors: u32) -> Size {
    if r.at[3] == NONE {
        return Size::of_quads(r, multiprocessors);
    }
    let relu = r.activation == Activation::number(Some(Activation::Relu));
    let width = if r.outputs % 4 == 0 && relu { 128 } else { 32 };
    let strips = Strips { columns: r.outputs, width, least_rows: 32, blocks_per_multiprocessor: 2 };
    strips.size(r.rows, multiprocessors)
}

/// y = f(x).
pub fn activate(activation: Activation, x: &[f32], y: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || match activation {
            Activation::Relu => map(x, y, inlined!(relu)),
            Activation::Gelu => map(x, y, inlined!(gelu)),
            Activation::Silu => map(x, y, inlined!(silu)),
            Activation::Tanh => map(x, y, inlined!(tanh)),
            Activation::Sigmoid => map(x, y, inlined!(sigmoid)),
        },
    );
}

/// y = f(y).
pub(super) fn activate_in_place(activation: Activation, y: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || match activation {
            Activation::Relu => replace(y, inlined!(relu)),
            Activation::Gelu => replace(y, inlined!(gelu)),
            Activation::Silu => replace(y, inlined!(silu)),
            Activation::Tanh => replace(y, inlined!(tanh)),
            Activation::Sigmoid => replace(y, inlined!(sigmoid)),
        },
    );
}

/// Multiplies dy by f'(saved), where [`Activation::derivative_needs_input`] tells what `saved` is.
pub(super) fn activate_backward(activation: Activation, saved: &[f32], dy: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || match activation {
            // Selects instead of multiplying: an inactive unit has gradient 0 even if dy is not finite.
            Activation::Relu => saved.iter().zip(dy).for_each(|(s, d)| *d = if *s > 0.0 { *d } else { 0.0 }),
            Activation::Gelu => multiply(saved, dy, inlined!(gelu_derivative)),
            Activation::Silu => multiply(saved, dy, inlined!(silu_derivative)),
            Activation::Tanh => multiply(saved, dy, |s| 1.0 - s * s),
            Activation::Sigmoid => multiply(saved, dy, |s| s * (1.0 - s)),
        },
    );
}

/// As in PyTorch, a NaN stays a NaN.
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
fn replace(y: &mut [f32], f: impl Fn(f32) -> f32) {
    for y in y {
        *y = f(*y);
    }
}

#[inline(always)]
fn multiply(saved: &[f32], dy: &mut [f32], f: impl Fn(f32) -> f32) {
    for (d, s) in dy.iter_mut().zip(saved) {
        *d *= f(*s);
    }
}

impl Activation {
    pub fn value(self, x: f64) -> f64 {
        match self {
            Self::Relu => x.max(0.0),
            Self::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        }
    }

    /// f'(x), computed from x if [`Self::derivative_needs_input`], else from f(x).
    pub fn derivative(self, saved: f64) -> f64 {
        match self {
            Self::Relu => f64::from(saved > 0.0),
            Self::Gelu => {
                let density = (-0.5 * saved * saved).exp() / (2.0 * std::f64::consts::PI).sqrt();
                0.5 * (1.0 + erf(saved * std::f64::consts::FRAC_1_SQRT_2)) + saved * density
            }
            Self::Silu => {
                let gate = 1.0 / (1.0 + (-saved).exp());
                gate * (1.0 + saved * (1.0 - gate))
            }
            Self::Tanh => 1.0 - saved * saved,
            Self::Sigmoid => saved * (1.0 - saved),
        }
    }
}

/// The error function by its Maclaurin series, and beyond 2.5 by the continued fraction of its complement
/// (Abramowitz and Stegun 7.1.5 and 7.1.14). The error is about 1e-15 everywhere.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let tail = (1..=60).rev().fold(0.0, |t, n| n as f64 / 2.0 / (a + t));
        1.0 - (-a * a).exp() / ((a + tail) * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::functions::{self, exp};

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
        assert!(worst(functions::erf, erf, 10.0) < 5e-7, "{}", worst(functions::erf, erf, 10.0));
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
        assert_eq!((tanh(50.0), tanh(-50.0), sigmoid(200.0)), (1.0, -1.0, 1.0));
        // Not as far from 0 as its input is large.
        for x in [-20.0, -1e3, -1e10, -1e30] {
            assert_eq!([functions::gelu(x), functions::gelu_derivative(x)].map(f32::abs), [0.0, 0.0], "{x}");
            assert_eq!([functions::gelu(-x), functions::gelu_derivative(-x)], [-x, 1.0], "{x}");
        }
        assert!(functions::gelu(f32::NAN).is_nan());
        let mut y = [f32::NAN, -1.0, 2.0];
        activate_in_place(Activation::Relu, &mut y);
        assert!(y[0].is_nan() && y[1..] == [0.0, 2.0]);
    }
}
