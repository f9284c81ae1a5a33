//! Profiler overhead: compares steps with every phase timed, with a timeline in addition, and with only
//! blocks timed, in turns.
//!
//! `cargo bench --bench instrument` prints a line per job. Steps shorter than [`SHORTEST_TIMED_STEP`] are
//! timed by blocks in every run, so they never pay the printed cost. `--check` fails if a job whose steps are
//! timed by phases has an overhead of more than 1 %.

#![allow(clippy::too_many_lines)]

#[path = "support/trial.rs"]
mod trial;

use std::{process::ExitCode, time::Instant};

use runner::{
    device::{Grain, SHORTEST_TIMED_STEP},
    report::Estimate,
};
use trial::{Fault, Ready, Stepper};

/// Rounds of the three modes.
const ROUNDS: usize = 31;

/// Approximate seconds of a round of one mode.
const ROUND_S: f64 = 0.02;

/// Maximum overhead, as a share of a step's time.
const MOST: f64 = 0.01;

fn main() -> ExitCode {
    let check = std::env::args().any(|argument| argument == "--check");
    println!(
        "medians of {ROUNDS} rounds in turns; 95 % intervals of the extra time, from pairs of one round"
    );
    let jobs = [
        ("linear 2 -> 1, batch 32", spec(2, "", 32)),
        ("2-32-1, batch 32", spec(2, "{ linear = { out_features = 32 } }, \"relu\", ", 32)),
        ("16-64-1, batch 64", spec(16, "{ linear = { out_features = 64 } }, \"relu\", ", 64)),
        (
            "64-256-256-1, batch 64",
            spec(64, &"{ linear = { out_features = 256 } }, \"relu\", ".repeat(2), 64),
        ),
        ("256-1024-1, batch 128", spec(256, "{ linear = { out_features = 1024 } }, \"relu\", ", 128)),
    ];
    let mut fine = true;
    for (name, text) in jobs {
        match cost(name, &text) {
            Ok(within) => fine &= within,
            Err(e) => {
                eprintln!("{name}: {e}");
                return ExitCode::FAILURE;
            }
        }
    }
    if check && !fine { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn spec(features: usize, hidden: &str, batch: usize) -> String {
    let weights = vec!["0.5"; features].join(", ");
    format!(
        "[data]\nbatch_size = {batch}\n[data.synthetic_regression]\nweights = [{weights}]\ntrain_rows = 8192\n\
         [model]\nlayers = [{hidden}{{ linear = {{ out_features = 1 }} }}]\n[optimizer.sgd]\nlr = 0.01\n"
    )
}

/// Prints a job's line; returns whether its overhead is within the limit.
fn cost(name: &str, text: &str) -> Result<bool, Fault> {
    let ready = Ready::new(text)?;
    let mut stepper = ready.stepper()?;
    let first = seconds(&mut stepper, 1)?;
    let blocks = ((ROUND_S / first) as usize).max(1);
    let ways = [(Grain::Blocks, false), (Grain::Phases, false), (Grain::Phases, true)];
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for ((grain, traced), times) in ways.into_iter().zip(&mut times) {
            stepper.time_by(grain, traced);
            times.push(seconds(&mut stepper, blocks)? / stepper.steps() as f64);
        }
    }
    let [plain, phases, traced] = &times;
    let extra = |way: &[f64]| {
        let pairs: Vec<f64> = way.iter().zip(plain).map(|(way, plain)| way / plain - 1.0).collect();
        Estimate::from_values(&pairs)
    };
    let (Some(step), Some(phases), Some(traced)) =
        (Estimate::from_values(plain), extra(phases), extra(traced))
    else {
        return Err("nothing was measured".into());
    };
    let by_block = step.median < SHORTEST_TIMED_STEP.as_secs_f64();
    println!(
        "{name:<26} {:>9.2} µs a step   phases {}   and a timeline {}   {}",
        step.median * 1e6,
        words(phases),
        words(traced),
        if by_block { "timed by blocks" } else { "timed by phases" }
    );
    Ok(by_block || phases.median < MOST)
}

fn words(extra: Estimate) -> String {
    let [low, high] = extra.interval.unwrap_or([extra.median; 2]).map(|part| part * 100.0);
    format!("{:+6.2} % ({low:+.2} to {high:+.2})", extra.median * 100.0)
}

/// Mean seconds of a block.
fn seconds(stepper: &mut Stepper, blocks: usize) -> Result<f64, Fault> {
    let start = Instant::now();
    for _ in 0..blocks {
        stepper.run()?;
    }
    Ok(start.elapsed().as_secs_f64() / blocks as f64)
}
