//! The other ranks: each runs what rank 0 asks for.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::wire::{self, Answer, Closed, Command, Done, Failure, Steps};
use crate::{
    collective::{CollectiveError, ProcessGroup, Tag},
    device::{Clock, Device, DeviceError, Kind, Line, Meters, Purpose, Reads, Store},
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
        let answer = Answer { signal: world.signal().load(Ordering::Relaxed), result };
        // Serializing plain numbers and text cannot fail.
        world.send(0, Tag::Answer, wire::frame(&answer, &more).unwrap_or_default())?;
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
            Command::Bind(buffer) => self.bind(buffer)?,
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
            Command::Run(steps) => return Ok((self.run(&steps, more)?, out)),
            Command::Close => done.closed = Some(Box::new(self.close())),
            Command::Report | Command::End => {}
        }
        Ok((done, out))
    }

    /// Binds this rank's own rows.
    fn bind(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        let own = self.rows.iter().find(|(own, ..)| *own == buffer);
        match own {
            Some((_, _, Store::Memory(rows))) => self.device.executor.bind(buffer, rows).map(drop),
            Some((_, purpose, Store::File(rows))) => {
                let reads = Arc::<Reads>::default();
                self.reads.push((*purpose, Arc::clone(&reads)));
                self.device.executor.bind_file(buffer, &rows.counted(reads))
            }
            None => Err(DeviceError::Remote(format!("`{}` has no rows of that kind", self.device.name))),
        }
    }

    fn run(&mut self, steps: &Steps, more: &[u8]) -> Result<Done, DeviceError> {
        let clock = self.clock.get_or_insert_with(|| {
            let now = Instant::now();
            // Shift the clock's origin so that its times match rank 0's clock, up to the time of the message.
            Clock::at(now.checked_sub(steps.elapsed).unwrap_or(now), steps.grain).traced(steps.is_traced)
        });
        let hyper = wire::hyper(&wire::numbers(more));
        let (ledger, mut ends) = (&mut self.device.ledger, Vec::new());
        let mut meters = Meters { clock, ledger, ends: &mut ends };
        let ran = self.device.executor.run(&steps.block(&hyper), &mut meters)?;
        Ok(Done { non_finite: ran.non_finite, step_time: ran.step_time, ..Done::default() })
    }

    fn close(&mut self) -> Closed {
        let mut ledger = std::mem::take(&mut self.device.ledger);
        for (purpose, reads) in &self.reads {
            let Line { count, bytes, time, .. } = Line::from(&**reads);
            ledger.copies(Kind::Read, *purpose, count, bytes, time);
        }
        let clock = self.clock.take().map(Clock::into_record);
        Closed { ledger: ledger.lines().collect(), clock, bytes: self.device.executor.bytes() }
    }
}
