//! One run from the first step to the last.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    feed::{Chunk, Cut, Stream},
    logbook::{Logbook, Steps},
    schedule::Timetable,
    stop::{Patience, StopFlag},
    world::World,
};
use crate::{
    data::{Dataset, Part, Store, epoch_order},
    device::{Block, Clock, DeviceError, Grain, Lane, Purpose, SHORTEST_TIMED_STEP, Work},
    event::{Event, Outcome, Progress, Status, ValidationRow},
    plan::Trial,
    program::{Hyper, Phase, Slice, Sums},
    spec::{Metric, Policy},
};

/// A block of steps takes about this long at most.
pub(super) const BLOCK: Duration = Duration::from_millis(50);

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
    pub world: World,
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
pub(super) enum Halt {
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

/// How finely a trial's steps are timed.
pub fn grain(trial: &Trial) -> Grain {
    let step_s = trial.floor.serial_s();
    // A GPU times its steps itself, while the host is elsewhere.
    let blocks = trial.engine.is_gpu() || step_s < SHORTEST_TIMED_STEP.as_secs_f64();
    if blocks { Grain::Blocks } else { Grain::Phases }
}

/// Trains; an error only where nobody listens. The last event is the caller's to emit, with what it adds.
pub fn train(job: Job<'_>) -> Result<Trained, Closed> {
    let grain = grain(job.trial);
    let mut session = Session::new(job, grain);
    let ran = session.run();
    // The rows of the steps before the fault are the run's own. That there was a fault is known already. A device's
    // running sums may hold steps of the block that failed, so that a mean is no longer known.
    let _ = match ran {
        Err(Halt::Device(_)) => session.flush(),
        Err(Halt::Data(_)) => session.log_epoch().and_then(|()| session.flush()),
        Ok(()) | Err(Halt::Closed) => Ok(()),
    };
    // Of which step a failed device's parameters are is not known.
    let known = !matches!(ran, Err(Halt::Device(_)));
    let (mut status, mut reason) = match ran {
        Ok(()) => (Status::Finished, None),
        Err(Halt::Closed) => (Status::Failed, Some("the run can no longer be recorded".into())),
        Err(Halt::Device(e)) => (Status::Failed, Some(e.to_string())),
        Err(Halt::Data(e)) => (Status::Failed, Some(format!("cannot read the next rows: {e}"))),
    };
    if let Some((ended, why)) = session.ended.take() {
        (status, reason) = (ended, why);
    }
    let loop_time = session.clock.origin().elapsed();
    let mut values =
        vec![0.0; session.trial.programs.layout.buffers[session.trial.programs.layout.values.0].len];
    let read = session.world.read(Purpose::Parameters, session.values(), &mut values);
    // How far a diverged run went beyond its last row depends on the length of its blocks: its weights mean nothing.
    let kept = known && status != Status::Diverged && read.is_ok() && values.iter().all(|v| v.is_finite());
    let values = kept.then_some(values);
    Ok(Trained { outcome: session.outcome(status, reason, loop_time), values })
}

/// A run under way.
pub(super) struct Session<'a> {
    pub(super) trial: &'a Trial,
    pub(super) dataset: &'a Dataset,
    pub(super) world: World,
    pub(super) initial: &'a [f32],
    pub(super) stop: &'a StopFlag,
    pub(super) emit: &'a mut dyn FnMut(Vec<Event>) -> Result<(), Closed>,
    pub(super) clock: Clock,
    pub(super) timetable: Timetable,
    pub(super) logbook: Logbook,
    pub(super) patience: Option<Patience>,
    pub(super) hyper: Vec<Hyper>,
    pub(super) lrs: Vec<f64>,
    pub(super) read: Vec<f32>,
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) samples: u64,
    pub(super) non_finite: Option<u64>,
    pub(super) warmup: Option<Duration>,
    /// Comparisons of the devices' parameters that found them equal, and the time they took.
    pub(super) comparing: (u64, Duration),
    /// Estimate of a step's time, for the length of blocks; zero while nothing is known of it.
    pub(super) step_time: Duration,
    /// Steps of the block before.
    pub(super) before: usize,
    /// Events that wait to be handed over.
    pub(super) outbox: Vec<Event>,
    pub(super) told: Instant,
    pub(super) last_validation: Option<ValidationRow>,
    /// An end that is not the planned one.
    pub(super) ended: Option<(Status, Option<String>)>,
}

