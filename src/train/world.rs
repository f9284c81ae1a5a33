//! The devices of a run as one: what is said to it, every device does, each on a thread of its own.
//!
//! The first device is driven by the caller's thread, so that a run of one device costs nothing more. A device that
//! fails or stops coming ends the work of all: whoever waits for it is let go.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    collective::{Abort, CollectiveError},
    device::{Block, Clock, Device, DeviceError, Grain, Purpose, Ran, Work},
    program::{BufferId, Hyper, Slice, Sums},
};

/// What a device answers.
enum Answer {
    Done,
    Ran(Ran),
    Sums(Vec<f64>),
    Digest(u64),
}

type Answered = Result<Answer, DeviceError>;
type Order = Arc<dyn Fn(&mut Rank) -> Answered + Send + Sync>;

/// A device with what only its own thread writes.
pub struct Rank {
    /// The device.
    pub device: Device,
    /// Times of its steps; `None` where they go to the run's own clock.
    pub clock: Option<Clock>,
    /// Ends of steps, which only the first device's are used of.
    ends: Vec<f64>,
}

impl Rank {
    fn run(
        &mut self,
        block: &Block<'_>,
        shared: Option<(&mut Clock, &mut Vec<f64>)>,
    ) -> Result<Ran, DeviceError> {
        match (shared, &mut self.clock) {
            (Some((clock, ends)), None) => self.device.run(block, clock, ends),
            (Some((_, ends)), Some(clock)) => self.device.run(block, clock, ends),
            (None, Some(clock)) => {
                self.ends.clear();
                self.device.run(block, clock, &mut self.ends)
            }
            (None, None) => Ok(Ran::default()),
        }
    }
}

/// A further device's thread.
struct Member {
    name: String,
    orders: Sender<Order>,
    answers: Receiver<Answered>,
    thread: JoinHandle<Rank>,
}

/// See the module.
pub struct World {
    first: Rank,
    members: Vec<Member>,
    abort: Abort,
    /// How long an answer is waited for after the first device's own.
    limit: Duration,
    /// Whether a device is given up: its thread may never end.
    lost: bool,
}

impl World {
    /// Starts the threads of all devices but the first. `abort` ends what they wait for together.
    ///
    /// # Errors
    /// Where a thread cannot be started.
    pub fn new(devices: Vec<Device>, abort: Abort, limit: Duration) -> Result<Self, DeviceError> {
        let alone = devices.len() == 1;
        let mut ranks = devices.into_iter().map(|device| Rank { device, clock: None, ends: Vec::new() });
        let Some(first) = ranks.next() else {
            return Err(DeviceError::Lost { device: "a run without devices".into(), step: 0 });
        };
        let mut world = Self { first, members: Vec::new(), abort, limit, lost: false };
        for rank in ranks {
            world.members.push(member(rank, world.abort.clone())?);
        }
        debug_assert_eq!(alone, world.members.is_empty());
        Ok(world)
    }

    /// How many devices there are.
    pub fn size(&self) -> usize {
        1 + self.members.len()
    }

    /// Gives each of several devices a clock of its own; one alone uses the run's.
    pub fn start(&mut self, origin: Instant, grain: Grain) -> Result<(), DeviceError> {
        if self.members.is_empty() {
            return Ok(());
        }
        self.first.clock = Some(Clock::at(origin, grain));
        self.order(Arc::new(move |rank| {
            rank.clock = Some(Clock::at(origin, grain));
            Ok(Answer::Done)
        }));
        self.answers(Ok(Answer::Done)).map(drop)
    }

    /// Each device's own rows, in their order.
    pub fn bind_each(
        &mut self,
        purpose: Purpose,
        buffer: BufferId,
        rows: &[Arc<Vec<f32>>],
    ) -> Result<(), DeviceError> {
        for (member, rows) in self.members.iter().zip(rows.iter().skip(1)) {
            let rows = Arc::clone(rows);
            let order: Order =
                Arc::new(move |rank| rank.device.bind(purpose, buffer, &rows).map(|()| Answer::Done));
            let _ = member.orders.send(order);
        }
        let own = rows.first().map_or(Ok(()), |rows| self.first.device.bind(purpose, buffer, rows));
        self.answers(own.map(|()| Answer::Done)).map(drop)
    }

