//! A pass over the validation rows, in slices of about 50 ms, so that a signal is noticed.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    feed::Stream,
    scores::Scores,
    state::BLOCK,
    train_loop::{Halt, Source, TrainLoop},
};
use crate::{
    device::{Block, PassKind, Purpose},
    event::{Event, Level, Status, ValidationRow},
    program::{Accumulator, Phase},
};

impl TrainLoop<'_> {
    /// Optimizer steps between two validations; 0 for none.
    fn validation_interval(&self) -> u64 {
        self.trial.spec.trainer.validate_every.steps(self.trial.steps_per_epoch)
    }

    /// The most steps that may run before the next validation is due.
    pub(super) fn steps_to_validation(&self) -> usize {
        match self.validation_interval() {
            0 => usize::MAX,
            every => usize::try_from(every - self.at.step % every).unwrap_or(usize::MAX),
        }
    }

    /// The most validations that `steps` steps may meet.
    pub(super) fn validations_within(&self, steps: usize) -> u64 {
        (steps as u64).div_ceil(self.validation_interval().max(1))
    }

    /// Whether one is due after this step. A resumed run may have it already.
    pub(super) fn is_validation_due(&self) -> bool {
        let every = self.validation_interval();
        every > 0 && self.at.step.is_multiple_of(every) && !self.is_validated()
    }

    /// Whether this step's parameters were validated.
    pub(super) fn is_validated(&self) -> bool {
        self.validated.last.as_ref().is_some_and(|row| row.step == self.at.step)
    }

    /// The validation that is due between two steps of a stretch, if one is.
    pub(super) fn validate_if_due(&mut self, validation: Option<&(usize, Source)>) -> Result<(), Halt> {
        let Some((rows, source)) = validation.filter(|_| self.is_validation_due()) else { return Ok(()) };
        self.flush_at_stop(true)?;
        if self.is_in_order() { self.validate(*rows, source) } else { Ok(()) }
    }

    /// Runs one pass. If a signal interrupts it, no row is recorded.
    pub(super) fn validate(&mut self, rows: usize, source: &Source) -> Result<(), Halt> {
        // The wait for unfinished training steps is not validation time.
        self.settle(Purpose::Validation)?;
        let start = Instant::now();
        self.validated.scores = self.new_scores();
        let whole = match source {
            Source::Bound | Source::File(_) => self.validate_rows(0, 0, rows, rows)?,
            Source::Stream(stream) => self.validate_stream(rows, stream)?,
        };
        let mut sums = [0.0; 2];
        self.group.take_sums(Purpose::Validation, Accumulator::Validation, &mut sums)?;
        // This wait belongs to validation, not to training steps.
        self.group.settle(Purpose::Validation, &mut self.clock, &mut self.metric_buffer.ends)?;
        if !whole {
            self.clock.record(Phase::Validation, start.elapsed());
            return self.check();
        }
        let classifies = self.trial.spec.model.loss.classifies();
        let part = self.dataset.validation.as_ref();
        let weight = part.map_or(0.0, |part| self.dataset.weight_of(part));
        let row = ValidationRow {
            step: self.at.step,
            epoch: self.at.epoch,
            rows: rows as u64,
            loss: sums[0] / weight,
            accuracy: classifies.then(|| sums[1] / rows as f64),
            confusion: self.validated.scores.as_ref().map(Scores::confusion).unwrap_or_default(),
            scores: self.take_scores(),
            elapsed_s: self.clock.elapsed_s(),
        };
        self.keep_best(&row)?;
        let end = self.log_begins();
        self.clock.record_between(Phase::Validation, start, end);
        let notice = self.judge(&row);
        self.validated.last = Some(row.clone());
        self.outbox.events.extend(self.metric_buffer.hold(row).map(Event::Validation));
        self.outbox.events.extend(notice);
        self.log_ends(end, Duration::ZERO);
        Ok(())
    }

    /// What follows from a validation: whether the run ends, and the rate of later steps.
    fn judge(&mut self, row: &ValidationRow) -> Option<Event> {
        if let Some(why) = self.validated.stopper.as_mut().and_then(|stopper| stopper.observe(row)) {
            self.ended = Some((Status::Finished, Some(why)));
        }
        if !row.loss.is_finite() {
            self.diverge("validation loss");
            return None;
        }
        self.lr_scheduler.observe(row).map(|text| Event::Notice(Level::Info, text))
    }

    /// `None` if no metric needs the predictions, which then stay on the devices.
    fn new_scores(&self) -> Option<Scores> {
        let row = self.trial.ranks().find_map(|programs| programs.layout.prediction)?;
        let ranks = self.trial.spec.scores().iter().any(|metric| metric.ranks_outputs());
        Some(match self.trial.spec.model.loss.classifies() {
            true => Scores::of_classes(row.len, ranks),
            false => Scores::of_numbers(&self.dataset.target_scales),
        })
    }

    /// Reads the predictions of the last validated chunk to the host and adds them to the scores.
    fn score(&mut self, rows: Range<usize>) -> Result<(), Halt> {
        let (Some(scores), Some(part)) = (&mut self.validated.scores, &self.dataset.validation) else {
            return Ok(());
        };
        let first =
            self.trial.ranks().map(|programs| programs.layout.prediction.unwrap_or_default()).collect();
        let predictions = self.group.read_rows(Purpose::Validation, first, rows.len())?;
        let width = self.dataset.target_width();
        scores.add(&predictions, &part.targets[rows.start * width..rows.end * width], width);
        Ok(())
    }

    fn take_scores(&mut self) -> BTreeMap<String, f64> {
        let Some(scores) = self.validated.scores.take() else { return BTreeMap::new() };
        let (wanted, names) = (self.trial.spec.scores(), self.trial.target_names());
        let all = wanted.iter().filter_map(|metric| Some((metric.name().to_owned(), scores.value(*metric)?)));
        all.chain(wanted.iter().flat_map(|metric| scores.of_targets(*metric, &names))).collect()
    }

    fn validate_stream(&mut self, rows: usize, stream: &Stream) -> Result<bool, Halt> {
        stream.begin(self.at.step, 0..rows)?;
        let mut position = 0;
        while position < rows {
            let Some(chunk) = stream.next(BLOCK)? else {
                if self.stop.signal().is_some() {
                    return Ok(false);
                }
                continue;
            };
            self.bind_chunk(&chunk, PassKind::Validate)?;
            if !self.validate_rows(position, chunk.first, chunk.first + chunk.rows, rows)? {
                return Ok(false);
            }
            position = chunk.first + chunk.rows;
            stream.recycle(chunk);
        }
        Ok(true)
    }

    /// Validates rows `position..end` of `rows`; the bound data begin at row `origin`. Returns false after a
    /// signal.
    fn validate_rows(
        &mut self,
        mut position: usize,
        origin: usize,
        end: usize,
        rows: usize,
    ) -> Result<bool, Halt> {
        let Some(chunk) = self.trial.programs.validate.as_ref().map(|p| p.batch) else { return Ok(true) };
        let mut slice = 1;
        while position < end {
            let start = Instant::now();
            let most = if self.validated.scores.is_some() { 1 } else { slice };
            let steps = (end - position).div_ceil(chunk).min(most).min(self.most_rows() / chunk).max(1);
            let block = Block {
                work: PassKind::Validate,
                step: self.at.step,
                position,
                order: 0,
                offset: position - origin,
                rows,
                steps,
                hyper: &[],
                slot: 0,
            };
            self.group.run(&block, &mut self.clock, &mut self.metric_buffer.ends)?;
            self.score(position..end.min(position + chunk))?;
            position += steps * chunk;
            if self.stop.signal().is_some() {
                return Ok(false);
            }
            let each = (start.elapsed().as_nanos() / steps as u128).max(1);
            slice = usize::try_from(BLOCK.as_nanos() / each).unwrap_or(usize::MAX).max(1);
        }
        Ok(true)
    }
}
