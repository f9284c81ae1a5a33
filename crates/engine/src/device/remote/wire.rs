//! Commands and answers as frames: a header in JSON, then numbers in their memory representation. That is
//! possible because all ranks run the same program on the same kind of machine.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    device::{Block, Clock, ClockRecord, DeviceError, Grain, Kind, Line, Purpose, Ran},
    program::{Accumulator, BufferId, Hyper, Slice},
};

/// What rank 0 asks of another rank. Numbers that belong to a command follow the header.
#[derive(Debug, Serialize, Deserialize)]
pub enum Command {
    /// Binds the rank's own rows.
    Bind(BufferId),
    BindOrder,
    Write(Slice),
    Read(Slice),
    Copy {
        from: Slice,
        to: Slice,
    },
    TakeSums(Accumulator, usize),
    WriteSums(Accumulator),
    Digest(Slice),
    /// See [`Executor::warm_up`](crate::device::Executor::warm_up).
    WarmUp,
    /// A block of steps, and the clock that times them.
    Run(Block<'static>, Timing),
    /// See [`Executor::settle`](crate::device::Executor::settle).
    Settle(Purpose, Timing),
    /// What it has counted and timed.
    Close,
    /// Asks whether the rank can serve; the caller defines the answer's format.
    Report,
    /// Its GPU is to connect with those of all others, by the identifier that follows.
    Connect,
    /// The job is over.
    End,
}

/// The clock that times steps.
#[derive(Debug, Serialize, Deserialize)]
pub struct Timing {
    /// Since its origin.
    elapsed: Duration,
    grain: Grain,
    is_traced: bool,
}

impl Timing {
    pub fn new(clock: &Clock) -> Self {
        Self { elapsed: clock.origin().elapsed(), grain: clock.grain, is_traced: clock.trace.is_some() }
    }

    /// One whose times are those of rank 0's clock, but for what the message took.
    pub fn clock(&self) -> Clock {
        let now = Instant::now();
        let origin = now.checked_sub(self.elapsed).unwrap_or(now);
        Clock::at(origin, self.grain).traced(self.is_traced)
    }
}

/// A rank's answer; requested numbers follow.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The signal that asks the rank to end, or 0.
    pub signal: usize,
    pub result: Result<Done, Failure>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Done {
    pub digest: u64,
    /// Bytes of its own rows that it copied to its device.
    pub copied: u64,
    pub ran: Option<Ran>,
    pub closed: Option<Box<Closed>>,
}

/// What a rank has counted and timed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Closed {
    pub ledger: Vec<(Kind, Purpose, Line)>,
    pub clock: Option<ClockRecord>,
    /// Bytes of memory used on its device.
    pub bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Failure {
    pub text: String,
    /// Whether the rank only failed because another one did.
    pub is_released: bool,
}

/// The values of steps' updates, as a flat list of numbers.
pub fn of_hyper(hyper: &[Hyper]) -> Vec<f32> {
    let each = |h: &Hyper| [h.rate, h.first, h.correction, h.decay_factor, h.loss_scale];
    hyper.iter().flat_map(each).collect()
}

pub fn hyper(numbers: &[f32]) -> Vec<Hyper> {
    let each =
        |n: &[f32]| Hyper { rate: n[0], first: n[1], correction: n[2], decay_factor: n[3], loss_scale: n[4] };
    numbers.chunks_exact(5).map(each).collect()
}

/// A frame: header, then the bytes that follow it.
pub fn frame(head: &impl Serialize, more: &[u8]) -> Result<Vec<u8>, DeviceError> {
    let head =
        serde_json::to_vec(head).map_err(|e| DeviceError::Remote(format!("a message has no form: {e}")))?;
    let mut bytes = Vec::with_capacity(8 + head.len() + more.len());
    bytes.extend((head.len() as u64).to_le_bytes());
    bytes.extend(head);
    bytes.extend(more);
    Ok(bytes)
}

/// Splits a frame into header and the bytes that follow.
pub fn open<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), DeviceError> {
    let foreign =
        || DeviceError::Remote("a message cannot be read: all ranks must be the same program".to_owned());
    let (len, rest) = bytes.split_first_chunk::<8>().ok_or_else(foreign)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok().filter(|len| *len <= rest.len());
    let (head, more) = rest.split_at(len.ok_or_else(foreign)?);
    Ok((serde_json::from_slice(head).map_err(|_| foreign())?, more))
}

/// The numbers after a header, at any alignment.
pub fn numbers<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
