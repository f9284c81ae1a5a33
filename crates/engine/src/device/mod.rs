//! Devices: memory, copies, running programs, and the ledger that counts every transfer and every wait.
//!
//! May use [`crate::spec`], [`crate::program`] and [`crate::plan`]'s pure types. The device is chosen at run
//! time by a value; nothing here is generic over the device. Everything that passes between host and device
//! goes through [`Device`], the only place that knows purpose, direction and bytes of every copy.

pub mod backend;
mod chunk_rows;
mod clock;
pub mod cpu;
mod error;
mod ledger;
pub mod probe;
pub mod remote;
mod trace;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

pub use crate::op::{FileChange, Reads, RowReader, Store, make_room};
pub use chunk_rows::{ChunkRows, Closer, HostMemory, LentMemory, LentRows};
pub use clock::{Clock, ClockCost, ClockRecord, PhaseSummary, Timer, Totals};
pub use error::DeviceError;
pub use ledger::{Kind, Ledger, Line, Purpose};
pub use trace::{DETAILED_STEPS, Lane, LaneTrace, Span, Trace, Window};

use crate::{
    program::{Accumulator, BufferId, Hyper, Slice},
    random::{GOLDEN, mix},
};

/// Whether a copy moved anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    Bytes(u64),
    /// The host had to wait for the device first.
    AfterWait {
        bytes: u64,
        wait: Duration,
    },
    /// The data was there already.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PassKind {
    Train,
    /// Chunks of validation rows.
    Validate,
}

/// Consecutive steps that run without the host: the unit of dispatch. They may go on into later epochs, whose orders
/// of rows lie one behind the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block<'a> {
    pub work: PassKind,
    /// Optimizer steps done before this block.
    pub step: u64,
    /// First row of the global batch within the epoch (or the validation rows).
    pub position: usize,
    /// Where the epoch's order begins in the bound one.
    pub order: usize,
    /// If data are streamed: rows (of global batches) in the bound chunk before this block.
    pub offset: usize,
    /// Rows in each epoch (or the validation rows); the last step of an epoch takes the remainder.
    pub rows: usize,
    pub steps: usize,
    /// One per step, for training, and those of steps that follow; a message to another process has them apart.
    #[serde(skip)]
    pub hyper: &'a [Hyper],
    /// First free row of the log.
    pub slot: usize,
}

/// The most steps by which a compiled step is compared with the interpreter, since later ones amplify rounding differences.
pub const COMPARED_STEPS: usize = 64;

impl<'a> Block<'a> {
    /// The first training steps of a run on this many rows.
    pub fn first(hyper: &'a [Hyper], rows: usize) -> Self {
        let (work, steps) = (PassKind::Train, hyper.len());
        Self { work, step: 0, position: 0, order: 0, offset: 0, rows, steps, hyper, slot: 0 }
    }
}

impl Block<'_> {
    pub fn with_hyper<'a>(&self, hyper: &'a [Hyper]) -> Block<'a> {
        let Self { work, step, position, order, offset, rows, steps, slot, .. } = *self;
        Block { work, step, position, order, offset, rows, steps, hyper, slot }
    }

    /// Where its step number `step` begins: the row within its epoch, and where that epoch's order begins.
    pub fn place(&self, step: usize, batch: usize) -> [usize; 2] {
        let row = self.position + step * batch;
        if step == 0 || row < self.rows {
            return [row, self.order];
        }
        let per_epoch = self.rows.div_ceil(batch).max(1);
        let steps = self.position / batch + step;
        [steps % per_epoch * batch, self.order + steps / per_epoch * self.rows]
    }

    /// The first row of its step number `step`, counted over all bound epochs.
    pub fn row(&self, step: usize, batch: usize) -> usize {
        self.place(step, batch).iter().sum()
    }
}

/// What the host knows of a device's steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The first step (1-based) whose loss was not finite, of all blocks so far.
    pub non_finite: Option<u64>,
    /// The time of a step, if there is a new measurement.
    pub step_time: Option<Duration>,
    /// How long the host has waited for steps since the last report.
    pub waited: Duration,
    /// A message about the device for the user.
    pub notice: Option<String>,
}

/// Where a device records what it does.
pub struct Meters<'a> {
    pub clock: &'a mut Clock,
    pub ledger: &'a mut Ledger,
    /// Seconds since the clock's origin at the end of each training step, in order, as they become known.
    pub ends: &'a mut Vec<f64>,
}

