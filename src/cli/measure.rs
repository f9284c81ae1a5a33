//! A step's time as it is, beside its lower bound, and what it costs to time its phases: a few steps on blank rows, or on
//! those of the file that steps fetch them from.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    data::{Dataset, Store, epoch_order},
    device::{
        Block, Clock, DeviceError, Executor, Grain, Ledger, Meters, PassKind, Purpose, RankLink, RowReader,
    },
    plan::{DeviceId, ReadCost, Trial},
    program::Hyper,
    random,
    report::Estimate,
    run::executor,
    spec::Policy,
    train,
};

/// How long is measured, about.
const LONG: Duration = Duration::from_millis(60);

/// Numbers of blank rows at most: more than caches hold.
const MOST_NUMBERS: usize = 1 << 25;

/// Batches per block at most.
const MOST_STEPS: usize = 64;

/// A step that would take longer, as the cost model says, is not measured, in seconds.
pub const LONGEST_STEP_S: f64 = 0.5;

/// What was measured of a trial's step.
pub struct Measurement {
    /// The median time on a full batch, in seconds.
    pub step_s: f64,
    /// On which rows.
    pub rows: MeasuredOn,
    /// What timing its phases adds, as a part of it: from pairs of a block with it and one without. `None` where a run of
    /// the trial times blocks only.
    pub instrument: Option<Estimate>,
}

/// Rows that a step was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredOn {
    /// Rows of one number, in memory.
    Blank,
    /// Rows of the run's own file, which the steps fetch them from.
    File,
}

/// Measures a step; `None` where it would take longer than [`LONGEST_STEP_S`].
///
/// # Errors
/// Where the device cannot hold the trial.
pub fn step(trial: &Trial, dataset: &Dataset) -> Result<Option<Measurement>, DeviceError> {
    // A policy without a row per step fills no log.
    let slots = match trial.spec.logging.policy {
        Policy::Immediate | Policy::Buffered => trial.programs.layout.log_slots,
        Policy::PerEpoch | Policy::Off => MOST_STEPS,
    };
    // A device takes its share of a global batch; what it waits for the others is not measured.
    let batch = trial.programs.train.batch;
    let about_s = trial.lower_bound.settled_s(1);
    let Some(steps) = steps(about_s, batch * trial.facts.features, slots) else { return Ok(None) };
    let place = match trial.devices.used[..] {
        [place @ DeviceId::Gpu(_)] => place,
        // Its sums need the others.
        [DeviceId::Gpu(_), ..] => return Ok(None),
        _ => DeviceId::Cpu,
    };
    let grain = train::grain(trial);
    // Pairs of short blocks tell more than few long ones.
    let short = (LONG.as_secs_f64() / 16.0 / about_s) as usize; // a float as an integer saturates
    let steps = if grain == Grain::Phases { steps.min(short.max(1)) } else { steps };
    let executor = executor(trial, place, trial.programs.clone(), RankLink::Alone)?;
    let file = match (&dataset.train.features, trial.lower_bound.fetch) {
        (Store::File(rows), Some(ReadCost { in_step: true, .. })) => Some((rows, &dataset.train.targets)),
        _ => None,
    };
    let rows = if file.is_some() { MeasuredOn::File } else { MeasuredOn::Blank };
    let mut stepper = match file {
        Some(file) => {
            let mut stepper = Stepper::from_file(trial, executor, steps, file)?;
            // A disk may be waited for: the first step tells how many there is time for.
            let all = std::mem::replace(&mut stepper.hyper, blank(1)).len();
            let in_time = LONG.as_secs_f64() / stepper.block(Grain::Blocks)?;
            stepper.hyper = blank(all.min(in_time as usize).max(1));
            stepper
        }
        None => Stepper::new(trial, executor, steps)?,
    };
    let (mut plain, mut extra) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    // The first block fills the caches.
    while plain.len() < 2 || begun.elapsed() < LONG {
        let without = stepper.block(Grain::Blocks)?;
        if grain == Grain::Phases {
            extra.push(stepper.block(grain)? / without - 1.0);
        }
        plain.push(without);
        if begun.elapsed() > 8 * LONG {
            break;
        }
    }
    plain.sort_unstable_by(f64::total_cmp);
    Ok(Some(Measurement {
        step_s: plain[plain.len() / 2] / stepper.hyper.len() as f64,
        rows,
        instrument: Estimate::from_values(&extra).filter(|estimate| estimate.count > 5),
    }))
}

