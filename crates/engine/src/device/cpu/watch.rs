//! Observes the first thread's steps, in order to time their phases; or does nothing.

use std::time::{Duration, Instant};

use crate::{
    device::{Clock, Lane},
    program::Phase,
};

/// Called by the first thread during its steps.
pub trait Watcher {
    fn begin_step(&mut self);
    fn enter(&mut self, phase: Phase);
    fn end_step(&mut self);
}

/// Does nothing: for the other threads, and for steps too short to be timed.
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
    /// Times from `since` on; pushes each step's end to `ends`, in seconds since the clock's origin.
    pub fn new(clock: &'a mut Clock, ends: &'a mut Vec<f64>, since: Instant) -> Self {
        Self { clock, ends, since, step_began: since, phase: Phase::Data, times: Default::default() }
    }

    /// Call when all members have finished. The wait for the slowest one counts under the step's last phase:
    /// the update, or the backward pass if plain SGD is fused into it.
    pub fn finish(mut self) {
        let updates = !self.times[Phase::Optimizer as usize].is_zero();
        self.phase = if updates { Phase::Optimizer } else { Phase::Backward };
        self.take();
        self.record();
    }

    /// Adds one sample per phase of the step.
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
