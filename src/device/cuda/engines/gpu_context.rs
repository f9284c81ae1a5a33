//! What all engines work with: a GPU, its queue, its memory; and the waits for what it was given.

use std::{sync::Arc, time::Duration};

use crate::{
    collective::CollectiveError,
    device::{
        DeviceError,
        cuda::{
            all_reduce::{Communicator, Lost, PeerAllReduce},
            ffi::Context,
            launch::{
                Event, HangTimeout, Kernels, Stream,
                wait::{EAGER, GRACE, PACING, Wait, soon, within},
            },
            memory::DeviceMemory,
        },
    },
};

/// What all engines need. Each thing goes before what it uses.
pub struct GpuContext {
    pub others: Option<Communicator>,
    /// The way to them by a kernel of ours.
    pub peers: Option<PeerAllReduce>,
    pub stream: Stream,
    /// Parameters and what steps make.
    pub arena: DeviceMemory,
    /// Counters, then learning rates.
    pub run: DeviceMemory,
    /// Two words for the barrier of a grid.
    pub barrier: DeviceMemory,
    pub kernels: Kernels,
    pub context: Arc<Context>,
    /// The last step that was queued, from 1.
    pub step: u64,
    /// What it was given, and how long that is waited for.
    pub hang_timeout: HangTimeout,
}

impl GpuContext {
    /// Bytes of its memory that belong to the job.
    pub fn bytes(&self) -> usize {
        self.arena.bytes + self.run.bytes + self.peers.as_ref().map_or(0, PeerAllReduce::bytes)
    }

    /// An error where a sum by the peer kernel was given up.
    pub fn check_peers(&self) -> Result<(), DeviceError> {
        self.peers.as_ref().map_or(Ok(()), PeerAllReduce::fault)
    }

    /// Whether sums over devices are queued like kernels.
    pub fn queues_sums(&self) -> bool {
        self.others.is_some() || self.peers.is_some()
    }

    /// Takes note of a block that is queued, which takes so long on the slowest of GPUs.
    pub fn give(&mut self, slowest_s: f64) {
        self.hang_timeout.give(slowest_s);
        self.context.heartbeat.allow(self.limit(), self.step);
    }

    /// How long what was given is waited for. What waits for other GPUs within the device ends by itself, or is ended by the
    /// host, after their own limit.
    fn limit(&self) -> Duration {
        let sums = self.others.as_ref().map(Communicator::limit);
        self.hang_timeout.limit() + sums.or(self.peers.as_ref().map(PeerAllReduce::limit)).unwrap_or_default()
    }

    /// Asks an event until it has happened, with sleeps in between: the host keeps the queue short. How long that took:
    /// nothing, where it had happened before.
    ///
    /// # Errors
    /// What the device says of the work before the event; why the other GPUs do not come; or that it hangs.
    pub fn until(&self, event: &Event, doing: impl Fn() -> String) -> Result<Duration, DeviceError> {
        self.ask(PACING, || event.happened(&doing), &doing)
    }

    /// Waits for an event: the host has nothing else to do.
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
        let still = |waited| match &self.others {
            Some(others) => others.under_way(waited).map(drop).map_err(|lost| self.lost(lost, doing())),
            None => self.peers_still_there(waited),
        };
        let waited = wait.until(happened, still, doing)?;
        self.together(doing).and_then(|()| self.check_peers()).map(|()| waited)
    }

    /// Waits a little for a copy off a GPU that was given up.
    ///
    /// # Errors
    /// Where that does not come, either.
    pub fn rescued(&self, copies: &Stream, doing: &str) -> Result<(), DeviceError> {
        let doing = || doing.to_owned();
        if soon(|| !matches!(copies.is_done(doing), Ok(false))) && copies.is_done(doing)? {
            return Ok(());
        }
        let device = self.context.name.clone();
        Err(DeviceError::Hangs { device, step: self.step, doing: doing(), waited: GRACE })
    }

    /// Refuses to go on where the sums over GPUs were ended: what they have made since means nothing.
    ///
    /// # Errors
    /// That another GPU has failed.
    pub fn together(&self, doing: impl FnOnce() -> String) -> Result<(), DeviceError> {
        match &self.others {
            Some(others) if others.ended() => Err(self.lost(Lost::Ended, doing())),
            _ => Ok(()),
        }
    }

    /// A sum by the peer kernel leaves by itself when it is told to; what else its GPU was given may hang.
    fn peers_still_there(&self, waited: Duration) -> Result<(), DeviceError> {
        match &self.peers {
            Some(peers) if peers.ended() && waited > GRACE => Err(self.lost(Lost::Ended, String::new())),
            _ => Ok(()),
        }
    }

    /// What it means for this GPU that the others are lost.
    pub fn lost(&self, lost: Lost, doing: String) -> DeviceError {
        let device = self.context.name.clone();
        match lost {
            Lost::Ended => {
                DeviceError::Collective { device, step: self.step, source: CollectiveError::Poisoned }
            }
            Lost::Why(why) => DeviceError::Broken { device, doing, why },
        }
    }

    /// Waits till all is done that this stream and `copies` were given: what it uses is about to go. A GPU that does not
    /// end, not even when its sums were ended, is given up: what it holds is left to the end of the process.
    pub fn drain(&self, copies: &Stream) {
        let doing = || "ending".to_owned();
        if !self.context.enter_to_free() {
            return;
        }
        for stream in [&self.stream, copies] {
            // An error was told by whoever came upon it before.
            if self.ask(PACING, || stream.is_done(doing), &doing).is_ok() {
                continue;
            }
            if let Some(others) = &self.others {
                others.abort();
            }
            let ended = || self.context.is_given_up() || !matches!(stream.is_done(doing), Ok(false));
            if !soon(ended) {
                self.context.give_up();
            }
            if self.context.is_given_up() {
                return;
            }
        }
    }

    /// Where sums over GPUs were ended, waits till the library has let go of the streams, which are about to go. It may wait
    /// in turn till no graph holds a sum.
    pub fn leave_others(&self) {
        if let Some(others) = self.others.as_ref().filter(|others| others.ended())
            && !within(others.limit(), || others.is_over())
        {
            self.context.give_up();
        }
    }
}
