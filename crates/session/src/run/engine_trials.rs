//! Probes engines and thread counts per trial: where the estimates are too close to decide, each candidate
//! runs a few steps on blank rows. A GPU engine chosen this way is written into the resolved spec, because
//! another engine gives other last digits, and a repeated or resumed run must keep it. The number of threads
//! changes no digit.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use super::Stepper;
use crate::{
    cuda::KeptGpus,
    device::{DeviceError, Grain},
    host::load,
    plan::{DeviceId, Engine, EngineReason, Machine, PlanError, Trial, Tried},
    program::Programs,
    record::RunDir,
    spec::{EngineChoice, Precision, Spec},
};

/// GPU engines are probed if their estimates are within this factor of the fastest; thread counts if their
/// estimated step takes at most this factor of one thread's.
const NEAR: f64 = 2.0;

/// A larger team is chosen only if its step takes less than this fraction of the smaller one's.
const WORTH: f64 = 0.93;

/// Most and fewest timed blocks per candidate, after one to warm up: a short run cannot pay for many.
const ROUNDS: usize = 7;
const SHORT_ROUNDS: usize = 3;

/// The minimum of timed blocks, on a machine too busy for those that were planned.
const LEAST_ROUNDS: usize = 2;

/// Target length of a block in seconds; it has at least one step.
const BLOCK_S: f64 = 0.2e-3;

/// Rough time to load an engine on a GPU and on the CPU, in seconds. `BYTE_S` is added per byte of its
/// memory.
const LOADING_S: [f64; 2] = [10e-3, 0.5e-3];
const BYTE_S: f64 = 0.5e-9;

/// A probe takes at most this fraction of the expected time of the run.
const PART: f64 = 0.1;

/// Longest probe, in seconds. If it would take longer, steps are so long that estimates of their work are
/// reliable.
const MOST_S: f64 = 1.0;

/// Maximum number of elements in the blank rows.
const NUMBERS: usize = 1 << 20;

/// Maximum bytes of host memory for all candidates together.
const MOST_BYTES: u64 = 1 << 30;

/// A run that is expected to take no longer than this, in seconds, may owe a part of its time to a process that is cold: its
/// pages, caches, branch predictors and clocks.
const SHORT_S: f64 = 1.0;

/// Blank steps for this long warm a process.
const WARM_UP: Duration = Duration::from_millis(20);

/// Results that are kept, the newest: a sweep may have thousands of widths.
const MOST_KNOWN: usize = 256;

/// Results of probes, shared by the trials of an experiment.
#[derive(Default)]
pub struct EngineTrials {
    /// Folders of runs that may be resumed; emptied when they are read.
    pub begun: Vec<RunDir>,
    /// Their specs and the digests of their data. Each folder is read once, when a GPU engine is to be
    /// chosen.
    begun_runs: HashSet<(String, Option<String>)>,
    known: Vec<Known>,
    /// The GPUs of the experiment, which trials and probes find as earlier ones left them.
    pub gpus: KeptGpus,
}

/// The result of a probe for these programs.
struct Known {
    used: Vec<DeviceId>,
    programs: Arc<Programs>,
    precision: Precision,
    most_threads: usize,
    reason: EngineReason,
    chosen: (Engine, usize),
}

/// How many threads a plan may use: without an engine that is named no more than there are cores, since others would
/// only wait.
pub fn useful_threads(spec: &Spec, threads: usize, machine: &Machine) -> usize {
    if spec.devices.engine == EngineChoice::Auto { threads.min(machine.cores) } else { threads }
}

impl EngineTrials {
    /// Chooses the engine of a trial whose engine was only estimated; `threads` are those that may be of use.
    pub fn settle(
        &mut self,
        trial: Trial,
        threads: usize,
        data_digest: &str,
        plan: impl Fn(&Spec) -> Result<Trial, PlanError>,
    ) -> Result<Trial, PlanError> {
        match &trial.engine_reason {
            EngineReason::Fastest { steps_s, .. } => {
                let steps_s = steps_s.clone();
                self.on_gpu(trial, &steps_s, data_digest, plan)
            }
            EngineReason::Threads { .. } if !trial.facts.in_file() => Ok(self.on_cpu(trial, threads)),
            _ => Ok(trial),
        }
    }

