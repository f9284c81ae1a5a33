//! `torch.optim.SGD`.

use super::{
    Kind,
    record::{FLAG_MOMENTUM, FLAG_NESTEROV, Hyper},
    update::Rule,
};
use crate::{spec, vector::vectorized};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    pub momentum: bool,
    pub nesterov: bool,
    pub weight_decay: f32,
}

impl Sgd {
    /// `moves_momentum`: the schedule changes the momentum, so there is one, as with PyTorch's OneCycleLR.
    pub fn new(o: &spec::Sgd, moves_momentum: bool) -> Self {
        let momentum = o.momentum != 0.0 || moves_momentum;
        Self { momentum, nesterov: o.nesterov, weight_decay: o.weight_decay as f32 }
    }

    pub(super) fn hyper(lr: f64, momentum: f64) -> Hyper {
        Hyper { rate: lr as f32, first: momentum as f32, correction: 1.0, decay_factor: 1.0, loss_scale: 1.0 }
    }
}

impl Rule for Sgd {
    fn state(&self) -> usize {
        usize::from(self.momentum)
    }

    fn operations(&self) -> usize {
        if self.momentum { 4 } else { 2 }
    }

    fn reference(&self, hyper: &Hyper, w: &mut f64, gradient: f64, state: &mut [&mut f64]) {
        let mut d = gradient + f64::from(self.weight_decay) * *w;
        if let [momentum] = state {
            let factor = f64::from(hyper.first);
            **momentum = factor * **momentum + d;
            d = if self.nesterov { d + factor * **momentum } else { **momentum };
        }
        *w -= f64::from(hyper.rate) * d;
    }

    fn run(&self, hyper: &Hyper, values: &mut [f32], gradients: &[f32], [buffer, ..]: [&mut [f32]; 3]) {
        let Self { momentum, nesterov, weight_decay } = *self;
        let hyper = *hyper;
        vectorized(
            #[inline(always)]
            || {
                if !momentum {
                    for (w, g) in values.iter_mut().zip(gradients) {
                        *w -= hyper.rate * (g + weight_decay * *w);
                    }
                    return;
                }
                for ((w, g), m) in values.iter_mut().zip(gradients).zip(buffer) {
                    let d = g + weight_decay * *w;
                    *m = *m * hyper.first + d;
                    let d = if nesterov { d + hyper.first * *m } else { *m };
                    *w -= hyper.rate * d;
                }
            },
        );
    }

    fn record(&self) -> (Kind, i32, [f32; 6]) {
        let momentum = if self.momentum { FLAG_MOMENTUM } else { 0 };
        let nesterov = if self.nesterov { FLAG_NESTEROV } else { 0 };
        (Kind::Sgd, momentum | nesterov, [self.weight_decay, 0.0, 0.0, 0.0, 0.0, 0.0])
    }

    fn emit(&self) -> String {
        let Self { momentum, nesterov, weight_decay } = self;
        format!("Sgd{{hyper, {weight_decay:?}f, {nesterov}, {}}}", i32::from(*momentum))
    }
}
