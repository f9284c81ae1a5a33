//! The engine of a GPU by trial: where estimates do not tell two apart, each runs a few steps on blank rows. What was chosen
//! stands in the resolved spec, since another engine has other last digits: a run that is repeated or goes on keeps it.

use std::time::Instant;

use super::{Stepper, executor};
use crate::{
    device::{DeviceError, Grain, RankLink},
    plan::{DeviceId, Engine, EngineReason, PlanError, Trial},
    program::Programs,
    record::RunDir,
    spec::{EngineChoice, Spec},
};

/// Engines are tried whose estimates are no further apart than this.
const NEAR: f64 = 2.0;

/// Blocks of each engine that are timed, after one to warm up.
const ROUNDS: usize = 7;

/// A block takes this long, or one step, in seconds.
const BLOCK_S: f64 = 0.5e-3;

/// What loading an engine takes, about, in seconds.
const LOADING_S: f64 = 0.01;

/// A trial takes at most this part of the time that the run is expected to take.
const PART: f64 = 0.1;

/// Numbers of blank rows.
const NUMBERS: usize = 1 << 20;

/// What the trials of an experiment share.
#[derive(Default)]
pub struct EngineTrials {
    /// Folders of runs that may go on, the newest first.
    pub begun: Vec<RunDir>,
    tried: Vec<(Vec<DeviceId>, Programs, Engine, EngineReason)>,
}

impl EngineTrials {
    /// Writes the engine into the spec of a trial whose engine was left to estimates.
    pub fn settle(
        &mut self,
        mut trial: Trial,
        data_digest: &str,
        plan: impl Fn(&Spec) -> Result<Trial, PlanError>,
    ) -> Result<Trial, PlanError> {
        let EngineReason::Fastest { steps_s, .. } = &trial.engine_reason else { return Ok(trial) };
        let with = |engine: Engine| {
            let mut spec = trial.spec.clone();
            spec.devices.engine = choice(engine);
            spec
        };
        let is_begun = |engine: &Engine| {
            let text = with(*engine).to_toml();
            self.begun.iter().any(|folder| folder.is_of(&text, Some(data_digest)))
        };
        if let Some(engine) = steps_s.iter().map(|(engine, _)| *engine).find(is_begun) {
            return Ok(Trial { engine_reason: EngineReason::Begun, ..plan(&with(engine))? });
        }
        let is_same = |(used, programs, ..): &&(Vec<DeviceId>, Programs, Engine, EngineReason)| {
            *used == trial.devices.used && *programs == trial.programs
        };
        if let Some((.., engine, reason)) = self.tried.iter().find(is_same) {
            return Ok(Trial { engine_reason: reason.clone(), ..plan(&with(*engine))? });
        }
        let least_s = steps_s.first().map_or(0.0, |(_, step_s)| *step_s);
        let near: Vec<_> = steps_s.iter().take_while(|(_, step_s)| *step_s <= NEAR * least_s).collect();
        let each_s = |step_s: f64| LOADING_S + (1 + ROUNDS) as f64 * step_s.max(BLOCK_S);
        let cost_s: f64 = near.iter().map(|(_, step_s)| each_s(*step_s)).sum();
        if near.len() < 2 || cost_s > PART * least_s * trial.steps as f64 {
            trial.spec.devices.engine = choice(trial.engine);
            return Ok(trial);
        }
        let begun = Instant::now();
        let all = near.iter().map(|(engine, _)| plan(&with(*engine))).collect::<Result<Vec<_>, _>>()?;
        let mut steps_s = time(&all);
        steps_s.sort_by(|a, b| a.1.total_cmp(&b.1));
        // Where none could be loaded, the run itself says why.
        let engine = steps_s.first().map_or(trial.engine, |(engine, _)| *engine);
        let reason = EngineReason::Tried { steps_s, took_s: begun.elapsed().as_secs_f64() };
        self.tried.push((trial.devices.used.clone(), trial.programs.clone(), engine, reason.clone()));
        Ok(Trial { engine_reason: reason, ..plan(&with(engine))? })
    }
}

/// Seconds of a step on blank rows: the medians of blocks that the engines run in turns, so that clocks which rise serve all
/// of them. One that cannot be loaded beside the others is left out.
fn time(trials: &[Trial]) -> Vec<(Engine, f64)> {
    keep_context(&trials[0]);
    let ready = |trial| Some((trial, stepper(trial).ok()?, Vec::with_capacity(ROUNDS)));
    let mut ready: Vec<_> = trials.iter().filter_map(ready).collect();
    for round in 0..=ROUNDS {
        for (_, stepper, times) in &mut ready {
            match stepper.block(Grain::Blocks) {
                Ok(seconds) if round > 0 => times.push(seconds / stepper.steps() as f64),
                Ok(_) => {}
                Err(_) => times.push(f64::INFINITY),
            }
        }
    }
    let median = |(trial, _, mut times): (&Trial, Stepper, Vec<f64>)| {
        times.sort_unstable_by(f64::total_cmp);
        (trial.engine, times[times.len() / 2])
    };
    ready.into_iter().map(median).filter(|(_, step_s)| step_s.is_finite()).collect()
}

fn stepper(trial: &Trial) -> Result<Stepper, DeviceError> {
    let executor = executor(trial, trial.devices.used[0], trial.programs.clone(), RankLink::Alone)?;
    let in_memory = NUMBERS / (trial.programs.train.batch * trial.facts.features).max(1);
    let mut stepper = Stepper::new(trial, executor, in_memory.clamp(1, Stepper::most_steps(trial)), NUMBERS)?;
    let all = stepper.steps();
    // The first step is cold: the next tells how many there is time for.
    stepper.set_steps(1);
    stepper.block(Grain::Blocks)?;
    let step_s = stepper.block(Grain::Blocks)?;
    stepper.set_steps(((BLOCK_S / step_s) as usize).clamp(1, all)); // a float as an integer saturates
    Ok(stepper)
}

/// Making a context takes longer than a trial: the run finds this one.
#[cfg(feature = "cuda")]
fn keep_context(trial: &Trial) {
    use crate::device::cuda;

    if let [DeviceId::Gpu(ordinal)] = trial.devices.used[..] {
        let _ = cuda::gpu(ordinal).and_then(cuda::Context::keep); // loading the engines meets the same error
    }
}

#[cfg(not(feature = "cuda"))]
fn keep_context(_: &Trial) {}

fn choice(engine: Engine) -> EngineChoice {
    match engine {
        Engine::Serial => EngineChoice::Serial,
        Engine::Team => EngineChoice::Team,
        Engine::Persistent => EngineChoice::Persistent,
        Engine::Cooperative => EngineChoice::Cooperative,
        Engine::Graph => EngineChoice::Graph,
        Engine::Launch => EngineChoice::Launch,
    }
}
