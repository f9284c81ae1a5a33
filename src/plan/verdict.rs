//! What bounds a run, how far it is from what the machine could do, and what to change first: the measured phases held
//! against the floor of a step.
//!
//! The time of computing is divided as the floor is. What it takes longer than the floor is put down to the hand-over of
//! blocks as far as that explains it (a policy that reads the loss after every step hands over every step), else to the
//! largest part of the floor, which is what runs slower than it could.
//!
//! A GPU's time of computing is by its own clock. What the host does meanwhile costs the run nothing: rows and log are
//! charged with no more than the time in which the GPU stood idle. Rows that stay on it are moved before its first step,
//! which nothing else can explain; then a hand-over for the log is waited for, as far as that explains it, else rows, where
//! they are streamed. A sum over GPUs that stands among the kernels of a step has no
//! time of its own: of the step it is given its part of the floor.

use super::{
    DeviceId, Engine, LowerBound, Origin, StepBound, TimeBreakdown, Trial,
    advice::{RunLimit, advice},
};
use crate::spec::{EngineChoice, Placement, Policy, Precision};

/// What a run spent its training time on, in seconds over all its steps, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Optimizer steps.
    pub steps: u64,
    /// All of it, without validation.
    pub train_s: f64,
    /// The steps themselves, by the device's own clock where it has one.
    pub compute_s: f64,
    /// Fetching rows from their file, by the steps themselves.
    pub fetch_s: f64,
    /// Waiting for rows and moving them to the device, by the host's clock: a GPU may compute meanwhile.
    pub transfer_s: f64,
    /// Reading metrics and handing them over, by the same.
    pub log_s: f64,
    /// Summing over devices.
    pub all_reduce_s: f64,
    /// Times that the host waited for the device in order to log.
    pub log_waits: u64,
}

/// What a run may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunConfig {
    /// When rows of metrics leave the device.
    pub policy: Policy,
    /// Steps in a block of `buffered`.
    pub flush_every: Option<u64>,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Whether rows are streamed, or fetched from their file.
    pub streamed: bool,
    /// Whether they come from a file.
    pub from_file: bool,
    /// Where the spec wants them.
    pub placement: Placement,
    /// Threads that compute.
    pub threads: usize,
    /// Threads that could.
    pub cores: usize,
    /// Whether a GPU computes.
    pub on_gpu: bool,
    /// What runs the steps.
    pub engine: Engine,
    /// What the spec wants to run them.
    pub asked: EngineChoice,
    /// Number format of the products.
    pub precision: Precision,
    /// What would make the run longer.
    pub longer: Option<RunLimit>,
}

impl RunConfig {
    /// Of a trial, on a machine where `cores` threads could compute, that only its own limits end.
    pub fn from_trial(trial: &Trial, cores: usize) -> Self {
        Self {
            policy: trial.spec.logging.policy,
            flush_every: trial.spec.logging.flush_every,
            steps_per_epoch: trial.steps_per_epoch,
            streamed: trial.chunks.is_some() || trial.facts.in_file(),
            from_file: trial.facts.in_file(),
            placement: trial.spec.data.placement,
            threads: trial.threads,
            cores,
            on_gpu: !matches!(trial.devices.used[..], [DeviceId::Cpu]),
            engine: trial.engine,
            asked: trial.spec.devices.engine,
            precision: trial.spec.devices.precision,
            longer: Some(RunLimit::from_trial(trial)),
        }
    }
}

/// What bounds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// The work of a step.
    Step(StepBound),
    /// Rows on their way to the device.
    Transfer,
    /// Rows on their way out of their file.
    File,
    /// Metrics on their way to the host.
    Log,
    /// Sums over devices.
    AllReduce,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The largest part.
    pub limit: Bottleneck,
    /// In words.
    pub limit_name: &'static str,
    /// Its part of the training time.
    pub share: f64,
    /// Seconds of training per step.
    pub step_s: f64,
    /// The least that a step could take.
    pub floor_s: f64,
    /// Where the floor's rates come from.
    pub origin: Origin,
    /// Where those of the file come from, if rows come from one.
    pub file_origin: Option<Origin>,
    /// What to change first.
    pub advice: String,
}

