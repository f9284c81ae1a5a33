//! The steps of an epoch, in blocks that run on the devices without the host, and what ends a run between two blocks.

use std::{io, time::Instant};

use super::{
    feed::{Chunk, Stream},
    metric_buffer::Steps,
    orders::Orders,
    prefetch::{self, Prefetch},
    state::{BLOCK, Position},
    stop::EarlyStopper,
    train_loop::{Halt, Source, TrainLoop},
};
use crate::{
    device::{Block, COMPARED_STEPS, DeviceError, Grain, Lane, PassKind, Purpose},
    event::{Event, Level, Status},
    plan::Engine,
    program::Phase,
    spec::Policy,
    units,
};

impl TrainLoop<'_> {
    /// How many epochs run as one stretch from this one on: as many as the host need not look at, and about as many as
    /// take the time of a block.
    pub(super) fn stretch(&self) -> usize {
        let per_epoch = self.trial.steps_per_epoch.max(1);
        let short = self.pacing.steps() as u64 / per_epoch;
        let most = if self.stop.judge.is_some() { 1 } else { self.trial.stretch(self.at.epoch - 1) };
        usize::try_from(most.min(short)).unwrap_or(usize::MAX).max(1)
    }

    /// Announces the orders of rows of the stretch's epochs to everything that reads rows; its steps begin at row `first`.
    pub(super) fn begin_stretch(
        &mut self,
        source: &Source,
        orders: &mut Orders,
        first: usize,
        epochs: usize,
    ) -> Result<(), Halt> {
        let start = Instant::now();
        if let Source::Stream(stream) = source {
            self.begin_pass(stream, self.at.epoch, first)?;
            self.clock.record(Phase::Data, start.elapsed());
            return Ok(());
        }
        let shuffle = self.trial.spec.data.shuffle;
        let order = if shuffle { Some(orders.take(self.at.epoch, epochs)?) } else { None };
        if let Some(order) = &order {
            self.group.bind_order(order)?;
        }
        if let Source::File(Some(prefetch)) = source {
            prefetch.begin(order, self.rows_used(self.at.epoch));
            prefetch.at(first);
        }
        let time = start.elapsed();
        self.inputs.ordering += time;
        self.clock.record(Phase::Data, time);
        Ok(())
    }

    /// Has the reader begin an epoch from row `first` on, if the run gets there.
    fn begin_pass(&self, stream: &Stream, epoch: u64, first: usize) -> io::Result<()> {
        let end = self.rows_used(epoch);
        if first < end { stream.begin(epoch, first..end) } else { Ok(()) }
    }

    /// The rows of an epoch that its steps use: the last one may be cut short.
    fn rows_used(&self, epoch: u64) -> usize {
        let steps = self.trial.steps.saturating_sub((epoch - 1).saturating_mul(self.trial.steps_per_epoch));
        let rows = steps.saturating_mul(self.trial.programs.train.batch as u64);
        rows.min(self.trial.facts.train_rows as u64) as usize
    }

    /// Runs the steps of the stretch from row `first` of its first epoch on, and the validations that are due between them.
    pub(super) fn steps_of_stretch(
        &mut self,
        source: &Source,
        validation: Option<&(usize, Source)>,
        first: usize,
        epochs: usize,
    ) -> Result<(), Halt> {
        let rows = self.trial.facts.train_rows;
        let stream = match source {
            Source::Bound => return self.blocks([first, 0, epochs * rows], None, validation),
            Source::File(prefetch) => return self.blocks([first, 0, rows], prefetch.as_ref(), validation),
            Source::Stream(stream) => stream,
        };
        let mut position = first;
        while position < rows && self.may_go_on() {
            let Some(chunk) = self.next_chunk(stream)? else { break };
            self.bind_chunk(&chunk, PassKind::Train)?;
            if stream.is_lent && chunk.first + chunk.rows == rows && !self.may_end_within(chunk.rows) {
                // What follows the epoch's steps takes as long as to read the first rows of the next one.
                self.begin_pass(stream, self.at.epoch + 1, 0)?;
            }
            self.blocks([position, chunk.first, chunk.first + chunk.rows], None, validation)?;
            position = chunk.first + chunk.rows;
            stream.recycle(chunk);
        }
        Ok(())
    }

    /// Whether a sweep or early stopping may end the run with the epoch's last `rows` rows: others read ahead would be read for no
    /// step.
    fn may_end_within(&self, rows: usize) -> bool {
        let validations = self.validations_within(rows.div_ceil(self.trial.programs.train.batch));
        let may_stop = |stopper: &EarlyStopper| stopper.may_end(validations);
        self.stop.judge.is_some() || self.validated.stopper.as_ref().is_some_and(may_stop)
    }

    /// Waits for the next chunk of an epoch; `None` if the run ends first.
    fn next_chunk(&mut self, stream: &Stream) -> Result<Option<Chunk>, Halt> {
        let start = Instant::now();
        let chunk = loop {
            match stream.next(BLOCK) {
                Ok(Some(chunk)) => break Some(chunk),
                Ok(None) => self.check()?,
                Err(fault) => self.rows_fault(fault)?,
            }
            if self.ended.is_some() {
                break None;
            }
        };
        self.clock.record(Phase::Data, start.elapsed());
        Ok(chunk)
    }

    pub(super) fn bind_chunk(&mut self, chunk: &Chunk, work: PassKind) -> Result<(), Halt> {
        let start = Instant::now();
        let layout = &self.trial.programs.layout;
        let (features, targets, purpose) = match work {
            PassKind::Train => (layout.train_features, layout.train_targets, Purpose::Batch),
            PassKind::Validate => {
                (layout.validation_features, layout.validation_targets, Purpose::Validation)
            }
        };
        self.group.bind_each(purpose, features, &chunk.features)?;
        self.group.bind_each(purpose, targets, &chunk.targets)?;
        if work == PassKind::Train {
            self.clock.record(Phase::Upload, start.elapsed());
        }
        Ok(())
    }

    pub(super) fn may_go_on(&self) -> bool {
        self.at.step < self.trial.steps && self.ended.is_none()
    }

    /// Runs the steps on rows `position..end`, counted from the start of this epoch over later ones, and the validations that are
    /// due between them. The bound data begin at row `origin` of the epoch.
    fn blocks(
        &mut self,
        [mut position, origin, end]: [usize; 3],
        prefetch: Option<&Prefetch>,
        validation: Option<&(usize, Source)>,
    ) -> Result<(), Halt> {
        let batch = self.trial.programs.train.batch;
        let (total, first_epoch) = (self.trial.facts.train_rows, self.at.epoch);
        let steps_before = |row: usize| row / total * total.div_ceil(batch) + (row % total).div_ceil(batch);
        while position < end && self.may_go_on() {
            self.at = Position { epoch: first_epoch + (position / total) as u64, in_epoch: true, ..self.at };
            let left = (steps_before(end) - steps_before(position))
                .min(usize::try_from(self.trial.steps - self.at.step).unwrap_or(usize::MAX));
            let steps = left
                .min(self.metric_buffer.room())
                .min(self.pacing.steps())
                .min(self.checkpoints.steps_left(self.at.step))
                .min(validation.map_or(usize::MAX, |_| self.steps_to_validation()))
                .min(self.most_rows() / batch)
                .max(1);
            let start = Instant::now();
            self.lr_scheduler.fill(self.at.step, steps.max(self.compared(left)), self.trial.steps_per_epoch);
            if let Some(weights) = &mut self.batch_weights {
                weights.fill(self.at.step, &mut self.lr_scheduler.hyper)?;
            }
            let block = Block {
                work: PassKind::Train,
                step: self.at.step,
                position: position % total,
                order: position - position % total,
                offset: position - origin,
                rows: total,
                steps,
                hyper: &self.lr_scheduler.hyper,
                slot: self.metric_buffer.slot(),
            };
            let ran = match self.group.run(&block, &mut self.clock, &mut self.metric_buffer.ends) {
                Err(DeviceError::Rows { done, source }) => {
                    self.steps_ended(position, done, start);
                    return self.rows_fault(source);
                }
                ran => ran?,
            };
            self.pacing.step_time = ran.step_time.unwrap_or(self.pacing.step_time);
            self.non_finite = ran.non_finite;
            let notice = ran.notice.map(|text| Event::Notice(Level::Warning, text));
            self.outbox.events.extend(notice);
            position += self.steps_ended(position, steps, start);
            if let Some(prefetch) = prefetch {
                prefetch.at(position);
            }
            let is_full = self.metric_buffer.room() == 0;
            match self.trial.spec.logging.policy {
                Policy::Immediate => self.flush()?,
                Policy::Buffered if is_full || self.flush_is_overdue(start) => self.start_flush()?,
                _ => {}
            }
            self.check()?;
            // At the end of the stretch both come after the epoch's row, not here.
            if position < end || !position.is_multiple_of(total) {
                self.validate_if_due(validation)?;
                self.at.in_epoch = self.is_interrupted() || !position.is_multiple_of(total);
                self.save_if_due()?;
            }
            self.send_events()?;
        }
        Ok(())
    }

    /// Steps that a compiled kernel may take to prove itself, of those that are left: it does so in the first block, or the
    /// one after it.
    fn compared(&self, left: usize) -> usize {
        let is_early = self.trial.engine == Engine::Compiled && self.pacing.before == 1;
        if is_early { left.min(COMPARED_STEPS) } else { 0 }
    }

    /// Handles rows that cannot be read. If an earlier loss was not finite, the run ends as diverged instead.
    fn rows_fault(&mut self, fault: io::Error) -> Result<(), Halt> {
        let settled = self.group.settle(Purpose::Log, &mut self.clock, &mut self.metric_buffer.ends)?;
        self.non_finite = settled.non_finite;
        if self.non_finite.is_some() { self.check() } else { Err(Halt::Data(fault)) }
    }

    /// Counts steps that began at row `position` of this epoch. Returns the number of rows they took.
    fn steps_ended(&mut self, position: usize, steps: usize, start: Instant) -> usize {
        if steps == 0 {
            return 0;
        }
        let time = start.elapsed();
        self.pacing.warmup.get_or_insert(time);
        let (batch, total) = (self.trial.programs.train.batch, self.trial.facts.train_rows);
        let (mut done, mut within, mut taken) = (0, position % total, 0);
        while done < steps {
            let count = (total - within).div_ceil(batch).min(steps - done);
            let last_rows = batch.min(total - (within + (count - 1) * batch));
            let ended = Steps {
                epoch: self.at.epoch,
                first: self.at.step + 1,
                count,
                rows: batch as u32,
                last_rows: last_rows as u32,
            };
            let weights = self.batch_weights.as_ref().map_or(&[][..], |weights| &weights.filled);
            let [lrs, weights] = [&self.lr_scheduler.lrs[..], weights]
                .map(|all| all.get(done..done + count).unwrap_or_default());
            self.metric_buffer.ran(ended, lrs, weights);
            taken += (count - 1) * batch + last_rows;
            (done, within) = (done + count, 0);
            self.at.step += count as u64;
            self.at.epoch += u64::from(done < steps);
        }
        self.at.samples += taken as u64;
        self.clock.span(Lane::Host, Phase::Step, [start, start + time], steps as u64);
        if self.clock.grain == Grain::Blocks {
            self.clock.record_many(Phase::Step, start.elapsed(), steps as u64);
        }
        self.pacing.before = steps;
        taken
    }

    /// The most rows of a block. Where steps fetch rows from a file, the next rows may take far longer than
    /// the last ones, so a block is kept short.
    pub(super) fn most_rows(&self) -> usize {
        let facts = self.trial.facts;
        let fetched = facts.in_file() && self.trial.chunks.is_none();
        if fetched { prefetch::window(facts.features) } else { usize::MAX }
    }

    /// Ends the run at `step`: later steps do not count.
    pub(super) fn end_at(&mut self, step: u64) {
        let facts = self.trial.facts;
        // The host may run ahead of the device, so that `self.at` is already in a later epoch.
        let epochs = (step - 1) / self.trial.steps_per_epoch;
        let before = epochs * facts.train_rows as u64;
        let within = step - epochs * self.trial.steps_per_epoch;
        let rows = (within * self.trial.programs.train.batch as u64).min(facts.train_rows as u64);
        self.metric_buffer.cut_epoch(rows);
        self.at = Position { step, epoch: epochs + 1, samples: before + rows, ..self.at };
    }

    /// Ends the run at this step, whose `loss` is not a finite number.
    pub(super) fn diverge(&mut self, loss: &str) {
        let Position { step, epoch, .. } = self.at;
        let lr = self.trial.effective_optimizer().0.lr();
        let here = self.lr_scheduler.lr_at(step.saturating_sub(1), epoch.saturating_sub(1)).lr;
        let scheduled =
            if here == lr { String::new() } else { format!(", {} at this step", units::number(here)) };
        let reason = format!(
            "the {loss} is not a finite number at step {}; lower the learning rate (it is {}{scheduled}), or clip the \
             gradients by `trainer.gradient_clip_val`",
            units::count(step),
            units::exact(lr),
        );
        self.ended = Some((Status::Diverged, Some(reason)));
    }

    /// Ends the run if a loss was not finite, a signal arrived or `max_time` is over.
    pub(super) fn check(&mut self) -> Result<(), Halt> {
        if let Some(step) = self.non_finite {
            // Later steps of this block do not count.
            self.end_at(step);
            self.diverge("loss");
            return Ok(());
        }
        if self.stop.signal().is_some() {
            let reason = format!("{} after step {}", self.stop.name(), units::count(self.at.step));
            self.ended = Some((Status::Interrupted, Some(reason)));
        } else if self.trial.spec.trainer.max_time.is_some_and(|most| self.clock.origin().elapsed() >= most) {
            self.ended = Some((Status::Finished, Some("`trainer.max_time` is over".into())));
        }
        Ok(())
    }
}
