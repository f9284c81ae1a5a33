//! One run from the first step to the last.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    feed::{Chunk, Stream},
    logbook::{Logbook, Steps},
    schedule::Timetable,
    stop::{Patience, StopFlag},
};
use crate::{
    data::{Dataset, Part, Store, epoch_order},
    device::{Block, Clock, Device, DeviceError, Grain, Kind, Purpose, SHORTEST_TIMED_STEP, Work},
    event::{Event, Level, Outcome, PhaseTime, Progress, Status, Transfer, ValidationRow},
    plan::Trial,
    program::{Hyper, Phase, Slice, Sums},
    spec::{Metric, Policy},
};

/// A block of steps takes about this long at most.
const BLOCK: Duration = Duration::from_millis(50);

/// Events are handed over, and progress is told, this often: waking the recorder costs more than a tiny step.
const TELL: Duration = Duration::from_millis(25);

/// Nobody listens any more: the recorder has failed, and knows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// All that a run needs.
pub struct Job<'a> {
    /// The plan.
    pub trial: &'a Trial,
    /// The rows.
    pub dataset: &'a Dataset,
    /// Where it runs.
    pub device: Device,
    /// The flat buffer of initial values.
    pub initial: &'a [f32],
    /// Asks to stop.
    pub stop: &'a StopFlag,
    /// Takes events in order.
    pub emit: &'a mut dyn FnMut(Vec<Event>) -> Result<(), Closed>,
}

/// What a run leaves behind.
pub struct Trained {
    /// The last event.
    pub outcome: Outcome,
    /// Final values, where all of them are finite and could be read, and the run did not diverge.
    pub values: Option<Vec<f32>>,
}

/// Why the loop ended before its time.
enum Halt {
    Closed,
    Device(DeviceError),
    Data(io::Error),
}

impl From<Closed> for Halt {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<DeviceError> for Halt {
    fn from(e: DeviceError) -> Self {
        Self::Device(e)
    }
}

impl From<io::Error> for Halt {
    fn from(e: io::Error) -> Self {
        Self::Data(e)
    }
}

/// Trains; an error only where nobody listens. The last event is the caller's to emit, with what it adds.
pub fn train(job: Job<'_>) -> Result<Trained, Closed> {
    let step_s = job.trial.floor.serial_s();
    let grain = if step_s < SHORTEST_TIMED_STEP.as_secs_f64() { Grain::Blocks } else { Grain::Phases };
    let mut session = Session::new(job, grain);
    let ran = session.run();
    if matches!(ran, Err(Halt::Device(_) | Halt::Data(_))) {
        // The rows of the steps before the fault are the run's own. That there was a fault is known already.
        let _ = session.end_epoch().and_then(|()| session.flush());
    }
    let (mut status, mut reason) = match ran {
        Ok(()) => (Status::Finished, None),
        Err(Halt::Closed) => return Err(Closed),
        Err(Halt::Device(e)) => (Status::Failed, Some(e.to_string())),
        Err(Halt::Data(e)) => (Status::Failed, Some(format!("cannot read the next rows: {e}"))),
    };
    if let Some((ended, why)) = session.ended.take() {
        (status, reason) = (ended, why);
    }
    let loop_time = session.clock.origin().elapsed();
    let mut values =
        vec![0.0; session.trial.programs.layout.buffers[session.trial.programs.layout.values.0].len];
    let read = session.device.read(Purpose::Parameters, session.values(), &mut values);
    // How far a diverged run went beyond its last row depends on the length of its blocks: its weights mean nothing.
    let kept = status != Status::Diverged && read.is_ok() && values.iter().all(|v| v.is_finite());
    let values = kept.then_some(values);
    Ok(Trained { outcome: session.outcome(status, reason, loop_time), values })
}

struct Session<'a> {
    trial: &'a Trial,
    dataset: &'a Dataset,
    device: Device,
    initial: &'a [f32],
    stop: &'a StopFlag,
    emit: &'a mut dyn FnMut(Vec<Event>) -> Result<(), Closed>,
    clock: Clock,
    timetable: Timetable,
    logbook: Logbook,
    patience: Option<Patience>,
    hyper: Vec<Hyper>,
    lrs: Vec<f64>,
    ends: Vec<f64>,
    read: Vec<f32>,
    step: u64,
    epoch: u64,
    samples: u64,
    non_finite: Option<u64>,
    warmup: Option<Duration>,
    /// Estimate of a step's time, for the length of blocks.
    step_time: Duration,
    /// Events that wait to be handed over.
    outbox: Vec<Event>,
    told: Instant,
    last_validation: Option<ValidationRow>,
    /// An end that is not the planned one.
    ended: Option<(Status, Option<String>)>,
}

