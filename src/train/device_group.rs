//! The devices of a run as one: what is said to it, every device does, each on a thread of its own.
//!
//! A device that is alone is driven by the caller's thread, so that it costs nothing more. Of several, one that fails,
//! panics or stops coming ends the work of all: whoever waits for it is let go, and nobody waits for it for ever.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    collective::{Abort, CollectiveError},
    device::{Block, Clock, Device, DeviceError, PassKind, Purpose, Ran, RowReader},
    program::{Accumulator, BufferId, Hyper, Slice},
    units,
};

/// After a fault the others are waited for this long at most: they have been let go.
const GRACE: Duration = Duration::from_secs(1);

/// What a device answers.
enum Answer {
    Done,
    Read(Vec<f32>),
    /// With the ends of steps, which only the first device's are used of.
    Ran(Ran, Vec<f64>),
    Totals(Vec<f64>),
    Digest(u64),
}

type Answered = Result<Answer, DeviceError>;
type Command = Arc<dyn Fn(&mut Rank) -> Answered + Send + Sync>;

/// A device with what only its own thread writes.
pub struct Rank {
    /// The device.
    pub device: Device,
    /// Times of its steps; `None` where they go to the run's own clock.
    pub clock: Option<Clock>,
    index: usize,
}

/// The thread of one of several devices.
struct Worker {
    name: String,
    commands: Sender<(u64, Command)>,
    thread: JoinHandle<Rank>,
    /// It is given up: its thread may never end.
    lost: bool,
}

/// See the module.
pub struct DeviceGroup {
    /// The only device, where there is one only.
    alone: Option<Rank>,
    /// All devices, where there are several.
    workers: Vec<Worker>,
    /// From all of them: to which question, from which device, and what.
    answers: Receiver<(u64, usize, Answered)>,
    /// Questions so far.
    asked: u64,
    abort: Abort,
    /// How long an answer is waited for.
    limit: Duration,
    /// What the devices are at, for messages.
    doing: String,
    failed: bool,
}

impl DeviceGroup {
    /// Starts a thread for each of several devices. `abort` ends what they wait for together; `limit` is how long an
    /// answer is waited for: longer than they wait for each other, so that they are the first to tell who is missing.
    ///
    /// # Errors
    /// Where a thread cannot be started.
    pub fn new(devices: Vec<Device>, abort: Abort, limit: Duration) -> Result<Self, DeviceError> {
        let make = |(index, device)| Rank { device, clock: None, index };
        let mut ranks: Vec<_> = devices.into_iter().enumerate().map(make).collect();
        let alone = if ranks.len() == 1 { ranks.pop() } else { None };
        let (answer, answers) = channel();
        let workers = ranks.into_iter().map(|rank| worker(rank, answer.clone(), abort.clone()));
        let workers = workers.collect::<Result<Vec<_>, _>>()?;
        let doing = "the start".to_owned();
        Ok(Self { alone, workers, answers, asked: 0, abort, limit, doing, failed: false })
    }

    /// How many devices there are.
    pub fn size(&self) -> usize {
        self.workers.len().max(1)
    }

