//! How the state of the training is saved between two steps, and restored.
//!
//! The log is flushed first, so that a resumed run takes the same steps and writes the same rows.

use std::{
    sync::{Arc, mpsc::channel},
    time::{Duration, Instant},
};

use super::{
    checkpoints::Checkpoints,
    state::Position,
    train_loop::{Halt, TrainLoop},
};
use crate::{
    device::{Purpose, Timer},
    event::{Best, BestSoFar, Checkpoint, CheckpointFacts, Event, Level, SavedState, Status},
    program::{Accumulator, Phase, Role, Slice},
    units,
};

impl TrainLoop<'_> {
    /// Restores everything of a saved state but the parameters, which are already this run's initial values.
    pub(super) fn resume(&mut self, saved: SavedState) -> Result<(), Halt> {
        let layout = &self.trial.programs.layout;
        let SavedState { facts, arrays, costs } = saved;
        if let Some(state) = self.optimizer_state() {
            self.group.write(Purpose::Checkpoint, state, arrays.optimizer)?;
        }
        if let (Some(best), false) = (layout.best, arrays.best.is_empty()) {
            self.group.write_first(Purpose::Checkpoint, layout.whole(best), arrays.best)?;
        }
        if !facts.epoch_sums.is_empty() {
            self.group.write_epoch_sums(Purpose::Checkpoint, &facts.epoch_sums)?;
        }
        self.metric_buffer.resume(&facts);
        self.checkpoints.saved = Some((facts.step, facts.in_epoch));
        self.checkpoints.add_costs(costs);
        let monitor = self.trial.spec.trainer.monitor;
        self.validated.best = facts.best.map(|best| {
            let BestSoFar { value, epoch, step, confusion } = best;
            self.validated.best_confusion = confusion;
            Best { monitor, value, epoch, step, is_restored: false }
        });
        self.validated.last = facts.validation.clone();
        if let (Some(plateau), Some(state)) = (&mut self.lr_scheduler.plateau, facts.plateau) {
            plateau.state = state;
        }
        if let Some(stopper) = &mut self.validated.stopper {
            stopper.seen = facts.early_stopping;
            // Early stopping had ended the saved run, and would end this one at once.
            let last = facts.validation.as_ref();
            let is_judged = !facts.in_epoch || last.is_some_and(|row| row.step == facts.step);
            if let Some(why) = stopper.verdict(last).filter(|_| is_judged) {
                self.ended = Some((Status::Finished, Some(why)));
            }
        }
        Ok(())
    }

    /// Saves the state if a checkpoint is due or SIGUSR1 asked for one.
    pub(super) fn save_if_due(&mut self) -> Result<(), Halt> {
        let requests = self.stop.save_requests();
        let is_asked = std::mem::replace(&mut self.checkpoints.requests, requests) != requests;
        if self.ended.is_none() && (is_asked || self.checkpoints.is_due(&self.at)) {
            let waited = self.clock.total(Timer::Host, Phase::Checkpoint);
            let cost = self.monitored_cost();
            if is_asked || !self.checkpoints.leaves_out(waited, cost) {
                self.save()?;
            }
        }
        let step = self.at.step;
        if is_asked && self.checkpoints.saved.is_some_and(|(saved, _)| saved == step) {
            let text = format!("SIGUSR1: the state after {} is being saved", units::counted(step, "step"));
            self.outbox.events.push(Event::Notice(Level::Info, text));
        }
        Ok(())
    }

    /// Saves the state at the end of the run, so that it can be continued: with more epochs, or after a
    /// signal.
    pub(super) fn save_at_end(&mut self) -> Result<(), Halt> {
        let saves = match self.ended {
            None | Some((Status::Finished, _)) => self.trial.spec.checkpoint.is_some(),
            Some((Status::Interrupted | Status::Waiting | Status::Stopped, _)) => self.at.step > 0,
            Some((Status::Failed | Status::Diverged, _)) => false,
        };
        if saves { self.save() } else { Ok(()) }
    }

    /// The monitored value of the validation after this step, where there was one; smaller is better.
    fn monitored_cost(&self) -> Option<f64> {
        self.validated.last.as_ref()?.cost_at(self.at.step, self.trial.spec.trainer.monitor)
    }

    fn save(&mut self) -> Result<(), Halt> {
        let state = Some((self.at.step, self.at.in_epoch));
        if self.checkpoints.saved == state {
            return Ok(());
        }
        // Rows are recorded before what may take long.
        self.flush()?;
        let start = Instant::now();
        let logging_s = self.logging_s()?;
        self.outbox.send()?;
        let mut arrays = self.checkpoints.wait();
        let layout = &self.trial.programs.layout;
        let best = self.validated.best.and(layout.best).map(|best| layout.whole(best));
        let wanted = [Some(self.values()), self.optimizer_state(), best];
        for (from, to) in
            wanted.into_iter().zip([&mut arrays.values, &mut arrays.optimizer, &mut arrays.best])
        {
            match from {
                Some(from) => self.group.read(Purpose::Checkpoint, from, to)?,
                None => to.clear(),
            }
        }
        let facts = self.facts(logging_s)?;
        let waited = self.settle(Purpose::Checkpoint)?;
        // If a file was modified, rows may have come from either version: do not save such a state.
        self.check_files()?;
        if self.non_finite.is_some() {
            return self.check();
        }
        let (arrays, (written, answer)) = (Arc::new(arrays), channel());
        self.checkpoints.writing = Some((Arc::clone(&arrays), answer));
        self.checkpoints.saved = state;
        let cost = self.monitored_cost();
        self.checkpoints.made(cost);
        self.outbox.events.push(Event::Checkpoint(Box::new(Checkpoint { facts, arrays, written })));
        self.outbox.send()?;
        self.clock.record(Phase::Checkpoint, start.elapsed().saturating_sub(waited));
        Ok(())
    }

    fn facts(&mut self, logging_s: f64) -> Result<CheckpointFacts, Halt> {
        let Position { step, epoch, in_epoch, samples } = self.at;
        let mut epoch_sums = Vec::new();
        if self.metric_buffer.sums_an_epoch() {
            epoch_sums.resize(self.trial.programs.layout.log_width, 0.0);
            self.group.take_sums(Purpose::Checkpoint, Accumulator::Epoch, &mut epoch_sums)?;
            self.group.write_epoch_sums(Purpose::Checkpoint, &epoch_sums)?;
        }
        let elapsed_s = self.clock.elapsed_s();
        let best = self.validated.best.map(|best| {
            let Best { value, epoch, step, .. } = best;
            BestSoFar { value, epoch, step, confusion: self.validated.best_confusion.clone() }
        });
        Ok(CheckpointFacts {
            step,
            epoch,
            in_epoch,
            samples,
            batch: self.trial.programs.train.batch as u64,
            elapsed_s,
            train_s: elapsed_s - self.aside_s(),
            logging_s,
            epoch_sums,
            validation: self.validated.last.clone(),
            best,
            early_stopping: self.validated.stopper.as_ref().map(|stopper| stopper.seen).unwrap_or_default(),
            plateau: self.lr_scheduler.plateau.as_ref().map(|plateau| plateau.state),
            ..self.metric_buffer.facts()
        })
    }

    /// Seconds of the whole run that are none of training.
    pub(super) fn aside_s(&self) -> f64 {
        self.earlier.elapsed_s - self.earlier.train_s + self.aside().as_secs_f64()
    }

    /// The loop's time for validations and at rungs, which is none of training.
    pub(super) fn aside(&self) -> Duration {
        [Phase::Validation, Phase::Rung].map(|phase| self.clock.total(Timer::Host, phase)).into_iter().sum()
    }

    fn optimizer_state(&self) -> Option<Slice> {
        self.trial.programs.layout.of_role(Role::State)
    }

    /// The number of checkpoints and the time they took, once all are written.
    pub(super) fn checkpoint_costs(&mut self) -> Option<Event> {
        self.checkpoints.wait();
        let Checkpoints { count, left_out, written, .. } = self.checkpoints;
        let copying = self.clock.total(Timer::Host, Phase::Checkpoint);
        let [copying, written] = [copying, written].map(|time| units::seconds(time.as_secs_f64()));
        let text = format!(
            "{}: {copying} in the loop, {written} of writing beside it{}",
            units::counted(count, "checkpoint"),
            match left_out {
                0 => String::new(),
                n => format!("; {} left out, due while another was being written", units::count(n)),
            }
        );
        (count > 0).then_some(Event::Notice(Level::Info, text))
    }
}
