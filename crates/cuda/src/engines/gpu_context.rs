//! What all engines share: a GPU, its stream and its memory; and all waits for it.

use std::{sync::Arc, time::Duration};

use crate::{
    all_reduce::{Communicator, Lost, PeerAllReduce},
    device::DeviceError,
    ffi::Context,
    launch::{
        Event, HangTimeout, SideStream, Stream,
        wait::{EAGER, GRACE, PACING, Wait, soon, within},
    },
    memory::DeviceMemory,
    op::{Hyper, PARTIAL_BYTES, RunRecord},
};

/// An all-reduce over GPUs that is queued like a kernel.
pub enum QueuedSums {
    Nccl(Communicator),
    /// By the peer kernel.
    Peers(Box<PeerAllReduce>),
}

/// Fields are dropped in this order, each before what it uses.
pub struct GpuContext {
    pub sums: Option<QueuedSums>,
    /// Where NCCL sums, if some sums start during the backward pass: all of them, so that every GPU has them in one order.
    pub side: Option<SideStream>,
    pub stream: Stream,
    /// Parameters and the intermediate results of steps.
    pub arena: DeviceMemory,
    /// The counters, followed by the learning rates.
    pub run: DeviceMemory,
    /// The word of the grid barrier.
    pub barrier: DeviceMemory,
    /// The partial sums of the blocks of a launch.
    pub partial: DeviceMemory,
    pub context: Arc<Context>,
    /// The last step that was queued, from 1.
    pub step: u64,
    /// How long its queued work may take before it counts as hanging.
    pub hang_timeout: HangTimeout,
}

impl GpuContext {
    /// Allocates memory for an arena and for the learning rates of a block.
    pub fn new(context: Arc<Context>, arena_bytes: usize, most_steps: usize) -> Result<Self, DeviceError> {
        let stream = Stream::new(&context)?;
        let zeros = |bytes, what| zeros(&context, &stream, bytes, what);
        Ok(Self {
            sums: None,
            side: None,
            arena: zeros(arena_bytes, "parameters and activations")?,
            run: zeros(size_of::<RunRecord>() + most_steps * size_of::<Hyper>(), "learning rates")?,
            barrier: zeros(size_of::<u32>(), "the barrier of a grid")?,
            partial: zeros(PARTIAL_BYTES, "sums over blocks")?,
            step: 0,
            hang_timeout: HangTimeout::new(context.least_wait),
            stream,
            context,
        })
    }

    /// Has sums over GPUs queued; NCCL's may start early.
    pub fn sum_by(&mut self, sums: QueuedSums, starts_early: bool) -> Result<(), DeviceError> {
        if starts_early && matches!(sums, QueuedSums::Nccl(_)) {
            self.side = Some(SideStream::new(&self.context)?);
        }
        self.sums = Some(sums);
        Ok(())
    }

    /// Bytes of GPU memory that this job uses.
    pub fn bytes(&self) -> usize {
        let own = self.arena.bytes + self.run.bytes + self.partial.bytes;
        own + self.peers().map_or(0, PeerAllReduce::bytes)
    }

    /// Fails if the peer kernel gave up a sum.
    pub fn check_peers(&self) -> Result<(), DeviceError> {
        self.peers().map_or(Ok(()), PeerAllReduce::fault)
    }

    pub fn nccl(&self) -> Option<&Communicator> {
        match &self.sums {
            Some(QueuedSums::Nccl(nccl)) => Some(nccl),
            _ => None,
        }
    }

    pub fn peers(&self) -> Option<&PeerAllReduce> {
        match &self.sums {
            Some(QueuedSums::Peers(peers)) => Some(peers),
            _ => None,
        }
    }

    /// Records that a block was queued, with its worst-case time in seconds.
    pub fn give(&mut self, slowest_s: f64) {
        self.hang_timeout.give(slowest_s);
        self.context.heartbeat.allow(self.limit(), self.step);
    }

    /// How long queued work may take. A wait for other GPUs has its own limit, after which it ends or is ended.
    fn limit(&self) -> Duration {
        let sums = match &self.sums {
            Some(QueuedSums::Nccl(nccl)) => nccl.limit(),
            Some(QueuedSums::Peers(peers)) => peers.limit(),
            None => Duration::ZERO,
        };
        self.hang_timeout.limit() + sums
    }

