//! The plan's copies and waits against numbers that were computed by hand.

use super::{SPEC, key, predicted, virtual_gpus};
use crate::process::Sandbox;

/// Computed by hand: one device, resident rows, every step's losses.
#[test]
fn the_prediction_is_that_of_a_sheet_of_paper() {
    let place = Sandbox::new(SPEC);
    let of = |overrides: &[&str], kind: &str, purpose: &str| {
        let all = predicted(&place, overrides, virtual_gpus(3));
        all.get(&key(kind, purpose)).map(|own| (own.count.unwrap(), own.bytes, own.more.is_some()))
    };
    let exactly = |count: u64, bytes: u64| Some((count, bytes, false));
    let at_least = |count: u64, bytes: u64| Some((count, bytes, true));
    // The orders of five epochs over 103 rows, for epochs 1, 2, 3 and 4, and 5; 153 rows of three features and a target.
    assert_eq!(of(&[], "h2d", "batch"), at_least(4, 5 * 103 * 4));
    assert_eq!(of(&[], "h2d", "dataset"), exactly(4, 153 * 4 * 4));
    // 30 steps with two metrics; learning rates stay on the host. Validations after epochs 2, 4 and 5.
    assert_eq!(of(&[], "d2h", "log"), at_least(4, 30 * 2 * 4));
    assert_eq!(of(&[], "d2h", "validation"), exactly(3, 3 * 2 * 8));
    assert_eq!((of(&[], "h2d", "validation"), of(&[], "all_reduce", "gradients")), (None, None));
    // 3 x 7 weights and 7 biases, then 7 weights and a bias; five constants per step, of which the first is a block.
    assert_eq!(of(&[], "h2d", "parameters"), exactly(1, 36 * 4));
    assert_eq!(of(&[], "d2h", "parameters"), exactly(1, 36 * 4));
    assert_eq!(of(&[], "h2d", "constants"), at_least(5, 30 * 5 * 4));
    // The first validation is the best so far; its weights are read at the end.
    assert_eq!((of(&[], "d2d", "best"), of(&[], "d2h", "best")), (at_least(1, 36 * 4), exactly(1, 36 * 4)));
    let waits =
        ["parameters", "log", "validation", "best", "dataset"].map(|of_what| of(&[], "sync", of_what));
    assert_eq!(waits, [exactly(1, 0), at_least(4, 0), exactly(3, 0), exactly(1, 0), None]);
    // What a policy changes.
    let immediate = ["logging.policy=immediate"];
    assert_eq!(of(&immediate, "d2h", "log"), exactly(30, 30 * 2 * 4));
    assert_eq!(of(&immediate, "sync", "log"), exactly(30, 0));
    assert_eq!(of(&immediate, "h2d", "constants"), exactly(30, 30 * 5 * 4));
    let per_epoch = ["logging.policy=per_epoch"];
    assert_eq!(
        (of(&per_epoch, "d2h", "log"), of(&per_epoch, "sync", "log")),
        (exactly(5, 5 * 2 * 8), exactly(5, 0))
    );
    assert_eq!(
        (of(&["logging.policy=off"], "d2h", "log"), of(&["logging.policy=off"], "sync", "log")),
        (None, None)
    );
    assert_eq!(of(&["logging.flush_every=7"], "d2h", "log"), at_least(5, 30 * 2 * 4));
    // Features and targets of a chunk are copied apart; an epoch is one chunk.
    let streamed = ["data.placement=streamed"];
    assert_eq!(of(&streamed, "h2d", "batch"), exactly(5 * 2, 5 * 103 * 4 * 4));
    assert_eq!(of(&streamed, "h2d", "validation"), exactly(3 * 2, 3 * 50 * 4 * 4));
    // After steps 4, 8, ... 28 and 30, with Adam's state of two numbers per parameter; from step 12 on with the best weights. With
    // what aligns them the parameters are 80 numbers. The log is read then, and after the first epoch.
    let saved = ["checkpoint.every_steps=4"];
    assert_eq!(of(&saved, "d2h", "checkpoint"), exactly(8 * 2 + 6, (8 * 3 + 6) * 80 * 4));
    assert_eq!(of(&saved, "sync", "log"), at_least(9, 0));
    // Two devices sum the gradients and the loss, and compare a digest per epoch.
    let two = ["devices.num_gpus=2"];
    assert_eq!(of(&two, "all_reduce", "gradients"), exactly(2 * 30, 2 * 30 * (36 + 1) * 4));
    assert_eq!(of(&two, "d2h", "digest"), exactly(2 * 5, 2 * 5 * 8));
    assert_eq!(of(&two, "h2d", "batch"), exactly(2 * 5, 2 * 5 * 103 * 4));
}
