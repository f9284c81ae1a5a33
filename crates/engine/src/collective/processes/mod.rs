//! The processes of a job, on one or more hosts: messages between them, heartbeats, and what ends a wait.
//!
//! Rank 0 leads: every other rank exchanges heartbeats with it. A rank that is killed, frozen or cut off
//! sends none, so nobody waits for it longer than [`ProcessGroup::limit`], however long a step takes.

mod early;
mod exchange;
mod heartbeat;
#[cfg(test)]
pub mod memory;
#[allow(unsafe_code)]
mod mpi;
mod ranks;
mod rehearsal;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub use exchange::Traffic;
pub use ranks::RankSum;

use super::{Abort, CollectiveError, give_way};
use crate::host::{self, Launched, lock};

/// How long a rank may be silent, if the spec does not say.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of one message; a longer frame is sent as several.
const MESSAGE: usize = 1 << 28;

/// Turns of a wait that spin before it yields, and turns before it sleeps.
const SPINS: u32 = 200;
const YIELDS: u32 = 20_000;

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// From rank 0.
    Command = 1,
    /// To rank 0.
    Answer = 2,
    Heartbeat = 3,
    Gradients = 4,
    Sums = 5,
}

/// Moves bytes between ranks. Messages with the same tag between two ranks arrive in order.
pub trait Transport: Send + Sync {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;
    /// Its name and version.
    fn name(&self) -> &str;
    fn send(&self, to: usize, tag: Tag, bytes: Vec<u8>) -> Box<dyn Transfer>;
    /// Receives a message of exactly this length.
    fn receive(&self, from: usize, tag: Tag, len: usize) -> Box<dyn Transfer>;
    /// The number of the call that some thread is executing now. Never waits.
    fn call(&self) -> Option<u64>;
    /// Leaves the job; waits until all ranks do.
    fn finish(&self);
}

/// A message that is being sent or received.
pub trait Transfer: Send {
    /// The message's bytes once it is complete. Never waits.
    fn poll(&mut self) -> Result<Option<Vec<u8>>, String>;
}

/// How a sum waits for its messages: all ranks reach it at about the same time, and an abort ends the wait.
struct SumWait<'a> {
    limit: Duration,
    /// Whether the step waits for the sum. If not, its threads need the cores.
    is_urgent: &'a AtomicBool,
}

/// This process as a member of its job.
pub struct ProcessGroup {
    transport: Box<dyn Transport>,
    /// Names such as `rank:1@h2`, by rank.
    names: OnceLock<Vec<String>>,
    /// The rank that is gone, and why.
    lost: OnceLock<(String, String)>,
    is_poisoned: AtomicBool,
    /// Set when a call of the transport does not return.
    is_stuck: AtomicBool,
    /// In milliseconds.
    limit: AtomicU64,
    /// The number of the signal that this process got, or 0.
    signal: Arc<AtomicUsize>,
    /// The step of the last sum that this rank began, from 1.
    pub step: AtomicU64,
    /// Set when this rank leaves the job.
    is_over: AtomicBool,
    heartbeat: Mutex<Option<JoinHandle<()>>>,
}

impl ProcessGroup {
    /// Joins the job. `signal` is where the process stores the signal that asks it to end.
    ///
    /// # Errors
    /// If MPI cannot be used, or a rank was lost before all had joined.
    pub fn join(launched: Launched, signal: &Arc<AtomicUsize>) -> Result<Arc<Self>, String> {
        Self::over(Box::new(mpi::Mpi::join(launched)?), signal, &host::name())
    }

    fn over(
        transport: Box<dyn Transport>,
        signal: &Arc<AtomicUsize>,
        host: &str,
    ) -> Result<Arc<Self>, String> {
        let world = Arc::new(Self::alone(transport, signal));
        world.set_limit(HEARTBEAT_TIMEOUT);
        let heartbeat = heartbeat::start(&world).map_err(|e| format!("a thread cannot be started: {e}"))?;
        let names = world.exchange_names(host).map_err(|e| e.to_string())?;
        let _ = world.names.set(names); // set only here
        *lock(&world.heartbeat) = Some(heartbeat);
        Ok(world)
    }

    /// A group that does not know the other ranks' names yet.
    fn alone(transport: Box<dyn Transport>, signal: &Arc<AtomicUsize>) -> Self {
        Self {
            transport,
            names: OnceLock::new(),
            lost: OnceLock::new(),
            is_poisoned: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            limit: AtomicU64::new(0),
            signal: Arc::clone(signal),
            step: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            heartbeat: Mutex::default(),
        }
    }

    /// Tells every rank the hosts of the others.
    fn exchange_names(&self, host: &str) -> Result<Vec<String>, CollectiveError> {
        let own = format!("rank:{}@{host}", self.rank());
        if self.rank() > 0 {
            self.send(0, Tag::Answer, own.into_bytes())?;
            let all = self.receive(0, Tag::Command)?;
            return Ok(String::from_utf8_lossy(&all).split('\n').map(str::to_owned).collect());
        }
        let mut names = vec![own];
        for rank in 1..self.size() {
            names.push(String::from_utf8_lossy(&self.receive(rank, Tag::Answer)?).into_owned());
        }
        for rank in 1..self.size() {
            self.send(rank, Tag::Command, names.join("\n").into_bytes())?;
        }
        Ok(names)
    }

    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    pub fn size(&self) -> usize {
        self.transport.size()
    }

