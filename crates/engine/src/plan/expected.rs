//! How long the parts of a run take by the rates of its machine: for a machine that is not here, so that nothing can be measured.

use super::{
    all_reduce::AllReduceMethod, engine::Engine, engine_choice, gpu_rates::GpuRates, lower_bound::Bottleneck,
    machine::Machine, rates::Processor, run_length::RunLength, stops::Stops, transfers::transfers,
    trial::Trial,
};
use crate::spec::Policy;

/// Starting a process that uses a GPU: the driver, a context and kernels that are in the cache. A whole process of 320 tiny steps
/// took 0.33 s on an H200.
const GPU_START_S: f64 = 0.3;

/// Seconds of the parts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedTime {
    /// A step, with its share of what the host does for it: launching blocks of steps and reading losses.
    pub step_s: f64,
    /// A pass over the validation rows.
    pub validation_s: f64,
    /// Copying rows and parameters to the devices.
    pub loading_s: f64,
    /// What the first trial of a process takes more.
    pub start_s: f64,
    /// What a step spends most of its time on, and what kind of processor does it.
    pub bound: Bottleneck,
    pub processor: Processor,
}

impl ExpectedTime {
    /// `None` if the machine's rates do not say, or several hosts train together.
    pub fn new(trial: &Trial, machine: &Machine) -> Option<Self> {
        if trial.devices.over_hosts() || trial.devices.any_virtual() {
            return None;
        }
        let compute_s = engine_choice::step_s(trial, machine)?;
        let length = RunLength::new(&trial.spec, trial.facts, trial.programs.train.batch);
        let stops = Stops::new(trial, &length);
        let gpu = trial.devices.used.iter().find_map(|device| device.real_gpu(machine)?.speed);
        let steps = trial.steps.max(1) as f64;
        let rates = &trial.lower_bound.rates;
        let blocks_s = stops.blocks as f64 * rates.block_s / steps;
        let copies = gpu.map_or_else(Copies::default, |gpu| Copies::new(trial, &gpu));
        let sums_s = copies.sums_s / steps;
        let parts = trial.lower_bound.by(trial.threads);
        // Rows are copied while steps compute.
        let device_s = compute_s + sums_s;
        let step_s = device_s.max(parts.upload_s) + blocks_s;
        let is_handed_over = blocks_s > step_s / 2.0;
        let bound = match parts.bound() {
            _ if is_handed_over && trial.spec.logging.policy == Policy::Immediate => Bottleneck::Log,
            _ if is_handed_over => Bottleneck::Overhead,
            _ if parts.upload_s > device_s => Bottleneck::Transfer,
            _ if sums_s > compute_s => Bottleneck::AllReduce,
            // What a step takes beyond the work of its instructions is latency.
            _ if compute_s - parts.arithmetic_s - parts.memory_s - parts.all_reduce_s > compute_s / 2.0 => {
                Bottleneck::Overhead
            }
            // A compiled step has fewer barriers than its parts say, and hardly any work.
            _ if trial.engine == Engine::Compiled => Bottleneck::Overhead,
            bound => bound,
        };
        let passes = length.validations.max(1) as f64;
        let validation_s = match &trial.programs.validate {
            Some(pass) => {
                let chunks = trial.facts.validation_rows as f64 / pass.batch.max(1) as f64;
                // Fewer rows take no less than the launches of the instructions.
                let launches =
                    pass.instructions.len() as f64 / trial.programs.train.instructions.len() as f64;
                let fixed_s = chunks.ceil() * launches * parts.overhead_s;
                (trial.validation_steps() * compute_s).max(fixed_s)
                    + rates.block_s
                    + copies.validations_s / passes
            }
            None => 0.0,
        };
        let start_s = if gpu.is_some() { GPU_START_S } else { 0.0 };
        let processor = match trial.engine {
            engine if is_handed_over && engine.is_gpu() => Processor::Gpu,
            // One launch of many steps, as an interpreter's.
            Engine::Compiled => Processor::GpuWalk,
            _ => rates.processor,
        };
        Some(Self { step_s, validation_s, loading_s: copies.others_s, start_s, bound, processor })
    }
}

/// Seconds of the copies between the host and its GPUs over a whole run, that nothing else hides. GPUs are copied to side by side.
#[derive(Default)]
struct Copies {
    /// Gradients that are summed by the host.
    sums_s: f64,
    validations_s: f64,
    others_s: f64,
}

impl Copies {
    fn new(trial: &Trial, gpu: &GpuRates) -> Self {
        let mut all = Self::default();
        let by_host = trial.sums.as_ref().is_some_and(|sums| sums.by == AllReduceMethod::Host);
        for own in transfers(trial) {
            let [latency_s, bytes_per_s] = match own.kind {
                "h2d" => [gpu.h2d_latency_s, gpu.h2d_bytes_per_s],
                "d2h" => [gpu.d2h_latency_s + gpu.sync_s, gpu.d2h_bytes_per_s],
                _ => continue,
            };
            let count = own.count.unwrap_or_default() as f64;
            let seconds = (count * latency_s + own.bytes as f64 / bytes_per_s) / trial.world_size() as f64;
            match own.purpose {
                // Beside steps, or counted with the blocks of steps.
                "batch" | "log" | "launch" | "constants" => {}
                "gradients" if by_host => all.sums_s += seconds,
                "validation" => all.validations_s += seconds,
                _ => all.others_s += seconds,
            }
        }
        all
    }
}
