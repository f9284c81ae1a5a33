//! The inputs of a trial: features and targets of training and validation, and the order of the rows.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    input_buffer::{InputBuffer, OrderBuffer},
    staging::Staging,
};
use crate::{
    device::{DeviceError, LentRows},
    engines::GpuContext,
    launch::{InFlightQueue, Stream},
};

const NAMES: [&str; 4] =
    ["training features", "training targets", "validation features", "validation targets"];

pub struct Inputs {
    /// The stream that uploads chunks in parallel with the stream of steps.
    pub copies: Stream,
    pub staging: Staging,
    buffers: [InputBuffer; 4],
    order: OrderBuffer,
}

impl Inputs {
    pub fn new(gpu: &GpuContext, staging: Staging) -> Result<Self, DeviceError> {
        let copies = Stream::new(&gpu.context)?;
        Ok(Self { copies, staging, buffers: Default::default(), order: OrderBuffer::default() })
    }

    /// The addresses of the buffers and of the order, for the kernels.
    pub fn addresses(&self) -> ([u64; 4], u64) {
        ([0, 1, 2, 3].map(|i: usize| self.buffers[i].at()), self.order.at())
    }

    pub fn bytes(&self) -> usize {
        self.buffers.iter().map(InputBuffer::bytes).sum::<usize>() + self.order.bytes()
    }

    /// Binds all rows to a buffer. Returns how long the host waited to upload them, `None` if they were there.
    pub fn bind(
        &mut self,
        gpu: &GpuContext,
        number: usize,
        rows: &Arc<Vec<f32>>,
    ) -> Result<Option<Duration>, DeviceError> {
        self.buffers[number].bind_whole(gpu, &mut self.staging, rows, NAMES[number])
    }

    /// Binds the next chunk to a buffer. Returns start and end of the upload before the last one.
    pub fn bind_chunk(
        &mut self,
        gpu: &GpuContext,
        in_flight: &InFlightQueue,
        number: usize,
        rows: &Arc<LentRows>,
    ) -> Result<Option<[Instant; 2]>, DeviceError> {
        self.buffers[number].bind_chunk(gpu, (&self.copies, in_flight), rows, NAMES[number])
    }

    pub fn bind_order(&mut self, gpu: &GpuContext, order: &Vec<u32>) -> Result<(), DeviceError> {
        self.order.bind(gpu, &self.copies, order)
    }

    /// Lets the next uploads begin once what is in the stream of steps now is done; called when a block's counters are in it.
    pub fn release(&mut self, steps: &Stream) -> Result<(), DeviceError> {
        self.order.release(steps)?;
        self.buffers.iter_mut().try_for_each(|buffer| buffer.release(steps))
    }

    /// Start and end of the uploads that are complete and were not reported yet, by buffer.
    pub fn uploaded(&mut self, in_flight: &InFlightQueue) -> Result<Vec<[Instant; 2]>, DeviceError> {
        let mut all = Vec::new();
        for buffer in &mut self.buffers {
            all.extend(buffer.reported(in_flight)?);
        }
        Ok(all)
    }
}
