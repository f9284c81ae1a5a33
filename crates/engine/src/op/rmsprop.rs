//! `torch.optim.RMSprop`.

use super::{
    FUNCTION, Kind,
    record::{FLAG_MOMENTUM, Hyper},
    update::Rule,
};
use crate::{spec, vector::vectorized};

/// Divides steps by a running root mean square of the gradients. State: the mean square; then, if used, the
/// momentum and the mean gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rmsprop {
    pub alpha: f32,
    /// 1 - alpha, computed in f64 and rounded once.
    pub one_minus_alpha: f32,
    pub eps: f32,
    pub momentum: bool,
    /// Divides by the standard deviation: the square of the mean gradient is subtracted from the mean square.
    pub centered: bool,
    pub weight_decay: f32,
}

impl Rmsprop {
    /// `moves_momentum`: the schedule changes the momentum, so there is one, as with PyTorch's OneCycleLR.
    pub fn new(o: &spec::Rmsprop, moves_momentum: bool) -> Self {
        Self {
            alpha: o.alpha as f32,
            one_minus_alpha: (1.0 - o.alpha) as f32,
            eps: o.eps as f32,
            momentum: o.momentum != 0.0 || moves_momentum,
            centered: o.centered,
            weight_decay: o.weight_decay as f32,
        }
    }
}

impl Rule for Rmsprop {
    fn state(&self) -> usize {
        1 + usize::from(self.momentum) + usize::from(self.centered)
    }

    /// A square root with a division counts as about twenty operations.
    fn operations(&self) -> usize {
        28 + if self.momentum { 2 } else { 0 } + if self.centered { 5 } else { 0 }
    }

    fn function_operations(&self) -> usize {
        FUNCTION / 2
    }

    fn reference(&self, hyper: &Hyper, w: &mut f64, gradient: f64, state: &mut [&mut f64]) {
        let (alpha, rest) = (f64::from(self.alpha), f64::from(self.one_minus_alpha));
        let g = gradient + f64::from(self.weight_decay) * *w;
        let Some((square, others)) = state.split_first_mut() else { return };
        **square = alpha * **square + rest * g * g;
        let mut variance = **square;
        if let (true, Some(mean)) = (self.centered, others.last_mut()) {
            **mean = alpha * **mean + rest * g;
            variance -= mean.powi(2);
        }
        let mut d = g / (variance.sqrt() + f64::from(self.eps));
        if let (true, Some(momentum)) = (self.momentum, others.first_mut()) {
            **momentum = f64::from(hyper.first) * **momentum + d;
            d = **momentum;
        }
        *w -= f64::from(hyper.rate) * d;
    }

    fn run(&self, hyper: &Hyper, values: &mut [f32], gradients: &[f32], [square, a, b]: [&mut [f32]; 3]) {
        let (buffer, mean) = if self.momentum { (a, b) } else { (b, a) };
        let (rule, hyper) = (*self, *hyper);
        vectorized(
            #[inline(always)]
            || match (rule.momentum, rule.centered) {
                (false, false) => {
                    for ((w, g), v) in values.iter_mut().zip(gradients).zip(square) {
                        *w -= hyper.rate * rule.step(g + rule.weight_decay * *w, v, None);
                    }
                }
                (false, true) => {
                    for (((w, g), v), mean) in values.iter_mut().zip(gradients).zip(square).zip(mean) {
                        *w -= hyper.rate * rule.step(g + rule.weight_decay * *w, v, Some(mean));
                    }
                }
                (true, false) => {
                    for (((w, g), v), m) in values.iter_mut().zip(gradients).zip(square).zip(buffer) {
                        *m = *m * hyper.first + rule.step(g + rule.weight_decay * *w, v, None);
                        *w -= hyper.rate * *m;
                    }
                }
                (true, true) => {
                    let states = square.iter_mut().zip(buffer).zip(mean);
                    for ((w, g), ((v, m), mean)) in values.iter_mut().zip(gradients).zip(states) {
                        *m = *m * hyper.first + rule.step(g + rule.weight_decay * *w, v, Some(mean));
                        *w -= hyper.rate * *m;
                    }
                }
            },
        );
    }

    fn record(&self) -> (Kind, i32, [f32; 6]) {
        let momentum = if self.momentum { FLAG_MOMENTUM } else { 0 };
        let centered = f32::from(u8::from(self.centered));
        let f = [self.weight_decay, self.alpha, self.one_minus_alpha, self.eps, centered, 0.0];
        (Kind::Rmsprop, momentum, f)
    }

    fn emit(&self) -> String {
        let Self { alpha, one_minus_alpha, eps, momentum, centered, weight_decay } = self;
        format!(
            "Rmsprop{{hyper, {weight_decay:?}f, {alpha:?}f, {one_minus_alpha:?}f, {eps:?}f, {momentum}, {centered}, {}}}",
            self.state()
        )
    }
}

impl Rmsprop {
    /// The gradient divided by the root of the running mean square, or by the standard deviation.
    #[inline(always)]
    fn step(&self, g: f32, square: &mut f32, mean: Option<&mut f32>) -> f32 {
        *square = *square * self.alpha + self.one_minus_alpha * (g * g);
        let variance = match mean {
            Some(mean) => {
                *mean += self.one_minus_alpha * (g - *mean);
                *square - *mean * *mean
            }
            None => *square,
        };
        g / (variance.sqrt() + self.eps)
    }
}
