//! The end of a run: turns what the clock and the ledger counted into the rows of the run's files.

use std::time::Duration;

use super::{
    device_group::{DeviceTimes, Rank},
    state::Inputs,
    train_loop::{Halt, TrainLoop},
};
use crate::{
    device::{Clock, ClockCost, Device, Grain, Kind, Lane, Line, PhaseSummary, Purpose, Timer},
    event::{Event, Level, Outcome, PhaseTime, Status, TraceLane, Transfer},
    host::{page_fault_s, page_faults},
    plan::{Bottleneck, Measured, TimeAccount, Trial, padding},
    program::Phase,
    units,
};

impl TrainLoop<'_> {
    /// Sends the remaining events and computes the totals.
    pub(super) fn outcome(mut self, status: Status, reason: Option<String>, loop_time: Duration) -> Outcome {
        let costs = self.checkpoint_costs();
        self.outbox.events.extend(costs);
        self.outbox.events.extend(self.comparisons().map(|text| Event::Notice(Level::Info, text)));
        let level = if status == Status::Diverged { Level::Error } else { Level::Info };
        self.outbox.events.extend(reason.clone().map(|reason| Event::Notice(level, reason)));
        self.outbox.events.extend(self.unmeasured().map(|text| Event::Notice(Level::Warning, text)));
        // If the receiver is gone, the caller notices when it emits the last event.
        let _ = self.outbox.send();
        // Phases and copies cover only the part of the run since the last resume.
        let here = self.since_resume(loop_time);
        let train_time = here.saturating_sub(self.aside());
        let measured = self.measured(here);
        let ranks = self.group.finish();
        let account = ranks.first().filter(|_| status != Status::Diverged);
        let account = account
            .and_then(|first| account_of(self.trial, &self.clock, &measured, &DeviceTimes::from_rank(first)));
        let log_s = log_s(&self.clock, account.as_ref());
        Outcome {
            status,
            reason,
            // An epoch that has begun but has no step yet does not count.
            epochs: Some(self.at.step.div_ceil(self.trial.steps_per_epoch.max(1))),
            steps: self.at.step,
            samples: Some(self.at.samples),
            final_train_loss: self.metric_buffer.last_loss,
            epoch_train_loss: self.metric_buffer.epoch_loss.mean(),
            epoch_train_rows: self.metric_buffer.epoch_loss.rows,
            final_validation_loss: self.validated.last.as_ref().map(|v| v.loss),
            final_validation_accuracy: self.validated.last.as_ref().and_then(|v| v.accuracy),
            final_scores: self.validated.last.as_ref().map(|v| v.scores.clone()).unwrap_or_default(),
            best: self.validated.best,
            earlier_s: self.earlier.elapsed_s,
            earlier_train_s: self.earlier.train_s,
            loop_s: loop_time.as_secs_f64(),
            train_s: self.earlier.train_s + train_time.as_secs_f64(),
            logging_s: self.earlier.logging_s + log_s,
            ordering_s: self.inputs.ordering.as_secs_f64(),
            peak_device_bytes: ranks.iter().map(|r| r.device.executor.bytes()).max().unwrap_or(0),
            timing: timings(&self.clock, &ranks, here, self.pacing.warmup),
            transfers: all_transfers(&ranks, &self.clock, self.trial, &self.inputs),
            checkpoints_left_out: self.checkpoints.left_out,
            instrument: instrument(&self.clock, &ranks),
            traces: traces(&self.clock, &ranks),
            account,
            load: None,
            core_wait_share: None,
            energy_j: None,
            no_model: None,
        }
    }
}