    /// The same rows to every device.
    pub fn bind(
        &mut self,
        purpose: Purpose,
        buffer: BufferId,
        rows: &Arc<Vec<f32>>,
    ) -> Result<(), DeviceError> {
        self.all(
            |rank| rank.device.bind(purpose, buffer, rows).map(|()| Answer::Done),
            || {
                let rows = Arc::clone(rows);
                Arc::new(move |rank| rank.device.bind(purpose, buffer, &rows).map(|()| Answer::Done))
            },
        )
    }

    /// See [`Device::bind_order`].
    pub fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<(), DeviceError> {
        self.all(
            |rank| rank.device.bind_order(order).map(|()| Answer::Done),
            || {
                let order = Arc::clone(order);
                Arc::new(move |rank| rank.device.bind_order(&order).map(|()| Answer::Done))
            },
        )
    }

    /// The same numbers to every device.
    pub fn write(&mut self, purpose: Purpose, to: Slice, from: &[f32]) -> Result<(), DeviceError> {
        self.all(
            |rank| rank.device.write(purpose, to, from).map(|()| Answer::Done),
            || {
                let from = from.to_vec();
                Arc::new(move |rank| rank.device.write(purpose, to, &from).map(|()| Answer::Done))
            },
        )
    }

    /// From the first device, which holds what all hold.
    pub fn read(&mut self, purpose: Purpose, from: Slice, to: &mut [f32]) -> Result<(), DeviceError> {
        self.first.device.read(purpose, from, to)
    }

    /// Sums over all devices, in their order. Those of the epoch are on the first one only.
    pub fn take_sums(&mut self, purpose: Purpose, sums: Sums, to: &mut [f64]) -> Result<(), DeviceError> {
        if sums == Sums::Epoch || self.members.is_empty() {
            return self.first.device.take_sums(purpose, sums, to);
        }
        let len = to.len();
        let take = move |rank: &mut Rank| {
            let mut own = vec![0.0; len];
            rank.device.take_sums(purpose, sums, &mut own).map(|()| Answer::Sums(own))
        };
        self.order(Arc::new(take));
        let own = take(&mut self.first);
        to.fill(0.0);
        for answer in self.answers(own)? {
            if let Answer::Sums(own) = answer {
                to.iter_mut().zip(own).for_each(|(to, own)| *to += own);
            }
        }
        Ok(())
    }

    /// Runs a block on all devices. The first one's times go to `clock` where it is alone, and its ends to `ends`.
    pub fn run(
        &mut self,
        block: &Block<'_>,
        clock: &mut Clock,
        ends: &mut Vec<f64>,
    ) -> Result<Ran, DeviceError> {
        if self.members.is_empty() {
            return self.first.device.run(block, clock, ends);
        }
        let owned = OwnedBlock::new(block);
        self.order(Arc::new(move |rank| rank.run(&owned.block(), None).map(Answer::Ran)));
        let own = self.first.run(block, Some((clock, ends))).map(Answer::Ran);
        self.first_ran(own)
    }

    /// See [`Device::settle`].
    pub fn settle(&mut self, clock: &mut Clock, ends: &mut Vec<f64>) -> Result<Ran, DeviceError> {
        if self.members.is_empty() {
            return self.first.device.settle(clock, ends);
        }
        self.order(Arc::new(|rank| match &mut rank.clock {
            Some(clock) => {
                rank.ends.clear();
                rank.device.settle(clock, &mut rank.ends).map(Answer::Ran)
            }
            None => Ok(Answer::Done),
        }));
        let own = match &mut self.first.clock {
            Some(own) => self.first.device.settle(own, ends).map(Answer::Ran),
            None => Ok(Answer::Done),
        };
        self.first_ran(own)
    }

