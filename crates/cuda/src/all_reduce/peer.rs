//! Sums over GPUs that can access each other's memory, with this project's own kernel (kernels/peer.cu): one
//! launch on each GPU, which may be part of a graph, without any wait of the host. All GPUs belong to one
//! process, so they share an address space.
//!
//! The kernel returns if another GPU does not arrive within the limit or the host asks it to stop; the host
//! reads the reason at its next check.

mod probe;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::access;
use crate::{
    collective::{Abort, CollectiveError},
    device::DeviceError,
    ffi::{Context, Gpu},
    launch::{Shape, Stream, arguments, blocks_at_once, launch},
    memory::{DeviceMemory, Pinned},
};

/// The most GPUs that the kernel supports.
pub const MOST_PEERS: usize = 8;

const THREADS: u32 = 256;
/// The most blocks of a sum. vLLM found about 36 to be best, with twice the threads (csrc/custom_all_reduce.cuh).
const MOST_BLOCKS: usize = 32;
/// `STOPPED` of kernels/peer.cu.
const STOPPED: u64 = 0xff;
const WORD: usize = size_of::<u64>();
/// Words before the elements: each block's own count of calls, then those of every rank.
const WORDS: usize = MOST_BLOCKS * (1 + MOST_PEERS);

/// `Peers` of kernels/peer.cu.
#[derive(Clone, Copy)]
#[repr(C)]
struct Peers {
    laid: [u64; MOST_PEERS],
    arrived: [u64; MOST_PEERS],
    calls: u64,
    words: u64,
    room: u64,
    rank: i32,
    ranks: i32,
}

const _: () = assert!(size_of::<Peers>() == 160, "kernels/peer.cu has the same");

// SAFETY: the struct consists of integers without padding.
unsafe impl bytemuck::NoUninit for Peers {}

struct Peer {
    context: Arc<Context>,
    /// The words, then two buffers that the other GPUs read, used alternately.
    memory: DeviceMemory,
    table: DeviceMemory,
    words: Words,
}

/// Two words, stop and failure, which the device and several host threads access.
struct Words(Pinned);

// SAFETY: they are only used as atomic integers.
unsafe impl Sync for Words {}

impl Words {
    fn get(&self, number: usize) -> Option<&AtomicU64> {
        let at = self.0.pointer(number * WORD, WORD)?;
        // SAFETY: within the allocation, aligned since that is page-aligned, and never accessed in any other way.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    fn stopped(&self) -> bool {
        self.get(0).is_some_and(|word| word.load(Ordering::Acquire) != 0)
    }

    fn stop(&self) {
        if let Some(word) = self.get(0) {
            word.store(1, Ordering::Release);
        }
    }

    /// The step and the missing rank, as the kernel wrote them.
    fn fault(&self) -> Option<(u64, u64)> {
        let fault = self.get(1).map_or(0, |word| word.load(Ordering::Acquire));
        (fault != 0).then_some((fault >> 8, fault & 0xff))
    }
}

/// What the GPUs of a run share. All their memory stays allocated as long as any of them may sum.
struct Shared {
    members: Vec<Peer>,
    room: usize,
    blocks: u32,
    limit: Duration,
}

pub struct PeerAllReduce {
    shared: Arc<Shared>,
    rank: usize,
}

/// Connects GPUs, in rank order, for sums of at most `elements`. Also returns an [`Abort`] that ends all
/// their waits. Each GPU waits for the others at most `limit`.
pub fn connect(
    gpus: &[Gpu],
    elements: usize,
    limit: Duration,
) -> Result<(Vec<PeerAllReduce>, Abort), String> {
    let twice =
        gpus.iter().enumerate().find(|(i, gpu)| gpus[..*i].iter().any(|other| other.uuid == gpu.uuid));
    if let Some((_, gpu)) = twice {
        return Err(format!("`gpu:{}` would have to wait for itself", gpu.ordinal));
    }
    if gpus.len() > MOST_PEERS {
        return Err(format!("there are {} GPUs, and a peer kernel is for {MOST_PEERS} at most", gpus.len()));
    }
    let words = |e: DeviceError| e.to_string();
    let contexts = gpus.iter().map(|gpu| Context::open(gpu.clone())).collect::<Result<Vec<_>, _>>();
    let contexts = contexts.map_err(words)?;
    access::enable(&contexts)?;
    connected(&contexts, elements, limit).map_err(words)
}

