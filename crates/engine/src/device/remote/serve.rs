//! The other ranks: each runs what rank 0 asks for.

use std::sync::{Arc, atomic::Ordering};

use super::{
    executor,
    wire::{self, Answer, Closed, Command, Done, Failure, Timing},
};
use crate::{
    collective::{CollectiveError, ProcessGroup, Tag},
    device::{
        Block, Clock, Device, DeviceError, Grain, Kind, Line, Meters, Moved, Purpose, Ran, Reads, Store,
    },
    program::BufferId,
};

/// A rank's device, its rows, and its counts.
struct Server {
    device: Device,
    rows: Vec<(BufferId, Purpose, Store)>,
    reads: Vec<(Purpose, Arc<Reads>)>,
    clock: Option<Clock>,
}

/// Runs commands on `device` until the job is over. `rows` are the contents of the data buffers.
///
/// # Errors
/// If rank 0 is gone, or an answer cannot be sent.
pub fn serve(
    world: &Arc<ProcessGroup>,
    device: Device,
    rows: Vec<(BufferId, Purpose, Store)>,
) -> Result<(), CollectiveError> {
    let mut server = Server { device, rows, reads: Vec::new(), clock: None };
    loop {
        let frame = world.receive(0, Tag::Command)?;
        let (result, more) = match wire::open(&frame) {
            Ok((Command::End, _)) => return Ok(()),
            Ok((command, more)) => server.answer(command, more),
            Err(e) => Err(e),
        }
        .map_or_else(|e| (Err(failure(&e)), Vec::new()), |(done, more)| (Ok(done), more));
        answer(world, result, &more)?;
    }
}

/// Ignores all commands until the job is over.
///
/// # Errors
/// If rank 0 is gone.
pub fn wait_for_end(world: &ProcessGroup) -> Result<(), CollectiveError> {
    while !matches!(wire::open(&world.receive(0, Tag::Command)?), Ok((Command::End, _))) {}
    Ok(())
}

/// Asks a rank for its report, before it serves.
///
/// # Errors
/// If the rank is gone.
pub fn ask_for_report(world: &ProcessGroup, rank: usize) -> Result<Vec<u8>, CollectiveError> {
    world.send(rank, Tag::Command, wire::frame(&Command::Report, &[]).unwrap_or_default())?;
    world.receive(rank, Tag::Answer)
}

/// Sends the report when it is asked for; returns false if the job is over instead.
///
/// # Errors
/// If rank 0 is gone.
pub fn report(world: &ProcessGroup, report: Vec<u8>) -> Result<bool, CollectiveError> {
    match wire::open(&world.receive(0, Tag::Command)?) {
        Ok((Command::End, _)) => Ok(false),
        _ => world.send(0, Tag::Answer, report).map(|()| true),
    }
}

/// Tells the other ranks that the job is over. Ranks that are gone are ignored.
pub fn end(world: &ProcessGroup) {
    if world.is_stuck() {
        return;
    }
    for rank in 1..world.size() {
        let sent = wire::frame(&Command::End, &[]).map(|frame| world.send(rank, Tag::Command, frame));
        drop(sent); // it may be gone
    }
}

/// Has all other ranks connect their GPUs by `id`; does not wait for them.
///
/// # Errors
/// A rank is gone.
pub fn ask_to_connect(world: &ProcessGroup, id: &[u8]) -> Result<(), CollectiveError> {
    (1..world.size()).try_for_each(|rank| {
        world.send(rank, Tag::Command, wire::frame(&Command::Connect, id).unwrap_or_default())
    })
}

/// Waits until all other ranks have connected their GPUs, or one says why it cannot.
///
/// # Errors
/// That, before what only follows from it; or a rank is gone.
pub fn wait_for_connections(world: &Arc<ProcessGroup>) -> Result<(), DeviceError> {
    let mut result = Ok(());
    for rank in 1..world.size() {
        let answered = executor::answer_of(world, rank, 0).map(drop);
        let is_released = matches!(answered, Err(DeviceError::Collective { .. }));
        if result.is_ok() || (answered.is_err() && !is_released) {
            result = answered;
        }
    }
    result
}

/// The identifier by which this rank's GPU is to connect; `None` where the job is over instead.
///
/// # Errors
/// Rank 0 is gone.
pub fn wait_for_identifier(world: &ProcessGroup) -> Result<Option<Vec<u8>>, CollectiveError> {
    let frame = world.receive(0, Tag::Command)?;
    Ok(match wire::open(&frame) {
        Ok((Command::Connect, id)) => Some(id.to_vec()),
        _ => None,
    })
}

/// Says whether this rank's GPU is connected.
///
/// # Errors
/// Rank 0 is gone.
pub fn report_connection(
    world: &ProcessGroup,
    connected: Result<(), &DeviceError>,
) -> Result<(), CollectiveError> {
    answer(world, connected.map(|()| Done::default()).map_err(failure), &[])
}

