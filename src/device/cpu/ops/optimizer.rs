//! Update rules over a share of the flat buffers; PyTorch's, in its order of operations.

use super::vectorized;
use crate::program::{Hyper, UpdateRule};

/// One step. `state` is empty, the momentum, or first and second moments, for the same share.
pub fn update(rule: UpdateRule, hyper: Hyper, values: &mut [f32], gradients: &[f32], state: [&mut [f32]; 2]) {
    let [first, second] = state;
    vectorized(
        #[inline(always)]
        || match rule {
            UpdateRule::Sgd { momentum: false, weight_decay, .. } => {
                for (w, g) in values.iter_mut().zip(gradients) {
                    *w -= hyper.rate * (g + weight_decay * *w);
                }
            }
            UpdateRule::Sgd { momentum: true, nesterov, weight_decay } => {
                for ((w, g), m) in values.iter_mut().zip(gradients).zip(first) {
                    let d = g + weight_decay * *w;
                    *m = *m * hyper.first + d;
                    let d = if nesterov { d + hyper.first * *m } else { *m };
                    *w -= hyper.rate * d;
                }
            }
            UpdateRule::Adam { beta2, one_minus_beta2, eps, weight_decay, decoupled } => {
                let (decay, decay_factor) =
                    if decoupled { (0.0, hyper.decay_factor) } else { (weight_decay, 1.0) };
                for (((w, g), m), v) in values.iter_mut().zip(gradients).zip(first).zip(second) {
                    let kept = *w * decay_factor;
                    let d = g + decay * *w;
                    *m += hyper.first * (d - *m);
                    *v = *v * beta2 + one_minus_beta2 * (d * d);
                    *w = kept - hyper.rate * (*m / (v.sqrt() * hyper.correction + eps));
                }
            }
        },
    );
}

/// `values -= rate * gradients`.
pub fn sgd_step(rate: f32, values: &mut [f32], gradients: &[f32]) {
    vectorized(
        #[inline(always)]
        || values.iter_mut().zip(gradients).for_each(|(w, g)| *w -= rate * g),
    );
}

/// Scales gradients by min(1, max_norm / (norm + 1e-6)), as `torch.nn.utils.clip_grad_norm_`.
pub fn clip(gradients: &mut [f32], norm: f32, max_norm: f32) {
    let factor = max_norm / (norm + 1e-6);
    // PyTorch multiplies by a clamped factor: below the limit by exactly 1, and a NaN norm makes every gradient NaN.
    if factor < 1.0 || factor.is_nan() {
        vectorized(
            #[inline(always)]
            || gradients.iter_mut().for_each(|g| *g *= factor),
        );
    }
}