impl TrainLoop<'_> {
    /// Seconds of logging since the run began, as [`Outcome`] would have them if it ended here.
    pub(super) fn logging_s(&mut self) -> Result<f64, Halt> {
        let here = self.since_resume(self.clock.origin().elapsed());
        let (measured, device) = (self.measured(here), self.group.first_times()?);
        let account = account_of(self.trial, &self.clock, &measured, &device);
        Ok(self.earlier.logging_s + log_s(&self.clock, account.as_ref()))
    }

    fn since_resume(&self, loop_time: Duration) -> Duration {
        loop_time.saturating_sub(Duration::from_secs_f64(self.earlier.elapsed_s))
    }

    /// Times that the loop itself knows. Waits for a core outside of the log and page faults are counted over the whole loop;
    /// training gets its share of them in proportion to its time.
    fn measured(&mut self, here: Duration) -> Measured {
        let [here_s, train_s] = [here, here.saturating_sub(self.aside())].map(|time| time.as_secs_f64());
        let part = train_s / here_s.max(f64::MIN_POSITIVE);
        let last_steps = self.last_steps();
        let core_wait_s = self.core_waits.total().unwrap_or_default().as_secs_f64();
        let lost_in_log_s = self.inputs.lost_in_log.as_secs_f64();
        Measured {
            full_steps: self.at.step - self.earlier.step - last_steps,
            last_steps,
            train_s,
            fetch_s: self.fetched_s(),
            checkpoint_s: self.clock.total(Timer::Host, Phase::Checkpoint).as_secs_f64(),
            core_wait_s: lost_in_log_s + part * (core_wait_s - lost_in_log_s).max(0.0),
            page_faults_s: part * self.page_faults_s(),
            ..Measured::default()
        }
    }

    /// How often the devices' parameters were compared; `None` if never.
    fn comparisons(&self) -> Option<String> {
        let (count @ 1.., time) = (self.replicas.count, self.replicas.time) else { return None };
        let time = units::seconds(time.as_secs_f64());
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        Some(format!("replicas compared {times} in {time}, equal"))
    }

    /// Approximate time this thread has spent on page faults since the rows were loaded.
    fn page_faults_s(&self) -> f64 {
        let faults = page_faults().zip(self.inputs.page_faults);
        match faults.map_or(0, |(after, before)| after.saturating_sub(before)) {
            0 => 0.0,
            count => count as f64 * page_fault_s(),
        }
    }

    /// Steps on the smaller batch that ends an epoch.
    fn last_steps(&self) -> u64 {
        match self.trial.programs.train_last {
            Some(_) => {
                let epochs = |steps: u64| steps / self.trial.steps_per_epoch.max(1);
                epochs(self.at.step) - epochs(self.earlier.step)
            }
            None => 0,
        }
    }

    /// Seconds that steps spent fetching their rows from a file. If phases are not timed, the mean over a
    /// team's threads.
    fn fetched_s(&self) -> f64 {
        if self.trial.chunks.is_some() || !self.trial.facts.in_file() {
            return 0.0;
        }
        if self.clock.grain == Grain::Phases {
            let fetched = self.clock.total(Timer::Host, Phase::Data).saturating_sub(self.inputs.ordering);
            return fetched.as_secs_f64();
        }
        let reads = self.inputs.reads.iter().filter(|read| (read.0, read.1) == (Kind::Read, Purpose::Batch));
        let time: Duration = reads.map(|(_, _, reads)| reads.total().2).sum();
        time.as_secs_f64() / self.trial.threads as f64
    }
}

/// What the training since the last resume was spent on, by the loop's clock and that of the first device.
fn account_of(trial: &Trial, run: &Clock, measured: &Measured, device: &DeviceTimes) -> Option<TimeAccount> {
    // Virtual devices share one processor, so their times say nothing about real devices.
    if trial.devices.any_virtual() {
        return None;
    }
    let seconds = |by, phase| (run.total(by, phase) + device.total(by, phase)).as_secs_f64();
    let work = RunTimes { seconds: &seconds, in_chunks: trial.chunks.is_some() };
    let measured = Measured { log_waits: device.log_waits, ..*measured };
    let measured = if trial.engine.is_gpu() { work.of_gpu(measured) } else { work.of_cpu(measured) };
    TimeAccount::new(trial, &measured)
}

fn log_s(run: &Clock, account: Option<&TimeAccount>) -> f64 {
    let log_s = run.total(Timer::Host, Phase::Log).as_secs_f64();
    account.map_or(log_s, |account| account.seconds(Bottleneck::Log))
}

