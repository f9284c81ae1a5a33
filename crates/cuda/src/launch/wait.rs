//! All waits of the host for the device. None is unlimited.
//!
//! The driver's own waits (`cuEventSynchronize`, `cuStreamSynchronize`) cannot be interrupted, so events and
//! streams are polled instead. Two limits apply. A GPU that sums with others may have to wait for them: each
//! poll checks that they are still alive, up to the limit for sums. And any GPU may hang: the worst-case time
//! of its queued work is known, so a GPU that takes longer is given up, and the run ends with an error.

use std::{
    sync::{Mutex, MutexGuard, TryLockError},
    thread,
    time::{Duration, Instant},
};

use super::{hang_timeout::MOST_S, stream::Stream};
use crate::{collective::give_way, device::DeviceError, ffi::Context};

/// How long the host polls without sleeping if it only keeps the queue short, since others may need the core.
pub const PACING: Duration = Duration::from_micros(200);
/// How long it polls without sleeping if it has nothing else to do. One sleep takes about 70 µs in total,
/// which is one percent of the time waited by then.
pub const EAGER: Duration = Duration::from_millis(7);
/// The time between two polls, as a share of what was waited: a poll takes the context's lock, which launches of other trials need.
const PAUSE: u32 = 32;
/// The sleep between two polls after that.
const ASK_AGAIN: Duration = Duration::from_micros(20);
/// How much longer a GPU may take after its sums were ended.
pub const GRACE: Duration = Duration::from_secs(1);

pub struct Wait<'a> {
    /// Given up after `limit`.
    pub context: &'a Context,
    /// How long the host polls without sleep.
    pub eager: Duration,
    /// The time after which the GPU is given up.
    pub limit: Duration,
    /// The last queued step; 0 for none.
    pub step: u64,
}

impl Wait<'_> {
    /// Polls `happened`; `still` fails when waiting has become pointless. Returns the time waited, zero if it
    /// had happened already.
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
            // Read the clock before polling: a process that was suspended for long then polls once more when it continues.
            let waited = begun.elapsed();
            if waited < self.eager {
                let next = waited + waited / PAUSE;
                give_way();
                while begun.elapsed() < next {
                    give_way();
                }
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
    /// Waits for all work of a stream, given its worst-case seconds.
    pub fn finish(&self, stream: &Stream, slowest_s: f64, doing: &str) -> Result<Duration, DeviceError> {
        let limit = self.least_wait + Duration::from_secs_f64(slowest_s.clamp(0.0, MOST_S));
        let doing = || doing.to_owned();
        let wait = Wait { context: self, eager: EAGER, limit, step: 0 };
        wait.until(|| stream.is_done(doing), |_| Ok(()), doing)
    }
}

/// One turn of a polling loop.
pub fn turn(waited: Duration) {
    if waited < EAGER { give_way() } else { thread::sleep(ASK_AGAIN) }
}

/// Locks what another trial may hold over work of the GPU. The host does not hang meanwhile; if that one's GPU hangs, it ends
/// there.
pub fn lock<'a, T>(context: &Context, shared: &'a Mutex<T>) -> MutexGuard<'a, T> {
    let begun = Instant::now();
    loop {
        match shared.try_lock() {
            Ok(own) => return own,
            Err(TryLockError::Poisoned(own)) => return own.into_inner(),
            Err(TryLockError::WouldBlock) => context.heartbeat.beat(),
        }
        turn(begun.elapsed());
    }
}

/// Whether `come` returns true within [`GRACE`].
pub fn soon(come: impl FnMut() -> bool) -> bool {
    within(GRACE, come)
}

/// Whether `come` returns true within a limit.
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