/// A device that holds a trial: its memory and its programs.
pub trait Executor: Send {
    /// One-time setup (library loading, collective initialization), on each device's own thread, before
    /// training and before anything is written. It does not count as a step.
    fn warm_up(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
    /// What large products gain by the choice of their algorithms, in words, if anything.
    fn product_gains(&self) -> Option<String> {
        None
    }
    /// Makes `rows` (`[rows, width]`) the contents of a data buffer.
    fn bind(&mut self, buffer: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError>;
    /// Memory of the host for this many elements of a chunk, from which the device copies without the host; `None` if it takes
    /// chunks from ordinary memory.
    fn lend(&mut self, _elements: usize) -> Result<Option<HostMemory>, DeviceError> {
        Ok(None)
    }
    /// [`Self::bind`] for rows in memory that this device lent, which it holds until they are copied.
    fn bind_lent(&mut self, _: BufferId, _: &Arc<LentRows>) -> Result<Moved, DeviceError> {
        Err(backend::misfit("the device", "rows in memory that it did not lend"))
    }
    /// Makes rows in a file the contents of a buffer of features. Only for a device that uses the host's
    /// memory and fetches rows itself.
    fn bind_file(&mut self, _: BufferId, _: &Arc<dyn RowReader>) -> Result<(), DeviceError> {
        Err(DeviceError::RowsInFile)
    }
    /// Makes `order` the order of the rows of one epoch or of several, one behind the other.
    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError>;
    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError>;
    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError>;
    /// Starts to read rows of the log, after the steps so far; [`read`](Self::read) of the same rows then waits for no
    /// later step. Without effect where a read waits for nothing.
    fn fetch(&mut self, _: Slice) -> Result<(), DeviceError> {
        Ok(())
    }
    /// Whether what was fetched is there.
    fn is_fetched(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }
    /// Copies between two slices of equal length on the device, after all work so far.
    fn copy(&mut self, from: Slice, to: Slice) -> Result<Moved, DeviceError>;
    /// Reads the running sums and sets them to zero.
    fn take_sums(&mut self, sums: Accumulator, to: &mut [f64]) -> Result<Moved, DeviceError>;
    /// Sets the running sums to values that [`Executor::take_sums`] returned.
    fn write_sums(&mut self, sums: Accumulator, from: &[f64]) -> Result<Moved, DeviceError>;
    /// A hash of the slice's bits, equal for equal contents; see [`digest()`].
    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError>;
    /// Runs a block of steps; may return before they are complete. If the clock's grain is phases, records
    /// their times. The caller times the block as a whole.
    fn run(&mut self, block: &Block<'_>, meters: &mut Meters<'_>) -> Result<Ran, DeviceError>;
    /// Reports the times of all steps so far, and whether a loss was not finite. If the host has just read
    /// from the device, all steps are complete; otherwise this waits for them, and counts the wait under
    /// `purpose`. A device that hangs reports the steps that it has completed.
    fn settle(&mut self, purpose: Purpose, meters: &mut Meters<'_>) -> Result<Ran, DeviceError>;
    /// The same for the steps that are known to be complete, without a wait.
    fn finished(&mut self, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        self.settle(Purpose::Log, meters)
    }
    /// Bytes this trial holds on the device.
    fn bytes(&self) -> u64;
    /// Reports what was counted and timed in another process; called after the last command.
    fn close(&mut self, _: &mut Meters<'_>) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A named device with its executor and ledger.
pub struct Device {
    pub name: String,
    pub executor: Box<dyn Executor>,
    /// Every transfer and wait so far.
    pub ledger: Ledger,
}

impl Device {
    /// Puts a new ledger in front of an executor.
    pub fn new(name: impl Into<String>, executor: Box<dyn Executor>) -> Self {
        Self { name: name.into(), executor, ledger: Ledger::default() }
    }

    /// Copies from the host.
    pub fn upload(
        &mut self,
        purpose: Purpose,
        copy: impl FnOnce(&mut dyn Executor) -> Result<Moved, DeviceError>,
    ) -> Result<(), DeviceError> {
        self.counted(Kind::HostToDevice, purpose, copy)
    }

    /// Copies to the host.
    pub fn download(
        &mut self,
        purpose: Purpose,
        copy: impl FnOnce(&mut dyn Executor) -> Result<Moved, DeviceError>,
    ) -> Result<(), DeviceError> {
        self.counted(Kind::DeviceToHost, purpose, copy)
    }

    pub fn copy(&mut self, purpose: Purpose, from: Slice, to: Slice) -> Result<(), DeviceError> {
        self.counted(Kind::DeviceToDevice, purpose, |e| e.copy(from, to))
    }

    pub fn digest(&mut self, of: Slice) -> Result<u64, DeviceError> {
        let mut digest = 0;
        self.download(Purpose::Digest, |e| {
            let (value, moved) = e.digest(of)?;
            digest = value;
            Ok(moved)
        })?;
        Ok(digest)
    }

    pub fn run(
        &mut self,
        block: &Block<'_>,
        clock: &mut Clock,
        ends: &mut Vec<f64>,
    ) -> Result<Ran, DeviceError> {
        self.executor.run(block, &mut Meters { clock, ledger: &mut self.ledger, ends })
    }

    pub fn settle(
        &mut self,
        purpose: Purpose,
        clock: &mut Clock,
        ends: &mut Vec<f64>,
    ) -> Result<Ran, DeviceError> {
        self.executor.settle(purpose, &mut Meters { clock, ledger: &mut self.ledger, ends })
    }

    pub fn finished(&mut self, clock: &mut Clock, ends: &mut Vec<f64>) -> Result<Ran, DeviceError> {
        self.executor.finished(&mut Meters { clock, ledger: &mut self.ledger, ends })
    }

    fn counted(
        &mut self,
        kind: Kind,
        purpose: Purpose,
        copy: impl FnOnce(&mut dyn Executor) -> Result<Moved, DeviceError>,
    ) -> Result<(), DeviceError> {
        let start = std::time::Instant::now();
        let moved = copy(&mut *self.executor)?;
        self.ledger.count(kind, purpose, moved, start);
        Ok(())
    }
}

/// The sum, modulo 2^64, of a hash of each element's bits and index (SplitMix64's finalizer). Equal contents
/// have equal digests. The order of the additions does not matter, so any number of threads may compute it.
pub fn digest(numbers: &[f32]) -> u64 {
    let mixed = |(i, v): (usize, &f32)| mix(u64::from(v.to_bits()) ^ (i as u64 + 1).wrapping_mul(GOLDEN));
    numbers.iter().enumerate().map(mixed).fold(0, u64::wrapping_add)
}

/// How finely an executor times its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grain {
    /// Every phase of every step.
    Phases,
    /// Only blocks: single steps are so short that reading the clock would dominate the measurement.
    Blocks,
}

/// Steps shorter than this are timed by blocks.
pub const SHORTEST_TIMED_STEP: Duration = Duration::from_micros(10);
