//! The choice of the engine, on the CPU and on GPUs.

use super::{
    all_reduce::AllReducePlan,
    devices::DeviceId,
    engine::{Engine, EngineReason},
    engine_seconds::EngineSeconds,
    gpu_rates::GpuRates,
    lower_bound::LowerBound,
    machine::{Gpu, GpuLimits, Machine},
    trial::Trial,
};
use crate::{
    program::{MemoryPlan, Programs, StepSource},
    spec::{EngineChoice, Precision, Problem, Spec},
    units,
};

/// A team is chosen only if its step takes less than this share of one thread's: a team suffers more from
/// other processes on the machine.
const TEAM_MARGIN: f64 = 0.75;

/// The seconds that a kernel has to save for it to be compiled: NVRTC takes 0.3 s for a small one, 2 s for those of a grid; the
/// next run finds the code in the cache.
pub const COMPILE_S: f64 = 0.5;

/// f32 operations of a multiprocessor per clock cycle.
const FLOPS_PER_CLOCK: f64 = 256.0;

/// What a run does in all.
#[derive(Clone, Copy)]
pub struct RunSize {
    pub steps: u64,
    /// Rows of all validations.
    pub validated_rows: u64,
}

const LEAVE_OUT: &str = "leave `devices.engine` out, or `auto`: the plan picks one that fits";

/// An engine and why it was chosen.
pub type Chosen = (Engine, EngineReason);

fn refused(message: impl Into<String>, hint: &str) -> Problem {
    Problem::at_key("devices.engine", message).hint(hint)
}

/// Chooses between one thread and a team. A team pays if its barriers cost less than sharing the work saves.
pub fn on_the_cpu(choice: EngineChoice, lower_bound: &LowerBound, threads: usize) -> Chosen {
    // Work beside the step is not shared among threads, so it is left out.
    let [alone_s, together_s] = [1, threads].map(|threads| lower_bound.settled_s(threads));
    let reads_file = lower_bound.fetch.is_some_and(|fetch| fetch.in_step);
    match choice {
        EngineChoice::Serial => (Engine::Serial, EngineReason::Spec),
        _ if threads <= 1 => (Engine::Serial, EngineReason::OneThread),
        EngineChoice::Team => (Engine::Team, EngineReason::Spec),
        _ => {
            let pays = together_s < TEAM_MARGIN * alone_s;
            let engine = if pays { Engine::Team } else { Engine::Serial };
            (engine, EngineReason::Threads { alone_s, together_s, threads, reads_file })
        }
    }
}

/// Why a virtual GPU has no team.
pub fn no_team() -> Problem {
    let message = "the engine `team` gives the CPU's threads to one device, and a virtual GPU has one thread";
    refused(message, "leave it out, or set `devices.num_gpus = 0`: the CPU runs it")
}

/// Picks the engine of real GPUs; for several, `sums` decides.
pub fn on_gpus(
    spec: &Spec,
    programs: &Programs,
    gpus: &[&Gpu],
    (sums, data_bytes): (Option<&AllReducePlan>, u64),
    run: RunSize,
) -> Result<Chosen, Problem> {
    let choice = spec.devices.engine;
    if let Some(sums) = sums {
        return among_several(choice, sums.by.is_queued());
    }
    let limits = gpus.first().map(|gpu| gpu.limits).unwrap_or_default();
    let needed = 4 * MemoryPlan::new(programs).train.elements as u64;
    let fits = needed <= limits.shared_bytes;
    let engine = match choice {
        EngineChoice::Serial | EngineChoice::Team => {
            let message = format!("the engine `{}` runs on the CPU, and this run uses a GPU", choice.name());
            return Err(refused(message, LEAVE_OUT));
        }
        EngineChoice::Persistent if !fits => {
            let [needed, room] = [needed, limits.shared_bytes].map(units::bytes);
            let message = format!(
                "the engine `persistent` keeps {needed} of this job in shared memory, and a block of this GPU has {room}"
            );
            return Err(refused(message, LEAVE_OUT));
        }
        EngineChoice::Compiled => match compiled_step(spec.devices.precision, programs, limits) {
            Ok(_) => Engine::Compiled,
            Err(why) => {
                return Err(refused(format!("the engine `compiled` cannot run this job: {why}"), LEAVE_OUT));
            }
        },
        EngineChoice::Cooperative if !limits.cooperative => {
            return Err(refused("this GPU has no cooperative launches", LEAVE_OUT));
        }
        EngineChoice::Persistent => Engine::Persistent,
        EngineChoice::Cooperative => Engine::Cooperative,
        EngineChoice::Graph => Engine::Graph,
        EngineChoice::Launch => Engine::Launch,
        EngineChoice::Auto => {
            let rates = gpus.first().and_then(|gpu| gpu.speed);
            let precision = spec.devices.precision;
            return Ok(fastest(precision, programs, (rates, limits), (fits, data_bytes, run)));
        }
    };
    Ok((engine, EngineReason::Spec))
}

