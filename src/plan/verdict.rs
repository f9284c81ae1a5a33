//! What bounds a run, how far it is from what the machine could do, and what to change first: the measured phases held
//! against the floor of a step.
//!
//! The time of computing is divided as the floor is. What it takes longer than the floor is put down to the hand-over of
//! blocks as far as that explains it (a policy that reads the loss after every step hands over every step), else to the
//! largest part of the floor, which is what runs slower than it could.

use super::{Bound, Floor, Origin, Parts, Place, Processor, Trial};
use crate::spec::{Placement, Policy};

/// What a run spent its training time on, in seconds over all its steps, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Optimizer steps.
    pub steps: u64,
    /// All of it, without validation.
    pub train_s: f64,
    /// The steps themselves.
    pub compute_s: f64,
    /// Waiting for rows and moving them to the device.
    pub transfer_s: f64,
    /// Reading metrics and handing them over.
    pub log_s: f64,
    /// Summing over devices.
    pub all_reduce_s: f64,
    /// Times that the host waited for the device in order to log.
    pub log_waits: u64,
}

/// What a run may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// When rows of metrics leave the device.
    pub policy: Policy,
    /// Steps in a block of `buffered`.
    pub flush_every: Option<u64>,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Whether rows are streamed.
    pub streamed: bool,
    /// Where the spec wants them.
    pub placement: Placement,
    /// Threads that compute.
    pub threads: usize,
    /// Threads that could.
    pub cores: usize,
    /// Whether a GPU computes.
    pub on_gpu: bool,
}

impl Setting {
    /// Of a trial, on a machine where `cores` threads could compute.
    pub fn of(trial: &Trial, cores: usize) -> Self {
        Self {
            policy: trial.spec.logging.policy,
            flush_every: trial.spec.logging.flush_every,
            steps_per_epoch: trial.steps_per_epoch,
            streamed: trial.chunk_rows.is_some(),
            placement: trial.spec.data.placement,
            threads: trial.threads,
            cores,
            on_gpu: !matches!(trial.devices.used[..], [Place::Cpu]),
        }
    }
}

/// What bounds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The work of a step.
    Step(Bound),
    /// Rows on their way to the device.
    Transfer,
    /// Metrics on their way to the host.
    Log,
    /// Sums over devices.
    AllReduce,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The largest part.
    pub limit: Limit,
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
    /// What to change first.
    pub advice: String,
}

impl Verdict {
    /// `None` where nothing was trained, or the floor is that of another processor: a virtual GPU's speed says nothing, and
    /// that of a real one may not be known.
    pub fn of(floor: &Floor, spent: &Spent, setting: &Setting) -> Option<Self> {
        let is_gpu = floor.rates.processor == Processor::Gpu;
        if spent.steps == 0 || spent.train_s <= 0.0 || setting.on_gpu != is_gpu {
            return None;
        }
        let steps = spent.steps as f64;
        let parts = floor.by(setting.threads);
        let (step_parts, handover_s) = divided(floor, parts, spent);
        let candidates = [
            (Limit::Step(Bound::Arithmetic), step_parts.arithmetic_s),
            (Limit::Step(Bound::Memory), step_parts.memory_s),
            (Limit::Step(Bound::Overhead), step_parts.overhead_s),
            (Limit::Transfer, spent.transfer_s),
            (Limit::Log, spent.log_s + handover_s),
            (Limit::AllReduce, spent.all_reduce_s),
        ];
        let (limit, seconds) = candidates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let verdict = Self {
            limit,
            limit_name: match limit {
                Limit::Step(bound) => floor.bound_name(bound),
                Limit::Transfer => "transfer",
                Limit::Log => "log",
                Limit::AllReduce => "all-reduce",
            },
            share: (seconds / spent.train_s).min(1.0),
            step_s: spent.train_s / steps,
            floor_s: parts.total_s(),
            origin: floor.rates.origin,
            advice: advice(limit, floor, setting),
        };
        Some(verdict)
    }

    /// How many times its floor a step takes.
    pub fn distance(&self) -> f64 {
        self.step_s / self.floor_s.max(f64::MIN_POSITIVE)
    }
}

/// The time of computing by what it went into, and the part of it that was the hand-over of blocks for the log.
fn divided(floor: &Floor, parts: Parts, spent: &Spent) -> (Parts, f64) {
    let floor_s = parts.total_s() * spent.steps as f64;
    let excess = (spent.compute_s - floor_s).max(0.0);
    let handover_s = excess.min(spent.log_waits as f64 * floor.rates.block_s);
    // A run may be quicker than the floor of typical rates.
    let scale = spent.steps as f64 * (spent.compute_s / floor_s.max(f64::MIN_POSITIVE)).min(1.0);
    let mut divided = Parts {
        arithmetic_s: parts.arithmetic_s * scale,
        memory_s: parts.memory_s * scale,
        overhead_s: parts.overhead_s * scale,
    };
    let slower = match parts.bound() {
        Bound::Arithmetic => &mut divided.arithmetic_s,
        Bound::Memory => &mut divided.memory_s,
        Bound::Overhead => &mut divided.overhead_s,
    };
    *slower += excess - handover_s;
    (divided, handover_s)
}

