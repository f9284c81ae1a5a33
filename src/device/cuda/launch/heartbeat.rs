//! Whether calls of the driver come back. One that does not cannot be left, and the thread that made it cannot be ended:
//! somebody else must see it.
//!
//! Whoever calls the driver counts, and so does every turn of a wait: an addition, and no look at a clock. A thread of its
//! own looks now and then whether the count still rises while the host is inside; for how long it may not is what the GPU
//! was given ([`super::hang_timeout::HangTimeout`]), since a call may wait till there is room in a queue.

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

/// The thread looks so often, or four times within what is waited for at least.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Heartbeat {
    calls: AtomicU64,
    inside: AtomicBool,
    step: AtomicU64,
    allowed_ms: AtomicU64,
}

/// The host is within what may call the driver, until this is dropped.
pub struct CallGuard(Arc<Heartbeat>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.inside.store(false, Ordering::Relaxed);
    }
}

impl Heartbeat {
    /// A call came back, or a wait has taken a turn.
    #[inline]
    pub fn beat(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// From now on calls may be made.
    pub fn enter(self: &Arc<Self>) -> CallGuard {
        self.beat();
        self.inside.store(true, Ordering::Relaxed);
        CallGuard(Arc::clone(self))
    }

    /// A call may take so long; `step` is the last one that was queued.
    pub fn allow(&self, limit: Duration, step: u64) {
        self.allowed_ms.store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
    }
}

/// The thread that looks; it ends when this is dropped.
pub struct Watch(#[expect(dead_code, reason = "its end is the message")] Sender<()>);

impl Watch {
    /// Looks whether a GPU's calls come back; of one that does not, `stuck` is told.
    ///
    /// # Errors
    /// Where the system gives no thread.
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
            // Looks are counted, and no time: a process that was stopped for long goes on where it was.
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
