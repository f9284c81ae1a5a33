//! Whole trainings on a GPU beside PyTorch's curves (tests/parity), in every engine.

use super::{first_gpu, some};
use crate::parity::worst;

/// A part of the cases first: two layers, dropout-free classes, Adam.
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

/// Relative, of any step's loss: what is promised on every device.
const LIMIT: f64 = 1e-4;

#[test]
fn every_engine_follows_pytorch() {
    if first_gpu().is_none() {
        return;
    }
    for case in some(&CASES, 2) {
        for engine in ["persistent", "cooperative", "graph", "launch"] {
            let engine = format!("devices.engine={engine}");
            let worst = worst(case, &["devices.num_gpus=1", &engine]);
            assert!(worst.metrics < LIMIT, "{case}, {engine}: {worst:?}");
        }
    }
}
