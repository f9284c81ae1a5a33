//! How long the parts of a run take by the rates of its machine: for a machine that is not here, so that nothing can be measured.

use super::{
    all_reduce::AllReduceMethod,
    devices::DeviceId,
    engine::Engine,
    engine_choice,
    engine_seconds::EngineSeconds,
    gpu_rates::GpuRates,
    lower_bound::{Bottleneck, LowerBound},
    machine::{Gpu, Machine},
    rates::Processor,
    run_length::RunLength,
    stops::Stops,
    transfers::transfers,
    trial::Trial,
};
use crate::{
    program::{MemoryPlan, Program, Programs},
    spec::Policy,
};

/// Starting a process that uses a GPU: the driver, a context and kernels that are in the cache. A whole process of 320 tiny steps
/// took 0.33 s on an H200.
const GPU_START_S: f64 = 0.3;

/// Seconds of the parts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedTime {
    /// A step in the mean over all of them, with its share of what the host does for it: launching blocks of steps, reading losses,
    /// comparing and saving parameters.
    pub step_s: f64,
    /// A pass over the validation rows.
    pub validation_s: f64,
    /// Copying rows and parameters to the devices, and the parameters back.
    pub loading_s: f64,
    /// What the first trial of a process takes more.
    pub start_s: f64,
    /// What a step spends most of its time on, and what kind of processor does it.
    pub bound: Bottleneck,
    pub processor: Processor,
}

impl ExpectedTime {
    /// `None` if the machine's rates do not say, several hosts train together, or devices are virtual.
    pub fn new(trial: &Trial, machine: &Machine) -> Option<Self> {
        if !trial.is_timed_here() {
            return None;
        }
        let gpu = trial.devices.used.first()?.real_gpu(machine);
        let rates = &trial.lower_bound.rates;
        let copies = match gpu {
            Some(gpu) => Copies::new(trial, &gpu.speed?),
            None => Copies::default(),
        };
        let own = mean_step(trial, machine)?;
        let length = RunLength::new(&trial.spec, trial.facts, trial.programs.train.batch);
        let blocks = Stops::new(trial, &length).blocks;
        let blocks_s = blocks as f64 * rates.block_s / trial.steps.max(1) as f64;
        let device_s = own.total_s() + copies.sums_s;
        // Rows are copied while steps compute.
        let step_s = device_s.max(own.upload_s) + blocks_s + copies.checkpoints_s + copies.digests_s;
        let is_handed_over = blocks_s > step_s / 2.0;
        let bound = match () {
            () if is_handed_over && trial.spec.logging.policy == Policy::Immediate => Bottleneck::Log,
            () if is_handed_over => Bottleneck::Overhead,
            () if copies.checkpoints_s > step_s / 2.0 => Bottleneck::Checkpoint,
            () if own.upload_s > device_s => Bottleneck::Transfer,
            () => largest(trial.engine, &own, copies.sums_s),
        };
        let validation_s = match &trial.programs.validate {
            Some(_) => {
                let passes = length.validations.max(1) as f64;
                validation_s(trial, machine)? + rates.block_s + copies.validations_s / passes
            }
            None => 0.0,
        };
        let start_s = if gpu.is_some() { GPU_START_S } else { 0.0 };
        let is_launched = is_handed_over && gpu.is_some();
        let processor = if is_launched { Processor::Gpu } else { rates.processor };
        Some(Self { step_s, validation_s, loading_s: copies.once_s, start_s, bound, processor })
    }
}

/// The largest part of a step's work.
fn largest(engine: Engine, own: &EngineSeconds, sums_s: f64) -> Bottleneck {
    let latency = if engine == Engine::Compiled { Bottleneck::Latency } else { Bottleneck::Overhead };
    // What low precision takes besides belongs to both.
    let work = own.work_s / (own.arithmetic_s + own.memory_s).max(f64::MIN_POSITIVE);
    let parts = [
        (latency, own.latency_s),
        (Bottleneck::Memory, own.memory_s * work),
        (Bottleneck::Arithmetic, own.arithmetic_s * work),
        (Bottleneck::AllReduce, sums_s.max(own.all_reduce_s)),
        (Bottleneck::File, own.file_s),
    ];
    parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(latency, |(part, _)| part)
}