    /// Waits for an event, sleeping between polls: the host only keeps the queue short. Returns the time
    /// waited; zero if the event had already happened.
    pub fn until(&self, event: &Event, doing: impl Fn() -> String) -> Result<Duration, DeviceError> {
        self.ask(PACING, || event.happened(&doing), &doing)
    }

    /// Waits for an event with eager polling: the host has nothing else to do.
    ///
    /// # Errors
    /// As for [`Self::until`].
    pub fn wait(&self, event: &Event, doing: impl Fn() -> String) -> Result<Duration, DeviceError> {
        self.ask(EAGER, || event.happened(&doing), &doing)
    }

    fn ask(
        &self,
        eager: Duration,
        happened: impl Fn() -> Result<bool, DeviceError>,
        doing: &impl Fn() -> String,
    ) -> Result<Duration, DeviceError> {
        let wait = Wait { context: &self.context, eager, limit: self.limit(), step: self.step };
        let still = |waited| match &self.sums {
            Some(QueuedSums::Nccl(nccl)) => {
                nccl.under_way(waited).map(drop).map_err(|lost| self.lost(lost, doing()))
            }
            // The peer kernel returns when asked to stop, but other work of the GPU may still hang.
            Some(QueuedSums::Peers(peers)) if peers.ended() && waited > GRACE => {
                Err(self.lost(Lost::Ended, String::new()))
            }
            _ => Ok(()),
        };
        let waited = wait.until(happened, still, doing)?;
        self.together(doing).and_then(|()| self.check_peers()).map(|()| waited)
    }

    /// Waits briefly for a copy from a GPU that was given up as hanging.
    pub fn rescued(&self, copies: &Stream, doing: &str) -> Result<(), DeviceError> {
        let doing = || doing.to_owned();
        if soon(|| !matches!(copies.is_done(doing), Ok(false))) && copies.is_done(doing)? {
            return Ok(());
        }
        let device = self.context.name.clone();
        Err(DeviceError::Hangs { device, step: self.step, doing: doing(), waited: GRACE })
    }

    /// Fails if the sums over GPUs were ended: all results since then are undefined.
    pub fn together(&self, doing: impl FnOnce() -> String) -> Result<(), DeviceError> {
        match self.nccl() {
            Some(nccl) if nccl.ended() => Err(self.lost(nccl.cause(), doing())),
            _ => Ok(()),
        }
    }

    /// This GPU's error when the other GPUs are lost.
    pub fn lost(&self, lost: Lost, doing: String) -> DeviceError {
        lost.into_error(self.context.name.clone(), self.step, doing)
    }

    /// Waits for its streams and `copies` before their memory is freed. A GPU that does not finish, even
    /// after its sums were ended, is given up: its memory is not freed until the process ends. Returns whether all work
    /// is complete, without an error.
    pub fn drain(&self, copies: &Stream) -> bool {
        let doing = || "ending".to_owned();
        if !self.context.enter_to_free() {
            return false;
        }
        let mut is_idle = true;
        let side = self.side.as_ref().map(SideStream::stream);
        for stream in [&self.stream, copies].into_iter().chain(side) {
            // Any error was already reported where it first occurred.
            if self.ask(PACING, || stream.is_done(doing), &doing).is_ok() {
                continue;
            }
            is_idle = false;
            if let Some(nccl) = self.nccl() {
                nccl.abort();
            }
            let ended = || self.context.is_given_up() || !matches!(stream.is_done(doing), Ok(false));
            if !soon(ended) {
                self.context.give_up();
            }
            if self.context.is_given_up() {
                return false;
            }
        }
        is_idle
    }

    /// After sums over GPUs were ended, waits until NCCL has released the streams. NCCL in turn may wait
    /// until no graph contains a sum.
    pub fn leave_others(&self) {
        if let Some(nccl) = self.nccl().filter(|nccl| nccl.ended())
            && !within(nccl.grace(), || nccl.is_over())
        {
            self.context.give_up();
        }
    }
}

fn zeros(
    context: &Arc<Context>,
    stream: &Stream,
    bytes: usize,
    what: &str,
) -> Result<DeviceMemory, DeviceError> {
    let memory = DeviceMemory::new(context, bytes, what)?;
    stream.fill(memory.at, 0, bytes)?;
    Ok(memory)
}