    /// Chooses a GPU engine and writes it into the spec.
    fn on_gpu(
        &mut self,
        mut trial: Trial,
        steps_s: &[(Engine, f64)],
        data_digest: &str,
        plan: impl Fn(&Spec) -> Result<Trial, PlanError>,
    ) -> Result<Trial, PlanError> {
        let with = |engine: Engine| with_engine(&trial.spec, engine);
        let read = |folder: RunDir| (folder.spec_text(), folder.data_digest());
        self.begun_runs.extend(self.begun.drain(..).map(read));
        let digest = Some(data_digest.to_owned());
        let is_begun = |engine: &Engine| {
            !self.begun_runs.is_empty()
                && self.begun_runs.contains(&(with(*engine).to_toml(), digest.clone()))
        };
        // The trials of a sweep may have begun with a kernel that one of them would not repay.
        let all = steps_s.iter().map(|(engine, _)| *engine).chain([Engine::Compiled]);
        if let Some(engine) = all.into_iter().find(is_begun) {
            return Ok(because(EngineReason::Begun, plan(&with(engine))?));
        }
        if let Some(Known { chosen: (engine, _), reason, .. }) = self.known(&trial, 1) {
            return Ok(because(reason.clone(), plan(&with(*engine))?));
        }
        let least_s = steps_s.first().map_or(0.0, |(_, step_s)| *step_s);
        let near = steps_s.iter().take_while(|(_, step_s)| *step_s <= NEAR * least_s);
        let near: Vec<_> = near.copied().collect();
        let effort = Effort::within(&trial, LOADING_S[0], near.iter().map(|(_, step_s)| *step_s));
        let Some(effort) = effort.filter(|_| near.len() > 1) else {
            trial.spec.devices.engine = choice(trial.engine);
            return Ok(trial);
        };
        let all = near.iter().map(|(engine, _)| plan(&with(*engine))).collect::<Result<Vec<_>, _>>()?;
        let begun = Instant::now();
        self.gpus.keep(&trial.devices.used); // making a context takes longer than a probe
        let mut tried = time(&all, effort);
        tried.sort_by(|a, b| a.step_s.total_cmp(&b.step_s));
        // If none could be loaded, the run itself reports why.
        let engine = tried.first().map_or(trial.engine, |fastest| fastest.engine);
        let reason = EngineReason::Tried { tried, held: 0, took_s: begun.elapsed().as_secs_f64() };
        self.keep(&trial, 1, (engine, 1), reason.clone());
        Ok(because(reason, plan(&with(engine))?))
    }

    fn on_cpu(&mut self, trial: Trial, threads: usize) -> Trial {
        let with = |(engine, threads), reason| {
            let mut trial = because(reason, trial.clone());
            (trial.engine, trial.threads) = (engine, threads);
            trial
        };
        if let Some(Known { chosen, reason, .. }) = self.known(&trial, threads) {
            return with(*chosen, reason.clone());
        }
        // Cores that other threads keep busy, without this one.
        let held = load::running().map_or(0, |running| running.saturating_sub(1)).min(threads - 1);
        let step_s = |threads: usize| trial.lower_bound.settled_s(threads);
        let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|n| *n < threads).collect();
        counts.extend([threads - held, threads]);
        counts.sort_unstable();
        counts.dedup();
        counts.retain(|n| *n == 1 || step_s(*n) <= NEAR * step_s(1));
        let bytes = trial.programs.arena_bytes() * counts.len() as u64;
        let loading_s = LOADING_S[1] + trial.programs.arena_bytes() as f64 * BYTE_S;
        let effort = Effort::within(&trial, loading_s, counts.iter().map(|n| step_s(*n)));
        let Some(effort) = effort.filter(|_| counts.len() > 1 && bytes <= MOST_BYTES) else {
            return trial;
        };
        let engine = |n: usize| if n == 1 { Engine::Serial } else { Engine::Team };
        let all: Vec<_> =
            counts.iter().map(|n| with((engine(*n), *n), trial.engine_reason.clone())).collect();
        let begun = Instant::now();
        let tried = time(&all, effort);
        // Where the plan expects a team to be faster, a trial that disagrees may have met a busy core, or both
        // threads on one. The team's thread tuner uses one thread for as long as that is faster.
        let is_kept = |own: &&Tried| trial.engine == Engine::Serial || own.threads > 1;
        let faster = |best: Tried, own: Tried| if own.step_s < WORTH * best.step_s { own } else { best };
        let Some(best) = tried.iter().filter(is_kept).copied().reduce(faster) else { return trial };
        let chosen = (best.engine, best.threads);
        let reason = EngineReason::Tried { tried, held, took_s: begun.elapsed().as_secs_f64() };
        self.keep(&trial, threads, chosen, reason.clone());
        with(chosen, reason)
    }

    fn known(&self, trial: &Trial, most_threads: usize) -> Option<&Known> {
        self.known.iter().find(|known| {
            (known.most_threads, known.precision, &known.used)
                == (most_threads, trial.spec.devices.precision, &trial.devices.used)
                && known.programs == trial.programs
        })
    }

    /// Keeps the choice for trials that are planned later, in place of an earlier one.
    pub(super) fn keep(
        &mut self,
        trial: &Trial,
        most_threads: usize,
        chosen: (Engine, usize),
        reason: EngineReason,
    ) {
        let earlier = self.known(trial, most_threads).map(std::ptr::from_ref);
        self.known.retain(|known| Some(std::ptr::from_ref(known)) != earlier);
        if self.known.len() >= MOST_KNOWN {
            self.known.remove(0);
        }
        let (used, programs) = (trial.devices.used.clone(), Arc::clone(&trial.programs));
        let precision = trial.spec.devices.precision;
        self.known.push(Known { used, programs, precision, most_threads, reason, chosen });
    }
}

/// How much a probe measures: blocks per candidate, and the seconds that this should take.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    expected_s: f64,
}