/// Runs blocks over blank rows or those of a file, each where the last one ended, so that rows come from where a run's come
/// from.
struct Stepper {
    executor: Box<dyn Executor>,
    batch: usize,
    rows: usize,
    position: usize,
    hyper: Vec<Hyper>,
}

impl Stepper {
    fn new(trial: &Trial, mut executor: Box<dyn Executor>, steps: usize) -> Result<Self, DeviceError> {
        let (layout, facts, batch) = (&trial.programs.layout, trial.facts, trial.programs.train.batch);
        let whole = if trial.chunks.is_some() || facts.in_file() { 0 } else { facts.train_rows };
        let most = MOST_NUMBERS / facts.features.max(1);
        let rows = whole.min(most).max(batch * steps);
        // Not zero: zeros that were never written all lie in one page.
        executor.bind(layout.train_features, &Arc::new(vec![0.5; rows * facts.features]))?;
        executor.bind(layout.train_targets, &Arc::new(vec![0.0; rows * facts.targets]))?;
        let mut order: Vec<u32> = Vec::new();
        epoch_order(trial.spec.seed, 1, rows as u32, &mut order);
        executor.bind_order(&Arc::new(order))?;
        Ok(Self { executor, batch, rows, position: 0, hyper: blank(steps) })
    }

    /// Over rows of the file, drawn anew for a hundred blocks where they come in any order: more than time is for.
    fn from_file(
        trial: &Trial,
        mut executor: Box<dyn Executor>,
        steps: usize,
        (rows, targets): (&Arc<dyn RowReader>, &Arc<Vec<f32>>),
    ) -> Result<Self, DeviceError> {
        let (layout, batch) = (&trial.programs.layout, trial.programs.train.batch);
        let all = trial.facts.train_rows;
        executor.bind_file(layout.train_features, rows)?;
        executor.bind(layout.train_targets, targets)?;
        let whole = all / batch * batch;
        let steps = steps.min(whole / batch);
        let mut rows = whole;
        if trial.spec.data.shuffle {
            rows = (100 * steps * batch).min(MOST_NUMBERS);
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
            let draw = |i: usize| (random::mix(since.wrapping_add(i as u64)) % all as u64) as u32;
            executor.bind_order(&Arc::new((0..rows).map(draw).collect()))?;
        }
        Ok(Self { executor, batch, rows, position: 0, hyper: blank(steps) })
    }

    /// Seconds of a block.
    fn block(&mut self, grain: Grain) -> Result<f64, DeviceError> {
        let steps = self.hyper.len();
        if self.position + steps * self.batch > self.rows {
            self.position = 0;
        }
        let block = Block {
            work: PassKind::Train,
            step: 0,
            position: self.position,
            offset: 0,
            rows: self.rows,
            steps,
            hyper: &self.hyper,
            slot: 0,
        };
        self.position += steps * self.batch;
        let (mut clock, mut ends, mut ledger) = (Clock::new(grain), Vec::new(), Ledger::default());
        let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends };
        let start = Instant::now();
        self.executor.run(&block, &mut meters)?;
        self.executor.settle(Purpose::Log, &mut meters)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// A rate of 0 leaves the weights as they are.
fn blank(steps: usize) -> Vec<Hyper> {
    vec![Hyper { correction: 1.0, decay_factor: 1.0, ..Hyper::default() }; steps]
}

/// Steps of a block, by the time that one takes and the numbers of a batch; `None` where a step is too long.
fn steps(step_s: f64, batch_numbers: usize, slots: usize) -> Option<usize> {
    let in_time = LONG.as_secs_f64() / step_s; // a float as an integer saturates
    let in_memory = MOST_NUMBERS / batch_numbers.max(1);
    (step_s <= LONGEST_STEP_S).then(|| (in_time as usize).min(in_memory).clamp(1, MOST_STEPS).min(slots))
}

#[cfg(test)]
mod tests {
    use super::steps;

    #[test]
    fn a_block_is_bounded_by_time_memory_and_log() {
        assert_eq!(steps(1e-7, 32, 1 << 20), Some(64));
        assert_eq!(steps(1e-7, 32, 10), Some(10));
        assert_eq!(steps(1e-7, 1 << 23, 64), Some(4));
        assert_eq!(steps(0.02, 32, 64), Some(3));
        assert_eq!(steps(0.4, 32, 64), Some(1));
        assert_eq!(steps(0.6, 32, 64), None);
    }
}
