//! A GPU's lanes of a trace, by its own events: its steps, and the copies that run in parallel.
//!
//! Times of copies are buffered here until the next block is reported.

use std::time::{Duration, Instant};

use crate::{
    device::{Clock, Lane},
    launch::Done,
    program::Phase,
};

/// While a trace keeps every step, a step this long becomes a block of its own: uploading the counters of a
/// block takes some microseconds, which is then negligible.
const LONG_STEP: Duration = Duration::from_micros(200);

#[derive(Default)]
pub struct Timeline {
    pub wanted: bool,
    /// Estimated time of a step.
    step: Duration,
    copies: Vec<(Lane, Phase, [Instant; 2])>,
    /// The end of each lane so far. The two clocks only agree to some microseconds, but later spans must not begin earlier.
    ends: [Option<Instant>; Lane::OF_DEVICE.len()],
}

impl Timeline {
    /// Whether each step may be a block of its own.
    pub fn has_long_steps(&self) -> bool {
        self.wanted && self.step >= LONG_STEP
    }

    pub fn copied(&mut self, lane: Lane, phase: Phase, ends: [Instant; 2]) {
        self.copies.push((lane, phase, ends));
    }

    pub fn report(&mut self, clock: &mut Clock) {
        let mut copies = std::mem::take(&mut self.copies);
        // Several buffers share one stream, so bring their copies into order.
        copies.sort_by_key(|(_, _, [_, end])| *end);
        for (lane, phase, [start, end]) in copies {
            if lane == Lane::CopyIn {
                clock.record_device(Phase::Upload, end.saturating_duration_since(start), 1);
            }
            self.span(clock, lane, phase, [start, end], 0);
        }
    }

    pub fn block(&mut self, done: &Done, clock: &mut Clock) {
        let Done { queued, begin, end, phases, .. } = done;
        if queued.trains {
            self.step =
                end.saturating_duration_since(*begin) / u32::try_from(queued.steps.max(1)).unwrap_or(1);
        }
        if !self.wanted {
            return;
        }
        if !queued.trains {
            return self.span(clock, Lane::Device, Phase::Validation, [*begin, *end], 0);
        }
        if phases.is_empty() {
            return self.span(clock, Lane::Device, Phase::Step, [*begin, *end], queued.steps as u64);
        }
        let mut at = self.after(Lane::Device, *begin);
        for step in phases {
            let first = at;
            for (phase, seconds) in step {
                let start = at;
                at += Duration::from_secs_f64(*seconds);
                clock.span(Lane::Device, *phase, [start, at], 0);
            }
            self.span(clock, Lane::Device, Phase::Step, [first, at], 1);
        }
    }

    fn span(&mut self, clock: &mut Clock, lane: Lane, phase: Phase, [start, end]: [Instant; 2], steps: u64) {
        let start = self.after(lane, start);
        let end = end.max(start);
        clock.span(lane, phase, [start, end], steps);
        self.ends[Self::place(lane)] = Some(end);
    }

    fn after(&self, lane: Lane, at: Instant) -> Instant {
        self.ends[Self::place(lane)].map_or(at, |earlier| earlier.max(at))
    }

    fn place(lane: Lane) -> usize {
        Lane::OF_DEVICE.iter().position(|own| *own == lane).unwrap_or(0)
    }
}