impl Effort {
    /// The most that the run can pay for, if candidates have these step times; `None` if it cannot pay for a probe.
    fn within(trial: &Trial, loading_s: f64, steps_s: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let least_s = steps_s.clone().fold(f64::INFINITY, f64::min);
        let longest_s = trial.spec.trainer.max_time.map_or(f64::INFINITY, |most| most.as_secs_f64());
        let most_s = (PART * longest_s.min(least_s * trial.steps as f64)).min(MOST_S);
        let cost_s = |rounds: usize| -> f64 {
            steps_s.clone().map(|step_s| loading_s + (3 + rounds) as f64 * step_s.max(BLOCK_S)).sum()
        };
        let effort = |rounds| Self { rounds, expected_s: cost_s(rounds) };
        (SHORT_ROUNDS..=ROUNDS).rev().map(effort).find(|effort| effort.expected_s <= most_s)
    }
}

/// Measures step times on blank rows, as medians over blocks. The candidates take turns, so that rising
/// clocks and busy neighbours affect all of them alike. A candidate is left out if it cannot be loaded beside
/// the others or fails in a block.
fn time(trials: &[Trial], effort: Effort) -> Vec<Tried> {
    let begun = Instant::now();
    let ready = |trial| Some((trial, stepper(trial).ok()?, Vec::with_capacity(effort.rounds)));
    let mut ready: Vec<_> = trials.iter().filter_map(ready).collect();
    for round in 0..=effort.rounds {
        // A busy machine takes longer than expected.
        if round > LEAST_ROUNDS && begun.elapsed().as_secs_f64() > effort.expected_s {
            break;
        }
        ready.retain_mut(|(_, stepper, times)| {
            let block = stepper.block(Grain::Blocks);
            times.extend(block.iter().filter(|_| round > 0).map(|seconds| seconds / stepper.steps() as f64));
            block.is_ok()
        });
    }
    let median = |(trial, _, mut times): (&Trial, Stepper, Vec<f64>)| {
        times.sort_unstable_by(f64::total_cmp);
        // The lower of two: other work on the machine only adds to a time.
        let step_s = times[(times.len() - 1) / 2];
        Tried { engine: trial.engine, threads: trial.threads, step_s }
    };
    ready.into_iter().map(median).collect()
}

/// Runs blank steps of a short trial on the CPU, untimed, so that the first trial of a sweep does not start colder than the
/// others; returns for how long.
pub fn warm_up(trial: &Trial) -> Duration {
    let expected_s = trial.lower_bound.settled_s(trial.threads) * trial.steps as f64;
    // A GPU does its first work while it is loaded, where a trial reports what goes wrong.
    let is_cpu = matches!(trial.devices.used[..], [DeviceId::Cpu]);
    if expected_s > SHORT_S || !is_cpu || trial.facts.in_file() {
        return Duration::ZERO;
    }
    let begun = Instant::now();
    // Where it cannot be loaded or fails, the trial itself says why.
    if let Ok(mut stepper) = stepper(trial) {
        while begun.elapsed() < WARM_UP && stepper.block(Grain::Blocks).is_ok() {}
    }
    begun.elapsed()
}

fn stepper(trial: &Trial) -> Result<Stepper, DeviceError> {
    Stepper::sized(trial, BLOCK_S, NUMBERS, None)
}

/// The spec with this engine named.
pub(super) fn with_engine(spec: &Spec, engine: Engine) -> Spec {
    let mut spec = spec.clone();
    spec.devices.engine = choice(engine);
    spec
}

/// The same trial with another reason for its engine.
fn because(reason: EngineReason, mut trial: Trial) -> Trial {
    trial.engine_reason = reason;
    trial
}

fn choice(engine: Engine) -> EngineChoice {
    match engine {
        Engine::Serial => EngineChoice::Serial,
        Engine::Team => EngineChoice::Team,
        Engine::Persistent => EngineChoice::Persistent,
        Engine::Compiled => EngineChoice::Compiled,
        Engine::Cooperative => EngineChoice::Cooperative,
        Engine::Graph => EngineChoice::Graph,
        Engine::Launch => EngineChoice::Launch,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        run::{Datasets, Planned},
        spec,
    };

    #[test]
    fn a_short_trial_warms_the_process_and_a_long_one_need_not() {
        let text = "data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 0 }\n\
                    model.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1\n";
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        std::fs::write(&path, text).expect("a spec");
        let warmed = |path: &Path, epochs: u64| {
            let more = [format!("trainer.max_epochs={epochs}")];
            let experiment = spec::load(path, &more).unwrap_or_else(|_| panic!("a spec"));
            let machine = Machine::typical(Vec::new(), 1 << 30);
            let spec = &experiment.trials[0].spec;
            let trial = Trial::plan(spec, &mut Datasets::new(&machine), &machine, 1);
            warm_up(&trial.unwrap_or_else(|_| panic!("a plan")))
        };
        assert!(warmed(&path, 3) >= WARM_UP);
        assert_eq!(warmed(&path, 1 << 40), Duration::ZERO);
    }
}