/// All that was copied on every device and read from files.
fn all_transfers(ranks: &[Rank], run: &Clock, trial: &Trial, inputs: &Inputs) -> Vec<Transfer> {
    let moved = ranks.iter().flat_map(|r| transfers(&r.device, r.clock.as_ref().unwrap_or(run), trial));
    let files = inputs.reads.iter();
    moved.chain(files.filter_map(|(kind, of, reads)| read(*kind, *of, Line::from(&**reads)))).collect()
}

/// The time that reading the clock cost the run: the host's own readings, plus those of the device with the
/// most, since devices are timed in parallel.
fn instrument(run: &Clock, ranks: &[Rank]) -> ClockCost {
    let of_rank = |rank: &Rank| rank.clock.as_ref().map_or(0, Clock::readings);
    let cost = run.cost();
    ClockCost { readings: cost.readings + ranks.iter().map(of_rank).max().unwrap_or(0), ..cost }
}

/// The run's timeline: the host's loop first, then each device.
fn traces(run: &Clock, ranks: &[Rank]) -> Vec<TraceLane> {
    let lane = |process: &str, lane: Lane, clock: &Clock| {
        let trace = clock.trace.as_ref()?.lane(lane).clone();
        Some(TraceLane { process: process.to_owned(), name: lane.name(), trace })
    };
    let host = lane("host", Lane::Host, run);
    let devices = ranks.iter().flat_map(|rank| {
        let clock = rank.clock.as_ref().unwrap_or(run);
        let lanes = Lane::OF_DEVICE.map(|of| lane(&rank.device.name, of, clock));
        // A device without its own streams has no lanes for copies.
        let lanes = lanes.into_iter().flatten();
        lanes.enumerate().filter(|(i, lane)| *i == 0 || !lane.trace.is_empty()).map(|(_, lane)| lane)
    });
    host.into_iter().chain(devices).collect()
}

/// Seconds of each phase, summed over all steps.
struct RunTimes<'a> {
    seconds: &'a dyn Fn(Timer, Phase) -> f64,
    /// Whether rows came in chunks, which the loop waited for.
    in_chunks: bool,
}

const COMPUTING: [Phase; 5] = [Phase::Forward, Phase::Loss, Phase::Backward, Phase::Optimizer, Phase::Step];

impl RunTimes<'_> {
    fn of_cpu(&self, measured: Measured) -> Measured {
        let host = |phase| (self.seconds)(Timer::Host, phase);
        let data_s = host(Phase::Data);
        // Under `Data`: waits for chunks if there are chunks; otherwise fetches by the steps, and making orders.
        let wait_s = if self.in_chunks { data_s } else { 0.0 };
        let all_s = COMPUTING.into_iter().map(host).sum::<f64>() + data_s - wait_s;
        let fetch_s = measured.fetch_s.min(all_s);
        Measured {
            compute_s: all_s - fetch_s,
            fetch_s,
            wait_s,
            upload_s: host(Phase::Upload),
            log_s: host(Phase::Log),
            all_reduce_s: host(Phase::AllReduce),
            ..measured
        }
    }

    /// A GPU works while the host does other things, so the time of its steps is taken from its own clock. It
    /// includes fetching rows and appending to the log.
    fn of_gpu(&self, measured: Measured) -> Measured {
        let [host, device] = [Timer::Host, Timer::Device].map(|by| move |phase| (self.seconds)(by, phase));
        Measured {
            compute_s: COMPUTING.into_iter().chain([Phase::Data, Phase::Log]).map(device).sum(),
            wait_s: if self.in_chunks { host(Phase::Data) } else { 0.0 },
            // Chunks are copied while the host does other things.
            upload_s: host(Phase::Upload).max(device(Phase::Upload)),
            log_s: host(Phase::Log),
            all_reduce_s: device(Phase::AllReduce),
            ..measured
        }
    }
}

/// The rows of `timing.csv`: the phases of each device. The first device also has those of the host's loop,
/// `other` (the remainder of the loop), `total` and `warmup`.
fn timings(run: &Clock, ranks: &[Rank], loop_time: Duration, warmup: Option<Duration>) -> Vec<PhaseTime> {
    let mut rows = Vec::new();
    for (index, rank) in ranks.iter().enumerate() {
        let mut clock = Clock::at(run.origin(), run.grain);
        rank.clock.iter().chain((index == 0).then_some(run)).for_each(|own| clock.absorb(own));
        rows.extend(timing(&clock, &rank.device.name, loop_time, (index == 0).then_some(warmup)));
    }
    rows
}

