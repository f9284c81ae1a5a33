//! The validation program for chunks of one size.

use std::sync::Arc;

use super::Trained;
use crate::{
    device::{
        Block, Clock, Device, DeviceError, Grain, PassKind, Purpose,
        cpu::{CpuExecutor, CpuSetup, ThreadMode},
    },
    host,
    program::{Accumulator, Layout, Slice, lower_inference},
    spec::Init,
    train::initial_values,
};

/// A chunk with fewer FLOPs than this is computed by one thread.
const SHARED_CHUNK: f64 = 2e7;

/// The model for chunks of one size.
pub struct Pass {
    device: Device,
    layout: Layout,
    prediction: Slice,
    pub rows: usize,
    /// For all its rows.
    pub flops: f64,
    clock: Clock,
}

impl Pass {
    pub fn new(trained: &Trained, rows: usize) -> Result<Self, DeviceError> {
        let Trained { spec, data, features, .. } = trained;
        let (shape, weighted) = ([*features, data.targets()], data.weight().is_some());
        let (programs, prediction) =
            lower_inference(&spec.model.layers, spec.model.loss, shape, weighted, rows);
        let layout = programs.layout.clone();
        let flops = programs.validate.as_ref().map_or(0.0, |validate| validate.cost().flops);
        let threads = if flops < SHARED_CHUNK { 1 } else { host::logical_cores().unwrap_or(1) };
        let setup = CpuSetup::cpu(programs, threads, spec.seed, ThreadMode::Adaptive);
        let mut device = Device::new("cpu", Box::new(CpuExecutor::new(setup)?));
        let values = initial_values(&Init::File("".into()), &layout, 0, Some(&trained.weights));
        device.upload(Purpose::Parameters, |e| e.write(layout.whole(layout.values), &values))?;
        Ok(Self { device, layout, prediction, rows, flops, clock: Clock::new(Grain::Blocks) })
    }

    pub fn run(&mut self, features: Vec<f32>, targets: &Arc<Vec<f32>>) -> Result<Vec<f32>, DeviceError> {
        let Self { device, layout, rows, .. } = self;
        let features = Arc::new(features);
        device.upload(Purpose::Validation, |e| e.bind(layout.validation_features, &features))?;
        device.upload(Purpose::Validation, |e| e.bind(layout.validation_targets, targets))?;
        let (work, rows) = (PassKind::Validate, *rows);
        let block =
            Block { work, step: 0, position: 0, order: 0, offset: 0, rows, steps: 1, hyper: &[], slot: 0 };
        device.run(&block, &mut self.clock, &mut Vec::new())?;
        let mut prediction = vec![0.0; self.prediction.len];
        device.download(Purpose::Validation, |e| e.read(self.prediction, &mut prediction))?;
        Ok(prediction)
    }

    /// Whether several threads compute a chunk.
    pub fn is_shared(&self) -> bool {
        self.flops >= SHARED_CHUNK
    }

    /// The sum of losses and the number of correct predictions, over all rows since the last call.
    pub fn sums(&mut self) -> Result<[f64; 2], DeviceError> {
        let mut sums = [0.0; 2];
        self.device.download(Purpose::Validation, |e| e.take_sums(Accumulator::Validation, &mut sums))?;
        Ok(sums)
    }
}
