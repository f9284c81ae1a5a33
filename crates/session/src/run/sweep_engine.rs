//! The engine of trials that are too short to repay compiling a kernel each: those of a sweep that have the same programs share
//! one, so their steps count together. All of them get the same engine, and `spec.toml` has it as if each had chosen it.

use super::{
    datasets::Datasets,
    engine_trials::{useful_threads, with_engine},
};
use crate::{
    plan::{self, COMPILE_S, DeviceId, Engine, EngineReason, Machine, Trial},
    spec::Spec,
};

/// Settles the engines of a sweep's planned trials; `threads` is what the host may use.
pub fn settle_together(trials: Vec<&mut Trial>, datasets: &mut Datasets, machine: &Machine, threads: usize) {
    let mut groups: Vec<Vec<&mut Trial>> = Vec::new();
    for trial in trials.into_iter().filter(|trial| estimates(trial).is_some()) {
        match groups.iter_mut().find(|group| is_alike(group[0], trial)) {
            Some(group) => group.push(trial),
            None => groups.push(vec![trial]),
        }
    }
    for mut group in groups.into_iter().filter(|group| group.len() > 1) {
        let Some((engine, reason)) = shared_engine(&group, machine, threads) else { continue };
        datasets.engines.keep(group[0], 1, (engine, 1), reason.clone());
        for trial in group.iter_mut().filter(|trial| trial.engine != engine) {
            if let Some(mut planned) = with(engine, trial, machine, threads) {
                planned.data_warnings.clone_from(&trial.data_warnings);
                planned.engine_reason = reason.clone();
                datasets.plans.share(&mut planned);
                **trial = planned;
            }
        }
    }
}

/// The engine of these trials, which have the same programs, and why; `None` if they keep those that they have.
fn shared_engine(group: &[&mut Trial], machine: &Machine, threads: usize) -> Option<(Engine, EngineReason)> {
    let first = &group[0];
    if let Some(begun) = group.iter().find(|trial| trial.engine_reason == EngineReason::Begun) {
        return Some((begun.engine, EngineReason::Begun));
    }
    let steps = group.iter().map(|trial| trial.steps).fold(0, u64::saturating_add);
    let compiled = with(Engine::Compiled, first, machine, threads)?;
    let mut steps_s = estimates(first)?;
    let fastest_s = steps_s.iter().map(|(_, step_s)| *step_s).fold(f64::INFINITY, f64::min);
    if !compiled.is_one_block && first.programs.validate.is_some() {
        return None; // a grid's interpreter would validate, far slower than a graph
    }
    let compiled_s = plan::compiled_step_s(&compiled, machine)?;
    if steps as f64 * (fastest_s - compiled_s) < COMPILE_S {
        return None;
    }
    steps_s.insert(0, (Engine::Compiled, compiled_s));
    Some((Engine::Compiled, EngineReason::Together { steps, steps_s }))
}

/// The known seconds of a step by engine, if the plan chose the engine of one GPU, and not yet `compiled`.
fn estimates(trial: &Trial) -> Option<Vec<(Engine, f64)>> {
    let is_one_gpu = matches!(trial.devices.used[..], [DeviceId::Gpu(_)]);
    match &trial.engine_reason {
        _ if !is_one_gpu => None,
        EngineReason::Begun => Some(Vec::new()),
        _ if trial.engine == Engine::Compiled => None,
        EngineReason::Fastest { steps_s, .. } => Some(steps_s.clone()),
        EngineReason::Tried { tried, .. } => Some(tried.iter().map(|own| (own.engine, own.step_s)).collect()),
        _ => None,
    }
}

fn is_alike(one: &Trial, other: &Trial) -> bool {
    let of = |trial: &Trial| trial.spec.devices.precision;
    of(one) == of(other) && one.devices.used == other.devices.used && one.programs == other.programs
}

/// The same trial with this engine, if that can run it.
fn with(engine: Engine, trial: &Trial, machine: &Machine, threads: usize) -> Option<Trial> {
    let spec: Spec = with_engine(&trial.spec, engine);
    plan::plan(&spec, trial.facts, machine, useful_threads(&spec, threads)).ok()
}
