//! Sums over the devices of a run, as a GPU takes part in them: by a kernel of ours, where they are small and the GPUs
//! reach each other's memory; by NCCL, queued among its kernels, too; or through the host, where NCCL is not there or a
//! device of another kind is among them.

use std::{sync::Arc, time::Instant};

use super::{communicator::Communicator, peer::PeerSums};
use crate::{
    collective::Collective,
    device::{
        DeviceError, Kind, Ledger, Purpose,
        cuda::{
            engines::ground::Ground, ffi::context::Context, launch::stream::Event, memory::allocation::Pinned,
        },
    },
    units,
};

/// How a GPU sums with the other devices of its run.
pub enum Way {
    /// There are none.
    Alone,
    /// By a kernel of ours, which a graph may hold.
    Peers(PeerSums),
    /// Over NCCL: a sum is queued like a kernel, and a graph may hold it.
    Nccl(Communicator),
    /// Through the host's memory, with a wait in every step.
    Host(Box<dyn Collective>),
}

/// The way through the host, with the memory that it needs.
pub struct HostSums {
    collective: Box<dyn Collective>,
    staging: Pinned,
    numbers: Vec<f32>,
    copied: Event,
    name: String,
}

impl HostSums {
    /// For sums of so many numbers at most.
    pub fn new(
        context: &Arc<Context>,
        collective: Box<dyn Collective>,
        most: usize,
    ) -> Result<Self, DeviceError> {
        let staging = Pinned::new(context, 4 * most, "sums over devices")?;
        let (copied, name) = (Event::plain(context)?, context.name.clone());
        Ok(Self { collective, staging, numbers: vec![0.0; most], copied, name })
    }

    /// Sums numbers of the device over all devices, in place; waits for the device and for the others.
    pub fn all_reduce(
        &mut self,
        ground: &Ground,
        at: u64,
        len: usize,
        step: u64,
        ledger: &mut Ledger,
    ) -> Result<(), DeviceError> {
        let stream = &ground.stream;
        let numbers = self.numbers.get_mut(..len).unwrap_or_default();
        let bytes = size_of_val(numbers);
        let start = Instant::now();
        stream.download(&self.staging, 0, at, bytes)?;
        self.copied.record(stream)?;
        ground.wait(&self.copied, || format!("running step {}", units::count(step)))?;
        ledger.sync(Purpose::Gradients, start.elapsed());
        let start = Instant::now();
        self.staging.read(0, numbers);
        ledger.copy(Kind::DeviceToHost, Purpose::Gradients, bytes as u64, start.elapsed());
        let start = Instant::now();
        self.collective.all_reduce(numbers, step).map_err(|source| {
            let device = self.name.clone();
            DeviceError::Collective { device, step, source }
        })?;
        ledger.copy(Kind::AllReduce, Purpose::Gradients, bytes as u64, start.elapsed());
        let start = Instant::now();
        self.staging.write(0, numbers);
        stream.upload(at, &self.staging, 0, bytes)?;
        ledger.copy(Kind::HostToDevice, Purpose::Gradients, bytes as u64, start.elapsed());
        Ok(())
    }
}