impl<'a> Session<'a> {
    fn new(job: Job<'a>, grain: Grain) -> Self {
        let Job { trial, dataset, device, initial, stop, emit } = job;
        let spec = &trial.spec;
        let layout = &trial.programs.layout;
        let lr = spec.logging.metrics.contains(&Metric::Lr);
        Self {
            trial,
            dataset,
            device,
            initial,
            stop,
            emit,
            clock: Clock::new(grain),
            timetable: Timetable::new(&spec.optimizer, &spec.schedule),
            logbook: Logbook::new(spec.logging.policy, lr, layout.log_width, layout.log_slots),
            patience: spec.trainer.early_stopping.clone().map(Patience::new),
            hyper: Vec::new(),
            lrs: Vec::new(),
            ends: Vec::new(),
            read: Vec::new(),
            step: 0,
            epoch: 0,
            samples: 0,
            non_finite: None,
            warmup: None,
            step_time: Duration::ZERO,
            outbox: Vec::new(),
            told: Instant::now(),
            last_validation: None,
            ended: None,
        }
    }

    fn values(&self) -> Slice {
        self.trial.programs.layout.whole(self.trial.programs.layout.values)
    }

    fn run(&mut self) -> Result<(), Halt> {
        let start = Instant::now();
        self.device.write(Purpose::Parameters, self.values(), self.initial)?;
        let train = self.open(&self.dataset.train, Work::Train)?;
        let validation = match (&self.dataset.validation, &self.trial.programs.validate) {
            (Some(part), Some(_)) => Some((part.rows, self.open(part, Work::Validate)?)),
            _ => None,
        };
        self.clock.record(Phase::Upload, start.elapsed());
        let trainer = &self.trial.spec.trainer;
        let mut order = Arc::new(Vec::new());
        while self.step < self.trial.steps && self.ended.is_none() {
            self.epoch += 1;
            self.begin_epoch(train.as_ref(), &mut order)?;
            self.steps_of_epoch(train.as_ref())?;
            self.end_epoch()?;
            let due =
                trainer.validate_every_epochs > 0 && self.epoch.is_multiple_of(trainer.validate_every_epochs);
            let last = self.step >= self.trial.steps;
            if let Some((rows, stream)) =
                validation.as_ref().filter(|_| self.ended.is_none() && (due || last))
            {
                self.validate(*rows, stream.as_ref())?;
            }
            self.tell()?;
        }
        self.flush()?;
        self.told = self.clock.origin();
        self.tell()
    }

    /// Binds a part's rows to the device, or starts reading them.
    fn open(&mut self, part: &Part, work: Work) -> Result<Option<Stream>, Halt> {
        let layout = &self.trial.programs.layout;
        let (features, targets) = match work {
            Work::Train => (layout.train_features, layout.train_targets),
            Work::Validate => (layout.validation_features, layout.validation_targets),
        };
        match (&part.features, self.trial.chunk_rows) {
            (Store::Memory(rows), None) => {
                self.device.bind(Purpose::Dataset, features, rows)?;
                self.device.bind(Purpose::Dataset, targets, &part.targets)?;
                Ok(None)
            }
            (_, chunk) => {
                let unit = match (work, &self.trial.programs.validate) {
                    (Work::Validate, Some(program)) => program.rows,
                    _ => self.trial.programs.train.rows,
                };
                let rows = (chunk.unwrap_or(unit) / unit).max(1) * unit;
                let facts = self.trial.facts;
                Ok(Some(Stream::new(part, facts.features, facts.targets, rows)?))
            }
        }
    }

    fn begin_epoch(&mut self, stream: Option<&Stream>, order: &mut Arc<Vec<u32>>) -> Result<(), Halt> {
        let start = Instant::now();
        let rows = self.trial.facts.train_rows;
        let shuffle = self.trial.spec.data.shuffle;
        if shuffle {
            let mut numbers = Arc::try_unwrap(std::mem::take(order)).unwrap_or_default();
            epoch_order(self.trial.spec.seed, self.epoch, rows as u32, &mut numbers);
            *order = Arc::new(numbers);
        }
        match stream {
            Some(stream) => stream.begin(shuffle.then(|| Arc::clone(order)), rows)?,
            None if shuffle => self.device.bind_order(order)?,
            None => {}
        }
        self.clock.record(Phase::Data, start.elapsed());
        Ok(())
    }