    /// See [`Executor::warm_up`](crate::device::Executor::warm_up).
    pub fn warm_up(&mut self) -> Result<(), DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.warm_up();
        }
        self.all(|rank| rank.device.warm_up().map(|()| Answer::Done)).map(drop)
    }

    /// Gives each of several devices a clock of its own; one alone uses the run's.
    pub fn start(&mut self, run: &Clock) -> Result<(), DeviceError> {
        let (origin, grain, traced) = (run.origin(), run.grain, run.trace.is_some());
        let order = move |rank: &mut Rank| {
            rank.clock = Some(Clock::at(origin, grain).traced(traced));
            Ok(Answer::Done)
        };
        if self.workers.is_empty() { Ok(()) } else { self.all(order).map(drop) }
    }

    /// Each device's own rows, in their order.
    pub fn bind_each(
        &mut self,
        purpose: Purpose,
        buffer: BufferId,
        rows: &[Arc<Vec<f32>>],
    ) -> Result<(), DeviceError> {
        if let (Some(rank), Some(rows)) = (&mut self.alone, rows.first()) {
            return rank.device.bind(purpose, buffer, rows);
        }
        // Each takes its own and leaves the others', so that none is held any longer than it is needed.
        let each: Vec<_> = rows.iter().map(|rows| std::sync::Mutex::new(Some(Arc::clone(rows)))).collect();
        let order = move |rank: &mut Rank| {
            let own = each.get(rank.index).and_then(|place| place.lock().ok()?.take());
            own.map_or(Ok(()), |rows| rank.device.bind(purpose, buffer, &rows)).map(|()| Answer::Done)
        };
        self.all(order).map(drop)
    }

    /// The same rows to every device.
    pub fn bind(
        &mut self,
        purpose: Purpose,
        buffer: BufferId,
        rows: &Arc<Vec<f32>>,
    ) -> Result<(), DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.bind(purpose, buffer, rows);
        }
        let rows = Arc::clone(rows);
        self.all(move |rank| rank.device.bind(purpose, buffer, &rows).map(|()| Answer::Done)).map(drop)
    }

    /// See [`Device::bind_file`]: for a device that is alone.
    pub fn bind_file(&mut self, buffer: BufferId, rows: &Arc<dyn RowReader>) -> Result<(), DeviceError> {
        self.alone.as_mut().map_or(Err(DeviceError::RowsInFile), |rank| rank.device.bind_file(buffer, rows))
    }

    /// See [`Device::bind_order`].
    pub fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<(), DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.bind_order(order);
        }
        let order = Arc::clone(order);
        self.all(move |rank| rank.device.bind_order(&order).map(|()| Answer::Done)).map(drop)
    }

    /// The same numbers to every device.
    pub fn write(&mut self, purpose: Purpose, to: Slice, from: &[f32]) -> Result<(), DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.write(purpose, to, from);
        }
        let from = from.to_vec();
        self.all(move |rank| rank.device.write(purpose, to, &from).map(|()| Answer::Done)).map(drop)
    }

    /// From the first device, which holds what all hold.
    pub fn read(&mut self, purpose: Purpose, from: Slice, to: &mut [f32]) -> Result<(), DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.read(purpose, from, to);
        }
        let len = to.len();
        let read = move |rank: &mut Rank| {
            let mut numbers = vec![0.0; len];
            rank.device.read(purpose, from, &mut numbers).map(|()| Answer::Read(numbers))
        };
        if let Answer::Read(numbers) = self.first(read)? {
            to.copy_from_slice(&numbers);
        }
        Ok(())
    }

    /// Sums over all devices, in their order. Those of the epoch are on the first one only.
    pub fn take_sums(
        &mut self,
        purpose: Purpose,
        sums: Accumulator,
        to: &mut [f64],
    ) -> Result<(), DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.take_sums(purpose, sums, to);
        }
        let len = to.len();
        let take = move |rank: &mut Rank| {
            let mut own = vec![0.0; len];
            rank.device.take_sums(purpose, sums, &mut own).map(|()| Answer::Totals(own))
        };
        let answers = if sums == Accumulator::Epoch { vec![self.first(take)?] } else { self.all(take)? };
        to.fill(0.0);
        for answer in answers {
            if let Answer::Totals(own) = answer {
                to.iter_mut().zip(own).for_each(|(to, own)| *to += own);
            }
        }
        Ok(())
    }

    /// Runs a block on all devices. Times of one alone go to `clock`; the ends of the first one's steps to `ends`.
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
        self.doing = match block.work {
            PassKind::Validate => format!("the validation after step {}", units::count(block.step)),
            PassKind::Train if block.steps == 1 => format!("step {last}"),
            PassKind::Train => format!("steps {} to {last}", units::count(block.step + 1)),
        };
        let owned = OwnedBlock::new(block);
        let ran = self.timed(move |device, clock, ends| device.run(&owned.block(), clock, ends), ends)?;
        self.doing = format!("what follows step {last}");
        Ok(ran)
    }

    /// See [`Device::settle`].
    pub fn settle(
        &mut self,
        purpose: Purpose,
        clock: &mut Clock,
        ends: &mut Vec<f64>,
    ) -> Result<Ran, DeviceError> {
        if let Some(rank) = &mut self.alone {
            return rank.device.settle(purpose, clock, ends);
        }
        self.timed(move |device, clock, ends| device.settle(purpose, clock, ends), ends)
    }

    /// The digests of what each device holds there, in their order; see [`crate::device::digest()`].
    pub fn digests(&mut self, of: Slice) -> Result<Vec<u64>, DeviceError> {
        if let Some(rank) = &mut self.alone {
            return Ok(vec![rank.device.digest(of)?]);
        }
        let answers = self.all(move |rank| rank.device.digest(of).map(Answer::Digest))?.into_iter();
        Ok(answers.filter_map(|a| if let Answer::Digest(d) = a { Some(d) } else { None }).collect())
    }

    /// Names, in their order.
    pub fn names(&self) -> Vec<String> {
        let alone = self.alone.iter().map(|rank| rank.device.name().to_owned());
        alone.chain(self.workers.iter().map(|m| m.name.clone())).collect()
    }

    /// Ends the threads; the devices that came to an end in order.
    pub fn finish(self) -> Vec<Rank> {
        let mut ranks: Vec<_> = self.alone.into_iter().collect();
        for worker in self.workers {
            drop(worker.commands);
            // A thread that hangs in a device cannot be joined: it ends with the process.
            if !worker.lost || worker.thread.is_finished() {
                ranks.extend(worker.thread.join().ok());
            }
        }
        ranks
    }

    /// What is timed by each device's own clock. After a fault only the first device is asked.
    fn timed(
        &mut self,
        work: impl Fn(&mut Device, &mut Clock, &mut Vec<f64>) -> Result<Ran, DeviceError> + Send + Sync + 'static,
        ends: &mut Vec<f64>,
    ) -> Result<Ran, DeviceError> {
        let order = move |rank: &mut Rank| {
            let Some(clock) = &mut rank.clock else { return Ok(Answer::Done) };
            let mut ends = Vec::new();
            work(&mut rank.device, clock, &mut ends).map(|ran| Answer::Ran(ran, ends))
        };
        let first = if self.failed { Some(self.first(order)?) } else { self.all(order)?.into_iter().next() };
        match first {
            Some(Answer::Ran(ran, own)) => {
                ends.extend(own);
                Ok(ran)
            }
            _ => Ok(Ran::default()),
        }
    }

    fn first(
        &mut self,
        order: impl Fn(&mut Rank) -> Answered + Send + Sync + 'static,
    ) -> Result<Answer, DeviceError> {
        Ok(self.broadcast(1, Arc::new(order))?.pop().unwrap_or(Answer::Done))
    }

    fn all(
        &mut self,
        order: impl Fn(&mut Rank) -> Answered + Send + Sync + 'static,
    ) -> Result<Vec<Answer>, DeviceError> {
        self.broadcast(self.workers.len(), Arc::new(order))
    }

    /// Has the first `count` devices do it. All answers, in their order; or the one fault that led to the others.
    fn broadcast(&mut self, count: usize, order: Command) -> Result<Vec<Answer>, DeviceError> {
        self.asked += 1;
        let mut answers: Vec<Option<Answered>> = Vec::with_capacity(count);
        for worker in &mut self.workers[..count] {
            // The thread of a device that has panicked has ended.
            let gone = worker.lost || worker.commands.send((self.asked, Arc::clone(&order))).is_err();
            let ended = || Err(DeviceError::Ended { device: worker.name.clone() });
            answers.push(gone.then(ended));
        }
        drop(order);
        // Whatever comes first is looked at first: it may tell why another does not come.
        let mut deadline = Instant::now() + self.limit;
        let mut cause = None;
        while answers.iter().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((asked, index, answered)) = self.answers.recv_timeout(left) else { break };
            // The answer to an earlier question, by a device that was given up.
            if asked != self.asked {
                continue;
            }
            if let Err(fault) = &answered {
                deadline = deadline.min(Instant::now() + GRACE);
                let released =
                    matches!(fault, DeviceError::Collective { source: CollectiveError::Poisoned, .. });
                cause = cause.or((!released).then_some(index));
            }
            answers[index] = Some(answered);
        }
        let limit = self.limit;
        let mut given = Vec::with_capacity(count);
        let mut fault = None;
        for (index, (worker, answer)) in self.workers.iter_mut().zip(answers).enumerate() {
            let (device, doing) = (worker.name.clone(), self.doing.clone());
            let answered = answer.unwrap_or_else(|| {
                worker.lost = true;
                Err(DeviceError::Stalled { device: device.clone(), doing: doing.clone(), waited: limit })
            });
            match answered {
                Ok(answer) => given.push(answer),
                Err(_) if fault.is_some() && cause != Some(index) => {}
                Err(DeviceError::Panicked { reason, .. }) => {
                    fault = Some(DeviceError::Panicked { device, doing, reason });
                }
                Err(e) => fault = Some(e),
            }
        }
        match fault {
            None => Ok(given),
            Some(fault) => {
                self.abort.now();
                self.failed = true;
                Err(fault)
            }
        }
    }
}

