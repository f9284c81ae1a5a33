//! Bytes moved to and from a simulated GPU equal those of the plan.

use super::Sim;
use crate::moved::{a_gpu_moves_what_was_predicted, examples_move_what_check_says};

#[test]
fn gpus_move_what_was_predicted_to_the_byte() {
    let Some(sim) = Sim::get() else { return };
    let policies = ["immediate", "buffered", "per_epoch", "off"];
    a_gpu_moves_what_was_predicted(&policies, |place, overrides| sim.run(place, overrides, &[]));
}

/// With the engine that the plan picks, and with each of the others.
#[test]
fn every_example_moves_what_check_says() {
    let Some(sim) = Sim::get() else { return };
    let cases: [&[&str]; 5] = [
        &["devices.num_gpus=1"],
        &["devices.num_gpus=1", "devices.engine=persistent", "logging.policy=immediate"],
        &["devices.num_gpus=1", "devices.engine=graph", "logging.policy=per_epoch"],
        &["devices.num_gpus=1", "devices.engine=launch", "logging.policy=off"],
        &["devices.num_gpus=1", "devices.engine=cooperative"],
    ];
    examples_move_what_check_says("trainer.max_steps=6", &cases, |place, arguments| {
        sim.runner(place, arguments, &[])
    });
}