/// Estimated seconds of a step of the compiled kernel.
///
/// # Errors
/// Why no such kernel can be made.
fn compiled_step(precision: Precision, programs: &Programs, limits: GpuLimits) -> Result<f64, String> {
    let source = StepSource::get(programs, precision, limits.step_room())?;
    let clock_hz = limits.multiprocessor_flops_per_s / FLOPS_PER_CLOCK;
    Ok(source.cycles / clock_hz.max(1.0))
}

/// Estimated seconds of a step of a trial of the engine `compiled`.
pub fn compiled_step_s(trial: &Trial, machine: &Machine) -> Option<f64> {
    let gpu = trial.devices.used.first()?.real_gpu(machine)?;
    compiled_step(trial.spec.devices.precision, &trial.programs, gpu.limits).ok()
}

/// The engine that validates where this one trains. Validation chunks are larger than batches; if they do not fit into a block, they
/// run in a grid or as single launches.
pub fn validation_engine(engine: Engine, fits: bool, cooperative: bool) -> Engine {
    match engine {
        Engine::Compiled if fits => Engine::Persistent,
        Engine::Persistent | Engine::Compiled if !fits && cooperative => Engine::Cooperative,
        Engine::Persistent | Engine::Compiled if !fits => Engine::Launch,
        engine => engine,
    }
}

/// Expected seconds of a full step, or of the `last` one of an epoch, without what the host does; `None` if the rates of its devices
/// are unknown.
pub(super) fn step(trial: &Trial, machine: &Machine, last: bool) -> Option<EngineSeconds> {
    let bound = &trial.lower_bound;
    if bound.rates.processor.is_gpu() != trial.engine.is_gpu() {
        return None;
    }
    let parts = bound.of_steps(trial.threads, u64::from(!last), u64::from(last));
    let Some(gpu) = trial.devices.used.first()?.real_gpu(machine) else {
        let file_s = bound.fetch.map_or(0.0, |fetch| fetch.in_step_s(trial.threads));
        return Some(EngineSeconds { file_s, ..EngineSeconds::on_the_cpu(&parts) });
    };
    if trial.engine != Engine::Compiled {
        return Some(EngineSeconds::new(trial.engine, trial.spec.devices.precision, &gpu.speed?, &parts));
    }
    // With fewer rows it takes as long.
    let full = bound.by(1);
    let work_s = if trial.is_one_block { 0.0 } else { full.arithmetic_s + full.memory_s };
    let latency_s = (compiled_step_s(trial, machine)? - work_s).max(0.0);
    Some(EngineSeconds { work_s, latency_s, ..EngineSeconds::at_least(&full) })
}

/// The engine for several GPUs. `queued`: whether all-reduce is queued like a kernel.
fn among_several(choice: EngineChoice, queued: bool) -> Result<Chosen, Problem> {
    match choice {
        EngineChoice::Auto if queued => Ok((Engine::Graph, EngineReason::QueuedSums)),
        EngineChoice::Auto => Ok((Engine::Launch, EngineReason::SumsOnHost)),
        EngineChoice::Launch => Ok((Engine::Launch, EngineReason::Spec)),
        EngineChoice::Graph if queued => Ok((Engine::Graph, EngineReason::Spec)),
        other => {
            let message = format!("the engine `{}` cannot sum over several devices", other.name());
            let hint = match other {
                EngineChoice::Graph => {
                    "it needs NCCL, which is not there; `runner devices` says what was looked for"
                }
                _ => LEAVE_OUT,
            };
            Err(refused(message, hint))
        }
    }
}

/// The engine with the shortest step, by measured rates if there are any, else by the GPU's limits.
fn fastest(
    precision: Precision,
    programs: &Programs,
    (rates, limits): (Option<GpuRates>, GpuLimits),
    (fits, data_bytes, run): (bool, u64, RunSize),
) -> Chosen {
    let by_rates = |rates: GpuRates, engine| {
        let speed = rates.speed(engine, precision, fits);
        let parts = LowerBound::new(programs, speed, (data_bytes, None)).by(1);
        EngineSeconds::new(engine, precision, &rates, &parts).total_s()
    };
    let estimate = |i: usize| {
        let instructions = programs.train.instructions.len() as f64;
        let multiprocessors = if i == 0 { 1.0 } else { f64::from(limits.multiprocessors.max(1)) };
        let peak = limits.multiprocessor_flops_per_s * multiprocessors;
        instructions * limits.instruction_s[i]
            + programs.train.cost().flops / (peak * limits.product_shares[i])
    };
    let engines =
        [(Engine::Persistent, fits), (Engine::Cooperative, limits.cooperative), (Engine::Graph, true)];
    let able = engines.into_iter().enumerate().filter(|(_, (_, able))| *able);
    let mut steps_s: Vec<_> = able
        .map(|(i, (engine, _))| (engine, rates.map_or_else(|| estimate(i), |rates| by_rates(rates, engine))))
        .rev()
        .collect();
    steps_s.sort_by(|a, b| a.1.total_cmp(&b.1));
    // A grid's interpreter runs the validation, far slower than a graph.
    let validation = programs.validate.as_ref().filter(|_| !fits);
    let validation_s = validation.map_or(0.0, |chunk| {
        let grid = f64::from(limits.multiprocessors.max(1)) * limits.multiprocessor_flops_per_s;
        let flops = chunk.cost().flops * run.validated_rows as f64 / chunk.batch.max(1) as f64;
        flops / (grid * limits.product_shares[1])
    });
    let fastest_s = steps_s.first().map_or(0.0, |(_, step_s)| *step_s);
    let saved_s = |step_s: f64| run.steps as f64 * (fastest_s - step_s) - validation_s;
    let compiled =
        (saved_s(0.0) >= COMPILE_S).then(|| compiled_step(precision, programs, limits).ok()).flatten();
    if let Some(step_s) = compiled.filter(|step_s| saved_s(*step_s) >= COMPILE_S) {
        steps_s.insert(0, (Engine::Compiled, step_s));
    }
    let engine = steps_s.first().map_or(Engine::Graph, |(engine, _)| *engine);
    (engine, EngineReason::Fastest { steps_s, by: rates.map(|rates| rates.origin) })
}

