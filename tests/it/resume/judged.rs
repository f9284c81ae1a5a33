//! Successive halving: which validations judge trials, and what cannot be judged.

use super::{
    super::process::{Ended, Sandbox},
    SPEC,
    halving::{STOP, rungs},
};

/// An epoch has 7 steps.
#[test]
fn validations_by_steps_judge_as_those_of_epochs() {
    let place = Sandbox::new(SPEC);
    let judged = |every: &str| {
        let ran = place.run(&["optimizer.adam.lr=logspace(1e-4, 1, 5)", STOP, every, "-q"]);
        rungs(&ran.ended_by(0).0)
    };
    let by_epochs = judged("trainer.validate_every_epochs=1");
    assert!(by_epochs.len() > 5 && by_epochs.iter().any(|row| row.ends_with(",false")), "{by_epochs:?}");
    assert_eq!(judged("trainer.validate_every_steps=7"), by_epochs);
    assert_eq!(judged("trainer.validate_every_steps=1"), by_epochs);
}

#[test]
fn what_cannot_be_judged_is_refused() {
    let place = Sandbox::new(SPEC);
    let refused = |more: &[&str]| -> Vec<String> {
        let ended: Ended =
            place.runner(&[&["check", "spec.toml", "optimizer.adam.lr=0.1,0.2", STOP], more].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("error") || line.contains("hint"))
            .map(str::to_owned)
            .collect()
    };
    insta::assert_debug_snapshot!(refused(&["sweep.repeats=2", "sweep.repeat_seeds=false"]), @r#"
    [
        "error: `sweep.stop`: successive halving judges single trials",
        "  = hint: leave `repeats` out, and repeat the best trial afterwards: `runner TRIAL/spec.toml seed=1..6 name=repeats`",
    ]
    "#);
    insta::assert_debug_snapshot!(refused(&["trainer.validate_every_epochs=2"]), @r#"
    [
        "error: `sweep.stop`: no validation stands at epoch 1",
        "  = hint: set `trainer.validate_every_epochs = 1`",
    ]
    "#);
    insta::assert_debug_snapshot!(refused(&["trainer.validate_every_steps=5"]), @r#"
    [
        "error: `sweep.stop`: no validation stands at epoch 1, step 7: `trainer.validate_every_steps` is 5",
        " = hint: set it to a divisor of 7, or `trainer.validate_every_epochs = 1`",
    ]
    "#);
    insta::assert_debug_snapshot!(refused(&["seed=0..3"]), @r#"
    [
        "error: successive halving cannot judge the axis `seed`: seeds of one point would compete",
        "  = hint: give it one value, and repeat the best trial afterwards: `runner TRIAL/spec.toml seed=1..6 name=repeats`",
    ]
    "#);
    insta::assert_debug_snapshot!(refused(&["data.synthetic_regression.validation_rows=0"]), @r#"
    [
        "error: `sweep.stop`: trials have no rows to validate on",
        "  = hint: set aside some, such as `data.synthetic_regression.validation_rows = 1000`",
    ]
    "#);
}
