//! Detects a driver call that never returns. Neither the call nor its thread can be ended, so another thread has to notice.
//!
//! Every driver call and every turn of a wait increments a counter, without reading a clock. The watch thread checks from time
//! to time whether the counter still rises while the host may be inside a call. Its limit is the same as for the queued work
//! ([`super::hang_timeout::HangTimeout`]), since a call may wait until there is room in a queue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use crate::device::DeviceError;

/// The longest time between two checks; at most a quarter of the shortest wait.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Heartbeat {
    calls: AtomicU64,
    inside: AtomicBool,
    step: AtomicU64,
    allowed_ms: AtomicU64,
}

/// While this exists, the host may be inside a driver call.
pub struct CallGuard(Arc<Heartbeat>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.inside.store(false, Ordering::Relaxed);
    }
}

impl Heartbeat {
    /// Records that a call returned, or that a wait took a turn.
    #[inline]
    pub fn beat(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Allows driver calls until the guard is dropped.
    pub fn enter(self: &Arc<Self>) -> CallGuard {
        self.beat();
        self.inside.store(true, Ordering::Relaxed);
        CallGuard(Arc::clone(self))
    }

    /// Sets the limit for a call; `step` is the last one queued.
    pub fn allow(&self, limit: Duration, step: u64) {
        self.allowed_ms.store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
    }
}

/// The watch thread; it ends when this is dropped.
pub struct Watch(#[expect(dead_code, reason = "its end is the message")] Sender<()>);

impl Watch {
    /// Watches the calls for one GPU. `stuck` gets the error if a call does not return.
    pub fn start(
        device: String,
        heartbeat: Arc<Heartbeat>,
        least: Duration,
        stuck: impl FnOnce(DeviceError) + Send + 'static,
    ) -> Result<Self, DeviceError> {
        let (end, ended) = channel::<()>();
        let look = LOOK.min(least / 4);
        let name = device.clone();
        let body = move || {
            // Count checks instead of time, so that a process that was suspended for long continues normally.
            let (mut seen, mut looks) = (0, 0u32);
            while ended.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
                let calls = heartbeat.calls.load(Ordering::Relaxed);
                if !heartbeat.inside.load(Ordering::Relaxed) || calls != seen {
                    (seen, looks) = (calls, 0);
                    continue;
                }
                looks += 1;
                let waited = look * looks;
                if waited > least.max(Duration::from_millis(heartbeat.allowed_ms.load(Ordering::Relaxed))) {
                    let doing = "in a call of the driver".to_owned();
                    let step = heartbeat.step.load(Ordering::Relaxed);
                    return stuck(DeviceError::Hangs { device, step, doing, waited });
                }
            }
        };
        let started = thread::Builder::new().name("watch".into()).spawn(body);
        started.map_err(|source| DeviceError::Thread { device: name, source })?;
        Ok(Self(end))
    }
}
