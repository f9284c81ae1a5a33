//! Engines and numbers of threads by trial: where estimates do not tell, each runs a few steps on blank rows. A GPU's engine
//! that was chosen stands in the resolved spec, since another has other last digits: a run that is repeated or goes on keeps
//! it. Numbers of threads change no digit.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Stepper, executor};
use crate::{
    device::{DeviceError, Grain, RankLink},
    host::{self, load},
    plan::{DeviceId, Engine, EngineReason, PlanError, Trial, Tried},
    program::Programs,
    record::RunDir,
    spec::{EngineChoice, Spec},
};

/// Engines are tried whose estimates are no further apart than this, and teams that promise a step of one thread's time
/// times this.
const NEAR: f64 = 2.0;

/// A larger team takes at most this part of the time of a smaller one.
const WORTH: f64 = 0.93;

/// Blocks of each candidate that are timed, after one to warm up.
const ROUNDS: usize = 7;

/// The same, on a machine that is too busy for more.
const LEAST_ROUNDS: usize = 2;

/// A block takes this long, or one step, in seconds.
const BLOCK_S: f64 = 0.5e-3;

/// What loading an engine takes, about, on a GPU and on the CPU, in seconds; and each byte of its memory.
const LOADING_S: [f64; 2] = [10e-3, 0.5e-3];
const BYTE_S: f64 = 0.5e-9;

/// A trial takes at most this part of the time that the run is expected to take.
const PART: f64 = 0.1;

/// Steps for which it would take longer, in seconds, are so long that estimates of their work tell.
const MOST_S: f64 = 1.0;

/// Numbers of blank rows.
const NUMBERS: usize = 1 << 20;

/// Bytes of the host's memory that candidates take together, at most.
const MOST_BYTES: u64 = 1 << 30;

/// A run that is expected to take no longer than this, in seconds, may owe a part of its time to a process that is cold: its
/// pages, caches, branch predictors and clocks.
const SHORT_S: f64 = 1.0;

/// Blank steps for this long warm a process.
const WARM_UP: Duration = Duration::from_millis(20);

/// Results that are kept, the newest: a sweep may have thousands of widths.
const MOST_KNOWN: usize = 256;

/// What the trials of an experiment share.
#[derive(Default)]
pub struct EngineTrials {
    /// Folders of runs that may go on, until they are read.
    pub begun: Vec<RunDir>,
    /// Their specs and the digests of their data. Each folder is read once, when a GPU's engine is to be chosen.
    begun_runs: HashSet<(String, Option<String>)>,
    known: Vec<Known>,
}

/// What was tried for these programs, of which the fastest is the first.
struct Known {
    used: Vec<DeviceId>,
    programs: Arc<Programs>,
    most_threads: usize,
    reason: EngineReason,
    chosen: (Engine, usize),
}

impl EngineTrials {
    /// Chooses the engine of a trial that was left to estimates; `threads` is what the host may use.
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

    /// Writes the engine into the spec.
    fn on_gpu(
        &mut self,
        mut trial: Trial,
        steps_s: &[(Engine, f64)],
        data_digest: &str,
        plan: impl Fn(&Spec) -> Result<Trial, PlanError>,
    ) -> Result<Trial, PlanError> {
        let with = |engine: Engine| {
            let mut spec = trial.spec.clone();
            spec.devices.engine = choice(engine);
            spec
        };
        let read = |folder: RunDir| (folder.spec_text(), folder.data_digest());
        self.begun_runs.extend(self.begun.drain(..).map(read));
        let digest = Some(data_digest.to_owned());
        let is_begun = |engine: &Engine| {
            !self.begun_runs.is_empty()
                && self.begun_runs.contains(&(with(*engine).to_toml(), digest.clone()))
        };
        if let Some(engine) = steps_s.iter().map(|(engine, _)| *engine).find(is_begun) {
            return Ok(Trial { engine_reason: EngineReason::Begun, ..plan(&with(engine))? });
        }
        if let Some(Known { chosen: (engine, _), reason, .. }) = self.known(&trial, 1) {
            return Ok(Trial { engine_reason: reason.clone(), ..plan(&with(*engine))? });
        }
        let least_s = steps_s.first().map_or(0.0, |(_, step_s)| *step_s);
        let near = steps_s.iter().take_while(|(_, step_s)| *step_s <= NEAR * least_s);
        let near: Vec<_> = near.copied().collect();
        let budget_s = budget_s(&trial, LOADING_S[0], near.iter().map(|(_, step_s)| *step_s));
        let Some(budget_s) = budget_s.filter(|_| near.len() > 1) else {
            trial.spec.devices.engine = choice(trial.engine);
            return Ok(trial);
        };
        let all = near.iter().map(|(engine, _)| plan(&with(*engine))).collect::<Result<Vec<_>, _>>()?;
        let begun = Instant::now();
        keep_context(&trial);
        let mut tried = time(&all, budget_s);
        tried.sort_by(|a, b| a.step_s.total_cmp(&b.step_s));
        // Where none could be loaded, the run itself says why.
        let engine = tried.first().map_or(trial.engine, |fastest| fastest.engine);
        let reason = EngineReason::Tried { tried, held: 0, took_s: begun.elapsed().as_secs_f64() };
        self.keep(&trial, 1, (engine, 1), reason.clone());
        Ok(Trial { engine_reason: reason, ..plan(&with(engine))? })
    }

