//! Runs steps of a trial to time them, on blank rows or on rows of its file, without changing the weights.

use std::{
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use super::executor;
use crate::{
    cuda::RankLink,
    data::epoch_order,
    device::{Block, Clock, DeviceError, Executor, Grain, Ledger, Meters, Purpose, RowReader},
    plan::Trial,
    program::Hyper,
    random,
    spec::Policy,
};

/// Maximum number of batches per block.
const MOST_STEPS: usize = 64;

/// The rows of a file, and the targets of all of them.
type FileRows<'a> = (&'a Arc<dyn RowReader>, &'a Arc<Vec<f32>>);

/// Runs blocks over blank rows or those of a file. Each block starts where the last one ended, so that rows
/// come from the same level of memory (cache, memory or disk) as in a run.
pub struct Stepper {
    executor: Box<dyn Executor>,
    batch: usize,
    rows: usize,
    position: usize,
    hyper: Vec<Hyper>,
}

impl Stepper {
    /// Loads the first device of a trial, which has its share of each batch. A block takes about `seconds`, and at least one
    /// step. Rows have at most `numbers` elements; they are those of `file`, or blank.
    pub fn sized(
        trial: &Trial,
        seconds: f64,
        numbers: usize,
        file: Option<FileRows<'_>>,
    ) -> Result<Self, DeviceError> {
        let executor = executor(trial, trial.devices.used[0], (*trial.programs).clone(), RankLink::Alone)?;
        let in_memory = numbers / (trial.programs.train.batch * trial.facts.features).max(1);
        let steps = in_memory.clamp(1, Self::most_steps(trial));
        let mut stepper = match file {
            Some(file) => Self::from_file(trial, executor, steps, numbers, file)?,
            None => Self::new(trial, executor, steps, numbers)?,
        };
        let all = stepper.steps();
        // The first step is cold; the second tells how many steps fit into a block.
        stepper.hyper = blank(1);
        stepper.block(Grain::Blocks)?;
        let step_s = stepper.block(Grain::Blocks)?;
        stepper.hyper = blank(((seconds / step_s) as usize).clamp(1, all)); // a float cast to an integer saturates
        Ok(stepper)
    }

    /// Uses as many rows as the run has, as long as they have no more than `numbers` elements.
    fn new(
        trial: &Trial,
        mut executor: Box<dyn Executor>,
        steps: usize,
        numbers: usize,
    ) -> Result<Self, DeviceError> {
        let (layout, facts, batch) = (&trial.programs.layout, trial.facts, trial.programs.train.batch);
        let whole = if trial.chunks.is_some() || facts.in_file() { 0 } else { facts.train_rows };
        let rows = whole.min(numbers / facts.features.max(1)).max(batch * steps);
        // Not zero: zeros that were never written all map to one page of physical memory.
        executor.bind(layout.train_features, &Arc::new(vec![0.5; rows * facts.features]))?;
        executor.bind(layout.train_targets, &Arc::new(vec![0.0; rows * facts.target_width()]))?;
        let mut order: Vec<u32> = Vec::new();
        epoch_order(trial.spec.shuffle_seed(), 1, rows as u32, &mut order);
        executor.bind_order(&Arc::new(order))?;
        Ok(Self { executor, batch, rows, position: 0, hyper: blank(steps) })
    }

    /// Uses rows of the file. If they are shuffled, indices for a hundred blocks are drawn at random: more
    /// than a measurement has time for.
    fn from_file(
        trial: &Trial,
        mut executor: Box<dyn Executor>,
        steps: usize,
        numbers: usize,
        (rows, targets): FileRows<'_>,
    ) -> Result<Self, DeviceError> {
        let (layout, batch) = (&trial.programs.layout, trial.programs.train.batch);
        let all = trial.facts.train_rows;
        executor.bind_file(layout.train_features, rows)?;
        executor.bind(layout.train_targets, targets)?;
        let whole = all / batch * batch;
        let steps = steps.min(whole / batch);
        let mut rows = whole;
        if trial.spec.data.shuffle {
            rows = (100 * steps * batch).min(numbers);
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
            let draw = |i: usize| (random::mix(since.wrapping_add(i as u64)) % all as u64) as u32;
            executor.bind_order(&Arc::new((0..rows).map(draw).collect()))?;
        }
        Ok(Self { executor, batch, rows, position: 0, hyper: blank(steps) })
    }

    /// Maximum steps per block: policies that log a row per step are limited by the slots of their log.
    fn most_steps(trial: &Trial) -> usize {
        match trial.spec.logging.policy {
            Policy::Immediate | Policy::Buffered => MOST_STEPS.min(trial.programs.layout.log_slots),
            Policy::PerEpoch | Policy::Off => MOST_STEPS,
        }
    }

    pub fn steps(&self) -> usize {
        self.hyper.len()
    }

    /// Runs a block and returns its seconds.
    pub fn block(&mut self, grain: Grain) -> Result<f64, DeviceError> {
        let steps = self.hyper.len();
        if self.position + steps * self.batch > self.rows {
            self.position = 0;
        }
        let block = Block { position: self.position, ..Block::first(&self.hyper, self.rows) };
        self.position += steps * self.batch;
        let (mut clock, mut ends, mut ledger) = (Clock::new(grain), Vec::new(), Ledger::default());
        let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends };
        let start = Instant::now();
        self.executor.run(&block, &mut meters)?;
        self.executor.settle(Purpose::Log, &mut meters)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Hyperparameters with a learning rate of 0, which leave the weights as they are.
fn blank(steps: usize) -> Vec<Hyper> {
    vec![Hyper { correction: 1.0, decay_factor: 1.0, ..Hyper::default() }; steps]
}
