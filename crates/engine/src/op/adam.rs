//! `torch.optim.Adam`, and `AdamW` where weight decay is decoupled.

use super::{
    FUNCTION, Kind,
    record::{FLAG_DECOUPLED, Hyper},
    update::Rule,
};
use crate::vector::vectorized;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    pub beta2: f32,
    /// 1 - beta2, computed in f64 and rounded once.
    pub one_minus_beta2: f32,
    pub eps: f32,
    /// The factor of the L2 penalty or of the decoupled decay.
    pub weight_decay: f32,
    /// As in AdamW, weight decay shrinks the weights directly.
    pub decoupled: bool,
}

impl Adam {
    pub fn new(beta2: f64, eps: f64, weight_decay: f64, decoupled: bool) -> Self {
        Self {
            beta2: beta2 as f32,
            one_minus_beta2: (1.0 - beta2) as f32,
            eps: eps as f32,
            weight_decay: weight_decay as f32,
            decoupled,
        }
    }

    pub(super) fn hyper(lr: f64, beta1: f64, beta2: f64, decay_factor: f64, step: u64) -> Hyper {
        let t = step as f64;
        Hyper {
            rate: (lr / (1.0 - beta1.powf(t))) as f32,
            first: (1.0 - beta1) as f32,
            correction: (1.0 / (1.0 - beta2.powf(t)).sqrt()) as f32,
            decay_factor: decay_factor as f32,
            loss_scale: 1.0,
        }
    }
}

impl Rule for Adam {
    fn state(&self) -> usize {
        2
    }

    /// A square root with a division counts as about twenty operations.
    fn operations(&self) -> usize {
        32
    }

    /// The square root with the division, which a vector unit does in half the time of a function like `exp`.
    fn function_operations(&self) -> usize {
        FUNCTION / 2
    }

    fn reference(&self, hyper: &Hyper, w: &mut f64, gradient: f64, state: &mut [&mut f64]) {
        let [m, v] = state else { return };
        let mut d = gradient;
        if self.decoupled {
            *w *= f64::from(hyper.decay_factor);
        } else {
            d += f64::from(self.weight_decay) * *w;
        }
        **m += f64::from(hyper.first) * (d - **m);
        **v = f64::from(self.beta2) * **v + f64::from(self.one_minus_beta2) * d * d;
        let root = v.sqrt() * f64::from(hyper.correction);
        *w -= f64::from(hyper.rate) * **m / (root + f64::from(self.eps));
    }

    fn run(&self, hyper: &Hyper, values: &mut [f32], gradients: &[f32], [first, second, _]: [&mut [f32]; 3]) {
        let Self { beta2, one_minus_beta2, eps, weight_decay, decoupled } = *self;
        let hyper = *hyper;
        vectorized(
            #[inline(always)]
            || {
                let (decay, decay_factor) =
                    if decoupled { (0.0, hyper.decay_factor) } else { (weight_decay, 1.0) };
                for (((w, g), m), v) in values.iter_mut().zip(gradients).zip(first).zip(second) {
                    let kept = *w * decay_factor;
                    let d = g + decay * *w;
                    *m += hyper.first * (d - *m);
                    *v = *v * beta2 + one_minus_beta2 * (d * d);
                    *w = kept - hyper.rate * (*m / (v.sqrt() * hyper.correction + eps));
                }
            },
        );
    }

    fn record(&self) -> (Kind, i32, [f32; 6]) {
        let flags = if self.decoupled { FLAG_DECOUPLED } else { 0 };
        (Kind::Adam, flags, [self.weight_decay, self.beta2, self.one_minus_beta2, self.eps, 0.0, 0.0])
    }

    fn emit(&self) -> String {
        let Self { beta2, one_minus_beta2, eps, weight_decay, decoupled } = self;
        format!("Adam{{hyper, {weight_decay:?}f, {beta2:?}f, {one_minus_beta2:?}f, {eps:?}f, {decoupled}}}")
    }
}
