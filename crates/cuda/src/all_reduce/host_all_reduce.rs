//! Sums over the devices of a run through host memory, with a wait in every step.

use std::{sync::Arc, time::Instant};

use crate::{
    collective::Collective,
    device::{DeviceError, Kind, Ledger, Purpose},
    engines::GpuContext,
    ffi::Context,
    launch::Event,
    memory::Pinned,
    units,
};

pub struct HostAllReduce {
    collective: Box<dyn Collective>,
    staging: Pinned,
    elements: Vec<f32>,
    copied: Event,
    name: String,
}

impl HostAllReduce {
    /// For sums of at most `most` elements.
    pub fn new(
        context: &Arc<Context>,
        collective: Box<dyn Collective>,
        most: usize,
    ) -> Result<Self, DeviceError> {
        let staging = Pinned::new(context, 4 * most, "sums over devices")?;
        let (copied, name) = (Event::plain(context)?, context.name.clone());
        Ok(Self { collective, staging, elements: vec![0.0; most], copied, name })
    }

    /// Sums over all devices in place; waits for this device and for the others.
    pub fn all_reduce(
        &mut self,
        gpu: &GpuContext,
        at: u64,
        len: usize,
        step: u64,
        ledger: &mut Ledger,
    ) -> Result<(), DeviceError> {
        let stream = &gpu.stream;
        let elements = self.elements.get_mut(..len).unwrap_or_default();
        let bytes = size_of_val(elements);
        let start = Instant::now();
        stream.download(&self.staging, 0, at, bytes)?;
        self.copied.record(stream)?;
        gpu.wait(&self.copied, || format!("running step {}", units::count(step)))?;
        ledger.sync(Purpose::Gradients, start.elapsed());
        let start = Instant::now();
        self.staging.read(0, elements);
        ledger.copy(Kind::DeviceToHost, Purpose::Gradients, bytes as u64, start.elapsed());
        let start = Instant::now();
        self.collective.all_reduce(elements, step).map_err(|source| {
            let device = self.name.clone();
            DeviceError::Collective { device, step, source }
        })?;
        ledger.copy(Kind::AllReduce, Purpose::Gradients, bytes as u64, start.elapsed());
        let start = Instant::now();
        self.staging.write(0, elements);
        stream.upload(at, &self.staging, 0, bytes)?;
        ledger.copy(Kind::HostToDevice, Purpose::Gradients, bytes as u64, start.elapsed());
        Ok(())
    }
}