    /// The transport's name and version.
    pub fn transport(&self) -> &str {
        self.transport.name()
    }

    /// Names such as `rank:1@h2`, by rank; empty until all have joined.
    pub fn names(&self) -> &[String] {
        self.names.get().map_or(&[], Vec::as_slice)
    }

    pub fn name_of(&self, rank: usize) -> String {
        self.names().get(rank).cloned().unwrap_or_else(|| format!("rank:{rank}"))
    }

    /// How long a rank may be silent.
    pub fn limit(&self) -> Duration {
        Duration::from_millis(self.limit.load(Ordering::Relaxed))
    }

    pub fn set_limit(&self, limit: Duration) {
        self.limit.store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The signal that asks this process to end, or 0.
    pub fn signal(&self) -> &Arc<AtomicUsize> {
        &self.signal
    }

    /// Releases all ranks that wait for each other: those of this process at once, the others with the next
    /// heartbeat.
    pub fn abort(self: &Arc<Self>) -> Abort {
        let world = Arc::clone(self);
        Abort::new(move || world.is_poisoned.store(true, Ordering::Release))
    }

    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Acquire)
    }

    /// Records that a rank is gone. Only the first one is kept, since it causes all that follows.
    fn lose(&self, rank: String, why: String) {
        let _ = self.lost.set((rank, why)); // another one was the first
    }

    /// The error that names the first rank that was lost.
    pub fn lost(&self) -> Option<CollectiveError> {
        let (rank, why) = self.lost.get()?;
        Some(CollectiveError::Gone { rank: rank.clone(), why: why.clone() })
    }

    /// What ends every wait for other ranks: one is gone, or one has failed.
    pub fn verdict(&self) -> Option<CollectiveError> {
        self.lost().or_else(|| self.is_poisoned().then_some(CollectiveError::Poisoned))
    }

    /// Whether nothing can be sent any more, since a call does not return.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Sends a frame of any length, and waits until it has been sent.
    ///
    /// # Errors
    /// If a rank is gone.
    pub fn send(&self, to: usize, tag: Tag, bytes: Vec<u8>) -> Result<(), CollectiveError> {
        let head = (bytes.len() as u64).to_le_bytes().to_vec();
        let mut parts = vec![self.transport.send(to, tag, head)];
        if bytes.len() <= MESSAGE {
            parts.push(self.transport.send(to, tag, bytes));
        } else {
            parts.extend(bytes.chunks(MESSAGE).map(|part| self.transport.send(to, tag, part.to_vec())));
        }
        parts.into_iter().try_for_each(|part| self.wait(part, to, None).map(drop))
    }

    /// The next frame from a rank. It may take long to arrive, so the wait yields its core and then sleeps.
    ///
    /// # Errors
    /// If a rank is gone.
    pub fn receive(&self, from: usize, tag: Tag) -> Result<Vec<u8>, CollectiveError> {
        let head = self.wait(self.transport.receive(from, tag, 8), from, None)?;
        let len = head.try_into().map_or(0, u64::from_le_bytes) as usize;
        if len <= MESSAGE {
            return self.wait(self.transport.receive(from, tag, len), from, None);
        }
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let part = self.transport.receive(from, tag, MESSAGE.min(len - bytes.len()));
            bytes.extend(self.wait(part, from, None)?);
        }
        Ok(bytes)
    }

    /// Waits for a message to or from rank `other`, which may be part of a sum.
    fn wait(
        &self,
        mut transfer: Box<dyn Transfer>,
        other: usize,
        sum: Option<SumWait<'_>>,
    ) -> Result<Vec<u8>, CollectiveError> {
        let (mut turns, mut begun) = (0_u32, None);
        // Ranks other than 0 have nothing else to do, so they yield for longer before they sleep.
        let yields = if self.rank() > 0 { YIELDS } else { SPINS };
        loop {
            match transfer.poll() {
                Ok(Some(bytes)) => return Ok(bytes),
                Ok(None) => {}
                Err(why) => self.lose(self.name_of(other), format!("its connection failed ({why})")),
            }
            if let Some(gone) = self.lost() {
                return Err(gone);
            }
            turns = turns.saturating_add(1);
            match &sum {
                Some(_) if self.is_poisoned() => return Err(CollectiveError::Poisoned),
                Some(sum) if !sum.is_urgent.load(Ordering::Relaxed) => {
                    thread::sleep(Duration::from_micros(50));
                }
                Some(_) if turns < SPINS => std::hint::spin_loop(),
                Some(_) if turns < YIELDS => give_way(),
                Some(_) => thread::sleep(Duration::from_micros(50)),
                None if turns < yields => give_way(),
                None => thread::sleep(Duration::from_micros(200)),
            }
            if let Some(&SumWait { limit, .. }) = sum.as_ref().filter(|_| turns.is_multiple_of(256))
                && begun.get_or_insert_with(Instant::now).elapsed() > limit
            {
                return Err(CollectiveError::Stalled { device: self.name_of(other), waited: limit });
            }
        }
    }

    /// Leaves the job, which waits until all ranks leave. If a rank is gone, does not wait for the others.
    pub fn finish(&self) {
        self.is_over.store(true, Ordering::Release);
        let heartbeat = lock(&self.heartbeat).take();
        let has_ended = heartbeat.is_none_or(|heartbeat| self.lost().is_none() && heartbeat.join().is_ok());
        if self.lost().is_some() || !has_ended {
            return;
        }
        self.transport.finish();
    }
}