/// The mean over all steps; the last one of an epoch may have fewer rows.
fn mean_step(trial: &Trial, machine: &Machine) -> Option<EngineSeconds> {
    let full = engine_choice::step(trial, machine, false)?;
    let last = engine_choice::step(trial, machine, true)?;
    let epochs = trial.steps / trial.steps_per_epoch.max(1);
    Some(full.mean(&last, epochs as f64 / trial.steps.max(1) as f64))
}

/// Seconds of a pass over the validation rows: those of the device with the most of them.
fn validation_s(trial: &Trial, machine: &Machine) -> Option<f64> {
    let of = |ranks: &Programs| -> Option<f64> {
        let Some(pass) = &ranks.validate else { return Some(0.0) };
        let (rows, batch) = (trial.facts.validation_rows, pass.batch.max(1));
        let last = ranks.validate_last.as_ref().or((!rows.is_multiple_of(batch)).then_some(pass));
        let last_s = last.map_or(Some(0.0), |last| program_s(trial, last, machine))?;
        Some((rows / batch) as f64 * program_s(trial, pass, machine)? + last_s)
    };
    trial.ranks().map(of).try_fold(0.0, |most: f64, pass_s| Some(most.max(pass_s?)))
}

/// Seconds of a program of validation, by the engine that runs it.
fn program_s(trial: &Trial, program: &Program, machine: &Machine) -> Option<f64> {
    let (precision, arena_bytes) = (trial.spec.devices.precision, trial.programs.arena_bytes());
    let bound = |speed| LowerBound::of_program(program, arena_bytes, speed, trial.data_bytes);
    let Some(Gpu { limits, speed, .. }) = trial.devices.used.first().and_then(|own| own.real_gpu(machine))
    else {
        let speed = machine.speed(precision);
        return Some(EngineSeconds::on_the_cpu(&bound(speed).by(trial.threads)).total_s());
    };
    let fits = 4 * MemoryPlan::new(&trial.programs).validate.elements as u64 <= limits.shared_bytes;
    let engine = engine_choice::validation_engine(trial.engine, fits, limits.cooperative);
    let rates = (*speed)?;
    let parts = bound(rates.speed(engine, precision, fits)).by(1);
    Some(EngineSeconds::new(engine, precision, &rates, &parts).total_s())
}

/// Seconds of copies between the host and its GPUs that nothing hides.
#[derive(Default)]
struct Copies {
    /// A step's gradients, where the host sums them.
    sums_s: f64,
    /// A step's share of checkpoints, and of comparisons of parameters.
    checkpoints_s: f64,
    digests_s: f64,
    /// All validations.
    validations_s: f64,
    once_s: f64,
}

impl Copies {
    fn new(trial: &Trial, gpu: &GpuRates) -> Self {
        let mut all = Self::default();
        let steps = trial.steps.max(1) as f64;
        let by_host = trial.sums.as_ref().is_some_and(|sums| sums.by == AllReduceMethod::Host);
        let gpus =
            trial.devices.used.iter().filter(|device| matches!(device, DeviceId::Gpu(_))).count() as f64;
        // The first chunk of streamed rows is waited for.
        let row_bytes = 4 * (trial.facts.features + trial.facts.target_width());
        let first_bytes = trial.chunks.map_or(0, |chunks| chunks.train * row_bytes);
        all.once_s += first_bytes as f64 / gpu.h2d_bytes_per_s;
        for own in transfers(trial) {
            let [latency_s, bytes_per_s] = match own.kind {
                "h2d" => [gpu.h2d_latency_s, gpu.h2d_bytes_per_s],
                "d2h" => [gpu.d2h_latency_s, gpu.d2h_bytes_per_s],
                _ => continue,
            };
            let count = own.count.unwrap_or_default() as f64;
            let seconds = count * latency_s + own.bytes as f64 / bytes_per_s;
            // The host waits for what it reads.
            let waits_s = if own.kind == "d2h" { count * gpu.sync_s } else { 0.0 };
            match own.purpose {
                // GPUs are copied to and from side by side.
                "gradients" if by_host => all.sums_s += (seconds + waits_s) / (gpus * steps),
                "digest" => all.digests_s += (seconds + waits_s) / (gpus * steps),
                "checkpoint" => all.checkpoints_s += (seconds + waits_s) / steps,
                "validation" => all.validations_s += seconds / gpus,
                "dataset" => all.once_s += seconds / gpus,
                "parameters" | "best" => all.once_s += seconds,
                // Beside steps, or a part of the blocks of steps.
                _ => {}
            }
        }
        all
    }
}