fn advice(limit: Limit, floor: &Floor, setting: &Setting) -> String {
    // What the plan itself would reject is no advice.
    let pays = floor.team_s(setting.cores) < super::TEAM_MARGIN * floor.serial_s();
    let threads = (!setting.on_gpu && setting.threads < setting.cores && pays)
        .then(|| format!("more threads (`--threads {}`, `devices.engine=team`)", setting.cores));
    match limit {
        Limit::Log => match setting.policy {
            Policy::Immediate => "`logging.policy=buffered` moves the losses in blocks".to_owned(),
            Policy::Buffered if setting.flush_every.is_some_and(|n| n < setting.steps_per_epoch) => {
                "a larger `logging.flush_every`".to_owned()
            }
            Policy::Buffered => "`logging.policy=per_epoch` moves one row per epoch".to_owned(),
            Policy::PerEpoch => "`logging.policy=off`".to_owned(),
            Policy::Off => "longer epochs: each hands over its validation".to_owned(),
        },
        Limit::Transfer if !setting.streamed => "more epochs: the rows are moved once".to_owned(),
        Limit::Transfer if setting.placement == Placement::Streamed => {
            "`data.placement=auto` keeps the rows on the device where they fit".to_owned()
        }
        Limit::Transfer => "more memory or a quicker disk: the rows come from their file".to_owned(),
        Limit::AllReduce => "a larger `data.batch_size`: gradients are summed once per step".to_owned(),
        Limit::Step(Bound::Overhead) => {
            "a larger `data.batch_size`: more rows share a step's fixed costs".to_owned()
        }
        Limit::Step(Bound::Memory) if floor.rows_s > 0.5 * floor.memory_s => {
            threads.unwrap_or_else(|| "fewer features: a step's rows are read from memory".to_owned())
        }
        Limit::Step(Bound::Memory) => {
            "a larger `data.batch_size`: weights are read once per step, for however many rows".to_owned()
        }
        Limit::Step(Bound::Arithmetic) => threads.unwrap_or_else(|| {
            if setting.on_gpu { "more GPUs, or a smaller model" } else { "a GPU, or a smaller model" }
                .to_owned()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Facts, Machine, Rates, plan},
        spec::load,
    };

    const CORES: usize = 2;

    fn planned(model: &str, more: &str, features: usize, rows: usize, threads: usize) -> Trial {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spec.toml");
        let weights = vec!["1.0"; features].join(", ");
        let text = format!(
            "{more}\n[data.synthetic_regression]\nweights = [{weights}]\n[model]\nlayers = [{model}]\n[optimizer.sgd]\nlr = 0.1\n"
        );
        std::fs::write(&path, text).unwrap();
        let experiment = load(&path, &[]).unwrap();
        let facts = Facts {
            train_rows: rows,
            validation_rows: 0,
            features,
            targets: 1,
            classes: None,
            in_file: false,
        };
        let machine = Machine {
            gpus: Vec::new(),
            no_gpu: String::new(),
            memory_available: 1 << 36,
            cache_bytes: 1 << 20,
            instruction_set: "avx2".into(),
            rates: Rates::typical("avx2"),
        };
        plan(&experiment.trials[0].spec, facts, &machine, threads).unwrap()
    }

    fn setting(trial: &Trial) -> Setting {
        Setting::of(trial, CORES)
    }

    /// A run that computes at `slower` times its floor, with nothing else.
    fn computing(trial: &Trial, steps: u64, slower: f64) -> Spent {
        let compute_s = trial.floor.by(trial.threads).total_s() * steps as f64 * slower;
        Spent { steps, train_s: compute_s, compute_s, ..Spent::default() }
    }

    fn told(trial: &Trial, spent: Spent) -> (Limit, &'static str, String) {
        let verdict = Verdict::of(&trial.floor, &spent, &setting(trial)).unwrap();
        (verdict.limit, verdict.limit_name, verdict.advice)
    }

    const LINE: &str = "{ linear = { out_features = 1 } }";
    const WIDE: &str = "{ linear = { out_features = 2048 } }, \"relu\", { linear = { out_features = 2048 } }, \"relu\", { linear = { out_features = 1 } }";

    /// Figures of the machine that the README's table is from: 0.14 µs of instructions, 0.24 µs of log, and the hand-over
    /// of each step.
    #[test]
    fn a_tiny_model_that_logs_at_once_is_bound_by_its_log() {
        let trial = planned(LINE, "[logging]\npolicy = \"immediate\"", 2, 10_000, 1);
        let steps = 3130;
        let spent = Spent {
            steps,
            train_s: 0.76e-6 * 3130.0,
            compute_s: 0.50e-6 * 3130.0,
            log_s: 0.24e-6 * 3130.0,
            log_waits: steps,
            ..Spent::default()
        };
        let (limit, name, advice) = told(&trial, spent);
        assert_eq!((limit, name), (Limit::Log, "log"));
        assert_eq!(advice, "`logging.policy=buffered` moves the losses in blocks");
        // The same times without a hand-over per step are not the log's.
        let (limit, _, advice) = told(&trial, Spent { log_waits: 10, ..spent });
        assert_eq!(limit, Limit::Step(Bound::Overhead));
        assert_eq!(advice, "a larger `data.batch_size`: more rows share a step's fixed costs");
    }

    #[test]
    fn a_big_model_is_bound_by_arithmetic() {
        let batch = "data.batch_size = 1024";
        let trial = planned(WIDE, batch, 512, 4096, 1);
        let (limit, name, advice) = told(&trial, computing(&trial, 40, 1.4));
        assert_eq!((limit, name), (Limit::Step(Bound::Arithmetic), "arithmetic"));
        assert_eq!(advice, "more threads (`--threads 2`, `devices.engine=team`)");
        let trial = planned(WIDE, batch, 512, 4096, CORES);
        assert_eq!(told(&trial, computing(&trial, 40, 1.4)).2, "a GPU, or a smaller model");
    }

    #[test]
    fn wide_rows_and_a_small_model_are_bound_by_memory() {
        let trial = planned(LINE, "data.batch_size = 1024", 100, 1_000_000, CORES);
        let (limit, name, advice) = told(&trial, computing(&trial, 977, 1.3));
        assert_eq!((limit, name), (Limit::Step(Bound::Memory), "memory"));
        assert_eq!(advice, "fewer features: a step's rows are read from memory");
    }

    #[test]
    fn large_weights_and_few_rows_are_bound_by_memory_too() {
        let trial = planned(WIDE, "data.batch_size = 2", 512, 4096, CORES);
        let (limit, _, advice) = told(&trial, computing(&trial, 40, 1.1));
        assert_eq!(limit, Limit::Step(Bound::Memory));
        assert_eq!(
            advice,
            "a larger `data.batch_size`: weights are read once per step, for however many rows"
        );
    }

    #[test]
    fn a_slow_source_bounds_by_transfer() {
        let trial = planned(WIDE, "[data]\nplacement = \"streamed\"", 512, 4096, CORES);
        let computing = computing(&trial, 40, 1.2);
        let waiting =
            Spent { transfer_s: 2.0 * computing.compute_s, train_s: 3.1 * computing.compute_s, ..computing };
        let (limit, name, advice) = told(&trial, waiting);
        assert_eq!((limit, name), (Limit::Transfer, "transfer"));
        assert_eq!(advice, "`data.placement=auto` keeps the rows on the device where they fit");
        let verdict = Verdict::of(&trial.floor, &waiting, &setting(&trial)).unwrap();
        assert!((verdict.share - 2.0 / 3.1).abs() < 1e-12);
        assert!((verdict.distance() - 1.2 * 3.1).abs() < 1e-9, "{verdict:?}");
    }

    #[test]
    fn sums_over_devices_bound_small_steps() {
        let trial = planned(LINE, "", 2, 1000, 1);
        let computing = computing(&trial, 320, 2.0);
        let spent = Spent {
            all_reduce_s: 3.0 * computing.compute_s,
            train_s: 4.0 * computing.compute_s,
            ..computing
        };
        assert_eq!(told(&trial, spent).1, "all-reduce");
    }

    /// A GPU is one more set of rates: the same tiny step is bound by its launches there.
    #[test]
    fn a_tiny_model_on_a_gpu_is_bound_by_launch_latency() {
        let trial = planned(LINE, "", 2, 1000, 1);
        let rates = Rates {
            processor: Processor::Gpu,
            flops_per_s: 50e12,
            elementwise_per_s: 10e12,
            cache_bytes_per_s: 5e12,
            memory_bytes_per_s: 3e12,
            instruction_s: 3e-6,
            block_s: 10e-6,
            ..Rates::typical("avx2")
        };
        let floor = Floor::of(&trial.programs, (rates, 50 << 20), trial.data_bytes);
        let setting = Setting { on_gpu: true, ..setting(&trial) };
        let compute_s = floor.serial_s() * 320.0 * 1.5;
        let spent = Spent { steps: 320, train_s: compute_s, compute_s, ..Spent::default() };
        let verdict = Verdict::of(&floor, &spent, &setting).unwrap();
        assert_eq!((verdict.limit_name, verdict.share), ("launch latency", verdict.share));
        assert!((verdict.distance() - 1.5).abs() < 1e-9 && verdict.share > 0.99, "{verdict:?}");
    }

    #[test]
    fn nothing_is_said_of_a_processor_by_the_rates_of_another() {
        let trial = planned(LINE, "", 2, 1000, 1);
        let setting = Setting { on_gpu: true, ..setting(&trial) };
        assert_eq!(Verdict::of(&trial.floor, &computing(&trial, 320, 1.5), &setting), None);
    }

    #[test]
    fn without_steps_there_is_no_verdict() {
        let trial = planned(LINE, "", 2, 1000, 1);
        assert_eq!(Verdict::of(&trial.floor, &Spent::default(), &setting(&trial)), None);
    }
}
