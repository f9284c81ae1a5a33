//! One run from the first step to the last.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    batch_weights::BatchWeights,
    checkpoints::Checkpoints,
    device_group::DeviceGroup,
    feed::{ChunkShape, Stream},
    lr_scheduler::LrScheduler,
    metric_buffer::MetricBuffer,
    orders::Orders,
    prefetch::Prefetch,
    state::{Emit, Inputs, Outbox, Pacing, Position, ReplicaChecks, Validated},
    stop::StopFlag,
};
use crate::{
    data::{Dataset, Part, Store},
    device::{Clock, DeviceError, Grain, Kind, PassKind, Purpose, Reads, RowReader, SHORTEST_TIMED_STEP},
    event::{CheckpointFacts, Closed, Confusion, NoModel, Outcome, SavedState, Status},
    host::{CoreWaits, page_fault_s, page_faults},
    plan::{DeviceId, Trial},
    program::{Phase, Slice},
};

/// What [`train`] needs: the planned trial, its data and devices, and where events go.
pub struct TrainSetup<'a> {
    pub trial: &'a Trial,
    pub dataset: &'a Dataset,
    pub group: DeviceGroup,
    /// The flat buffer of initial values. Freed once the devices have a copy.
    pub initial: Vec<f32>,
    /// A state to resume from, whose parameters are in `initial`. Freed likewise.
    pub resumed: Option<SavedState>,
    pub stop: &'a StopFlag,
    pub emit: Emit<'a>,
}

/// What a run leaves to the caller.
pub struct Trained {
    /// The last event, which the caller emits.
    pub outcome: Outcome,
    /// Values for `model.safetensors`: the final ones, or the best ones if those are to be restored. `None`
    /// if the run diverged, or if the final values are not finite or could not be read.
    pub values: Option<Vec<f32>>,
    /// Values of the best validation, if there is one.
    pub best: Option<Vec<f32>>,
    /// The confusion matrix of the best validation; empty if none was measured.
    pub confusion: Confusion,
}

