//! What the host knows about a GPU's steps: which blocks are complete, their times, and how long it waited for them.

use std::time::{Duration, Instant};

use super::{
    engines::GpuContext,
    launch::{Done, Event, InFlightQueue, Queued, Stream},
    measure::timeline::Timeline,
};
use crate::{
    device::{DeviceError, Lane, Meters, Purpose},
    program::Phase,
};

pub struct Progress {
    pub in_flight: InFlightQueue,
    pub timeline: Timeline,
    /// Seconds of the validation in progress.
    validation_s: Option<f64>,
    /// The step time of the last block, until it is reported.
    pub step_time: Option<Duration>,
    /// How long the host has waited for steps since the last report.
    pub waited: Duration,
    last_end_s: f64,
    /// Events before and after the last copy to the host.
    downloading: [Event; 2],
}

impl Progress {
    pub fn new(gpu: &GpuContext, most_steps: usize, marks: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            in_flight: InFlightQueue::new(gpu, most_steps, marks)?,
            timeline: Timeline::default(),
            validation_s: None,
            step_time: None,
            waited: Duration::ZERO,
            last_end_s: 0.0,
            downloading: [Event::timed(&gpu.context)?, Event::timed(&gpu.context)?],
        })
    }

    /// Waits until the device has completed everything it was given.
    pub fn wait(&mut self, gpu: &GpuContext, doing: &str) -> Result<Duration, DeviceError> {
        let start = Instant::now();
        self.in_flight.anchor(gpu, doing)?;
        let wait = start.elapsed();
        self.waited += wait;
        Ok(wait)
    }

    /// Queues a copy to the host, between two events.
    pub fn begin_download<T>(
        &mut self,
        gpu: &GpuContext,
        copy: impl FnOnce(&Stream) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let [begin, end] = &self.downloading;
        begin.record(&gpu.stream)?;
        let copied = copy(&gpu.stream)?;
        end.record(&gpu.stream).map(|()| copied)
    }

    /// Whether the last copy to the host is complete.
    pub fn has_downloaded(&self) -> Result<bool, DeviceError> {
        self.downloading[1].happened(|| "reading the log".into())
    }

    /// Waits for the last copy to the host, and not for what was queued after it.
    pub fn end_download(
        &mut self,
        gpu: &GpuContext,
        (doing, phase): (&str, Phase),
    ) -> Result<Duration, DeviceError> {
        let running = || self.in_flight.unfinished().ok().flatten().map_or(doing.to_owned(), Queued::doing);
        let wait = gpu.wait(&self.downloading[1], running)?;
        if self.timeline.wanted {
            let [begin, end] = &self.downloading;
            let ends = [self.in_flight.instant(begin)?, self.in_flight.instant(end)?];
            self.timeline.copied(Lane::CopyOut, phase, ends);
        }
        if !wait.is_zero() {
            self.in_flight.anchor_at(&mut self.downloading[1]);
        }
        self.waited += wait;
        Ok(wait)
    }

    /// Records the start and end of uploads of rows.
    pub fn uploaded(&mut self, uploads: impl IntoIterator<Item = [Instant; 2]>) {
        uploads.into_iter().for_each(|ends| self.timeline.copied(Lane::CopyIn, Phase::Upload, ends));
    }

    /// Records the times of a complete block.
    pub fn learn(&mut self, done: &Done, gpu: &mut GpuContext, meters: &mut Meters<'_>) {
        self.timeline.report(meters.clock);
        self.timeline.block(done, meters.clock);
        let Done { queued, end, seconds, phases, .. } = done;
        gpu.hang_timeout.learn(queued.slowest_s, *seconds);
        if !queued.trains {
            *self.validation_s.get_or_insert_default() += seconds;
            return;
        }
        let each = seconds / queued.steps.max(1) as f64;
        self.step_time = Some(Duration::from_secs_f64(each));
        if phases.is_empty() {
            meters.clock.record_device(Phase::Step, Duration::from_secs_f64(*seconds), queued.steps as u64);
        }
        for step in phases {
            // A phase has one sample per step, however many pieces of it there are.
            let mut totals = [None; Phase::ALL.len()];
            step.iter().for_each(|(phase, seconds)| {
                *totals[*phase as usize].get_or_insert(0.0) += seconds;
            });
            for (phase, seconds) in Phase::ALL.into_iter().zip(totals) {
                let time = seconds.map(Duration::from_secs_f64);
                time.into_iter().for_each(|time| meters.clock.record_device(phase, time, 1));
            }
        }
        let origin = meters.clock.origin();
        let since = end.saturating_duration_since(origin).as_secs_f64();
        // The two clocks only agree to some microseconds; make sure that time does not run backward.
        self.last_end_s = since.max(self.last_end_s);
        meters.ends.extend(std::iter::repeat_n(self.last_end_s, queued.steps));
    }

    /// Records the times of the complete blocks.
    pub fn finished(&mut self, gpu: &mut GpuContext, meters: &mut Meters<'_>) -> Result<(), DeviceError> {
        let finished = self.in_flight.finished()?;
        finished.iter().for_each(|done| self.learn(done, gpu, meters));
        Ok(())
    }

    /// Waits for all blocks and records their times. If the GPU hangs, records those of the complete blocks.
    pub fn settle(
        &mut self,
        gpu: &mut GpuContext,
        purpose: Purpose,
        meters: &mut Meters<'_>,
    ) -> Result<(), DeviceError> {
        let given_up = gpu.context.is_given_up();
        // If nothing was read from the device, as under `off`, steps may still be running.
        if !given_up && self.in_flight.unfinished()?.is_some() {
            let wait = self.wait(gpu, "running its steps")?;
            meters.ledger.sync(purpose, wait);
        }
        self.finished(gpu, meters)?;
        if given_up {
            return Ok(());
        }
        // A whole validation is one sample, as on the host's clock.
        if let Some(seconds) = self.validation_s.take() {
            meters.clock.record_device(Phase::Validation, Duration::from_secs_f64(seconds), 1);
        }
        Ok(())
    }
}
