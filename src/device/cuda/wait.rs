//! Waits of the host for the device: all of them are here, so that none is for ever.
//!
//! A GPU that sums with others over NCCL may stand still for their sake: a sum ends when all have come to it. So whoever
//! waits for such a GPU asks its events, and in between whether the others are still there, up to a limit. A GPU alone
//! has no such ties: there the driver's own wait is the quickest, where the host has nothing else to do.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    engine::Ground,
    nccl::Lost,
    stream::{Event, Stream},
};
use crate::{collective::CollectiveError, device::DeviceError};

/// So long the host asks again and again; a sleep is longer than a short block.
const EAGER: Duration = Duration::from_micros(200);
/// Then it sleeps so long before it asks again.
const ASK_AGAIN: Duration = Duration::from_micros(20);
/// After the sums over GPUs were ended, a GPU is waited for so long before it is given up.
const GRACE: Duration = Duration::from_secs(1);

impl Ground {
    /// Asks an event until it has happened, with no wait of the driver's. How long that took: nothing, where it had
    /// happened before.
    ///
    /// # Errors
    /// What the device says of the work before the event; or why the other GPUs do not come.
    pub fn until(&self, event: &Event, doing: impl Fn() -> String) -> Result<Duration, DeviceError> {
        if event.happened(&doing)? {
            return Ok(Duration::ZERO);
        }
        let begun = Instant::now();
        loop {
            let waited = begun.elapsed();
            if waited < EAGER {
                thread::yield_now();
            } else {
                if let Some(others) = &self.others {
                    others.still_there(waited).map_err(|lost| self.lost(lost, doing()))?;
                }
                thread::sleep(ASK_AGAIN);
            }
            if event.happened(&doing)? {
                return Ok(begun.elapsed());
            }
        }
    }

    /// Waits for an event: the host has nothing else to do.
    ///
    /// # Errors
    /// As for [`Self::until`].
    pub fn wait(&self, event: &Event, doing: impl Fn() -> String) -> Result<(), DeviceError> {
        match &self.others {
            // A sum by the peer kernel ends by itself, at the limit at the latest, and says why.
            None => event.synchronize(doing).and_then(|()| self.check_peers()),
            Some(_) => self.until(event, doing).map(drop),
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
    /// even end when its sums were ended is given up: what it holds is left to the end of the process.
    pub fn drain(&self, copies: &Stream) {
        let doing = || "ending".to_owned();
        if self.context.enter().is_err() {
            return;
        }
        if let Some(others) = &self.others {
            let marked = Event::plain(&self.context).and_then(|end| end.record(&self.stream).map(|()| end));
            let Ok(end) = marked else { return };
            if self.until(&end, doing).is_err() {
                others.abort();
                let begun = Instant::now();
                while matches!(end.happened(doing), Ok(false)) {
                    if begun.elapsed() > GRACE {
                        self.context.give_up();
                        return;
                    }
                    thread::sleep(ASK_AGAIN);
                }
            }
        }
        // An error was told by whoever came upon it before.
        let _ = self.stream.synchronize(doing);
        let _ = copies.synchronize(doing);
    }
}