fn answer(world: &ProcessGroup, result: Result<Done, Failure>, more: &[u8]) -> Result<(), CollectiveError> {
    let answer = Answer { signal: world.signal().load(Ordering::Relaxed), result };
    // A head of plain numbers and text always has a form.
    world.send(0, Tag::Answer, wire::frame(&answer, more).unwrap_or_default())
}

/// Answers that this rank has failed in the place of its thread that serves, which does not come back from its device; then
/// waits until the job is over.
pub fn fail(world: &ProcessGroup, error: &DeviceError) {
    let _ = answer(world, Err(failure(error)), &[]).and_then(|()| wait_for_end(world)); // rank 0 is gone: that is the end, too
}

fn failure(error: &DeviceError) -> Failure {
    let is_released = matches!(error, DeviceError::Collective { source: CollectiveError::Poisoned, .. });
    Failure { text: error.to_string(), is_released }
}

impl Server {
    fn answer(&mut self, command: Command, more: &[u8]) -> Result<(Done, Vec<u8>), DeviceError> {
        let device = &mut self.device.executor;
        let mut out = Vec::new();
        let mut done = Done::default();
        match command {
            Command::Bind(buffer) => done.copied = self.bind(buffer)?,
            Command::BindOrder => drop(device.bind_order(&Arc::new(wire::numbers(more)))?),
            Command::Write(to) => drop(device.write(to, &wire::numbers::<f32>(more))?),
            Command::Read(from) => {
                let mut values = vec![0.0; from.len];
                device.read(from, &mut values)?;
                out = bytemuck::cast_slice(&values).to_vec();
            }
            Command::Copy { from, to } => drop(device.copy(from, to)?),
            Command::TakeSums(which, len) => {
                let mut sums = vec![0.0; len];
                device.take_sums(which, &mut sums)?;
                out = bytemuck::cast_slice(&sums).to_vec();
            }
            Command::WriteSums(which) => drop(device.write_sums(which, &wire::numbers::<f64>(more))?),
            Command::Digest(of) => done.digest = device.digest(of)?.0,
            Command::WarmUp => device.warm_up()?,
            Command::Run(block, timing) => done.ran = Some(self.run(&block, &timing, more)?),
            Command::Settle(purpose, timing) => done.ran = Some(self.settle(purpose, &timing)?),
            Command::Close => done.closed = Some(Box::new(self.close()?)),
            Command::Report | Command::Connect | Command::End => {}
        }
        Ok((done, out))
    }

    /// Binds its own rows; returns the bytes that were copied to the device.
    fn bind(&mut self, buffer: BufferId) -> Result<u64, DeviceError> {
        let own = self.rows.iter().find(|(own, ..)| *own == buffer);
        match own {
            Some((_, _, Store::Memory(rows))) => Ok(match self.device.executor.bind(buffer, rows)? {
                Moved::Bytes(bytes) | Moved::AfterWait { bytes, .. } => bytes,
                Moved::Nothing => 0,
            }),
            Some((_, purpose, Store::File(rows))) => {
                let reads = Arc::<Reads>::default();
                self.reads.push((*purpose, Arc::clone(&reads)));
                self.device.executor.bind_file(buffer, &rows.counted(reads)).map(|()| 0)
            }
            None => Err(DeviceError::Remote(format!("`{}` has no rows of that kind", self.device.name))),
        }
    }

    fn run(&mut self, block: &Block<'_>, timing: &Timing, more: &[u8]) -> Result<Ran, DeviceError> {
        let hyper = wire::hyper(&wire::numbers(more));
        let clock = self.clock.get_or_insert_with(|| timing.clock());
        self.device.run(&block.with_hyper(&hyper), clock, &mut Vec::new())
    }

    fn settle(&mut self, purpose: Purpose, timing: &Timing) -> Result<Ran, DeviceError> {
        let clock = self.clock.get_or_insert_with(|| timing.clock());
        self.device.settle(purpose, clock, &mut Vec::new())
    }

    fn close(&mut self) -> Result<Closed, DeviceError> {
        let mut clock = self.clock.take().unwrap_or_else(|| Clock::new(Grain::Blocks));
        let ledger = &mut self.device.ledger;
        self.device.executor.close(&mut Meters { clock: &mut clock, ledger, ends: &mut Vec::new() })?;
        let mut ledger = std::mem::take(&mut self.device.ledger);
        for (purpose, reads) in &self.reads {
            let Line { count, bytes, time, .. } = Line::from(&**reads);
            ledger.copies(Kind::Read, *purpose, count, bytes, time);
        }
        let (ledger, clock) = (ledger.lines().collect(), Some(clock.into_record()));
        Ok(Closed { ledger, clock, bytes: self.device.executor.bytes() })
    }
}
