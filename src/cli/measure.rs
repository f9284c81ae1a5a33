//! Measures a step that no run has: that of one of many hosts. Runs a few steps on blank rows, or on rows of the file if steps
//! fetch their rows from it.

use std::time::{Duration, Instant};

use crate::{
    cuda::RankLink,
    data::{Dataset, Store},
    device::{DeviceError, Grain},
    host::load::{self, Use},
    plan::{DeviceId, ReadCost, Trial},
    run::{LONGEST_STEP_S, Stepper, executor},
};

/// Approximate duration of a measurement.
const LONG: Duration = Duration::from_millis(60);

/// Maximum elements of the blank rows: more than caches hold.
const MOST_NUMBERS: usize = 1 << 25;

/// What was measured of a trial's step.
pub struct Measurement {
    /// The median time on a full batch, in seconds.
    pub step_s: f64,
    /// Share of the processors' time that others took meanwhile, where the step needs these.
    pub others: f64,
}

/// Measures a step; `None` if it would take longer than [`LONGEST_STEP_S`].
pub fn step(trial: &Trial, dataset: &Dataset) -> Result<Option<Measurement>, DeviceError> {
    // A device processes its share of a global batch; waiting for other devices is not measured.
    let batch = trial.programs.train.batch;
    let about_s = trial.lower_bound.settled_s(1);
    let most = Stepper::most_steps(trial);
    let Some(steps) = steps(about_s, batch * trial.facts.features, most) else { return Ok(None) };
    let place = match trial.devices.used[..] {
        [place @ DeviceId::Gpu(_)] => place,
        // Its sums need the others.
        [first, ..] if first.is_real_gpu() => return Ok(None),
        _ => DeviceId::Cpu,
    };
    let executor = executor(trial, place, (*trial.programs).clone(), RankLink::Alone)?;
    let file = match (&dataset.train.features, trial.lower_bound.fetch) {
        (Store::File(rows), Some(ReadCost { in_step: true, .. })) => Some((rows, &dataset.train.targets)),
        _ => None,
    };
    let mut stepper = match file {
        Some(file) => {
            let mut stepper = Stepper::from_file(trial, executor, steps, MOST_NUMBERS, file)?;
            // Reading a disk may be slow: the first step shows how many steps there is time for.
            let all = stepper.steps();
            stepper.set_steps(1);
            let in_time = LONG.as_secs_f64() / stepper.block(Grain::Blocks)?;
            stepper.set_steps(all.min(in_time as usize).max(1));
            stepper
        }
        None => Stepper::new(trial, executor, steps, MOST_NUMBERS)?,
    };
    let mut times = Vec::new();
    let before = load::sample().filter(|_| place == DeviceId::Cpu);
    let begun = Instant::now();
    // The first block only fills the caches.
    while times.len() < 2 || begun.elapsed() < LONG {
        times.push(stepper.block(Grain::Blocks)?);
        if begun.elapsed() > 8 * LONG {
            break;
        }
    }
    let used = before.zip(load::sample()).and_then(|(before, after)| Use::between(&before, &after));
    times.sort_unstable_by(f64::total_cmp);
    Ok(Some(Measurement {
        step_s: times[times.len() / 2] / stepper.steps() as f64,
        others: used.map_or(0.0, |used| used.others),
    }))
}

/// Steps per block, given the time of a step and the elements of a batch; `None` if a step takes too long.
fn steps(step_s: f64, batch_numbers: usize, most: usize) -> Option<usize> {
    let in_time = LONG.as_secs_f64() / step_s; // the cast below saturates
    let in_memory = MOST_NUMBERS / batch_numbers.max(1);
    (step_s <= LONGEST_STEP_S).then(|| (in_time as usize).min(in_memory).clamp(1, most))
}

#[cfg(test)]
mod tests {
    use super::steps;

    #[test]
    fn a_block_is_bounded_by_time_memory_and_log() {
        assert_eq!(steps(1e-7, 32, 64), Some(64));
        assert_eq!(steps(1e-7, 32, 10), Some(10));
        assert_eq!(steps(1e-7, 1 << 23, 64), Some(4));
        assert_eq!(steps(0.02, 32, 64), Some(3));
        assert_eq!(steps(0.4, 32, 64), Some(1));
        assert_eq!(steps(0.6, 32, 64), None);
    }
}
