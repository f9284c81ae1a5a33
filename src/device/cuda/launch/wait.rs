//! Waits of the host for the device: all of them are here, so that none is for ever.
//!
//! The driver's own waits (`cuEventSynchronize`, `cuStreamSynchronize`) cannot be left, so nobody calls them: events and
//! streams are asked again and again, and in between the host looks whether it still makes sense to wait. There are two
//! limits. A GPU that sums with others may stand still for their sake: whoever waits for it asks whether they are still
//! there, up to the limit of sums. And any GPU may hang: what it was given is known, and what that takes at most, with
//! much to spare; a GPU that has not done it by then is given up, and the run says so and ends.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    patience::MOST_S,
    stream::{Event, Stream},
};
use crate::{
    collective::CollectiveError,
    device::{
        DeviceError,
        cuda::{
            all_reduce::{
                communicator::{Communicator, Lost},
                peer::PeerSums,
            },
            engines::engine::Ground,
            ffi::context::Context,
        },
    },
};

/// So long the host asks again and again where it only keeps the queue short: others may need the core.
const PACING: Duration = Duration::from_micros(200);
/// So long it does where it has nothing else to do: a sleep takes some 70 µs, with what the system adds to it, which is a
/// hundredth of what was waited for by then.
const EAGER: Duration = Duration::from_millis(7);
/// Then it sleeps so long before it asks again.
const ASK_AGAIN: Duration = Duration::from_micros(20);
/// After the sums over GPUs were ended, a GPU is waited for so long before it is given up.
const GRACE: Duration = Duration::from_secs(1);

/// A wait: how long at most, and how it is said what for.
pub struct Wait<'a> {
    /// What is given up where it does not end.
    pub context: &'a Context,
    /// For how long the host does nothing but ask.
    eager: Duration,
    /// After which the GPU is given up.
    pub limit: Duration,
    /// The last step that was queued; 0 where there is none.
    pub step: u64,
}

impl Wait<'_> {
    /// Asks until it `happened`; `still`: whether it makes sense to wait any longer. How long it took: nothing, where it had
    /// happened before.
    fn until(
        &self,
        happened: impl Fn() -> Result<bool, DeviceError>,
        still: impl Fn(Duration) -> Result<(), DeviceError>,
        doing: impl Fn() -> String,
    ) -> Result<Duration, DeviceError> {
        if happened()? {
            return Ok(Duration::ZERO);
        }
        let begun = Instant::now();
        loop {
            self.context.pulse.beat();
            // Before it is asked: a process that was stopped for long asks once more when it goes on.
            let waited = begun.elapsed();
            if waited < self.eager {
                thread::yield_now();
            } else {
                still(waited)?;
                thread::sleep(ASK_AGAIN);
            }
            if happened()? {
                return Ok(begun.elapsed());
            }
            if waited > self.limit || self.context.is_given_up() {
                self.context.give_up();
                let (device, step, doing) = (self.context.name.clone(), self.step, doing());
                return Err(DeviceError::Hangs { device, step, doing, waited: self.limit });
            }
        }
    }
}

impl Context {
    /// Waits till all is done that a stream was given, which takes no longer than so many seconds on the slowest of GPUs.
    ///
    /// # Errors
    /// What the device says of the work; or that it hangs.
    pub fn finish(&self, stream: &Stream, slowest_s: f64, doing: &str) -> Result<Duration, DeviceError> {
        let limit = self.least_wait + Duration::from_secs_f64(slowest_s.clamp(0.0, MOST_S));
        let doing = || doing.to_owned();
        let wait = Wait { context: self, eager: EAGER, limit, step: 0 };
        wait.until(|| stream.is_done(doing), |_| Ok(()), doing)
    }
}

impl Communicator {
    /// Waits till the library has done what a call has begun in the background.
    ///
    /// # Errors
    /// Why the other GPUs do not come.
    pub fn settle(&self) -> Result<(), Lost> {
        let begun = Instant::now();
        loop {
            let waited = begun.elapsed();
            if !self.under_way(waited)? {
                return Ok(());
            }
            if waited < EAGER { thread::yield_now() } else { thread::sleep(ASK_AGAIN) }
        }
    }
}

/// Whether something comes about that no longer depends on anybody.
pub fn soon(come: impl FnMut() -> bool) -> bool {
    within(GRACE, come)
}

fn within(limit: Duration, mut come: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !come() {
        if begun.elapsed() > limit {
            return false;
        }
        thread::sleep(ASK_AGAIN);
    }
    true
}

impl Ground {
    /// Takes note of a block that is queued, which takes so long on the slowest of GPUs.
    pub fn give(&mut self, slowest_s: f64) {
        self.patience.give(slowest_s);
        self.context.pulse.allow(self.limit(), self.step);
    }

    /// How long what was given is waited for. What waits for other GPUs within the device ends by itself, or is ended by the
    /// host, after their own limit.
    fn limit(&self) -> Duration {
        let sums = self.others.as_ref().map(Communicator::limit);
        self.patience.limit() + sums.or(self.peers.as_ref().map(PeerSums::limit)).unwrap_or_default()
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