/// Why the loop ended early, other than by a stop that the run planned for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Halt {
    #[error(transparent)]
    Closed(#[from] Closed),
    #[error(transparent)]
    Device(DeviceError),
    #[error("cannot read the next rows: {0}")]
    Data(#[from] io::Error),
    /// A file of rows was modified while the run read it; the text says how.
    #[error("{0}")]
    Changed(String),
}

impl From<DeviceError> for Halt {
    fn from(e: DeviceError) -> Self {
        match e {
            DeviceError::Rows { source, .. } => Self::Data(source),
            e => Self::Device(e),
        }
    }
}

/// How finely a trial's steps are timed.
pub fn grain(trial: &Trial) -> Grain {
    let device_s = trial.lower_bound.settled_s(1);
    // A GPU times its steps itself, while the host is elsewhere.
    // Over hosts a step waits for messages, and other ranks report what they timed by phases.
    let is_short = device_s < SHORTEST_TIMED_STEP.as_secs_f64() && !trial.devices.over_hosts();
    let blocks = trial.engine.is_gpu() || is_short;
    if blocks { Grain::Blocks } else { Grain::Phases }
}

/// Trains. The caller emits the last event.
///
/// # Errors
/// If the recorder no longer takes events.
pub fn train(job: TrainSetup<'_>) -> Result<Trained, Closed> {
    let TrainSetup { trial, dataset, group, initial, resumed, stop, emit } = job;
    let mut training = TrainLoop::new((trial, dataset), group, resumed.as_ref(), stop, emit);
    let ran = training.run(initial, resumed);
    // Rows of the steps before the fault are valid, so record them; an error in doing so is ignored, since
    // the run has failed already. After a device failure the epoch's mean is left out: the running sums on
    // the device may include steps of the failed block.
    let _ = match ran {
        Err(Halt::Device(DeviceError::Hangs { .. })) => training.rescue(),
        Err(Halt::Device(_)) => training.flush(),
        Err(Halt::Data(_) | Halt::Changed(_)) => training.log_epoch().and_then(|()| training.flush()),
        Ok(()) | Err(Halt::Closed(_)) => Ok(()),
    };
    // After a device failure we cannot tell which step its parameters belong to.
    let known = !matches!(ran, Err(Halt::Device(_)));
    let unread = matches!(ran, Err(Halt::Data(_) | Halt::Changed(_)));
    let (mut status, mut reason) = match ran {
        Ok(()) => (Status::Finished, None),
        Err(halt) => (Status::Failed, Some(halt.to_string())),
    };
    if let Some((ended, why)) = training.ended.take() {
        (status, reason) = (ended, why);
    }
    training.check_inputs(&mut status, &mut reason, unread);
    let loop_time = training.clock.origin().elapsed();
    // Wait for the last checkpoint to be written, then free its arrays.
    training.checkpoints.wait();
    let slice = training.values();
    let mut values = Vec::new();
    let read = training.group.read(Purpose::Parameters, slice, &mut values);
    let no_model = match read {
        _ if status == Status::Diverged => Some(NoModel::Diverged),
        _ if !known => Some(NoModel::Device),
        Err(_) => Some(NoModel::Unread),
        Ok(()) => (!values.iter().all(|v| v.is_finite())).then_some(NoModel::NotFinite),
    };
    let mut values = no_model.is_none().then_some(values);
    let best = training.read_best();
    if trial.spec.trainer.restore_best == Some(true)
        && let (Some(values), Some(read), Some(best)) = (&mut values, &best, &mut training.validated.best)
    {
        values.clone_from(read);
        best.is_restored = true;
    }
    let confusion = std::mem::take(&mut training.validated.best_confusion);
    let outcome = Outcome { no_model, ..training.outcome(status, reason, loop_time) };
    Ok(Trained { outcome, values, best, confusion })
}

/// Where the steps' rows come from.
pub(super) enum Source {
    /// The device holds them all.
    Bound,
    /// The device fetches them from their file. For rows in random order, `Prefetch` reads ahead; for rows in
    /// file order the operating system does so itself.
    File(Option<Prefetch>),
    /// They are brought to the device in chunks.
    Stream(Stream),
}

/// A run under way.
pub(super) struct TrainLoop<'a> {
    pub(super) trial: &'a Trial,
    pub(super) dataset: &'a Dataset,
    pub(super) group: DeviceGroup,
    pub(super) stop: &'a StopFlag,
    pub(super) clock: Clock,
    pub(super) outbox: Outbox<'a>,
    pub(super) lr_scheduler: LrScheduler,
    /// With weights of rows or classes.
    pub(super) batch_weights: Option<BatchWeights>,
    pub(super) metric_buffer: MetricBuffer,
    pub(super) validated: Validated,
    pub(super) at: Position,
    pub(super) pacing: Pacing,
    pub(super) inputs: Inputs,
    pub(super) core_waits: CoreWaits,
    pub(super) replicas: ReplicaChecks,
    pub(super) checkpoints: Checkpoints,
    /// What the parts of the run before the last resume came to.
    pub(super) earlier: CheckpointFacts,
    /// The first step whose loss is not finite.
    pub(super) non_finite: Option<u64>,
    /// How the run ended, if not as planned.
    pub(super) ended: Option<(Status, Option<String>)>,
}

impl<'a> TrainLoop<'a> {
    fn new(
        (trial, dataset): (&'a Trial, &'a Dataset),
        group: DeviceGroup,
        resumed: Option<&SavedState>,
        stop: &'a StopFlag,
        emit: Emit<'a>,
    ) -> Self {
        let logging = &trial.spec.logging;
        let (optimizer, schedule) = trial.effective_optimizer();
        let earlier = resumed.map(|saved| saved.facts.clone()).unwrap_or_default();
        let (at, elapsed_s) = (Position::from(&earlier), earlier.elapsed_s);
        Self {
            trial,
            dataset,
            group,
            stop,
            outbox: Outbox::new(emit),
            lr_scheduler: LrScheduler::new(&optimizer, &schedule),
            batch_weights: BatchWeights::new(trial, dataset),
            metric_buffer: MetricBuffer::new(logging, &trial.programs.layout),
            validated: Validated::new(&trial.spec.trainer),
            at,
            pacing: Pacing::default(),
            inputs: Inputs::default(),
            core_waits: CoreWaits::of_this_thread(),
            replicas: ReplicaChecks::default(),
            checkpoints: Checkpoints::new(trial.spec.checkpoint.as_deref(), stop.save_requests()),
            earlier,
            non_finite: None,
            ended: None,
            // Keep this field last: the clock starts here.
            clock: Clock::after(Duration::from_secs_f64(elapsed_s), grain(trial)).traced(logging.trace),
        }
    }