fn connected(
    contexts: &[Arc<Context>],
    elements: usize,
    limit: Duration,
) -> Result<(Vec<PeerAllReduce>, Abort), DeviceError> {
    let mut blocks = elements.div_ceil(4 * THREADS as usize).clamp(1, MOST_BLOCKS);
    for context in contexts {
        context.enter()?;
        // All blocks must run at the same time, on every GPU. This query also loads the kernel.
        let at_once = blocks_at_once(context, context.peer_sum()?, THREADS, 0)?;
        blocks = blocks.min(usize::try_from(at_once).unwrap_or(0));
    }
    let shared = Arc::new(Shared::new(contexts, elements.next_multiple_of(4), blocks as u32, limit)?);
    let rank = |rank| PeerAllReduce { shared: Arc::clone(&shared), rank };
    let mut ranks: Vec<_> = (0..contexts.len()).map(rank).collect();
    probe::all(&mut ranks)?;
    Ok((ranks, Abort::new(move || shared.stop())))
}

impl Shared {
    fn new(
        contexts: &[Arc<Context>],
        room: usize,
        blocks: u32,
        limit: Duration,
    ) -> Result<Self, DeviceError> {
        let what = "sums over GPUs";
        let member = |context: &Arc<Context>| {
            context.enter()?;
            Ok(Peer {
                context: Arc::clone(context),
                memory: DeviceMemory::new(context, WORDS * WORD + 2 * room * size_of::<f32>(), what)?,
                table: DeviceMemory::new(context, size_of::<Peers>(), what)?,
                words: Words(Pinned::new(context, 2 * WORD, what)?),
            })
        };
        let members = contexts.iter().map(member).collect::<Result<Vec<_>, DeviceError>>()?;
        let of_all = |offset: usize| {
            let mut all = [0; MOST_PEERS];
            all.iter_mut().zip(&members).for_each(|(at, member)| *at = member.memory.at + offset as u64);
            all
        };
        for (rank, member) in members.iter().enumerate() {
            let table = Peers {
                laid: of_all(WORDS * WORD),
                arrived: of_all(MOST_BLOCKS * WORD),
                calls: member.memory.at,
                words: member.words.0.at(),
                room: room as u64,
                rank: rank as i32,
                ranks: members.len() as i32,
            };
            member.context.enter()?;
            let stream = Stream::new(&member.context)?;
            stream.fill(member.memory.at, 0, WORDS * WORD)?;
            let mut staging = Pinned::new(&member.context, size_of::<Peers>(), what)?;
            staging.write(0, &[table]);
            stream.upload(member.table.at, &staging, 0, size_of::<Peers>())?;
            // Finish now: the others use this memory before this GPU has a stream of its own.
            member.context.finish(&stream, 0.0, "connecting it with the others")?;
        }
        Ok(Self { members, room, blocks, limit })
    }

    fn stop(&self) {
        self.members.iter().for_each(|member| member.words.stop());
    }
}

impl PeerAllReduce {
    pub fn bytes(&self) -> usize {
        let own = &self.shared.members[self.rank];
        own.memory.bytes + own.table.bytes
    }

    /// Queues the sum over all GPUs of `elements` at `at` in this GPU's memory, in place. Every GPU must
    /// queue the same sums in the same order. `run` is the address of the step's number, or 0.
    pub fn all_reduce(&self, stream: &Stream, at: u64, elements: usize, run: u64) -> Result<(), DeviceError> {
        self.queue(stream, at, elements, run, self.shared.limit)
    }

    fn queue(
        &self,
        stream: &Stream,
        at: u64,
        elements: usize,
        run: u64,
        limit: Duration,
    ) -> Result<(), DeviceError> {
        let Peer { context, table, .. } = &self.shared.members[self.rank];
        if elements > self.shared.room {
            let why = format!("a sum of {elements} numbers finds no room for more than {}", self.shared.room);
            return Err(context.unusable(why));
        }
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let arguments = arguments![at, elements as u64, table.at, run, limit_ns];
        let shape = Shape { blocks: self.shared.blocks, threads: THREADS, shared_bytes: 0, together: true };
        // SAFETY: (float*, u64, const Peers*, const Run*, u64); the caller owns the elements, and the memory
        // named in the table lives as long as `self`.
        unsafe { launch(context, stream, context.peer_sum()?, shape, arguments, "peer_sum") }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.shared.limit
    }

    /// Whether its sums were ended because another GPU failed.
    pub fn ended(&self) -> bool {
        self.shared.members[self.rank].words.stopped()
    }

    /// Fails if a sum was given up.
    pub fn fault(&self) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let own = &shared.members[self.rank];
        let Some((step, whom)) = own.words.fault() else { return Ok(()) };
        let missing = usize::try_from(whom).ok().and_then(|whom| shared.members.get(whom.checked_sub(1)?));
        let source = match missing {
            Some(member) if whom != STOPPED => {
                let device = member.context.name.clone();
                CollectiveError::Stalled { device, waited: shared.limit }
            }
            _ => CollectiveError::Poisoned,
        };
        Err(DeviceError::Collective { device: own.context.name.clone(), step, source })
    }
}
