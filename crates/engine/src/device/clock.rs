//! Times by phase: exact count, sum, mean and deviation; percentiles from a histogram with two significant
//! digits, which keeps memory bounded.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Grain, Lane, Trace};
use crate::{program::Phase, units::named};

/// The longest time that a histogram distinguishes; longer times count as this, which affects only percentiles.
const LONGEST_NS: u64 = 3_600_000_000_000;

named! {
    /// The clock that measured a time.
    pub enum Timer {
        Host = "host",
        Device = "device",
    }
}

/// Sums of times, by timer and phase.
pub type Totals = [[Duration; Phase::ALL.len()]; 2];

/// Times of a run, by phase.
pub struct Clock {
    origin: Instant,
    pub grain: Grain,
    /// By timer and phase.
    samples: [[Samples; Phase::ALL.len()]; 2],
    /// Spans of a trace, if one is wanted.
    pub trace: Option<Box<Trace>>,
    /// Number of times recorded on the host, for the clock's own cost.
    readings: u64,
}

/// The times of another process's clock, as they are sent.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClockRecord {
    samples: [[Samples; Phase::ALL.len()]; 2],
    trace: Option<Box<Trace>>,
    readings: u64,
}

/// The clock's own cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockCost {
    pub readings: u64,
    pub each_s: f64,
}

impl ClockCost {
    pub fn total_s(&self) -> f64 {
        self.readings as f64 * self.each_s
    }
}

impl Clock {
    /// The clock starts when this returns.
    pub fn new(grain: Grain) -> Self {
        let clock = Self::at(Instant::now(), grain);
        Self { origin: Instant::now(), ..clock }
    }

    /// A clock whose origin lies `earlier` in the past: the time of the run's parts before the last resume.
    pub fn after(earlier: Duration, grain: Grain) -> Self {
        let mut clock = Self::at(Instant::now(), grain);
        // Allocate the histograms now: in a short run that would take a large share of the time and count under no phase.
        let of_steps: &[Phase] = match grain {
            Grain::Blocks => &[Phase::Step],
            Grain::Phases => &[Phase::Forward, Phase::Loss, Phase::Backward, Phase::Optimizer],
        };
        for phase in [Phase::Data, Phase::Upload, Phase::Validation, Phase::Log].iter().chain(of_steps) {
            clock.samples[Timer::Host as usize][*phase as usize].make_histogram();
        }
        let now = Instant::now();
        Self { origin: now.checked_sub(earlier).unwrap_or(now), ..clock }
    }

    pub fn at(origin: Instant, grain: Grain) -> Self {
        Self { origin, grain, samples: Default::default(), trace: None, readings: 0 }
    }

    pub fn origin(&self) -> Instant {
        self.origin
    }