    pub(super) fn values(&self) -> Slice {
        self.trial.programs.layout.whole(self.trial.programs.layout.values)
    }

    fn run(&mut self, initial: Vec<f32>, resumed: Option<SavedState>) -> Result<(), Halt> {
        page_fault_s(); // measured by faults of its own, which are not to be counted as the loop's
        let start = Instant::now();
        self.group.start(&self.clock)?;
        self.group.write(Purpose::Parameters, self.values(), initial)?;
        let is_resumed = resumed.is_some();
        resumed.map_or(Ok(()), |saved| self.resume(saved))?;
        let train = self.open(&self.dataset.train, PassKind::Train)?;
        let validation = match (&self.dataset.validation, &self.trial.programs.validate) {
            (Some(part), Some(_)) => Some((part.rows, self.open(part, PassKind::Validate)?)),
            _ => None,
        };
        self.inputs.page_faults = page_faults();
        self.clock.record(Phase::Upload, start.elapsed());
        if is_resumed && self.ended.is_none() && !self.at.in_epoch && self.at.step < self.trial.steps {
            self.ended = self.at_rung();
        }
        let mut orders = Orders::new(self.trial);
        let mut goes_on = self.at.in_epoch;
        while goes_on || self.may_go_on() {
            if !self.at.in_epoch {
                self.at.epoch += 1;
                self.at.in_epoch = true;
            }
            let (first, epochs) = (self.rows_of_epoch(), self.stretch());
            if std::mem::take(&mut goes_on) && first < self.trial.facts.train_rows {
                // The state was saved before the validation that was due.
                self.validate_if_due(validation.as_ref())?;
            }
            if self.ended.is_none() {
                self.begin_stretch(&train, &mut orders, first, epochs)?;
                self.steps_of_stretch(&train, validation.as_ref(), first, epochs)?;
            }
            self.finish_stretch(validation.as_ref())?;
            self.send_events()?;
        }
        self.flush()?;
        if self.ended.is_none() {
            self.check()?;
        }
        self.last_validation(validation.as_ref())?;
        self.flush()?;
        // Make the next report due, so that everything left is sent.
        self.outbox.last_report = self.clock.origin();
        self.send_events()
    }

    /// What follows a stretch's steps: its log rows, validation, a checkpoint.
    fn finish_stretch(&mut self, validation: Option<&(usize, Source)>) -> Result<(), Halt> {
        let validation = validation.filter(|_| self.is_validation_due());
        self.flush_at_stop(validation.is_some())?;
        let is_whole = self.rows_of_epoch() == self.trial.facts.train_rows;
        if self.is_interrupted() || !is_whole {
            // Save before the epoch's row is written: a resumed run finishes the epoch and writes another row
            // for it.
            self.save_at_end()?;
        }
        self.end_epoch()?;
        if !is_whole || !self.is_in_order() {
            return Ok(());
        }
        if let Some((rows, source)) = validation {
            self.validate(*rows, source)?;
            if self.is_interrupted() {
                return self.save_at_end();
            }
        }
        self.at.in_epoch = false;
        let is_last = self.at.step >= self.trial.steps || self.ended.is_some();
        if !is_last {
            self.ended = self.at_rung();
        }
        if is_last || self.ended.is_some() { self.save_at_end() } else { self.save_if_due() }
    }

    /// How the sweep ends the run after this epoch; `None` if it goes on.
    fn at_rung(&mut self) -> Option<(Status, Option<String>)> {
        let (judge, start) = (self.stop.judge.as_ref()?, Instant::now());
        let judged = judge(self.at.epoch, self.validated.last.as_ref());
        self.clock.record(Phase::Rung, start.elapsed());
        judged.map(|(status, why)| (status, Some(why)))
    }

