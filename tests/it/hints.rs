//! What other programs have taught a user to type: each dead end names the command, the option or the metric that is meant.

use super::{process::Sandbox, run::LINREG};

/// The whole message of `runner TYPED`, which is refused.
fn refused(place: &Sandbox, typed: &str) -> String {
    let ended = place.runner(&typed.split(' ').collect::<Vec<_>>());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{typed}: {ended:?}");
    ended.stderr
}

#[test]
fn a_range_of_one_value_tries_nothing() {
    let place = Sandbox::new(LINREG);
    insta::assert_snapshot!(refused(&place, "check spec.toml optimizer.sgd.lr=range(1e-3,1e-1)"), @r"
    error: the axis `optimizer.sgd.lr`: `range(1e-3,1e-1)` has one value, 0.001: its step is 1
     --> argument:1:18
      |
    1 | optimizer.sgd.lr=range(1e-3,1e-1)
      |                  ^^^^^^^^^^^^^^^^
      |
      = hint: `logspace(0.001, 0.1, 5)` has five by factors, `linspace(0.001, 0.1, 5)` by steps
    ");
    insta::assert_snapshot!(refused(&place, "check spec.toml seed=0..1"), @r"
    error: the axis `seed`: `0..1` has one value, 0: the end is left out
     --> argument:1:6
      |
    1 | seed=0..1
      |      ^^^^
      |
      = hint: write `0`: one value needs no range
    ");
}

#[test]
fn metrics_of_other_programs() {
    let place = Sandbox::new(LINREG);
    assert_eq!(place.runner(&["spec.toml", "-q"]).code, Some(0));
    for (typed, message, hint) in [
        ("compare runs --metric val_loss", "no run has the metric `val_loss`", "validation.loss"),
        ("compare runs --sort val_loss", "no run has a column `val_loss`", "validation.loss"),
        ("list --where learning_rate<1", "no run has a column `learning_rate`", "lr"),
        ("list --sort learning_rate", "no run has a column `learning_rate`", "lr"),
    ] {
        let begin = format!("error: {message}\n  = hint: did you mean `{hint}`? runs here have ");
        let ended = refused(&place, typed);
        assert!(ended.starts_with(&begin), "{ended}");
    }
}