impl<'a> Session<'a> {
    fn new(job: Job<'a>, grain: Grain) -> Self {
        let Job { trial, dataset, world, initial, stop, emit } = job;
        let spec = &trial.spec;
        let layout = &trial.programs.layout;
        let lr = spec.logging.metrics.contains(&Metric::Lr);
        let (optimizer, schedule) = trial.rates();
        Self {
            trial,
            dataset,
            world,
            initial,
            stop,
            emit,
            clock: Clock::new(grain).traced(spec.logging.trace),
            timetable: Timetable::new(&optimizer, &schedule),
            logbook: Logbook::new(spec.logging.policy, lr, layout.log_width, layout.log_slots),
            patience: spec.trainer.early_stopping.clone().map(Patience::new),
            hyper: Vec::new(),
            lrs: Vec::new(),
            read: Vec::new(),
            step: 0,
            epoch: 0,
            samples: 0,
            non_finite: None,
            warmup: None,
            comparing: (0, Duration::ZERO),
            step_time: Duration::ZERO,
            before: 1,
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
        self.world.start(&self.clock)?;
        self.world.write(Purpose::Parameters, self.values(), self.initial)?;
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
            // `max_time` ends a run as `max_steps` does: with a validation.
            let in_order = !matches!(self.ended, Some((ref status, _)) if *status != Status::Finished);
            let last = self.step >= self.trial.steps || self.ended.is_some();
            if let Some((rows, stream)) = validation.as_ref().filter(|_| in_order && (due || last)) {
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
                self.world.bind(Purpose::Dataset, features, rows)?;
                self.world.bind(Purpose::Dataset, targets, &part.targets)?;
                Ok(None)
            }
            (_, chunk) => {
                let batch = match (work, &self.trial.programs.validate) {
                    (Work::Validate, Some(program)) => program.batch,
                    _ => self.trial.programs.train.batch,
                };
                let chunk = (chunk.unwrap_or(batch) / batch).max(1) * batch;
                let facts = self.trial.facts;
                let (features, targets) = (facts.features, facts.targets);
                let (world_size, threads) = (self.world.size(), self.trial.threads);
                let cut = Cut { features, targets, batch, chunk, world_size, threads };
                Ok(Some(Stream::new(part, cut)?))
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
            None if shuffle => self.world.bind_order(order)?,
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
            stream.recycle(chunk);
        }
        Ok(())
    }

    pub(super) fn bind_chunk(&mut self, chunk: &Chunk, work: Work) -> Result<(), Halt> {
        let start = Instant::now();
        let layout = &self.trial.programs.layout;
        let (features, targets, purpose) = match work {
            Work::Train => (layout.train_features, layout.train_targets, Purpose::Batch),
            Work::Validate => (layout.validation_features, layout.validation_targets, Purpose::Validation),
        };
        self.world.bind_each(purpose, features, &chunk.features)?;
        self.world.bind_each(purpose, targets, &chunk.targets)?;
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
        let batch = self.trial.programs.train.batch;
        let total = self.trial.facts.train_rows;
        while position < end && self.may_go_on() {
            let left = (end - position).div_ceil(batch);
            let steps = left
                .min(usize::try_from(self.trial.steps - self.step).unwrap_or(usize::MAX))
                .min(self.logbook.room())
                .min(self.slice());
            let start = Instant::now();
            self.lrs.clear();
            self.timetable.fill(self.step, self.epoch - 1, steps, &mut self.hyper, &mut self.lrs);
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
            let ran = self.world.run(&block, &mut self.clock, &mut self.logbook.ends)?;
            let time = start.elapsed();
            self.warmup.get_or_insert(time);
            self.step_time = ran.step_time.unwrap_or(self.step_time);
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
            self.logbook.ran(ended, &self.lrs);
            self.clock.span(Lane::Host, Phase::Step, [start, start + time], steps as u64);
            if self.clock.grain == Grain::Blocks {
                self.clock.record_many(Phase::Step, start.elapsed(), steps as u64);
            }
            self.before = steps;
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
        if self.step_time.is_zero() {
            // A device that is not waited for has not told yet.
            return self.before.saturating_mul(2);
        }
        let ns = self.step_time.as_nanos().max(1);
        usize::try_from(BLOCK.as_nanos() / ns).unwrap_or(usize::MAX).max(1)
    }

    pub(super) fn check(&mut self) -> Result<(), Halt> {
        if let Some(step) = self.non_finite {
            // The steps of this block that came after it never happened.
            let facts = self.trial.facts;
            // A device that is not waited for may be an epoch further.
            let epochs = (step - 1) / self.trial.steps_per_epoch;
            let before = epochs * facts.train_rows as u64;
            let within = step - epochs * self.trial.steps_per_epoch;
            let rows = (within * self.trial.programs.train.batch as u64).min(facts.train_rows as u64);
            self.logbook.cut_epoch(rows);
            (self.step, self.samples, self.epoch) = (step, before + rows, epochs + 1);
            let lr = self.trial.rates().0.lr();
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
        self.log_epoch()?;
        self.compare_replicas()
    }

    /// The row of an epoch, where the policy wants one. The device's log outlives an epoch; a run that ends here is
    /// flushed by its end.
    fn log_epoch(&mut self) -> Result<(), Halt> {
        match self.trial.spec.logging.policy {
            Policy::Immediate | Policy::Buffered => {}
            Policy::Off => {
                self.settle(Purpose::Log)?;
                self.logbook.take_epoch_rows();
            }
            Policy::PerEpoch => {
                let start = Instant::now();
                let mut sums = vec![0.0; self.trial.programs.layout.log_width];
                self.world.take_sums(Purpose::Log, Sums::Epoch, &mut sums)?;
                let waited = self.settle(Purpose::Log)?;
                let lr = self.timetable.rates(self.step.saturating_sub(1), self.epoch - 1).lr;
                let row = self.logbook.epoch_mean(self.epoch, self.step, lr, &sums);
                self.outbox.extend(row);
                self.clock.record(Phase::Log, start.elapsed().saturating_sub(waited));
            }
        }
        Ok(())
    }

    /// All devices must hold the same parameters.
    fn compare_replicas(&mut self) -> Result<(), Halt> {
        if self.world.size() == 1 {
            return Ok(());
        }
        let start = Instant::now();
        let digests = self.world.digests(self.values())?;
        self.comparing.0 += 1;
        self.comparing.1 += start.elapsed();
        match digests.iter().position(|d| Some(d) != digests.first()) {
            None => Ok(()),
            Some(rank) => {
                self.comparing.0 = 0;
                let [first, device] = [0, rank].map(|rank| self.world.names()[rank].clone());
                Err(DeviceError::Replicas { device, first, step: self.step }.into())
            }
        }
    }

    /// Moves the log's rows to the host and hands them over.
    fn flush(&mut self) -> Result<(), Halt> {
        let start = Instant::now();
        let mut waited = Duration::ZERO;
        let layout = &self.trial.programs.layout;
        let len = self.logbook.pending();
        self.read.resize(len, 0.0);
        if len > 0 {
            let rows = Slice { buffer: layout.log, offset: 0, len };
            self.world.read(Purpose::Log, rows, &mut self.read)?;
            waited = self.settle(Purpose::Log)?;
        }
        let events = self.logbook.flush(&self.read, self.non_finite.unwrap_or(u64::MAX));
        self.outbox.extend(events);
        if len > 0 {
            self.clock.record(Phase::Log, start.elapsed().saturating_sub(waited));
        }
        Ok(())
    }

    /// The times and the first loss that is not finite, of all steps so far. What the host has waited for them is theirs.
    pub(super) fn settle(&mut self, purpose: Purpose) -> Result<Duration, Halt> {
        let ran = self.world.settle(purpose, &mut self.clock, &mut self.logbook.ends)?;
        self.non_finite = ran.non_finite;
        self.step_time = ran.step_time.unwrap_or(self.step_time);
        self.clock.extend(Phase::Step, ran.waited);
        Ok(ran.waited)
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
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