    pub fn elapsed_s(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    pub fn traced(mut self, wanted: bool) -> Self {
        self.trace = wanted.then(Box::default);
        self
    }

    /// Records a sample of a host phase that ends now.
    pub fn record(&mut self, phase: Phase, time: Duration) {
        if self.trace.is_some() {
            let now = Instant::now();
            self.span(Lane::Host, phase, [now.checked_sub(time).unwrap_or(now), now], 0);
        }
        self.record_many(phase, time, 1);
    }

    /// Records a sample of a host phase.
    pub fn record_between(&mut self, phase: Phase, start: Instant, end: Instant) {
        self.span(Lane::Host, phase, [start, end], 0);
        self.record_many(phase, end - start, 1);
    }

    /// Records a span, if a trace is wanted; see [`Trace::span`].
    #[inline]
    pub fn span(&mut self, lane: Lane, phase: Phase, ends: [Instant; 2], steps: u64) {
        if let Some(trace) = &mut self.trace {
            trace.span(lane, phase, self.origin, ends, steps);
        }
    }

    /// Records `count` samples of equal length that took `time` in all.
    pub fn record_many(&mut self, phase: Phase, time: Duration, count: u64) {
        if count > 0 {
            self.readings += 1;
            self.samples[Timer::Host as usize][phase as usize].add(time, count);
        }
    }

    pub fn readings(&self) -> u64 {
        self.readings
    }

    /// A lower limit of this clock's cost so far: the number of recordings times the cost of one now, with a
    /// warm histogram. Traces are not counted.
    pub fn cost(&self) -> ClockCost {
        const READINGS: u32 = 64;
        let mut scratch = Samples::default();
        let mut round = || {
            let begun = Instant::now();
            let mut earlier = begun;
            for _ in 0..READINGS {
                let now = Instant::now();
                scratch.add(now - earlier, 1);
                earlier = now;
            }
            begun.elapsed() / READINGS
        };
        // The first round warms up; the fastest of the others was not disturbed.
        round();
        let each = (0..4).map(|_| round()).min().unwrap_or_default();
        ClockCost { readings: self.readings, each_s: each.as_secs_f64() }
    }

    /// Adds time to a phase's last sample: the host's wait for queued work.
    pub fn extend(&mut self, phase: Phase, time: Duration) {
        let samples = &mut self.samples[Timer::Host as usize][phase as usize];
        if samples.last.1 > 0 {
            samples.last.0 += time;
        }
    }

    /// Records `count` samples of equal length that took `time` in all, by the device's clock.
    pub fn record_device(&mut self, phase: Phase, time: Duration, count: u64) {
        if count > 0 {
            self.samples[Timer::Device as usize][phase as usize].add(time, count);
        }
    }

    pub fn absorb(&mut self, other: &Self) {
        self.absorb_samples(&other.samples, other.readings);
    }

    fn absorb_samples(&mut self, other: &[[Samples; Phase::ALL.len()]; 2], readings: u64) {
        self.readings += readings;
        let own = self.samples.as_flattened_mut().iter_mut();
        own.zip(other.as_flattened()).for_each(|(own, other)| own.absorb(other));
    }

    /// The clock's times, to be sent to another process.
    pub fn into_record(self) -> ClockRecord {
        let Self { samples, trace, readings, .. } = self;
        let samples = samples.map(|of_timer| of_timer.map(Samples::closed));
        ClockRecord { samples, trace, readings }
    }

    /// Adds the times of another process's clock, and takes over its trace.
    pub fn absorb_record(&mut self, ClockRecord { samples, trace, readings }: ClockRecord) {
        self.absorb_samples(&samples, readings);
        self.trace = trace.or(self.trace.take());
    }

    /// Sum over a phase's samples.
    pub fn total(&self, by: Timer, phase: Phase) -> Duration {
        let samples = &self.samples[by as usize][phase as usize];
        samples.total + samples.last.0
    }

    pub fn totals(&self) -> Totals {
        [Timer::Host, Timer::Device].map(|by| Phase::ALL.map(|phase| self.total(by, phase)))
    }

    /// A summary of each phase that occurred.
    pub fn summaries(&self, by: Timer) -> impl Iterator<Item = (Phase, PhaseSummary)> + '_ {
        let phases = Phase::ALL.into_iter().zip(&self.samples[by as usize]);
        let phases = phases.map(|(phase, samples)| (phase, samples.clone().closed()));
        phases.filter(|(_, s)| s.count > 0).map(|(p, s)| (p, s.summary()))
    }
}

/// The figures of one phase, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseSummary {
    pub count: u64,
    /// Number of measured times; fewer than `count` if some are means over a block of steps.
    pub samples: u64,
    pub total: Duration,
    /// Standard deviation of the samples (n - 1).
    pub std_s: Option<f64>,
    pub min_s: f64,
    pub percentiles_s: [f64; 3],
    pub max_s: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Samples {
    count: u64,
    measured: u64,
    total: Duration,
    /// Sum of squared differences from the mean (Welford, weighted), in s².
    squares: f64,
    mean_s: f64,
    min: Duration,
    max: Duration,
    /// The last sample, which may still be extended, and how many it stands for: the other figures are without it.
    #[serde(skip)]
    last: (Duration, u64),
    /// Created no later than the first sample.
    #[serde(serialize_with = "write_histogram", deserialize_with = "read_histogram")]
    histogram: Option<Histogram<u32>>,
}