    fn steps_of_epoch(&mut self, stream: Option<&Stream>) -> Result<(), Halt> {
        let rows = self.trial.facts.train_rows;
        let Some(stream) = stream else {
            self.blocks(0, 0, rows)?;
            return Ok(());
        };
        let mut position = 0;
        while position < rows && self.may_go_on() {
            let start = Instant::now();
            let chunk = stream.next()?;
            self.clock.record(Phase::Data, start.elapsed());
            self.bind_chunk(&chunk, Work::Train)?;
            self.blocks(position, chunk.first, chunk.first + chunk.rows)?;
            position = chunk.first + chunk.rows;
            stream.recycle(chunk.features, chunk.targets);
        }
        Ok(())
    }

    fn bind_chunk(&mut self, chunk: &Chunk, work: Work) -> Result<(), Halt> {
        let start = Instant::now();
        let layout = &self.trial.programs.layout;
        let (features, targets, purpose) = match work {
            Work::Train => (layout.train_features, layout.train_targets, Purpose::Batch),
            Work::Validate => (layout.validation_features, layout.validation_targets, Purpose::Validation),
        };
        self.device.bind(purpose, features, &chunk.features)?;
        self.device.bind(purpose, targets, &chunk.targets)?;
        if work == Work::Train {
            self.clock.record(Phase::Upload, start.elapsed());
        }
        Ok(())
    }

    fn may_go_on(&self) -> bool {
        self.step < self.trial.steps && self.ended.is_none()
    }

    /// Runs the steps of rows `position..end` of the epoch; the bound data begin at row `origin` of it.
    fn blocks(&mut self, mut position: usize, origin: usize, end: usize) -> Result<(), Halt> {
        let batch = self.trial.programs.train.rows;
        let total = self.trial.facts.train_rows;
        while position < end && self.may_go_on() {
            let left = (end - position).div_ceil(batch);
            let steps = left
                .min(usize::try_from(self.trial.steps - self.step).unwrap_or(usize::MAX))
                .min(self.logbook.room())
                .min(self.slice());
            self.lrs.clear();
            self.timetable.fill(self.step, self.epoch - 1, steps, &mut self.hyper, &mut self.lrs);
            let start = Instant::now();
            self.ends.clear();
            let block = Block {
                work: Work::Train,
                step: self.step,
                position,
                offset: position - origin,
                rows: total,
                steps,
                hyper: &self.hyper,
                slot: self.logbook.slot(),
            };
            let ran = self.device.run(&block, &mut self.clock, &mut self.ends)?;
            let time = start.elapsed();
            self.warmup.get_or_insert(time);
            self.step_time = time / steps as u32;
            let last_rows = batch.min(total - (position + (steps - 1) * batch));
            let rows = (steps - 1) * batch + last_rows;
            let (rows32, last32) = (batch as u32, last_rows as u32);
            let ended = Steps {
                epoch: self.epoch,
                first: self.step + 1,
                count: steps,
                rows: rows32,
                last_rows: last32,
            };
            self.logbook.ran(ended, &self.lrs, &self.ends);
            position += rows;
            self.step += steps as u64;
            self.samples += rows as u64;
            self.non_finite = ran.non_finite;
            if self.logbook.room() == 0 || self.trial.spec.logging.policy == Policy::Immediate {
                self.flush()?;
            }
            self.check()?;
            self.tell()?;
        }
        Ok(())
    }

    /// Steps that fit a block's time; the first is run alone, since it is the warm-up.
    fn slice(&self) -> usize {
        if self.warmup.is_none() {
            return 1;
        }
        let ns = self.step_time.as_nanos().max(1);
        usize::try_from(BLOCK.as_nanos() / ns).unwrap_or(usize::MAX).max(1)
    }

