//! Waits of the host for the device: all of them are here, so that none is for ever.
//!
//! The driver's own waits (`cuEventSynchronize`, `cuStreamSynchronize`) cannot be left, so nobody calls them: events and
//! streams are asked again and again, and in between the host looks whether it still makes sense to wait. There are two
//! limits. A GPU that sums with others may stand still for their sake: whoever waits for it asks whether they are still
//! there, up to the limit of sums. And any GPU may hang: what it was given is known, and what that takes at most, with
//! much to spare; a GPU that has not done it by then is given up, and the run says so and ends.

use std::{
    env, thread,
    time::{Duration, Instant},
};

use super::{
    context::Context,
    engine::Ground,
    nccl::{Communicator, Lost},
    stream::{Event, Stream},
};
use crate::{collective::CollectiveError, device::DeviceError, program::Cost};

/// So long the host asks again and again where it only keeps the queue short: others may need the core.
const PACING: Duration = Duration::from_micros(200);
/// So long it does where it has nothing else to do: a sleep takes some 70 µs, with what the system adds to it, which is a
/// hundredth of what was waited for by then.
const EAGER: Duration = Duration::from_millis(7);
/// Then it sleeps so long before it asks again.
const ASK_AGAIN: Duration = Duration::from_micros(20);
/// After the sums over GPUs were ended, a GPU is waited for so long before it is given up.
const GRACE: Duration = Duration::from_secs(1);

/// What sets for how many seconds a GPU is waited for at least.
pub const LEAST_VARIABLE: &str = "RUNNER_GPU_WAIT_S";
/// Where it is not set.
const LEAST: Duration = Duration::from_secs(120);
/// No GPU that is served computes or moves as little per second, whatever the engine: a block alone reaches ten times as
/// much.
const SLOWEST_PER_S: f64 = 1e9;
/// Nor does a launch take as long.
const SLOWEST_LAUNCH_S: f64 = 1e-3;
/// A step may take so many times what the slowest one so far took: others may use the GPU, and it may be throttled.
const SLACK: f64 = 100.0;
/// Longer than this nothing is waited for, whatever was planned.
const MOST_S: f64 = 30.0 * 24.0 * 3600.0;

/// Seconds for which a GPU is waited for at least, as the environment has it.
///
/// # Errors
/// Where that is no number of seconds.
pub fn least() -> Result<Duration, String> {
    let Some(text) = env::var_os(LEAST_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(LEAST) };
    let seconds = text.to_str().and_then(|text| text.parse::<f64>().ok());
    match seconds.filter(|seconds| *seconds > 0.0 && *seconds <= MOST_S) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err(format!(
            "`{LEAST_VARIABLE}` is `{}`, and must be a number of seconds above 0, such as 600",
            text.to_string_lossy()
        )),
    }
}

/// What a GPU was given to do, and by what it is judged to hang.
pub struct Patience {
    least: Duration,
    /// Seconds that the last two blocks take on the slowest of GPUs: no more are on their way.
    given_s: [f64; 2],
    /// The most that a block took, of what the slowest of GPUs would have taken; `None` before one was done.
    took: Option<f64>,
}

impl Patience {
    /// Nothing was given so far.
    pub fn new(least: Duration) -> Self {
        Self { least, given_s: [0.0; 2], took: None }
    }

    /// What so many instructions that cost so much take on the slowest of GPUs.
    pub fn slowest_s(cost: Cost, instructions: usize) -> f64 {
        (cost.flops + cost.bytes) / SLOWEST_PER_S + instructions as f64 * SLOWEST_LAUNCH_S
    }

    /// A block is queued that takes so long on the slowest of GPUs.
    pub fn give(&mut self, slowest_s: f64) {
        self.given_s = [self.given_s[1], slowest_s];
    }

    /// A block took so long.
    pub fn learn(&mut self, slowest_s: f64, seconds: f64) {
        if slowest_s > 0.0 {
            let took = seconds / slowest_s;
            self.took = Some(self.took.map_or(took, |most| most.max(took)));
        }
    }

    /// How long what was given is waited for.
    pub fn limit(&self) -> Duration {
        let given_s: f64 = self.given_s.iter().sum();
        let s = given_s * self.took.map_or(1.0, |took| SLACK * took);
        self.least + Duration::from_secs_f64(if s.is_nan() { MOST_S } else { s.min(MOST_S) })
    }
}

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
        // What waits for other GPUs within the device ends by itself, or is ended here, after their own limit.
        let sums = self.others.as_ref().map(|others| others.limit());
        let limit = self.patience.limit() + sums.or(self.peers.as_ref().map(|p| p.limit())).unwrap_or_default();
        let wait = Wait { context: &self.context, eager, limit, step: self.step };
        let still = |waited| match &self.others {
            Some(others) => others.under_way(waited).map(drop).map_err(|lost| self.lost(lost, doing())),
            None => self.peers_still_there(waited),
        };
        let waited = wait.until(happened, still, doing)?;
        self.together(doing).and_then(|()| self.check_peers()).map(|()| waited)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_waited_for_by_what_it_was_given_and_by_how_fast_it_has_been() {
        let mut patience = Patience::new(Duration::from_secs(60));
        assert_eq!(patience.limit(), Duration::from_secs(60));
        // 4 GFLOP and 1 GB on the slowest of GPUs, and ten launches.
        let step_s = Patience::slowest_s(Cost { flops: 4e9, bytes: 1e9 }, 10);
        assert!((step_s - 5.01).abs() < 1e-9);
        patience.give(step_s);
        patience.give(2.0 * step_s);
        assert!((patience.limit().as_secs_f64() - 75.03).abs() < 1e-6);
        // A thousand times as fast: a step of 5 ms, so that the three of them may take 1.5 s.
        patience.learn(step_s, step_s / 1000.0);
        patience.learn(2.0 * step_s, step_s / 1000.0);
        assert!((patience.limit().as_secs_f64() - 61.503).abs() < 1e-6);
        // Only two blocks are on their way, and nothing is planned for ever.
        patience.give(0.0);
        patience.give(0.0);
        assert_eq!(patience.limit(), Duration::from_secs(60));
        patience.give(f64::INFINITY);
        assert_eq!(patience.limit(), Duration::from_secs(60) + Duration::from_secs_f64(MOST_S));
    }
}
