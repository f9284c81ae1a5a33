//! Compares full training runs on a GPU with PyTorch's curves (tests/parity), in every engine.

use runner::device::cuda;

use super::{first_gpu, some};
use crate::{moved::a_gpu_moves_what_was_predicted, parity::worst};

/// The simulator runs only the first cases: two layers, classes without dropout, Adam.
const CASES: [&str; 14] = [
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
];

/// The promised relative error of any step's loss, on every device.
const LIMIT: f64 = 1e-4;

#[test]
fn every_engine_follows_pytorch() {
    if first_gpu().is_none() {
        return;
    }
    for case in some(&CASES, 2) {
        for engine in ["persistent", "compiled", "cooperative", "graph", "launch"] {
            let engine = format!("devices.engine={engine}");
            let worst = worst(case, &["devices.num_gpus=1", &engine]);
            assert!(worst.metrics < LIMIT, "{case}, {engine}: {worst:?}");
        }
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