    fn check(&mut self) -> Result<(), Halt> {
        if let Some(step) = self.non_finite {
            // The steps of this block that came after it never happened.
            let facts = self.trial.facts;
            let before = (self.epoch - 1) * facts.train_rows as u64;
            let within = step - (self.epoch - 1) * self.trial.steps_per_epoch;
            let rows = (within * self.trial.programs.train.rows as u64).min(facts.train_rows as u64);
            self.logbook.cut_epoch(rows);
            (self.step, self.samples) = (step, before + rows);
            let lr = self.trial.spec.optimizer.lr();
            let reason = format!(
                "the loss is not a finite number at step {step}; lower the learning rate (it is {lr}), or clip the \
                 gradients by `trainer.gradient_clip_val`"
            );
            self.ended = Some((Status::Diverged, Some(reason)));
            return Ok(());
        }
        if let Some(signal) = self.stop.signal() {
            let name = if signal == 15 { "SIGTERM" } else { "Ctrl-C (SIGINT)" };
            self.ended = Some((Status::Interrupted, Some(format!("{name} after step {}", self.step))));
        } else if self.trial.spec.trainer.max_time.is_some_and(|most| self.clock.origin().elapsed() >= most) {
            self.ended = Some((Status::Finished, Some("`trainer.max_time` is over".into())));
        }
        Ok(())
    }

    fn end_epoch(&mut self) -> Result<(), Halt> {
        match self.trial.spec.logging.policy {
            Policy::Immediate | Policy::Buffered => {}
            Policy::Off => {
                self.logbook.take_epoch_rows();
            }
            Policy::PerEpoch => {
                let start = Instant::now();
                let mut sums = vec![0.0; self.trial.programs.layout.log_width];
                self.device.take_sums(Purpose::Log, Sums::Epoch, &mut sums)?;
                let lr = self.timetable.rates(self.step.saturating_sub(1), self.epoch - 1).lr;
                let row = self.logbook.epoch_mean(self.epoch, self.step, lr, &sums);
                self.outbox.extend(row);
                self.clock.record(Phase::Log, start.elapsed());
            }
        }
        // The device's log outlives an epoch; a run that ends here is flushed by its end.
        Ok(())
    }

    /// Moves the log's rows to the host and hands them over.
    fn flush(&mut self) -> Result<(), Halt> {
        let start = Instant::now();
        let layout = &self.trial.programs.layout;
        let len = self.logbook.pending();
        self.read.resize(len, 0.0);
        if len > 0 {
            let rows = Slice { buffer: layout.log, offset: 0, len };
            self.device.read(Purpose::Log, rows, &mut self.read)?;
        }
        let events = self.logbook.flush(&self.read, self.non_finite.unwrap_or(u64::MAX));
        self.outbox.extend(events);
        if len > 0 {
            self.clock.record(Phase::Log, start.elapsed());
        }
        Ok(())
    }

    fn validate(&mut self, rows: usize, stream: Option<&Stream>) -> Result<(), Halt> {
        let Some(chunk_rows) = self.trial.programs.validate.as_ref().map(|p| p.rows) else { return Ok(()) };
        let start = Instant::now();
        match stream {
            None => self.validate_rows(0, 0, rows, rows, chunk_rows)?,
            Some(stream) => {
                stream.begin(None, rows)?;
                let mut position = 0;
                while position < rows {
                    let chunk = stream.next()?;
                    self.bind_chunk(&chunk, Work::Validate)?;
                    self.validate_rows(position, chunk.first, chunk.first + chunk.rows, rows, chunk_rows)?;
                    position = chunk.first + chunk.rows;
                    stream.recycle(chunk.features, chunk.targets);
                }
            }
        }
        let mut sums = [0.0; 2];
        self.device.take_sums(Purpose::Validation, Sums::Validation, &mut sums)?;
        let classifies = self.trial.spec.model.loss.classifies();
        let row = ValidationRow {
            step: self.step,
            epoch: self.epoch,
            rows: rows as u64,
            loss: sums[0] / rows as f64,
            accuracy: classifies.then(|| sums[1] / rows as f64),
            elapsed_s: self.clock.elapsed_s(),
        };
        let end = Instant::now();
        self.clock.record(Phase::Validation, end - start);
        if let Some(why) = self.patience.as_mut().and_then(|p| p.observe(&row)) {
            self.ended = Some((Status::Finished, Some(why)));
        }
        self.last_validation = Some(row.clone());
        self.outbox.extend(self.logbook.hold(row).map(Event::Validation));
        Ok(())
    }

    fn validate_rows(
        &mut self,
        position: usize,
        origin: usize,
        end: usize,
        rows: usize,
        chunk: usize,
    ) -> Result<(), Halt> {
        let block = Block {
            work: Work::Validate,
            step: self.step,
            position,
            offset: position - origin,
            rows,
            steps: (end - position).div_ceil(chunk),
            hyper: &[],
            slot: 0,
        };
        self.device.run(&block, &mut self.clock, &mut self.ends)?;
        Ok(())
    }