/// The rows of one clock. `warmup` is given only for the clock of the loop.
fn timing(
    clock: &Clock,
    device: &str,
    loop_time: Duration,
    warmup: Option<Option<Duration>>,
) -> Vec<PhaseTime> {
    let share = |time: Duration| time.as_secs_f64() / loop_time.as_secs_f64().max(f64::MIN_POSITIVE);
    let single = |phase, time: Duration| PhaseTime {
        device: device.to_owned(),
        clock: Timer::Host.name(),
        phase,
        count: 1,
        total_s: time.as_secs_f64(),
        mean_s: time.as_secs_f64(),
        std_s: None,
        min_s: time.as_secs_f64(),
        p50_s: time.as_secs_f64(),
        p95_s: time.as_secs_f64(),
        p99_s: time.as_secs_f64(),
        max_s: time.as_secs_f64(),
        share: (share(time) * 1e6).round() / 1e6,
        samples: 1,
    };
    let row = |phase: Phase, s: PhaseSummary| {
        let [p50_s, p95_s, p99_s] = s.percentiles_s;
        PhaseTime {
            count: s.count,
            mean_s: picoseconds(s.total.as_secs_f64() / s.count as f64),
            std_s: s.std_s.map(picoseconds),
            min_s: s.min_s,
            p50_s,
            p95_s,
            p99_s,
            max_s: s.max_s,
            samples: s.samples,
            ..single(phase.name(), s.total)
        }
    };
    let mut rows = Vec::new();
    let mut reported = Duration::ZERO;
    // What was recorded as `other` belongs to the remainder too.
    for (phase, s) in clock.summaries(Timer::Host).filter(|(phase, _)| *phase != Phase::Other) {
        reported += s.total;
        rows.push(row(phase, s));
    }
    let by_device = clock.summaries(Timer::Device);
    rows.extend(by_device.map(|(phase, s)| PhaseTime { clock: Timer::Device.name(), ..row(phase, s) }));
    if let Some(warmup) = warmup {
        rows.push(single(Phase::Other.name(), loop_time.saturating_sub(reported)));
        rows.push(single("total", loop_time));
        rows.extend(warmup.map(|w| single("warmup", w)));
    }
    rows
}

/// Rounds to picoseconds: a mean of times in nanoseconds has no more precision.
fn picoseconds(seconds: f64) -> f64 {
    (seconds * 1e12).round() / 1e12
}

/// What was read from a file into host memory; `None` if nothing was.
fn read(kind: Kind, purpose: Purpose, line: Line) -> Option<Transfer> {
    (line.count > 0).then(|| Transfer::new(kind, purpose, "file".into(), "cpu".into(), line))
}

fn transfers(device: &Device, clock: &Clock, trial: &Trial) -> Vec<Transfer> {
    // Sums queued as work of their own are timed by the device's clock.
    let summed_s =
        Some(clock.total(Timer::Device, Phase::AllReduce).as_secs_f64()).filter(|seconds| *seconds > 0.0);
    let transfer = |(kind, purpose, line): (Kind, Purpose, Line)| {
        let (host, there) = ("cpu".to_owned(), device.name.clone());
        let (from, to) = match kind {
            Kind::HostToDevice => (host, there),
            Kind::DeviceToHost | Kind::Sync => (there, host),
            // Another process read its own files.
            Kind::Read | Kind::ReadAhead => ("file".to_owned(), there),
            _ => (there.clone(), there),
        };
        let row = Transfer::new(kind, purpose, from, to, line);
        let total_s = row.total_s.or(summed_s.filter(|_| kind == Kind::AllReduce));
        let [moved, payload] = padding(trial, purpose.name());
        Transfer { total_s, bytes: row.bytes.map(|bytes| bytes / moved * payload), ..row }
    };
    device.ledger.lines().map(transfer).collect()
}
