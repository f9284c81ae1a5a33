//! A run's timeline: spans of time by lane, in detail for the first steps and then in growing windows, so
//! that the size of a trace is bounded.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{program::Phase, units::named};

/// Steps per lane that are kept in detail.
pub const DETAILED_STEPS: u64 = 200;

/// Maximum spans of a lane that are kept in detail.
const MOST_SPANS: usize = 8192;

/// Maximum windows of a lane; when it is exceeded, neighbours are merged.
const MOST_WINDOWS: usize = 2048;

const WINDOW: Duration = Duration::from_millis(1);

named! {
    pub enum Lane {
        /// The host's loop: rows, blocks of steps, validation, log.
        Host = "host loop",
        /// The device's own work: steps and their phases.
        Device = "steps",
        /// Uploads of rows, in parallel with computing.
        CopyIn = "copies in",
        CopyOut = "copies out",
    }
}

impl Lane {
    pub const OF_DEVICE: [Self; 3] = [Self::Device, Self::CopyIn, Self::CopyOut];
}

/// A span of time, in nanoseconds since the start of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub phase: Phase,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Optimizer steps in it, if it covers complete ones.
    pub steps: u64,
}

/// A window of spans, of which only sums are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub start_ns: u64,
    pub end_ns: u64,
    pub steps: u64,
    pub phases_ns: [u64; Phase::ALL.len()],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneTrace {
    /// Ordered by their ends.
    pub spans: Vec<Span>,
    /// Windows of later spans, in order.
    pub windows: Vec<Window>,
    steps: u64,
    window_ns: u64,
    /// Time of the current step's phases, while only sums are kept.
    parts_ns: [u64; Phase::ALL.len()],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    lanes: [LaneTrace; 4],
}

impl Trace {
    pub fn lane(&self, lane: Lane) -> &LaneTrace {
        &self.lanes[lane as usize]
    }

    /// Adds a span; a lane's spans must come in the order of their ends. `steps` is set for a span of complete steps.
    pub fn span(
        &mut self,
        lane: Lane,
        phase: Phase,
        origin: Instant,
        [start, end]: [Instant; 2],
        steps: u64,
    ) {
        let ns = |at: Instant| u64::try_from((at - origin).as_nanos()).unwrap_or(u64::MAX);
        self.lanes[lane as usize].take(lane, Span { phase, start_ns: ns(start), end_ns: ns(end), steps });
    }
}

impl LaneTrace {
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.windows.is_empty()
    }

    fn take(&mut self, lane: Lane, span: Span) {
        if self.windows.is_empty() && self.steps < DETAILED_STEPS && self.spans.len() < MOST_SPANS {
            self.steps += span.steps;
            self.spans.push(span);
            return;
        }
        self.window_ns = self.window_ns.max(WINDOW.as_nanos() as u64);
        // On a device's lane a step comes after its phases and contains them, so only the step extends the window.
        self.parts_ns[span.phase as usize] += span.end_ns.saturating_sub(span.start_ns);
        if lane == Lane::Device && span.steps == 0 {
            return;
        }
        let parts_ns = std::mem::take(&mut self.parts_ns);
        let fits = |w: &&mut Window| span.end_ns.saturating_sub(w.start_ns) <= self.window_ns;
        match self.windows.last_mut().filter(fits) {
            Some(window) => window.add(&span, parts_ns),
            None => {
                let Span { start_ns, end_ns, steps, .. } = span;
                self.windows.push(Window { start_ns, end_ns, steps, phases_ns: parts_ns });
            }
        }
        if self.windows.len() >= MOST_WINDOWS {
            self.join();
        }
    }

    fn join(&mut self) {
        self.window_ns *= 2;
        let joined = self.windows.chunks(2).map(|pair| {
            let mut window = pair[0].clone();
            for other in &pair[1..] {
                window.end_ns = other.end_ns;
                window.steps += other.steps;
                window.phases_ns.iter_mut().zip(other.phases_ns).for_each(|(own, more)| *own += more);
            }
            window
        });
        self.windows = joined.collect();
    }
}

impl Window {
    fn add(&mut self, span: &Span, parts_ns: [u64; Phase::ALL.len()]) {
        self.end_ns = self.end_ns.max(span.end_ns);
        self.steps += span.steps;
        self.phases_ns.iter_mut().zip(parts_ns).for_each(|(own, more)| *own += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(phase: Phase, start_ns: u64, end_ns: u64, steps: u64) -> Span {
        Span { phase, start_ns, end_ns, steps }
    }

    #[test]
    fn a_long_run_has_a_short_trace() {
        let mut lane = LaneTrace::default();
        const STEPS: u64 = 1_000_000;
        for step in 0..STEPS {
            let ns = step * 50_000;
            lane.take(Lane::Host, span(Phase::Log, ns, ns + 10_000, 0));
            lane.take(Lane::Host, span(Phase::Step, ns + 10_000, ns + 50_000, 1));
        }
        assert_eq!(lane.spans.len() as u64, 2 * DETAILED_STEPS);
        assert!((MOST_WINDOWS / 4..MOST_WINDOWS).contains(&lane.windows.len()), "{}", lane.windows.len());
        // No step is lost, and no windows overlap.
        let detailed: u64 = lane.spans.iter().map(|s| s.steps).sum();
        assert_eq!(detailed + lane.windows.iter().map(|w| w.steps).sum::<u64>(), STEPS);
        let log_ns: u64 = lane.windows.iter().map(|w| w.phases_ns[Phase::Log as usize]).sum();
        assert_eq!(log_ns, (STEPS - DETAILED_STEPS) * 10_000);
        assert!(lane.windows.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns));
        assert_eq!(lane.windows.last().unwrap().end_ns, STEPS * 50_000);
    }

    /// On a device's lane the phases come before the step that contains them.
    #[test]
    fn a_step_and_its_parts_share_a_window() {
        let mut lane = LaneTrace::default();
        for step in 0..1000 {
            let ns = step * 2_000_000;
            lane.take(Lane::Device, span(Phase::Forward, ns, ns + 1_500_000, 0));
            lane.take(Lane::Device, span(Phase::Loss, ns + 1_500_000, ns + 2_000_000, 0));
            lane.take(Lane::Device, span(Phase::Step, ns, ns + 2_000_000, 1));
        }
        assert_eq!(lane.windows.len(), 800);
        assert!(lane.windows.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns));
        let ns = |phase: Phase| lane.windows.iter().map(|w| w.phases_ns[phase as usize]).sum::<u64>();
        assert_eq!(
            [Phase::Forward, Phase::Loss, Phase::Step].map(ns),
            [1_200_000_000, 400_000_000, 1_600_000_000]
        );
    }

    #[test]
    fn spans_without_steps_are_bounded_too() {
        let mut lane = LaneTrace::default();
        for n in 0..100_000 {
            lane.take(Lane::Host, span(Phase::Data, n * 10, n * 10 + 5, 0));
        }
        assert_eq!(lane.spans.len(), MOST_SPANS);
        assert!(!lane.windows.is_empty() && lane.windows.len() < MOST_WINDOWS);
    }
}
