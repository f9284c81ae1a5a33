//! A step's time as it is, beside the one that the cost model says: a few steps on blank rows, kept by nobody.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    device::{
        Block, Clock, DeviceError, Executor, Grain, Work,
        cpu::{CpuExecutor, Job},
    },
    plan::Trial,
    program::Hyper,
    spec::EngineChoice,
};

/// How long is measured, about.
const LONG: Duration = Duration::from_millis(60);

/// Numbers of blank rows at most.
const MOST_NUMBERS: usize = 1 << 22;

/// Batches per block at most.
const MOST_STEPS: usize = 64;

/// The median time of a step on a full batch, in seconds.
///
/// # Errors
/// Where the device cannot hold the trial.
pub fn step_s(trial: &Trial) -> Result<f64, DeviceError> {
    let job = Job {
        programs: trial.programs.clone(),
        threads: trial.threads,
        seed: trial.spec.seed,
        adaptive: trial.spec.devices.engine == EngineChoice::Auto,
    };
    let mut executor = CpuExecutor::new(&job)?;
    let layout = &trial.programs.layout;
    let batch = trial.programs.train.rows;
    let steps =
        (MOST_NUMBERS / (batch * trial.facts.features).max(1)).clamp(1, MOST_STEPS).min(layout.log_slots);
    let rows = batch * steps;
    executor.bind(layout.train_features, &Arc::new(vec![0.0; rows * trial.facts.features]))?;
    executor.bind(layout.train_targets, &Arc::new(vec![0.0; rows * trial.facts.targets]))?;
    executor.bind_order(&Arc::new((0..rows as u32).collect()))?;
    // A rate of 0 leaves the weights as they are: blank.
    let hyper = vec![Hyper { correction: 1.0, shrink: 1.0, ..Hyper::default() }; steps];
    let block =
        Block { work: Work::Train, step: 0, position: 0, offset: 0, rows, steps, hyper: &hyper, slot: 0 };
    let mut clock = Clock::new(Grain::Blocks);
    let mut ends = Vec::new();
    let begun = Instant::now();
    let mut times = Vec::new();
    // The first block fills the caches.
    while times.len() < 2 || begun.elapsed() < LONG {
        let start = Instant::now();
        executor.run(&block, &mut clock, &mut ends)?;
        times.push(start.elapsed());
        ends.clear();
        if begun.elapsed() > 8 * LONG {
            break;
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2].as_secs_f64() / steps as f64)
}
