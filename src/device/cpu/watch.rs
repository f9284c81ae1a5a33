//! Who looks on while the first thread walks: nobody, or a clock that tells phases apart.

use std::time::{Duration, Instant};

use crate::{
    device::{Clock, Lane},
    program::Phase,
};

/// Sees the first thread through its steps.
pub trait Watcher {
    /// A step begins.
    fn begin_step(&mut self);
    /// A task of that phase comes next.
    fn enter(&mut self, phase: Phase);
    /// The step is done.
    fn end_step(&mut self);
}

/// For all other threads, and for steps that are too short to be timed.
pub struct Unwatched;

impl Watcher for Unwatched {
    #[inline(always)]
    fn begin_step(&mut self) {}
    #[inline(always)]
    fn enter(&mut self, _: Phase) {}
    #[inline(always)]
    fn end_step(&mut self) {}
}

/// Adds up each phase's time within a step, so that a phase has one sample per step.
pub struct PhaseWatch<'a> {
    clock: &'a mut Clock,
    ends: &'a mut Vec<f64>,
    since: Instant,
    step_began: Instant,
    phase: Phase,
    times: [Duration; Phase::ALL.len()],
}

impl<'a> PhaseWatch<'a> {
    /// Counts from `since` on; each step's end, in seconds since the clock's origin, is pushed to `ends`.
    pub fn new(clock: &'a mut Clock, ends: &'a mut Vec<f64>, since: Instant) -> Self {
        Self { clock, ends, since, step_began: since, phase: Phase::Data, times: Default::default() }
    }

    /// All members of the team are done. The wait for the slowest one counts as what it did last: the update, which
    /// plain descent folds into the backward pass.
    pub fn finish(mut self) {
        let updates = !self.times[Phase::Optimizer as usize].is_zero();
        self.phase = if updates { Phase::Optimizer } else { Phase::Backward };
        self.take();
        self.record();
    }

    /// One sample of every phase that the step had.
    fn record(&mut self) {
        for (phase, time) in Phase::ALL.into_iter().zip(std::mem::take(&mut self.times)) {
            if !time.is_zero() {
                self.clock.record_many(phase, time, 1);
            }
        }
    }

    fn take(&mut self) {
        let now = Instant::now();
        self.times[self.phase as usize] += now - self.since;
        self.clock.span(Lane::Device, self.phase, [self.since, now], 0);
        self.since = now;
    }
}

impl Watcher for PhaseWatch<'_> {
    fn begin_step(&mut self) {
        self.record();
    }

    fn enter(&mut self, phase: Phase) {
        if phase != self.phase {
            self.take();
            self.phase = phase;
        }
    }

    fn end_step(&mut self) {
        self.take();
        self.clock.span(Lane::Device, Phase::Step, [self.step_began, self.since], 1);
        self.step_began = self.since;
        self.ends.push((self.since - self.clock.origin()).as_secs_f64());
    }
}
