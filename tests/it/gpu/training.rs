//! Compares full training runs on a GPU with PyTorch's curves (tests/parity), in every engine.

use runner::cuda;

use super::{first_gpu, some};
use crate::{
    moved::a_gpu_moves_what_was_predicted,
    parity::{folder, worst},
    process::{Ended, Sandbox},
};

/// The simulator runs only the first cases: two layers, classes without dropout, Adam.
const CASES: [&str; 15] = [
    "two_linear",
    "cross_entropy",
    "adamw",
    "sgd",
    "sgd_momentum",
    "sgd_nesterov",
    "adam",
    "gelu",
    "huber",
    "l1",
    "three_targets",
    "standardized",
    "wide",
    "schedule_one_cycle",
    "schedule_plateau",
];

/// The promised relative error of any step's loss, on every device.
const LIMIT: f64 = 1e-4;

/// Cases that an engine refuses, since a block's shared memory does not hold them: 215 KiB of it on an H100, which no GPU exceeds
/// by much.
const TOO_LARGE: [(&str, &str); 1] = [("wide", "persistent")];

fn follows_pytorch(engine: &str) {
    if first_gpu().is_none() {
        return;
    }
    let choice = format!("devices.engine={engine}");
    for case in some(&CASES, 2).into_iter().filter(|case| !TOO_LARGE.contains(&(case, engine))) {
        let worst = worst(case, &["devices.num_gpus=1", &choice]);
        assert!(worst.metrics < LIMIT, "{case}, {engine}: {worst:?}");
    }
}

#[test]
fn persistent_follows_pytorch() {
    follows_pytorch("persistent");
}

#[test]
fn compiled_follows_pytorch() {
    follows_pytorch("compiled");
}

#[test]
fn cooperative_follows_pytorch() {
    follows_pytorch("cooperative");
}

#[test]
fn graph_follows_pytorch() {
    follows_pytorch("graph");
}

#[test]
fn launch_follows_pytorch() {
    follows_pytorch("launch");
}

/// The engines that keep a job in shared memory take all cases but those.
#[test]
fn an_engine_refuses_what_is_too_large_for_it() {
    if first_gpu().is_none() {
        return;
    }
    let large = TOO_LARGE.map(|(case, _)| case);
    let cases = some(&CASES, 2).into_iter().filter(|case| !large.contains(case)).chain(large);
    for (case, engine) in cases.flat_map(|case| [(case, "persistent"), (case, "compiled")]) {
        let spec = folder(case).join("spec.toml");
        let choice = format!("devices.engine={engine}");
        let place = Sandbox::new("");
        let mut command = place.command(&["check", spec.to_str().unwrap(), "devices.num_gpus=1", &choice]);
        // A simulated GPU as large as real ones.
        command.env("RUNNER_SIM_MULTIPROCESSORS", "132");
        let page = Ended::from_output(command.output().unwrap());
        let reason = format!("the engine `{engine}` keeps ");
        let is_refused = page.code == Some(2) && page.stderr.contains(&reason);
        assert_eq!(is_refused, TOO_LARGE.contains(&(case, engine)), "{case}, {engine}: {page:?}");
        assert!(is_refused || page.code == Some(0), "{case}, {engine}: {page:?}");
    }
}

/// Two GPUs, and all of them: sums as graph nodes, between launches, and (if NCCL is missing) through the
/// host.
#[test]
fn several_gpus_follow_pytorch() {
    let all = cuda::gpus().map_or(0, |gpus| gpus.len());
    if first_gpu().is_none() || all < 2 {
        eprintln!("skipped: {all} GPUs are not several");
        return;
    }
    let counts = if all > 2 { vec![2, all] } else { vec![2] };
    for case in some(&CASES, 2) {
        for count in &counts {
            for engine in ["auto", "launch"] {
                let (count, engine) =
                    (format!("devices.num_gpus={count}"), format!("devices.engine={engine}"));
                let worst = worst(case, &[&count, &engine]);
                assert!(worst.metrics < LIMIT, "{case}, {count}, {engine}: {worst:?}");
            }
        }
    }
}

#[test]
fn a_gpu_moves_what_check_says() {
    if first_gpu().is_none() {
        return;
    }
    let policies = some(&["immediate", "buffered", "per_epoch", "off"], 1);
    a_gpu_moves_what_was_predicted(&policies, |place, overrides| place.run(overrides));
}