    /// The digests of what each device holds there, in their order; see [`crate::device::digest()`].
    pub fn digests(&mut self, of: Slice) -> Result<Vec<u64>, DeviceError> {
        let digest = move |rank: &mut Rank| rank.device.digest(of).map(Answer::Digest);
        self.order(Arc::new(digest));
        let own = digest(&mut self.first);
        let digests = self.answers(own)?.into_iter();
        Ok(digests.filter_map(|a| if let Answer::Digest(d) = a { Some(d) } else { None }).collect())
    }

    /// Names, in their order.
    pub fn names(&self) -> Vec<String> {
        let own = std::iter::once(self.first.device.name().to_owned());
        own.chain(self.members.iter().map(|m| m.name.clone())).collect()
    }

    /// Ends the threads; the devices that came to an end in order.
    pub fn finish(self) -> Vec<Rank> {
        let mut ranks = vec![self.first];
        for member in self.members {
            drop(member.orders);
            // A thread that hangs in a device cannot be joined: it ends with the process.
            if !self.lost || member.thread.is_finished() {
                ranks.extend(member.thread.join().ok());
            }
        }
        ranks
    }

    fn first_ran(&mut self, own: Answered) -> Result<Ran, DeviceError> {
        match self.answers(own)?.into_iter().next() {
            Some(Answer::Ran(ran)) => Ok(ran),
            _ => Ok(Ran::default()),
        }
    }

    fn all(
        &mut self,
        own: impl FnOnce(&mut Rank) -> Answered,
        order: impl FnOnce() -> Order,
    ) -> Result<(), DeviceError> {
        if !self.members.is_empty() {
            self.order(order());
        }
        let own = own(&mut self.first);
        self.answers(own).map(drop)
    }

    fn order(&self, order: Order) {
        for member in &self.members {
            // A thread that has ended is noticed when its answer does not come.
            let _ = member.orders.send(Arc::clone(&order));
        }
    }

    /// All answers, in the order of the devices; or the one fault that led to the others.
    fn answers(&mut self, own: Answered) -> Result<Vec<Answer>, DeviceError> {
        let mut fault = None;
        let mut answers = Vec::with_capacity(self.size());
        let mut take = |answer: Answered, abort: &Abort| match answer {
            Ok(answer) => answers.push(answer),
            Err(e) => {
                abort.now();
                let cause = !matches!(e, DeviceError::Collective { source: CollectiveError::Poisoned, .. });
                if fault.as_ref().is_none_or(|(_, was_cause)| cause && !was_cause) {
                    fault = Some((e, cause));
                }
            }
        };
        take(own, &self.abort);
        for member in &self.members {
            match member.answers.recv_timeout(self.limit) {
                Ok(answer) => take(answer, &self.abort),
                Err(why) => {
                    self.lost = true;
                    let device = member.name.clone();
                    let lost = match why {
                        RecvTimeoutError::Disconnected => DeviceError::Ended { device },
                        RecvTimeoutError::Timeout => DeviceError::Stalled { device, waited: self.limit },
                    };
                    take(Err(lost), &self.abort);
                }
            }
        }
        match fault {
            Some((fault, _)) => Err(fault),
            None => Ok(answers),
        }
    }
}

fn member(mut rank: Rank, abort: Abort) -> Result<Member, DeviceError> {
    let name = rank.device.name().to_owned();
    let (orders, taken) = channel::<Order>();
    let (answer, answers) = channel();
    let body = move || {
        // However this thread ends, nobody waits for it.
        let guard = abort.guard();
        while let Ok(order) = taken.recv() {
            let answered = order(&mut rank);
            if answered.is_err() {
                abort.now();
            }
            if answer.send(answered).is_err() {
                break;
            }
        }
        guard.defuse();
        rank
    };
    let thread = thread::Builder::new().name(name.clone()).spawn(body);
    let thread = thread.map_err(|source| DeviceError::Thread { device: name.clone(), source })?;
    Ok(Member { name, orders, answers, thread })
}

/// A block that outlives the call.
struct OwnedBlock {
    hyper: Vec<Hyper>,
    work: Work,
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