    /// Every run ends with a validation, even within an epoch. A longer run would not have it at this step,
    /// so it comes after the state is saved, and the saved state does not include it.
    fn last_validation(&mut self, validation: Option<&(usize, Source)>) -> Result<(), Halt> {
        if let Some((rows, source)) = validation.filter(|_| !self.is_validated() && self.is_in_order()) {
            self.validate(*rows, source)?;
            if self.is_interrupted() {
                self.save_at_end()?;
            }
        }
        Ok(())
    }

    /// Whether the run ends normally: by its planned length, `max_time` or early stopping.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(self.ended, None | Some((Status::Finished, _)))
    }

    pub(super) fn is_interrupted(&self) -> bool {
        matches!(self.ended, Some((Status::Interrupted, _)))
    }

    /// Rows of this epoch that steps have seen.
    fn rows_of_epoch(&self) -> usize {
        let before = self.at.epoch.saturating_sub(1) * self.trial.steps_per_epoch;
        let steps = self.at.step.saturating_sub(before);
        let rows = self.trial.facts.train_rows;
        usize::try_from(steps).map_or(rows, |steps| (steps * self.trial.programs.train.batch).min(rows))
    }

    /// Binds the rows of a part (training or validation) to the devices, or starts reading them.
    fn open(&mut self, part: &Part, work: PassKind) -> Result<Source, Halt> {
        let layout = &self.trial.programs.layout;
        let (features, targets) = match work {
            PassKind::Train => (layout.train_features, layout.train_targets),
            PassKind::Validate => (layout.validation_features, layout.validation_targets),
        };
        let purpose = if work == PassKind::Train { Purpose::Batch } else { Purpose::Validation };
        match (&part.features, self.trial.chunks) {
            (Store::Memory(rows), None) => {
                self.group.bind(Purpose::Dataset, features, rows)?;
                self.group.bind(Purpose::Dataset, targets, &part.targets)?;
                Ok(Source::Bound)
            }
            (Store::File(rows), None) => {
                let counted = self.counted(Kind::Read, purpose, &**rows);
                self.group.bind_file(features, &counted)?;
                self.group.bind(Purpose::Dataset, targets, &part.targets)?;
                if work == PassKind::Validate || !self.trial.spec.data.shuffle {
                    return Ok(Source::File(None));
                }
                let prefetch = self.counted(Kind::ReadAhead, purpose, &**rows);
                // If no thread can be started for it, the steps wait for their rows.
                Ok(Source::File(Prefetch::new(prefetch, self.trial.facts.features).ok()))
            }
            (_, Some(chunks)) => {
                let used = &self.trial.devices.used;
                let [train, validation] = chunks.on_the_host(used);
                let (batch, chunk, blocks) = match (work, &self.trial.programs.validate) {
                    (PassKind::Validate, Some(program)) => (program.batch, chunks.validation, validation),
                    _ => (self.trial.programs.train.batch, chunks.train, train),
                };
                let facts = self.trial.facts;
                let (features, targets) = (facts.features, facts.target_width());
                let (world_size, readers) = (self.group.size(), self.trial.readers);
                let shuffles = work == PassKind::Train && self.trial.spec.data.shuffle;
                let shuffle = shuffles.then(|| self.trial.spec.shuffle_seed());
                let cut = ChunkShape { features, targets, batch, chunk, world_size, readers, shuffle };
                let mut part = part.clone();
                if let Store::File(rows) = &mut part.features {
                    *rows = self.counted(Kind::Read, purpose, &**rows);
                }
                let lent = self.group.lend(blocks, move |rank| cut.room(rank))?;
                Ok(Source::Stream(Stream::new(part, cut, used.contains(&DeviceId::Cpu), lent)?))
            }
        }
    }

    /// Wraps a reader of rows so that its reads are counted on their own line of `transfers.csv`.
    fn counted(&mut self, kind: Kind, purpose: Purpose, rows: &dyn RowReader) -> Arc<dyn RowReader> {
        let reads = Arc::<Reads>::default();
        self.inputs.reads.push((kind, purpose, Arc::clone(&reads)));
        rows.counted(reads)
    }
}

#[cfg(test)]
#[path = "train_loop_tests.rs"]
mod tests;
