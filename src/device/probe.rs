//! Small programs by which the speeds of a device are measured.

use crate::{
    program::{Hyper, Options, Programs, Sgd, Shard, UpdateRule, lower},
    spec::{Layer, Linear, Loss, Metric, Policy},
};

/// Steps of a block of a probe.
pub const STEPS: usize = 64;

/// Rectifiers of the two models by which instructions are measured: what the longer takes longer is the cost of its
/// further instructions.
pub const SHORT_AND_LONG: [usize; 2] = [2, 34];

/// A model on one number that does next to no work, of so many rectifiers.
pub fn tiny(activations: usize) -> Programs {
    let mut layers = vec![linear(1, 1)];
    layers.resize(1 + activations, Layer::Relu);
    programs(&layers, 1, 1)
}

/// Products of `width` by `width` on as many rows, and next to nothing else.
pub fn wide(width: usize) -> Programs {
    programs(&[linear(width, width), linear(width, width), linear(width, width)], width, width)
}

/// Learning rates of a block: they leave the weights as they are.
pub fn hyper() -> Vec<Hyper> {
    vec![Hyper { correction: 1.0, decay_factor: 1.0, ..Hyper::default() }; STEPS]
}

fn linear(inputs: usize, outputs: usize) -> Layer {
    Layer::Linear(Linear { out_features: outputs, in_features: Some(inputs), bias: true })
}

fn programs(layers: &[Layer], features: usize, batch: usize) -> Programs {
    lower(&Options {
        layers,
        loss: Loss::Mse,
        features,
        targets: features,
        rule: UpdateRule::Sgd(Sgd { momentum: false, nesterov: false, weight_decay: 0.0 }),
        clip: None,
        metrics: &[Metric::Loss],
        policy: Policy::Buffered,
        log_slots: STEPS,
        batch,
        last: None,
        validation: None,
        ordered: true,
        streamed: false,
        shard: Shard::WHOLE,
        fold_update: true,
    })
}
