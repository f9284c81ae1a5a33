//! What other programs have taught a user to type: each dead end names the command, the option or the metric that is meant.

use super::{
    process::{Folder, Sandbox},
    run::LINREG,
};

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

/// A run that was not named with its folder, and one of several.
#[test]
fn the_run_that_is_meant() {
    let place = Sandbox::new(LINREG);
    let run = |epochs: &str| {
        let ended = place.runner(&["spec.toml", "-q", "name=price", "data.batch_size=10", epochs]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    run("trainer.max_epochs=4");
    for typed in [
        "show price",
        "compare price",
        "predict price x.csv",
        "run --resume price",
        "tag price good",
        "plot price",
    ] {
        let message = "error: `price` does not exist\n  = hint: did you mean `runs/price`?\n";
        assert_eq!(refused(&place, typed), message);
    }
    let message = "error: `prise` does not exist\n  = hint: did you mean `runs/price`?\n";
    assert_eq!(refused(&place, "show prise"), message);
    assert_eq!(place.runner(&["show", "runs/price"]).code, Some(0));
    let folder = Folder::within(&place.path().join("runs")).unwrap();
    let best = format!("runs/price/{}", folder.0.file_name().unwrap().to_str().unwrap());
    run("trainer.max_epochs=1");
    let newest = place.runner(&["latest", "runs/price"]).stdout.trim_end().to_owned();
    assert_ne!(best, newest);
    let message = refused(&place, "predict runs/price new.csv --keep id");
    let (before, after) = message.split_once(" (").unwrap();
    let hint = format!("the newest: `runner predict {newest} new.csv --keep id`; the best");
    assert_eq!(before, format!("error: `runs/price` holds 2 runs\n  = hint: {hint}"));
    assert!(after.contains("validation loss "), "{message}");
    assert!(after.ends_with(&format!("): `runner predict {best} new.csv --keep id`\n")), "{message}");
    for typed in [
        "evaluate runs/price",
        "tag runs/price good",
        "export runs/price --onnx a.onnx",
        "run --resume runs/price",
    ] {
        let command = typed.replace("runs/price", &best);
        assert!(refused(&place, typed).ends_with(&format!("): `runner {command}`\n")), "{typed}");
    }
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