    fn on_cpu(&mut self, trial: Trial, threads: usize) -> Trial {
        let with =
            |(engine, threads), engine_reason| Trial { engine, threads, engine_reason, ..trial.clone() };
        // More threads than cores would only wait for each other.
        let threads = threads.min(host::logical_cores().unwrap_or(threads));
        if let Some(Known { chosen, reason, .. }) = self.known(&trial, threads) {
            return with(*chosen, reason.clone());
        }
        // This thread runs, too.
        let held = load::running().map_or(0, |running| running.saturating_sub(1)).min(threads - 1);
        let step_s = |threads: usize| trial.lower_bound.settled_s(threads);
        let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|n| *n < threads).collect();
        counts.extend([threads - held, threads]);
        counts.sort_unstable();
        counts.dedup();
        counts.retain(|n| *n == 1 || step_s(*n) <= NEAR * step_s(1));
        let bytes = trial.programs.arena_bytes() * counts.len() as u64;
        let loading_s = LOADING_S[1] + trial.programs.arena_bytes() as f64 * BYTE_S;
        let budget_s = budget_s(&trial, loading_s, counts.iter().map(|n| step_s(*n)));
        let Some(budget_s) = budget_s.filter(|_| counts.len() > 1 && bytes <= MOST_BYTES) else {
            return trial;
        };
        let engine = |n: usize| if n == 1 { Engine::Serial } else { Engine::Team };
        let all: Vec<_> =
            counts.iter().map(|n| with((engine(*n), *n), trial.engine_reason.clone())).collect();
        let begun = Instant::now();
        let tried = time(&all, budget_s);
        // Once others release their cores, a team is faster; until then its trial runs by one thread where that is faster.
        let is_kept = |own: &&Tried| held == 0 || trial.engine == Engine::Serial || own.threads > 1;
        let faster = |best: Tried, own: Tried| if own.step_s < WORTH * best.step_s { own } else { best };
        let Some(best) = tried.iter().filter(is_kept).copied().reduce(faster) else { return trial };
        let chosen = (best.engine, best.threads);
        let reason = EngineReason::Tried { tried, held, took_s: begun.elapsed().as_secs_f64() };
        self.keep(&trial, threads, chosen, reason.clone());
        with(chosen, reason)
    }

    fn known(&self, trial: &Trial, most_threads: usize) -> Option<&Known> {
        self.known.iter().find(|known| {
            (known.most_threads, &known.used) == (most_threads, &trial.devices.used)
                && known.programs == trial.programs
        })
    }

    fn keep(&mut self, trial: &Trial, most_threads: usize, chosen: (Engine, usize), reason: EngineReason) {
        if self.known.len() >= MOST_KNOWN {
            self.known.remove(0);
        }
        let (used, programs) = (trial.devices.used.clone(), Arc::clone(&trial.programs));
        self.known.push(Known { used, programs, most_threads, reason, chosen });
    }
}

/// Seconds that a trial of candidates with these steps takes; `None` where it is not worth them.
fn budget_s(trial: &Trial, loading_s: f64, steps_s: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let least_s = steps_s.clone().fold(f64::INFINITY, f64::min);
    let cost_s: f64 = steps_s.map(|step_s| loading_s + (3 + ROUNDS) as f64 * step_s.max(BLOCK_S)).sum();
    let longest_s = trial.spec.trainer.max_time.map_or(f64::INFINITY, |most| most.as_secs_f64());
    let most_s = (PART * longest_s.min(least_s * trial.steps as f64)).min(MOST_S);
    (cost_s <= most_s).then_some(cost_s)
}

/// A step's time on blank rows: the medians of blocks that the candidates run in turns, so that rising clocks and busy
/// neighbours meet all of them. One that cannot be loaded beside the others, or that fails in a block, is left out.
fn time(trials: &[Trial], budget_s: f64) -> Vec<Tried> {
    let begun = Instant::now();
    let ready = |trial| Some((trial, stepper(trial).ok()?, Vec::with_capacity(ROUNDS)));
    let mut ready: Vec<_> = trials.iter().filter_map(ready).collect();
    for round in 0..=ROUNDS {
        // A busy machine takes longer than was expected.
        if round > LEAST_ROUNDS && begun.elapsed().as_secs_f64() > budget_s {
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
        Tried { engine: trial.engine, threads: trial.threads, step_s: times[times.len() / 2] }
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
    let executor = executor(trial, trial.devices.used[0], (*trial.programs).clone(), RankLink::Alone)?;
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
        plan::Machine,
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
