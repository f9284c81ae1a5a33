//! What moves to and from a GPU of the stand-in libraries is what the plan said.

use super::Sim;
use crate::moved::a_gpu_moves_what_was_predicted;

#[test]
fn gpus_move_what_was_predicted_to_the_byte() {
    let Some(sim) = Sim::get() else { return };
    let policies = ["immediate", "buffered", "per_epoch", "off"];
    a_gpu_moves_what_was_predicted(&policies, |place, overrides| sim.run(place, overrides, &[]));
}