impl Verdict {
    /// `None` where nothing was trained, or the floor is that of another processor: a virtual GPU's speed says nothing, and
    /// that of a real one may not be known.
    pub fn compute(lower_bound: &LowerBound, spent: &Measured, setting: &RunConfig) -> Option<Self> {
        let is_gpu = lower_bound.rates.processor.is_gpu();
        if spent.steps == 0 || spent.train_s <= 0.0 || setting.on_gpu != is_gpu {
            return None;
        }
        let steps = spent.steps as f64;
        let mut parts = lower_bound.by(setting.threads);
        if spent.all_reduce_s > 0.0 {
            // The sums were timed by themselves.
            parts.all_reduce_s = 0.0;
        }
        // So was what the steps fetched.
        parts.fetch_s = 0.0;
        let (step_parts, handover_s) = divided(lower_bound, parts, spent);
        let beside = match is_gpu {
            true => idle(lower_bound, spent, setting),
            false => Beside { rows_s: spent.transfer_s, log_s: spent.log_s + handover_s },
        };
        // A GPU may wait for rows that are still in their file, or for those on their way to it.
        let is_read = setting.from_file && (!is_gpu || parts.read_s > parts.upload_s);
        let rows = if is_read { Bottleneck::File } else { Bottleneck::Transfer };
        let candidates = [
            (Bottleneck::Step(StepBound::Arithmetic), step_parts.arithmetic_s),
            (Bottleneck::Step(StepBound::Memory), step_parts.memory_s),
            (Bottleneck::Step(StepBound::Overhead), step_parts.overhead_s),
            (rows, beside.rows_s + spent.fetch_s),
            (Bottleneck::Log, beside.log_s),
            (Bottleneck::AllReduce, spent.all_reduce_s + step_parts.all_reduce_s),
        ];
        let (limit, seconds) = candidates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let verdict = Self {
            limit,
            limit_name: match limit {
                Bottleneck::Step(bound) => lower_bound.bound_name(bound),
                Bottleneck::Transfer => "transfer",
                Bottleneck::File => lower_bound.bound_name(StepBound::File),
                Bottleneck::Log => "log",
                Bottleneck::AllReduce => "all-reduce",
            },
            share: (seconds / spent.train_s).min(1.0),
            step_s: spent.train_s / steps,
            floor_s: lower_bound.by(setting.threads).total_s(),
            origin: lower_bound.rates.origin,
            file_origin: lower_bound.fetch.map(|fetch| fetch.rates.origin),
            advice: advice(limit, lower_bound, setting, spent.train_s / steps),
        };
        Some(verdict)
    }

    /// How many times its floor a step takes.
    pub fn distance(&self) -> f64 {
        self.step_s / self.floor_s.max(f64::MIN_POSITIVE)
    }
}

/// What the run's time went into beside its steps and their sums.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// Waiting for rows and moving them.
    rows_s: f64,
    /// The log and its hand-overs.
    log_s: f64,
}

/// What a GPU stood idle for.
fn idle(lower_bound: &LowerBound, spent: &Measured, setting: &RunConfig) -> Beside {
    let idle_s = (spent.train_s - spent.compute_s - spent.all_reduce_s).max(0.0);
    let log_s = spent.log_s + spent.log_waits as f64 * lower_bound.rates.block_s;
    if setting.streamed {
        let log_s = log_s.min(idle_s);
        return Beside { rows_s: idle_s - log_s, log_s };
    }
    let rows_s = spent.transfer_s.min(idle_s);
    Beside { rows_s, log_s: log_s.min(idle_s - rows_s) }
}

/// No time in which rows come to a step.
const NOTHING_BESIDE: TimeBreakdown = TimeBreakdown {
    arithmetic_s: 0.0,
    memory_s: 0.0,
    overhead_s: 0.0,
    all_reduce_s: 0.0,
    fetch_s: 0.0,
    upload_s: 0.0,
    read_s: 0.0,
    order_s: 0.0,
    first_s: 0.0,
    last_s: 0.0,
};

/// The time of computing by what it went into, and the part of it that was the hand-over of blocks for the log.
fn divided(lower_bound: &LowerBound, parts: TimeBreakdown, spent: &Measured) -> (TimeBreakdown, f64) {
    let floor_s = parts.device_s() * spent.steps as f64;
    let excess = (spent.compute_s - floor_s).max(0.0);
    // A GPU's steps hold no hand-over.
    let waits = if lower_bound.rates.processor.is_gpu() { 0 } else { spent.log_waits };
    let handover_s = excess.min(waits as f64 * lower_bound.rates.block_s);
    // A run may be quicker than the floor of typical rates.
    let scale = spent.steps as f64 * (spent.compute_s / floor_s.max(f64::MIN_POSITIVE)).min(1.0);
    let mut divided = TimeBreakdown {
        arithmetic_s: parts.arithmetic_s * scale,
        memory_s: parts.memory_s * scale,
        overhead_s: parts.overhead_s * scale,
        all_reduce_s: parts.all_reduce_s * scale,
        ..NOTHING_BESIDE
    };
    let TimeBreakdown { fetch_s, upload_s, read_s, .. } = NOTHING_BESIDE;
    let slower = match (TimeBreakdown { fetch_s, upload_s, read_s, ..parts }).bound() {
        StepBound::Arithmetic | StepBound::Transfer | StepBound::File => &mut divided.arithmetic_s,
        StepBound::Memory => &mut divided.memory_s,
        StepBound::Overhead => &mut divided.overhead_s,
        StepBound::AllReduce => &mut divided.all_reduce_s,
    };
    *slower += excess - handover_s;
    (divided, handover_s)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "verdict_gpu_tests.rs"]
mod gpu_tests;