/// Cannot fail with these bounds.
fn new_histogram() -> Option<Histogram<u32>> {
    Histogram::new_with_bounds(1, LONGEST_NS, 2).ok()
}

/// Serializes pairs of a value and its count.
fn write_histogram<S: Serializer>(histogram: &Option<Histogram<u32>>, to: S) -> Result<S::Ok, S::Error> {
    let bars = histogram.iter().flat_map(|h| h.iter_recorded());
    to.collect_seq(bars.map(|bar| (bar.value_iterated_to(), bar.count_at_value())))
}

fn read_histogram<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Histogram<u32>>, D::Error> {
    let bars = Vec::<(u64, u32)>::deserialize(from)?;
    let mut histogram = new_histogram().filter(|_| !bars.is_empty());
    if let Some(histogram) = &mut histogram {
        bars.iter().for_each(|(value, count)| histogram.saturating_record_n(*value, *count));
    }
    Ok(histogram)
}

impl Samples {
    fn make_histogram(&mut self) {
        self.histogram = new_histogram();
    }

    fn add(&mut self, time: Duration, count: u64) {
        self.close();
        self.last = (time, count);
    }

    /// With the last sample in all figures.
    fn closed(mut self) -> Self {
        self.close();
        self
    }

    fn close(&mut self) {
        let (time, count) = std::mem::take(&mut self.last);
        if count == 0 {
            return;
        }
        let each = if count == 1 { time } else { Duration::from_secs_f64(time.as_secs_f64() / count as f64) };
        self.min = if self.count == 0 { each } else { self.min.min(each) };
        self.count += count;
        self.measured += 1;
        self.total += time;
        let each_s = each.as_secs_f64();
        let delta = each_s - self.mean_s;
        self.mean_s += delta * count as f64 / self.count as f64;
        self.squares += delta * (each_s - self.mean_s) * count as f64;
        self.max = self.max.max(each);
        if self.histogram.is_none() {
            self.make_histogram();
        }
        if let Some(histogram) = &mut self.histogram {
            let ns = u64::try_from(each.as_nanos()).unwrap_or(LONGEST_NS);
            // Cannot fail within the bounds; counts beyond u32 saturate.
            histogram.saturating_record_n(ns.clamp(1, LONGEST_NS), u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Combines mean and squares of two sets of samples (Chan, Golub and LeVeque).
    fn absorb(&mut self, other: &Self) {
        self.close();
        let other = &other.clone().closed();
        if self.count == 0 || other.count == 0 {
            return if self.count == 0 {
                self.clone_from(other)
            };
        }
        let (n, m) = (self.count as f64, other.count as f64);
        let delta = other.mean_s - self.mean_s;
        self.mean_s += delta * m / (n + m);
        self.squares += other.squares + delta * delta * n * m / (n + m);
        self.count += other.count;
        self.measured += other.measured;
        self.total += other.total;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        if let (Some(own), Some(other)) = (&mut self.histogram, &other.histogram) {
            // Cannot fail: both have the same bounds.
            let _ = own.add(other);
        }
    }

    fn summary(&self) -> PhaseSummary {
        let (min_s, max_s) = (self.min.as_secs_f64(), self.max.as_secs_f64());
        let at = |q| {
            let ns = self.histogram.as_ref().map_or(0, |h| h.value_at_quantile(q));
            // A histogram bucket's edge may lie outside the range of the samples.
            (ns as f64 / 1e9).clamp(min_s, max_s)
        };
        PhaseSummary {
            count: self.count,
            samples: self.measured,
            total: self.total,
            std_s: (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).sqrt()),
            min_s,
            percentiles_s: [at(0.5), at(0.95), at(0.99)],
            max_s,
        }
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
