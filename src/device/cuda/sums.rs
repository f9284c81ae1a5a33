//! Sums over the devices of a run, as a GPU takes part in them: by NCCL, queued among its kernels; or through the host,
//! where NCCL is not there or a device of another kind is among them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    context::Context,
    memory::Pinned,
    nccl::Communicator,
    stream::{Event, Stream},
};
use crate::{
    collective::Collective,
    device::{DeviceError, Kind, Ledger, Purpose},
};

/// How a GPU sums with the others.
pub enum Way {
    /// Over NCCL.
    Nccl(Communicator),
    /// Through the host's memory, with a wait in every step.
    Host(Box<dyn Collective>),
}

/// A way with the memory that it needs.
pub struct Sums {
    way: Way,
    staging: Pinned,
    numbers: Vec<f32>,
    copied: Event,
    name: String,
}

impl Sums {
    /// For sums of so many numbers at most.
    pub fn new(context: &Arc<Context>, way: Way, most: usize) -> Result<Self, DeviceError> {
        let bytes = match way {
            Way::Nccl(_) => 0,
            Way::Host(_) => 4 * most,
        };
        let staging = Pinned::new(context, bytes, "sums over devices")?;
        let (copied, name) = (Event::plain(context)?, context.name.clone());
        Ok(Self { way, staging, numbers: Vec::new(), copied, name })
    }

    /// Whether a sum is queued like a kernel, so that a graph may hold it.
    pub fn is_queued(&self) -> bool {
        matches!(self.way, Way::Nccl(_))
    }

    /// Whether the way to the others is broken.
    pub fn fault(&self, step: u64) -> Result<(), DeviceError> {
        match &self.way {
            Way::Nccl(communicator) => communicator.fault().map_or(Ok(()), |why| Err(self.broken(step, why))),
            Way::Host(_) => Ok(()),
        }
    }

    /// Sums numbers of the device over all devices, in place. Through the host, this waits for the device.
    pub fn all_reduce(
        &mut self,
        stream: &Stream,
        at: u64,
        len: usize,
        step: u64,
        ledger: Option<&mut Ledger>,
    ) -> Result<(), DeviceError> {
        let Self { way, staging, numbers, copied, name } = self;
        let bytes = 4 * len;
        match way {
            Way::Nccl(communicator) => {
                let queued = communicator.all_reduce(stream, at, len);
                queued.map_err(|why| self.broken(step, why))
            }
            Way::Host(collective) => {
                let start = Instant::now();
                stream.download(staging, 0, at, bytes)?;
                copied.record(stream)?;
                copied.synchronize(|| format!("waiting for the gradients of step {step}"))?;
                let waited = start.elapsed();
                numbers.resize(len, 0.0);
                staging.read(0, numbers);
                let sum = Instant::now();
                let device = name.clone();
                collective
                    .all_reduce(numbers, step)
                    .map_err(|source| DeviceError::Collective { device, step, source })?;
                let summed = sum.elapsed();
                staging.write(0, numbers);
                stream.upload(at, staging, 0, bytes)?;
                if let Some(ledger) = ledger {
                    ledger.sync(Purpose::Gradients, waited);
                    let bytes = bytes as u64;
                    ledger.copy(Kind::DeviceToHost, Purpose::Gradients, bytes, Duration::ZERO);
                    ledger.copy(Kind::AllReduce, Purpose::Gradients, bytes, summed);
                    ledger.copy(Kind::HostToDevice, Purpose::Gradients, bytes, start.elapsed() - waited - summed);
                }
                Ok(())
            }
        }
    }

    fn broken(&self, step: u64, why: String) -> DeviceError {
        DeviceError::Broken { device: self.name.clone(), step, why }
    }
}
