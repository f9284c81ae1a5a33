//! The devices of a run, used as one. A single device runs on the caller's thread, which adds no cost; with
//! several, each has a thread of its own.

mod workers;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::{
    collective::Abort,
    device::{
        Block, ChunkRows, Clock, Device, DeviceError, Grain, LentMemory, Meters, PassKind, Purpose, Ran,
        RowReader,
    },
    host::lock,
    program::{Accumulator, BufferId, Phase, Shard, Slice},
    units,
};

use workers::Workers;
pub use workers::{DeviceTimes, Rank};

/// The devices of a run.
pub struct DeviceGroup {
    /// The only device; `None` where there are several.
    alone: Option<Rank>,
    workers: Workers,
}

impl DeviceGroup {
    /// Starts a thread per device if there are several. `abort` releases devices that wait for each other.
    /// `limit` is how long an answer is waited for; it must exceed the time that devices wait for each other,
    /// so that they report first which of them is missing.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn new(devices: Vec<Device>, abort: Abort, limit: Duration) -> Result<Self, DeviceError> {
        let rank = |(index, device)| Rank { device, clock: None, index };
        let mut ranks: Vec<_> = devices.into_iter().enumerate().map(rank).collect();
        let alone = if ranks.len() == 1 { ranks.pop() } else { None };
        Ok(Self { alone, workers: Workers::new(ranks, abort, limit)? })
    }

    /// Sets how long to wait for the other devices after a process is gone.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.workers.grace = grace;
        self
    }

    pub fn size(&self) -> usize {
        self.names().len()
    }

    pub fn names(&self) -> Vec<String> {
        let alone = self.alone.iter().map(|rank| rank.device.name.as_str());
        alone.chain(self.workers.names()).map(str::to_owned).collect()
    }

    /// See [`Executor::warm_up`](crate::device::Executor::warm_up).
    pub fn warm_up(&mut self) -> Result<(), DeviceError> {
        self.all(|rank| rank.device.executor.warm_up()).map(drop)
    }

    /// See [`Executor::product_gains`](crate::device::Executor::product_gains), of the first device.
    pub fn product_gains(&mut self) -> Result<Option<String>, DeviceError> {
        self.first(|rank| Ok(rank.device.executor.product_gains()))
    }

    /// Gives each of several devices a clock of its own; a single device uses the run's clock.
    pub fn start(&mut self, run: &Clock) -> Result<(), DeviceError> {
        let (origin, grain, traced) = (run.origin(), run.grain, run.trace.is_some());
        let started = self.workers.all(move |rank| {
            rank.clock = Some(Clock::at(origin, grain).traced(traced));
            Ok(())
        });
        started.map(drop)
    }

    /// Memory for `blocks` chunks from each device that lends some, for its features and its targets, which have at most `room`
    /// elements.
    pub fn lend(
        &mut self,
        blocks: u64,
        room: impl Fn(usize) -> [usize; 2] + Send + Sync + 'static,
    ) -> Result<Vec<Option<[LentMemory; 2]>>, DeviceError> {
        self.all(move |rank| {
            let [features, targets] = room(rank.index);
            let mut lend = |elements| -> Result<Option<LentMemory>, DeviceError> {
                let all = (0..blocks).map(|_| rank.device.executor.lend(elements));
                Ok(all.collect::<Result<Option<Vec<_>>, _>>()?.map(LentMemory::new))
            };
            Ok(lend(features)?.zip(lend(targets)?).map(Into::into))
        })
    }

    /// Binds `rows[i]` to device `i`.
    pub fn bind_each(
        &mut self,
        purpose: Purpose,
        buffer: BufferId,
        rows: &[ChunkRows],
    ) -> Result<(), DeviceError> {
        // Each device takes its rows out of the list, so that they are freed as soon as it no longer needs them.
        let each: Vec<_> = rows.iter().map(|rows| Mutex::new(Some(rows.clone()))).collect();
        let bind = move |rank: &mut Rank| {
            let own = each.get(rank.index).and_then(|rows| rows.lock().ok()?.take());
            let Some(rows) = own else { return Ok(()) };
            rank.device.upload(purpose, |e| match &rows {
                ChunkRows::Own(rows) => e.bind(buffer, rows),
                ChunkRows::Lent(rows) => e.bind_lent(buffer, rows),
            })
        };
        self.all(bind).map(drop)
    }

    /// Binds the same rows to every device.
    pub fn bind(
        &mut self,
        purpose: Purpose,
        buffer: BufferId,
        rows: &Arc<Vec<f32>>,
    ) -> Result<(), DeviceError> {
        let rows = Arc::clone(rows);
        self.all(move |rank| rank.device.upload(purpose, |e| e.bind(buffer, &rows))).map(drop)
    }

    /// See [`Executor::bind_file`](crate::device::Executor::bind_file).
    pub fn bind_file(&mut self, buffer: BufferId, rows: &Arc<dyn RowReader>) -> Result<(), DeviceError> {
        let rows = Arc::clone(rows);
        self.all(move |rank| rank.device.executor.bind_file(buffer, &rows)).map(drop)
    }

    /// Binds the order of the rows of one epoch or of several on every device.
    pub fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<(), DeviceError> {
        let order = Arc::clone(order);
        self.all(move |rank| rank.device.upload(Purpose::Batch, |e| e.bind_order(&order))).map(drop)
    }

    /// Writes the same values to every device.
    pub fn write(&mut self, purpose: Purpose, to: Slice, from: Vec<f32>) -> Result<(), DeviceError> {
        self.all(move |rank| rank.device.upload(purpose, |e| e.write(to, &from))).map(drop)
    }

    /// Writes values to the first device.
    pub fn write_first(&mut self, purpose: Purpose, to: Slice, from: Vec<f32>) -> Result<(), DeviceError> {
        self.first(move |rank| rank.device.upload(purpose, |e| e.write(to, &from)))
    }

    /// Sets the running sums of the epoch, which are on the first device only.
    pub fn write_epoch_sums(&mut self, purpose: Purpose, from: &[f64]) -> Result<(), DeviceError> {
        let from = from.to_vec();
        self.first(move |rank| rank.device.upload(purpose, |e| e.write_sums(Accumulator::Epoch, &from)))
    }

    /// Reads from the first device, since all hold the same, into the memory of `to`. On failure `to` is empty.
    pub fn read(&mut self, purpose: Purpose, from: Slice, to: &mut Vec<f32>) -> Result<(), DeviceError> {
        let room = Mutex::new(std::mem::take(to));
        *to = self.first(move |rank| {
            let mut values = std::mem::take(&mut *lock(&room));
            values.resize(from.len, 0.0);
            rank.device.download(purpose, |e| e.read(from, &mut values)).map(|()| values)
        })?;
        Ok(())
    }

    /// Reads each device's rows of a batch, in the order of the batch; `first[i]` is the first row of device `i`.
    pub fn read_rows(
        &mut self,
        purpose: Purpose,
        first: Vec<Slice>,
        batch: usize,
    ) -> Result<Vec<f32>, DeviceError> {
        let shares = self.all(move |rank| {
            let rows = Shard { rank: rank.index, world_size: first.len() }.rows(batch).len();
            let row = first[rank.index];
            let from = Slice { len: rows * row.len, ..row };
            let mut own = vec![0.0; from.len];
            if rows > 0 {
                rank.device.download(purpose, |e| e.read(from, &mut own))?;
            }
            Ok(own)
        })?;
        Ok(shares.concat())
    }

    /// Copies between two slices on the first device.
    pub fn copy(&mut self, purpose: Purpose, from: Slice, to: Slice) -> Result<(), DeviceError> {
        self.first(move |rank| rank.device.copy(purpose, from, to))
    }

    /// Running sums, added over all devices in rank order. The sums of an epoch are on the first device only.
    pub fn take_sums(
        &mut self,
        purpose: Purpose,
        sums: Accumulator,
        to: &mut [f64],
    ) -> Result<(), DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.download(purpose, |e| e.take_sums(sums, to));
        }
        let len = to.len();
        let take = move |rank: &mut Rank| {
            let mut own = vec![0.0; len];
            rank.device.download(purpose, |e| e.take_sums(sums, &mut own)).map(|()| own)
        };
        let of_each =
            if sums == Accumulator::Epoch { self.workers.run(1, take) } else { self.workers.all(take) }?;
        to.fill(0.0);
        of_each.iter().for_each(|own| to.iter_mut().zip(own).for_each(|(to, own)| *to += own));
        Ok(())
    }

    /// Runs a block on all devices. A single device's times go to `clock`. `ends` receives the times at which
    /// steps ended on the first device.
    pub fn run(
        &mut self,
        block: &Block<'_>,
        clock: &mut Clock,
        ends: &mut Vec<f64>,
    ) -> Result<Ran, DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.run(block, clock, ends);
        }
        let last = units::count(block.step + block.steps as u64);
        self.workers.doing = match block.work {
            PassKind::Validate => format!("the validation after step {}", units::count(block.step)),
            PassKind::Train if block.steps == 1 => format!("step {last}"),
            PassKind::Train => format!("steps {} to {last}", units::count(block.step + 1)),
        };
        let (own, hyper) = (block.with_hyper(&[]), block.hyper.to_vec());
        let run = move |device: &mut Device, clock: &mut Clock, ends: &mut Vec<f64>| {
            device.run(&own.with_hyper(&hyper), clock, ends)
        };
        let start = Instant::now();
        let (ran, busy) = self.timed(run, (&mut *clock, ends))?;
        self.workers.doing = format!("what follows step {last}");
        // Other grains, and validations, count the hand-over as part of the block's time.
        if clock.grain == Grain::Phases && block.work == PassKind::Train {
            clock.record(Phase::HandOver, start.elapsed().saturating_sub(busy));
        }
        Ok(ran)
    }

    /// See [`Device::settle`].
    pub fn settle(
        &mut self,
        purpose: Purpose,
        clock: &mut Clock,
        ends: &mut Vec<f64>,
    ) -> Result<Ran, DeviceError> {
        let settle = move |device: &mut Device, clock: &mut Clock, ends: &mut Vec<f64>| {
            device.settle(purpose, clock, ends)
        };
        self.timed(settle, (clock, ends)).map(|(ran, _)| ran)
    }

    /// See [`Executor::fetch`](crate::device::Executor::fetch), of the first device.
    pub fn fetch(&mut self, from: Slice) -> Result<(), DeviceError> {
        self.first(move |rank| rank.device.executor.fetch(from))
    }

    /// See [`Executor::is_fetched`](crate::device::Executor::is_fetched), of the first device.
    pub fn is_fetched(&mut self) -> Result<bool, DeviceError> {
        self.first(|rank| rank.device.executor.is_fetched())
    }

    /// See [`Executor::finished`](crate::device::Executor::finished).
    pub fn finished(&mut self, clock: &mut Clock, ends: &mut Vec<f64>) -> Result<Ran, DeviceError> {
        self.timed(Device::finished, (clock, ends)).map(|(ran, _)| ran)
    }

    /// A digest of the slice on each device; see [`crate::device::digest()`].
    pub fn digests(&mut self, of: Slice) -> Result<Vec<u64>, DeviceError> {
        self.all(move |rank| rank.device.digest(of))
    }

    /// What the first device has counted so far.
    pub fn first_times(&mut self) -> Result<DeviceTimes, DeviceError> {
        self.first(|rank| Ok(DeviceTimes::from_rank(rank)))
    }

    /// Ends the threads. Returns the devices whose threads ended, in order.
    pub fn finish(mut self) -> Vec<Rank> {
        if !self.workers.failed {
            let close = |rank: &mut Rank| {
                let Some(clock) = &mut rank.clock else { return Ok(()) };
                let ledger = &mut rank.device.ledger;
                rank.device.executor.close(&mut Meters { clock, ledger, ends: &mut Vec::new() })
            };
            let _ = self.all(close); // on failure the files only lack some counts
        }
        self.alone.into_iter().chain(self.workers.finish()).collect()
    }

    fn first<R: Send + 'static>(
        &mut self,
        command: impl Fn(&mut Rank) -> Result<R, DeviceError> + Send + Sync + 'static,
    ) -> Result<R, DeviceError> {
        match &mut self.alone {
            Some(rank) => command(rank),
            None => {
                let answer = self.workers.run(1, command)?.pop();
                answer.ok_or_else(|| DeviceError::Ended { device: self.names()[0].clone() })
            }
        }
    }

    fn all<R: Send + 'static>(
        &mut self,
        command: impl Fn(&mut Rank) -> Result<R, DeviceError> + Send + Sync + 'static,
    ) -> Result<Vec<R>, DeviceError> {
        match &mut self.alone {
            Some(rank) => Ok(vec![command(rank)?]),
            None => self.workers.all(command),
        }
    }

    /// Runs `work` on every device, each of several timed by its own clock; returns the time of the first device. After a failure
    /// only the first device is asked.
    fn timed(
        &mut self,
        work: impl Fn(&mut Device, &mut Clock, &mut Vec<f64>) -> Result<Ran, DeviceError> + Send + Sync + 'static,
        (clock, ends): (&mut Clock, &mut Vec<f64>),
    ) -> Result<(Ran, Duration), DeviceError> {
        if let Some(rank) = &mut self.alone {
            return work(&mut rank.device, clock, ends).map(|ran| (ran, Duration::ZERO));
        }
        let command = move |rank: &mut Rank| {
            let Some(clock) = &mut rank.clock else { return Ok(Default::default()) };
            let (mut ends, start) = (Vec::new(), Instant::now());
            work(&mut rank.device, clock, &mut ends).map(|ran| (ran, ends, start.elapsed()))
        };
        let all =
            if self.workers.failed { self.workers.run(1, command)? } else { self.workers.all(command)? };
        let (ran, own, busy) = all.into_iter().next().unwrap_or_default();
        ends.extend(own);
        Ok((ran, busy))
    }
}
