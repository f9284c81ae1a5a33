//! What other programs have taught a user to type: each dead end names the command, the option or the metric that is meant.

use super::{process::Sandbox, run::LINREG};

/// The whole message of `runner TYPED`, which is refused.
fn refused(place: &Sandbox, typed: &str) -> String {
    let ended = place.runner(&typed.split(' ').collect::<Vec<_>>());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{typed}: {ended:?}");
    ended.stderr
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
