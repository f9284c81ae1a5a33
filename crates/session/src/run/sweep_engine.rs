//! The engine of trials that are too short to repay compiling a kernel each: those of a sweep that have the same programs share
//! one, so their steps count together. All of them get the same engine, and `spec.toml` has it as if each had chosen it. Only a
//! trial that is resumed keeps the engine that it began with.

use super::{
    datasets::Datasets,
    engine_trials::{useful_threads, with_engine},
    planned::Planned,
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
        for trial in group.iter_mut().filter(|trial| !is_begun(trial) && trial.engine != engine) {
            if let Some(mut planned) = with(engine, trial, machine, threads) {
                planned.data_warnings.clone_from(&trial.data_warnings);
                planned.engine_reason = reason.clone();
                datasets.plans.share(&mut planned);
                **trial = planned;
            }
        }
    }
}

/// The engine of these trials that have not begun, and why; `None` if they keep those that they have. All have the same programs.
fn shared_engine(group: &[&mut Trial], machine: &Machine, threads: usize) -> Option<(Engine, EngineReason)> {
    let first = group.iter().find(|trial| !is_begun(trial))?;
    let mut begun = group.iter().filter(|trial| is_begun(trial)).map(|trial| trial.engine);
    let common = begun.next();
    // Those that began with different engines chose them each alone.
    if begun.any(|engine| Some(engine) != common) {
        return None;
    }
    let (steps, mut steps_s) = (steps_of(group), estimates(first)?);
    let engine = common.unwrap_or(Engine::Compiled);
    if engine == Engine::Compiled {
        let compiled = with(engine, first, machine, threads)?;
        let fastest_s = steps_s.iter().map(|(_, step_s)| *step_s).fold(f64::INFINITY, f64::min);
        let compiled_s = plan::compiled_step_s(&compiled, machine)?;
        // A grid's interpreter would validate, far slower than a graph.
        let is_slow = !compiled.is_one_block && first.programs.validate.is_some();
        if common.is_none() && (is_slow || steps as f64 * (fastest_s - compiled_s) < COMPILE_S) {
            return None;
        }
        steps_s.insert(0, (engine, compiled_s));
    }
    Some((engine, EngineReason::Together { steps, steps_s }))
}

/// The steps of these trials, without those that only repeat others.
fn steps_of(group: &[&mut Trial]) -> u64 {
    let first = &group[0].spec.devices.request;
    let may_repeat = group.iter().any(|trial| trial.spec.devices.request != *first);
    let repeats = |at: usize| may_repeat && group[..at].iter().any(|earlier| group[at].repeats(earlier));
    let all = group.iter().enumerate().filter(|(at, _)| !repeats(*at));
    all.map(|(_, trial)| trial.steps).fold(0, u64::saturating_add)
}

fn is_begun(trial: &Trial) -> bool {
    trial.engine_reason == EngineReason::Begun
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
    plan::plan(&spec, trial.facts, machine, useful_threads(&spec, threads, machine)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::Gpu, spec};

    const SPEC: &str = "devices.num_gpus = 1\n\
        data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 0 }\n\
        model.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1\n";

    /// The engines of a trial that has not begun, settled beside two that have.
    fn settled(begun: [Engine; 2]) -> [(Engine, EngineReason); 3] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        std::fs::write(&path, SPEC).expect("a spec");
        let experiment = spec::load(&path, &[]).unwrap_or_else(|_| panic!("a spec"));
        let mut gpu = Gpu { is_virtual: false, ..Gpu::virtual_of(1 << 30) };
        gpu.limits.most_elements = usize::MAX;
        let machine = Machine::typical(vec![gpu], 1 << 30);
        let mut datasets = Datasets::new(&machine);
        let spec = &experiment.trials[0].spec;
        let facts = datasets.open(spec).unwrap_or_else(|_| panic!("data")).facts();
        let spec = with_engine(spec, Engine::Graph);
        let own = plan::plan(&spec, facts, &machine, 1).expect("a plan");
        let steps_s = vec![(Engine::Graph, 1e-5)];
        let with = |engine: Engine, reason: EngineReason| {
            let mut trial = own.clone();
            (trial.engine, trial.engine_reason) = (engine, reason);
            trial
        };
        let open = with(Engine::Graph, EngineReason::Fastest { steps_s, by: None });
        let [first, second] = begun.map(|engine| with(engine, EngineReason::Begun));
        let mut all = [first, open, second];
        settle_together(all.iter_mut().collect(), &mut datasets, &machine, 1);
        all.map(|trial| (trial.engine, trial.engine_reason.clone()))
    }

    #[test]
    fn a_trial_that_began_keeps_its_engine_and_gives_it_to_others_if_all_have_it() {
        use Engine::{Graph, Launch};
        let [first, (engine, reason), second] = settled([Launch, Launch]);
        assert_eq!([&first, &second], [&(Launch, EngineReason::Begun); 2]);
        assert!(engine == Launch && matches!(reason, EngineReason::Together { .. }), "{engine:?} {reason:?}");
        let [first, (engine, reason), second] = settled([Launch, Graph]);
        assert_eq!([first, second], [Launch, Graph].map(|engine| (engine, EngineReason::Begun)));
        assert!(engine == Graph && matches!(reason, EngineReason::Fastest { .. }), "{reason:?}");
    }
}