    /// Hands over what has happened, if it is time; called at the end of every block.
    fn tell(&mut self) -> Result<(), Halt> {
        let now = Instant::now();
        if now - self.told < TELL {
            return Ok(());
        }
        self.told = now;
        let elapsed_s = self.clock.elapsed_s();
        let progress = Progress {
            step: self.step,
            epoch: self.epoch,
            samples: self.samples,
            train_s: elapsed_s - self.clock.total(Phase::Validation).as_secs_f64(),
            elapsed_s,
            loss: self.logbook.last_loss,
        };
        self.outbox.push(Event::Progress(progress));
        (self.emit)(std::mem::take(&mut self.outbox))?;
        self.clock.record(Phase::Log, now.elapsed());
        Ok(())
    }

    fn outcome(mut self, status: Status, reason: Option<String>, loop_time: Duration) -> Outcome {
        self.outbox.extend(reason.clone().map(|reason| Event::Notice(Level::Info, reason)));
        // A listener that is gone is noticed with the last event, which the caller emits.
        let _ = (self.emit)(std::mem::take(&mut self.outbox));
        let loop_s = loop_time.as_secs_f64();
        let train_time = loop_time.saturating_sub(self.clock.total(Phase::Validation));
        let name = self.device.name();
        Outcome {
            status,
            reason,
            epochs: self.epoch,
            steps: self.step,
            samples: self.samples,
            final_train_loss: self.logbook.last_loss,
            final_validation_loss: self.last_validation.as_ref().map(|v| v.loss),
            final_validation_accuracy: self.last_validation.as_ref().and_then(|v| v.accuracy),
            loop_s,
            train_s: train_time.as_secs_f64(),
            logging_s: self.clock.total(Phase::Log).as_secs_f64(),
            peak_device_bytes: self.device.bytes() + self.trial.data_bytes,
            timing: timing(&self.clock, name, loop_time, self.warmup),
            transfers: transfers(&self.device),
            warmup_s: self.warmup.map(|w| w.as_secs_f64()),
        }
    }
}

/// The rows of `timing.csv`: phases, `other` as what is left of the loop, `total`, `warmup`.
fn timing(clock: &Clock, device: &str, loop_time: Duration, warmup: Option<Duration>) -> Vec<PhaseTime> {
    let share = |time: Duration| time.as_secs_f64() / loop_time.as_secs_f64().max(f64::MIN_POSITIVE);
    let single = |phase, time: Duration| PhaseTime {
        device: device.to_owned(),
        clock: "host",
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
    };
    let mut rows = Vec::new();
    let mut told = Duration::ZERO;
    for (phase, s) in clock.summaries() {
        told += s.total;
        let [p50_s, p95_s, p99_s] = s.percentiles_s;
        rows.push(PhaseTime {
            count: s.count,
            mean_s: picoseconds(s.total.as_secs_f64() / s.count as f64),
            std_s: s.std_s.map(picoseconds),
            min_s: s.min_s,
            p50_s,
            p95_s,
            p99_s,
            max_s: s.max_s,
            ..single(phase.name(), s.total)
        });
    }
    rows.push(single(Phase::Other.name(), loop_time.saturating_sub(told)));
    rows.push(single("total", loop_time));
    rows.extend(warmup.map(|w| single("warmup", w)));
    rows
}

/// Rounded to what a clock of nanoseconds can tell of a mean.
fn picoseconds(seconds: f64) -> f64 {
    (seconds * 1e12).round() / 1e12
}

fn transfers(device: &Device) -> Vec<Transfer> {
    let host = || "cpu".to_owned();
    device
        .ledger
        .lines()
        .map(|(kind, purpose, line)| {
            let there = device.name().to_owned();
            let (from, to) = match kind {
                Kind::HostToDevice => (host(), there),
                Kind::DeviceToHost => (there, host()),
                Kind::DeviceToDevice | Kind::AllReduce | Kind::Sync => (there.clone(), there),
            };
            Transfer {
                kind: kind.name(),
                purpose: purpose.name(),
                from,
                to,
                count: line.count,
                noop_count: line.noop_count,
                bytes: (kind != Kind::Sync).then_some(line.bytes),
                total_s: line.time.as_secs_f64(),
            }
        })
        .collect()
}
