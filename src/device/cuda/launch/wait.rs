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

use super::{hang_timeout::MOST_S, stream::Stream};
use crate::device::{DeviceError, cuda::ffi::Context};

/// So long the host asks again and again where it only keeps the queue short: others may need the core.
pub const PACING: Duration = Duration::from_micros(200);
/// So long it does where it has nothing else to do: a sleep takes some 70 µs, with what the system adds to it, which is a
/// hundredth of what was waited for by then.
pub const EAGER: Duration = Duration::from_millis(7);
/// Then it sleeps so long before it asks again.
const ASK_AGAIN: Duration = Duration::from_micros(20);
/// After the sums over GPUs were ended, a GPU is waited for so long before it is given up.
pub const GRACE: Duration = Duration::from_secs(1);

/// A wait: how long at most, and how it is said what for.
pub struct Wait<'a> {
    /// What is given up where it does not end.
    pub context: &'a Context,
    /// For how long the host does nothing but ask.
    pub eager: Duration,
    /// After which the GPU is given up.
    pub limit: Duration,
    /// The last step that was queued; 0 where there is none.
    pub step: u64,
}

impl Wait<'_> {
    /// Asks until it `happened`; `still`: whether it makes sense to wait any longer. How long it took: nothing, where it had
    /// happened before.
    pub fn until(
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
            self.context.heartbeat.beat();
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

/// A turn of a wait that has lasted so long.
pub fn turn(waited: Duration) {
    if waited < EAGER { thread::yield_now() } else { thread::sleep(ASK_AGAIN) }
}

/// Whether something comes about that no longer depends on anybody.
pub fn soon(come: impl FnMut() -> bool) -> bool {
    within(GRACE, come)
}

/// Whether something comes about within a limit.
pub fn within(limit: Duration, mut come: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !come() {
        if begun.elapsed() > limit {
            return false;
        }
        thread::sleep(ASK_AGAIN);
    }
    true
}
