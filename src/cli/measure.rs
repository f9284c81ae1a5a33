//! A step's time as it is, beside the one that the cost model says: a few steps on blank rows, kept by nobody.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::world::{Link, executor};
use crate::{
    device::{Block, Clock, DeviceError, Grain, Ledger, Meters, Purpose, Work},
    plan::{Place, Trial},
    program::Hyper,
};

/// How long is measured, about.
const LONG: Duration = Duration::from_millis(60);

/// Numbers of blank rows at most.
const MOST_NUMBERS: usize = 1 << 22;

/// Batches per block at most.
const MOST_STEPS: usize = 64;

/// A step that would take longer, as the cost model says, is not measured, in seconds.
pub const LONGEST_STEP_S: f64 = 0.5;

/// The median time of a step on a full batch, in seconds; `None` where it would take longer than [`LONGEST_STEP_S`].
///
/// # Errors
/// Where the device cannot hold the trial.
pub fn step_s(trial: &Trial) -> Result<Option<f64>, DeviceError> {
    let layout = &trial.programs.layout;
    // Of a global batch a device takes its share; what it waits for the others is not measured.
    let batch = trial.programs.train.batch;
    let slots = layout.log_slots;
    let Some(steps) = steps(trial.floor.serial_s(), batch * trial.facts.features, slots) else {
        return Ok(None);
    };
    let place = match trial.devices.used[..] {
        [place @ Place::Gpu(_)] => place,
        // Its sums need the others.
        [Place::Gpu(_), ..] => return Ok(None),
        _ => Place::Cpu,
    };
    let mut executor = executor(trial, place, trial.programs.clone(), Link::Alone)?;
    let rows = batch * steps;
    executor.bind(layout.train_features, &Arc::new(vec![0.0; rows * trial.facts.features]))?;
    executor.bind(layout.train_targets, &Arc::new(vec![0.0; rows * trial.facts.targets]))?;
    executor.bind_order(&Arc::new((0..rows as u32).collect()))?;
    // A rate of 0 leaves the weights as they are: blank.
    let hyper = vec![Hyper { correction: 1.0, shrink: 1.0, ..Hyper::default() }; steps];
    let block =
        Block { work: Work::Train, step: 0, position: 0, offset: 0, rows, steps, hyper: &hyper, slot: 0 };
    let mut clock = Clock::new(Grain::Blocks);
    let (mut ends, mut ledger) = (Vec::new(), Ledger::default());
    let begun = Instant::now();
    let mut times = Vec::new();
    // The first block fills the caches.
    while times.len() < 2 || begun.elapsed() < LONG {
        let start = Instant::now();
        let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends };
        executor.run(&block, &mut meters)?;
        executor.settle(Purpose::Log, &mut meters)?;
        times.push(start.elapsed());
        ends.clear();
        if begun.elapsed() > 8 * LONG {
            break;
        }
    }
    times.sort_unstable();
    Ok(Some(times[times.len() / 2].as_secs_f64() / steps as f64))
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
        assert_eq!(steps(1e-7, 1 << 20, 64), Some(4));
        assert_eq!(steps(0.02, 32, 64), Some(3));
        assert_eq!(steps(0.4, 32, 64), Some(1));
        assert_eq!(steps(0.6, 32, 64), None);
    }
}
