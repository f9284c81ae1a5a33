//! The device of another rank, as rank 0 sees it.

use std::sync::{Arc, atomic::Ordering};

use super::wire::{self, Answer, Closed, Command, Done, Timing};
use crate::{
    collective::{CollectiveError, ProcessGroup, Tag},
    device::{Block, DeviceError, Executor, Kind, Meters, Moved, PassKind, Purpose, Ran, RowReader},
    program::{Accumulator, BufferId, Slice},
};

pub struct RemoteExecutor {
    world: Arc<ProcessGroup>,
    rank: usize,
    /// It answers before its steps are done, and counts their constants itself.
    is_gpu: bool,
    /// The step that its last block ended with.
    step: u64,
    /// Bytes of memory on its device, as it reported at the end.
    bytes: u64,
    non_finite: Option<u64>,
}

impl RemoteExecutor {
    pub fn new(world: &Arc<ProcessGroup>, rank: usize, is_gpu: bool) -> Self {
        Self { world: Arc::clone(world), rank, is_gpu, step: 0, bytes: 0, non_finite: None }
    }

    fn ask(&mut self, command: &Command, more: &[u8]) -> Result<(Done, Vec<u8>), DeviceError> {
        let sent = self.world.send(self.rank, Tag::Command, wire::frame(command, more)?);
        sent.map_err(|source| gone(&self.world, self.step, source))?;
        answer_of(&self.world, self.rank, self.step)
    }

    fn ran(&mut self, done: Done) -> Ran {
        let ran = done.ran.unwrap_or_default();
        self.non_finite = ran.non_finite;
        ran
    }

    fn give(&mut self, command: &Command, more: &[u8]) -> Result<Moved, DeviceError> {
        self.ask(command, more)?;
        Ok(if more.is_empty() { Moved::Nothing } else { Moved::Bytes(more.len() as u64) })
    }
}

/// The answer of a rank to the last command; `step` is the one that it ends with.
pub fn answer_of(world: &ProcessGroup, rank: usize, step: u64) -> Result<(Done, Vec<u8>), DeviceError> {
    let answer = world.receive(rank, Tag::Answer).map_err(|source| gone(world, step, source))?;
    let (Answer { signal, result }, more) = wire::open(&answer)?;
    if signal != 0 {
        let _ = world.signal().compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    }
    match result {
        Ok(done) => Ok((done, more.to_vec())),
        Err(failure) if failure.is_released => {
            let (device, source) = (world.name_of(rank), CollectiveError::Poisoned);
            Err(DeviceError::Collective { device, step, source })
        }
        Err(failure) => Err(DeviceError::Remote(failure.text)),
    }
}

fn gone(world: &ProcessGroup, step: u64, source: CollectiveError) -> DeviceError {
    // The last step that was begun says more than the block.
    let step = world.step.load(Ordering::Relaxed).max(step);
    DeviceError::Collective { device: world.name_of(0), step, source }
}

/// A copy to rank 0, which waits for it.
fn got(bytes: usize) -> Moved {
    Moved::AfterWait { bytes: bytes as u64, wait: std::time::Duration::ZERO }
}

impl Executor for RemoteExecutor {
    fn warm_up(&mut self) -> Result<(), DeviceError> {
        self.ask(&Command::WarmUp, &[]).map(drop)
    }

    /// Every rank has the rows itself.
    fn bind(&mut self, buffer: BufferId, _: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        let (Done { copied, .. }, _) = self.ask(&Command::Bind(buffer), &[])?;
        Ok(if copied == 0 { Moved::Nothing } else { Moved::Bytes(copied) })
    }

    fn bind_file(&mut self, buffer: BufferId, _: &Arc<dyn RowReader>) -> Result<(), DeviceError> {
        self.give(&Command::Bind(buffer), &[]).map(drop)
    }

    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        self.give(&Command::BindOrder, bytemuck::cast_slice(order))
    }

    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        self.give(&Command::Write(to), bytemuck::cast_slice(from))
    }

    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        let (_, bytes) = self.ask(&Command::Read(from), &[])?;
        to.iter_mut().zip(wire::numbers(&bytes)).for_each(|(to, from)| *to = from);
        Ok(got(bytes.len()))
    }

    fn copy(&mut self, from: Slice, to: Slice) -> Result<Moved, DeviceError> {
        self.ask(&Command::Copy { from, to }, &[])?;
        Ok(Moved::Bytes(4 * from.len as u64))
    }

    fn take_sums(&mut self, sums: Accumulator, to: &mut [f64]) -> Result<Moved, DeviceError> {
        let (_, bytes) = self.ask(&Command::TakeSums(sums, to.len()), &[])?;
        to.iter_mut().zip(wire::numbers(&bytes)).for_each(|(to, from)| *to = from);
        Ok(got(bytes.len()))
    }

    fn write_sums(&mut self, sums: Accumulator, from: &[f64]) -> Result<Moved, DeviceError> {
        self.give(&Command::WriteSums(sums), bytemuck::cast_slice(from))
    }

    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError> {
        let (done, _) = self.ask(&Command::Digest(of), &[])?;
        Ok((done.digest, got(size_of::<u64>())))
    }

    fn run(&mut self, block: &Block<'_>, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        if block.work == PassKind::Train {
            self.step = block.step + 1;
        }
        let hyper = wire::of_hyper(block.hyper);
        let more = bytemuck::cast_slice(&hyper);
        let command = Command::Run(block.with_hyper(&[]), Timing::new(meters.clock));
        let (done, _) = self.ask(&command, more)?;
        if !more.is_empty() && !self.is_gpu {
            // It took no time of its own: what was waited for are the steps.
            meters.ledger.queued(Kind::HostToDevice, Purpose::Constants, 1, more.len() as u64);
        }
        Ok(self.ran(done))
    }

    fn settle(&mut self, purpose: Purpose, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        if !self.is_gpu {
            // Its steps were done when it answered.
            return Ok(Ran { non_finite: self.non_finite, ..Ran::default() });
        }
        let (done, _) = self.ask(&Command::Settle(purpose, Timing::new(meters.clock)), &[])?;
        Ok(self.ran(done))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn close(&mut self, meters: &mut Meters<'_>) -> Result<(), DeviceError> {
        let (done, _) = self.ask(&Command::Close, &[])?;
        if let Some(closed) = done.closed {
            let Closed { ledger, clock, bytes } = *closed;
            meters.ledger.absorb(&ledger);
            clock.into_iter().for_each(|clock| meters.clock.absorb_record(clock));
            self.bytes = bytes;
        }
        Ok(())
    }
}