/// Refuses an explicit choice that only GPUs support, if the trial runs on the CPU (virtual GPUs do). The
/// plan never replaces an explicit choice silently.
pub fn refuse_on_cpu(spec: &Spec, used: &[DeviceId], machine: &Machine) -> Result<(), Problem> {
    let devices = &spec.devices;
    let is_virtual = used.iter().any(|place| matches!(place, DeviceId::Virtual(_)));
    let (real, why) = match is_virtual {
        true => ("real ", "virtual GPUs compute on the CPU"),
        false => ("", "this run uses the CPU"),
    };
    let needs = match devices.precision {
        Precision::Bf16 if machine.bf16_unit.is_none() => {
            format!("a {real}GPU, or a processor with AMX or AVX512-BF16; {why}, which has neither")
        }
        Precision::Tf32 => format!("a {real}GPU, and {why}"),
        Precision::F32 | Precision::Bf16 => String::new(),
    };
    if !needs.is_empty() {
        let message = format!("`precision = \"{}\"` needs {needs}", devices.precision.name());
        let problem = Problem::at_key("devices.precision", message);
        return Err(problem.hint("leave it out: the CPU computes in f32"));
    }
    match devices.engine {
        EngineChoice::Auto | EngineChoice::Serial | EngineChoice::Team => Ok(()),
        other => {
            let message = format!("the engine `{}` runs on a {real}GPU, and {why}", other.name());
            Err(refused(message, "leave it out, or `auto`: the plan picks one of the CPU's"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{WIDE, facts, gpus, of_layers, planned};
    use super::*;

    #[test]
    fn bf16_needs_a_processor_that_has_it() {
        let facts = facts(1000, 2048, false);
        let none = Machine::typical(gpus(true, 1, 1 << 36), 1 << 36);
        let amx = Machine { bf16_unit: Some("amx_bf16".to_owned()), ..none.clone() };
        let bf16 = "devices.precision=bf16";
        for (place, message) in [
            (
                "devices.num_gpus=0",
                "`precision = \"bf16\"` needs a GPU, or a processor with AMX or AVX512-BF16; this run uses the CPU, which \
                 has neither",
            ),
            (
                "devices.num_gpus=1",
                "`precision = \"bf16\"` needs a real GPU, or a processor with AMX or AVX512-BF16; virtual GPUs compute on \
                 the CPU, which has neither",
            ),
        ] {
            let problem = planned(&[bf16, place], facts, &none).expect_err("it is refused");
            assert_eq!(problem.message, message);
            assert_eq!(problem.hint.as_deref(), Some("leave it out: the CPU computes in f32"));
            assert!(planned(&["devices.precision=tf32", place], facts, &amx).is_err());
            let [half, single] = [bf16, "devices.precision=f32"]
                .map(|precision| planned(&[precision, place], facts, &amx).expect("a plan"));
            let rate = |trial: &crate::plan::Trial| trial.lower_bound.rates.flops_per_s;
            assert!(rate(&half) > 3.0 * rate(&single));
        }
    }

    /// The packed 16-bit operands of all products are counted.
    #[test]
    fn tiles_are_part_of_the_memory() {
        let trial = of_layers(WIDE, &["data.batch_size=64"], facts(1000, 100, false), 2);
        let [b, x, h] = [64_u64, 128, 2048];
        let forward = (b + h) * x + (b + h) * h + (b + 32) * h;
        let weights = (x + h) * b + (h + h) * b + (h + 32) * b;
        let inputs = (b + h) * h + (b + h) * 32;
        assert_eq!(trial.programs.packed_bytes(true), 2 * (forward + weights + inputs));
    }
}
