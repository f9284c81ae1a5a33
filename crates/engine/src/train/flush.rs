//! What a run reports while it runs: log rows, epoch ends, progress.

use std::time::{Duration, Instant};

use super::{
    state::Position,
    train_loop::{Halt, TrainLoop},
};
use crate::{
    device::{DeviceError, Purpose, Ran},
    event::{Event, Progress},
    program::{Accumulator, Phase, Slice},
    spec::Policy,
};

/// How often events and progress are handed over: waking the recorder costs more than a tiny step.
const REPORT_INTERVAL: Duration = Duration::from_millis(25);

impl TrainLoop<'_> {
    pub(super) fn end_epoch(&mut self) -> Result<(), Halt> {
        self.log_epoch()?;
        self.compare_replicas()
    }

    /// Records the epoch's row, if the policy has one. The device's log may span epochs; the end of the run flushes it.
    pub(super) fn log_epoch(&mut self) -> Result<(), Halt> {
        match self.trial.spec.logging.policy {
            Policy::Immediate | Policy::Buffered => {}
            Policy::Off => drop(self.metric_buffer.take_epoch_rows()),
            Policy::PerEpoch => {
                let start = self.log_begins();
                let mut sums = vec![0.0; self.trial.programs.layout.log_width];
                self.group.take_sums(Purpose::Log, Accumulator::Epoch, &mut sums)?;
                let waited = self.settle(Purpose::Log)?;
                let lr = self.lr_scheduler.lr_at(self.at.step.saturating_sub(1), self.at.epoch - 1).lr;
                let Position { epoch, step, .. } = self.at;
                let first = (epoch - 1) * self.trial.steps_per_epoch;
                let weight = self.batch_weights.as_mut().map(|weights| weights.of_steps(first..step));
                let row = self.metric_buffer.epoch_mean([epoch, step], lr, &sums, weight.transpose()?);
                self.outbox.events.extend(row);
                self.log_ends(start, waited);
            }
        }
        Ok(())
    }

    /// Fails if devices hold different parameters.
    fn compare_replicas(&mut self) -> Result<(), Halt> {
        if self.group.size() == 1 {
            return Ok(());
        }
        let start = Instant::now();
        // The wait for unfinished steps counts as step time, that for digests does not.
        let waited = self.settle(Purpose::Parameters)?;
        let digests = self.group.digests(self.values())?;
        self.group.settle(Purpose::Parameters, &mut self.clock, &mut self.metric_buffer.ends)?;
        let time = start.elapsed().saturating_sub(waited);
        self.replicas.count += 1;
        self.replicas.time += time;
        self.clock.record(Phase::Digest, time);
        match digests.iter().position(|d| Some(d) != digests.first()) {
            None => Ok(()),
            Some(rank) => {
                self.replicas.count = 0;
                let [first, device] = [0, rank].map(|rank| self.group.names()[rank].clone());
                Err(DeviceError::Replicas { device, first, step: self.at.step }.into())
            }
        }
    }

    /// After a device hangs: ends the run at the last step that was completed and records the rows up to there.
    pub(super) fn rescue(&mut self) -> Result<(), Halt> {
        self.settle(Purpose::Log)?;
        match self.metric_buffer.done() {
            done if done >= self.at.step => {}
            0 => self.at = Position { epoch: self.at.epoch, in_epoch: true, ..Position::default() },
            done => self.end_at(done),
        }
        self.flush_until(self.at.step)
    }

    /// Whether rows under the policy `buffered` have waited on the device as long as they may.
    pub(super) fn flush_is_overdue(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.outbox.last_flush).as_secs_f64()
            >= self.trial.spec.logging.flush_every_s
    }

    /// Reads the log from the device into the outbox; `send_events` sends it.
    pub(super) fn flush(&mut self) -> Result<(), Halt> {
        self.flush_until(u64::MAX)
    }

    /// Like [`Self::flush`], without the rows of steps after `until`.
    fn flush_until(&mut self, until: u64) -> Result<(), Halt> {
        self.land(until)?;
        self.outbox.last_flush = Instant::now();
        self.bring(self.metric_buffer.pending(), until, |own| own.settle(Purpose::Log))
    }

    /// Reads the log where the steps stop, unless it is read every `flush_every` steps. The host waits for a validation anyway.
    pub(super) fn flush_at_stop(&mut self, validates: bool) -> Result<(), Halt> {
        let logging = &self.trial.spec.logging;
        if self.ended.is_some() || logging.policy != Policy::Buffered || logging.flush_every.is_some() {
            return Ok(());
        }
        if validates {
            self.flush()?
        } else {
            self.start_flush()?
        }
        self.check()
    }

    /// Lets the log's rows follow the queued steps to the host, while the next ones write the log's other half.
    pub(super) fn start_flush(&mut self) -> Result<(), Halt> {
        let [offset, len] = self.metric_buffer.pending();
        if len == 0 {
            return Ok(());
        }
        self.land(u64::MAX)?;
        self.outbox.last_flush = Instant::now();
        self.group.fetch(Slice { buffer: self.trial.programs.layout.log, offset, len })?;
        self.metric_buffer.turn();
        Ok(())
    }

    /// Takes the rows that are on their way to the host, and waits for them.
    fn land(&mut self, until: u64) -> Result<(), Halt> {
        let Some(rows) = self.metric_buffer.on_the_way() else { return Ok(()) };
        self.bring(rows, until, |own| {
            let ran = own.group.finished(&mut own.clock, &mut own.metric_buffer.ends)?;
            own.learn(ran)
        })
    }

    /// Reads rows of the log into the outbox; `learn` collects what is known of their steps and returns how long it waited.
    fn bring(
        &mut self,
        [offset, len]: [usize; 2],
        until: u64,
        learn: impl FnOnce(&mut Self) -> Result<Duration, Halt>,
    ) -> Result<(), Halt> {
        let start = self.log_begins();
        let mut read = std::mem::take(&mut self.metric_buffer.read);
        if len > 0 {
            let rows = Slice { buffer: self.trial.programs.layout.log, offset, len };
            self.group.read(Purpose::Log, rows, &mut read)?;
        }
        let waited = learn(self)?;
        let until = self.non_finite.map_or(until, |step| step.min(until));
        self.outbox.events.extend(self.metric_buffer.flush(&read, until));
        self.metric_buffer.read = read;
        if len > 0 {
            self.log_ends(start, waited);
        }
        Ok(())
    }

    pub(super) fn log_begins(&mut self) -> Instant {
        let now = Instant::now();
        self.core_waits.begin(now);
        now
    }

    /// Records what has been logged since `start`, while the host waited for the device for this long. What the thread waited for
    /// a core in between is none of the log's time.
    pub(super) fn log_ends(&mut self, start: Instant, waited: Duration) {
        let time = start.elapsed().saturating_sub(waited);
        let lost = self.core_waits.within(time);
        self.inputs.lost_in_log += lost;
        self.clock.record(Phase::Log, time - lost);
    }

    /// Collects the times of all steps so far and the first loss that is not finite. The wait counts as step time.
    pub(super) fn settle(&mut self, purpose: Purpose) -> Result<Duration, Halt> {
        let ran = self.group.settle(purpose, &mut self.clock, &mut self.metric_buffer.ends)?;
        self.learn(ran)
    }

    fn learn(&mut self, ran: Ran) -> Result<Duration, Halt> {
        self.non_finite = ran.non_finite;
        self.pacing.step_time = ran.step_time.unwrap_or(self.pacing.step_time);
        self.clock.extend(Phase::Step, ran.waited);
        Ok(ran.waited)
    }

    /// Sends events if it is time; called after every block.
    pub(super) fn send_events(&mut self) -> Result<(), Halt> {
        if self.metric_buffer.on_the_way().is_some() && self.group.is_fetched()? {
            self.land(u64::MAX)?;
        }
        let now = Instant::now();
        if now - self.outbox.last_report < REPORT_INTERVAL {
            return Ok(());
        }
        self.outbox.last_report = now;
        self.core_waits.begin(now);
        self.check_files()?;
        let elapsed_s = self.clock.elapsed_s();
        let progress = Progress {
            step: self.at.step,
            epoch: self.at.epoch,
            samples: self.at.samples,
            train_s: elapsed_s - self.aside_s(),
            elapsed_s,
            loss: self.metric_buffer.last_loss,
        };
        self.outbox.events.push(Event::Progress(progress));
        let is_saving = self.checkpoints.is_writing();
        self.outbox.send()?;
        if is_saving {
            // A recorder that writes a checkpoint for long makes this wait.
            self.clock.extend(Phase::Checkpoint, now.elapsed());
        } else {
            self.log_ends(now, Duration::ZERO);
        }
        Ok(())
    }
}
