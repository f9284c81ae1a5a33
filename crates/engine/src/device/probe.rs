//! Small programs by which the speeds of a device are measured.

use super::{Block, DeviceError, Executor, Meters, PassKind};
use crate::{
    program::{Hyper, Options, Programs, Sgd, Shard, UpdateRule, lower},
    spec::{Layer, Linear, Loss, Metric, Policy},
};

/// Steps of a block of a probe.
pub const STEPS: usize = 64;

/// Rectifiers of the two models by which instructions are measured: their difference in time is the cost of the further
/// instructions.
pub const SHORT_AND_LONG: [usize; 2] = [2, 34];

/// A model on one number that does next to no work, of `activations` rectifiers.
pub fn tiny(activations: usize) -> Programs {
    let mut layers = vec![linear(1, 1)];
    layers.resize(1 + activations, Layer::Relu);
    programs(&layers, 1, 1)
}

/// Products of `width` by `width` on as many rows, and next to nothing else.
pub fn wide(width: usize) -> Programs {
    programs(&[linear(width, width), linear(width, width), linear(width, width)], width, width)
}

/// An executor of one of these programs, with constant rows.
pub struct Probe<E> {
    pub executor: E,
    rows: usize,
    hyper: Vec<Hyper>,
}

impl<E: Executor> Probe<E> {
    pub fn new(mut executor: E, programs: &Programs) -> Result<Self, DeviceError> {
        let (layout, batch) = (&programs.layout, programs.train.batch);
        let rows = STEPS * batch;
        // The programs above have as many features and targets as rows.
        executor.bind(layout.train_features, &vec![0.5; rows * batch].into())?;
        executor.bind(layout.train_targets, &vec![0.25; rows * batch].into())?;
        executor.bind_order(&(0..rows as u32).collect::<Vec<_>>().into())?;
        // They leave the weights as they are.
        let hyper = vec![Hyper { correction: 1.0, decay_factor: 1.0, ..Hyper::default() }; STEPS];
        Ok(Self { executor, rows, hyper })
    }

    /// Runs a block from the first row on.
    pub fn run(&mut self, steps: usize, meters: &mut Meters<'_>) -> Result<(), DeviceError> {
        let (work, hyper) = (PassKind::Train, &self.hyper[..steps]);
        let block = Block { work, step: 0, position: 0, offset: 0, rows: self.rows, steps, hyper, slot: 0 };
        self.executor.run(&block, meters).map(drop)
    }
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