fn worker(
    mut rank: Rank,
    answer: Sender<(u64, usize, Answered)>,
    abort: Abort,
) -> Result<Worker, DeviceError> {
    let name = rank.device.name().to_owned();
    let (commands, taken) = channel::<(u64, Command)>();
    let body = move || {
        // However this thread ends, nobody waits for it.
        let guard = abort.guard();
        while let Ok((asked, order)) = taken.recv() {
            // After a panic nothing but the rank's times and counts is read, which are whole at any moment.
            let answered = catch_unwind(AssertUnwindSafe(|| order(&mut rank)));
            // What was handed over with the order is free before the answer says that it was carried out.
            drop(order);
            let panicked = answered.is_err();
            let answered = answered.unwrap_or_else(|panic| {
                let (device, doing) = (rank.device.name().to_owned(), String::new());
                Err(DeviceError::Panicked { device, doing, reason: words_of(&*panic) })
            });
            // The cause is told before those whom it lets go tell theirs.
            let failed = answered.is_err();
            let gone = answer.send((asked, rank.index, answered)).is_err();
            if failed {
                abort.now();
            }
            if gone || panicked {
                break;
            }
        }
        guard.defuse();
        rank
    };
    let thread = thread::Builder::new().name(name.clone()).spawn(body);
    let thread = thread.map_err(|source| DeviceError::Thread { device: name.clone(), source })?;
    Ok(Worker { name, commands, thread, lost: false })
}

/// What a panic said.
fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "for no reason given".into())
}

/// A block that outlives the call.
struct OwnedBlock {
    hyper: Vec<Hyper>,
    work: PassKind,
    step: u64,
    position: usize,
    offset: usize,
    rows: usize,
    steps: usize,
    slot: usize,
}

impl OwnedBlock {
    fn new(block: &Block<'_>) -> Self {
        let Block { work, step, position, offset, rows, steps, hyper, slot } = *block;
        Self { hyper: hyper.to_vec(), work, step, position, offset, rows, steps, slot }
    }

    fn block(&self) -> Block<'_> {
        let Self { work, step, position, offset, rows, steps, slot, .. } = *self;
        Block { work, step, position, offset, rows, steps, slot, hyper: &self.hyper }
    }
}

#[cfg(test)]
#[path = "device_group_tests.rs"]
mod tests;
