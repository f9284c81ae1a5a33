//! Clipping of gradients by their norm.

use super::{
    Access, Cost, Encoder, Kind, Operation, Record, Refused, Slice,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};
use crate::vector::vectorized;

/// Scales gradients by min(1, max_norm / (norm + 1e-6)), as `torch.nn.utils.clip_grad_norm_`.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    pub gradients: Slice,
    pub norm: Slice,
    pub max_norm: f32,
}

impl Operation for Clip {
    fn access(&self) -> Access {
        Access::new([self.norm], [self.gradients])
    }

    fn cost(&self) -> Cost {
        Cost::new(self.gradients.len, 2 * self.gradients.len)
    }

    fn reference(&self, memory: &mut Memory) {
        let factor = (f64::from(self.max_norm) / (memory.get(self.norm)[0] + 1e-6)).min(1.0);
        memory.map(self.gradients, |g| g * factor);
    }

    fn split(&self, split: &mut Split<'_>) {
        split.each(self.gradients.len, |part| {
            (Job { max_norm: self.max_norm }, Access::new([self.norm], [self.gradients.part(part)]))
        });
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let f = [self.max_norm, 0.0, 0.0, 0.0, 0.0, 0.0];
        Ok(Record { f, ..e.numbered(Kind::Clip, self.gradients.len, [self.gradients, self.norm])? })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Job {
    max_norm: f32,
}

impl Job {
    pub(super) fn run(&self, ([norm, ..], [gradients, ..]): Slices<'_>, _: &mut Context<'_>) {
        let factor = self.max_norm / (norm[0] + 1e-6);
        // PyTorch multiplies by a clamped factor. Below the limit that is exactly 1, so there is nothing to
        // do; a NaN norm makes every gradient NaN.
        if factor < 1.0 || factor.is_nan() {
            vectorized(
                #[inline(always)]
                || gradients.iter_mut().for_each(|g| *g *= factor),
            );
        }
    }
}
