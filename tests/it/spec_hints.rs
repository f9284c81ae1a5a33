//! What other programs have taught a user to write into a spec, or as an override: each hint writes what is meant.

use super::{hints::refused, process::Sandbox, run::LINREG};

#[test]
fn keys_of_a_launcher() {
    let place = Sandbox::new(LINREG);
    for (key, hint) in [("array", "did you mean `launcher.slurm.array`?"), ("zebra", "known here: `slurm`")] {
        let ended = refused(&place, &format!("spec.toml launcher.{key}=1"));
        assert!(ended.starts_with(&format!("error: unknown key `launcher.{key}`\n")), "{ended}");
        assert!(ended.contains(&format!("\n  = hint: {hint}\n")), "{ended}");
    }
}

/// Lists of widths, an optimizer by its name, a metric's direction and axes of other programs, all in one file.
#[test]
fn a_spec_of_other_programs() {
    let place = Sandbox::new(
        "[data.synthetic_regression]\nweights = [1.0]\n[model]\nlayers = [32, 'relu', 0.5, -1]\n[optimizer]\ntype = 'Adam'\n\
         learning-rate = 0.01\n[checkpoint]\nmode = 'min'\nevery_epochs = 1\n[sweep]\ndirection = 'minimize'\nlr = [0.1, 0.2]\n",
    );
    insta::assert_snapshot!(refused(&place, "check spec.toml"), @r#"
    error: `model.layers.0`: expected a layer: its name, or a table with its name as the only key, found `32`
     --> spec.toml:4:11
      |
    4 | layers = [32, 'relu', 0.5, -1]
      |           ^^ the layers, first to last
      |
      = hint: write `{ linear = { out_features = 32 } }`

    error: `model.layers.2`: expected a layer: its name, or a table with its name as the only key, found `0.5`
     --> spec.toml:4:23
      |
    4 | layers = [32, 'relu', 0.5, -1]
      |                       ^^^ the layers, first to last
      |
      = hint: write `{ dropout = { p = 0.5 } }`

    error: `model.layers.3`: expected a layer: its name, or a table with its name as the only key, found `-1`
     --> spec.toml:4:28
      |
    4 | layers = [32, 'relu', 0.5, -1]
      |                            ^^ the layers, first to last

    error: unknown key `optimizer.type`
     --> spec.toml:6:1
      |
    6 | type = 'Adam'
      | ^^^^
      |
      = hint: write `[optimizer.adam]` instead

    error: unknown key `optimizer.learning-rate`
     --> spec.toml:7:1
      |
    7 | learning-rate = 0.01
      | ^^^^^^^^^^^^^
      |
      = hint: did you mean `optimizer.adam.lr`?

    error: unknown key `checkpoint.mode`
     --> spec.toml:9:1
      |
    9 | mode = 'min'
      | ^^^^
      |
      = hint: leave it out: whether less or more is better follows from the metric

    error: unknown key `sweep.direction`
      --> spec.toml:12:1
       |
    12 | direction = 'minimize'
       | ^^^^^^^^^
       |
       = hint: leave it out: whether less or more is better follows from the metric

    error: unknown key `sweep.lr`
      --> spec.toml:13:1
       |
    13 | lr = [0.1, 0.2]
       | ^^
       |
       = hint: an axis is the key itself, `optimizer.adam.lr=0.1,0.2`, or stands in `[sweep.grid]`: `"optimizer.adam.lr" = [0.1, 0.2]`

    error: 8 problems in spec.toml
    "#);
    let place = Sandbox::new(&LINREG.replace("[optimizer.sgd]", "[optimizer]"));
    let ended = refused(&place, "check spec.toml");
    let hint = "did you mean `optimizer.sgd.lr`, `optimizer.adam.lr`, `optimizer.adamw.lr` or `optimizer.rmsprop.lr`?";
    assert!(ended.contains(&format!("  = hint: {hint}\n")), "{ended}");
}

/// Axes and their functions, as other programs write them.
#[test]
fn axes_of_other_programs() {
    let place = Sandbox::new(LINREG);
    let drawn = "sweep.sampler=random sweep.trials=2";
    for (typed, message, hint) in [
        (
            &format!("optimizer.sgd.lr=interval(0.1,0.2) {drawn}")[..],
            "no function `interval`",
            "did you mean `'optimizer.sgd.lr=uniform(0.1,0.2)'`?",
        ),
        (
            &format!("optimizer.sgd.lr=tune.loguniform(0.1,0.2) {drawn}"),
            "no function `tune.loguniform`",
            "did you mean `'optimizer.sgd.lr=loguniform(0.1,0.2)'`?",
        ),
        (
            "optimizer.sgd.lr=zebra(0.1,0.2)",
            "no function `zebra`",
            "write `0..5`, `range(a, b, step)`, `linspace(a, b, n)`, `logspace(a, b, n)`, `choice(x, y, ...)`, `uniform(a, b)`, \
             `loguniform(a, b)` or `int(a, b)`; quote a string that holds a comma: `'optimizer.sgd.lr=\"zebra(0.1,0.2)\"'`",
        ),
        (
            "optimizer.sgd.lr=uniform(0.1, 0.2)",
            "`optimizer.sgd.lr=uniform(0.1,` ends at a space",
            "leave out the space after the comma: `'optimizer.sgd.lr=uniform(0.1,0.2)'`",
        ),
        (
            "sweep.lr=0.1,0.2",
            "unknown key `sweep.lr`",
            "an axis is the key itself, `optimizer.sgd.lr=0.1,0.2`, or stands in `[sweep.grid]`: `\"optimizer.sgd.lr\" = [0.1, 0.2]`",
        ),
        (
            "sweep.lr=uniform(0.1,0.2)",
            "unknown key `sweep.lr`",
            "an axis is the key itself, `'optimizer.sgd.lr=uniform(0.1,0.2)'`, or stands in `[sweep.grid]`: `\"optimizer.sgd.lr\" = \
             \"uniform(0.1,0.2)\"`",
        ),
        (
            "sweep.optimizer.sgd.lr=0.1,0.2",
            "unknown key `sweep.optimizer`",
            "an axis is the key itself, `optimizer.sgd.lr=0.1,0.2`, or stands in `[sweep.grid]`: `\"optimizer.sgd.lr\" = [0.1, 0.2]`",
        ),
        (
            "sweep.optimizer.momentum=0.1,0.2",
            "unknown key `sweep.optimizer`",
            "an axis is the key itself, `optimizer.sgd.momentum=0.1,0.2`, or stands in `[sweep.grid]`: \
             `\"optimizer.sgd.momentum\" = [0.1, 0.2]`",
        ),
        (
            "sweep.model.layers.0.linear.bias=true,false",
            "unknown key `sweep.model`",
            "an axis is the key itself, `model.layers.0.linear.bias=true,false`, or stands in `[sweep.grid]`: \
             `\"model.layers.0.linear.bias\" = [true, false]`",
        ),
        ("sweep.lr=0.1", "unknown key `sweep.lr`", "one value needs no axis: set `optimizer.sgd.lr` itself"),
        ("sweep.repeats=1,2", "`sweep.repeats`: expected an integer of at least 1, found an array", ""),
    ] {
        let ended = refused(&place, &format!("check spec.toml {typed}"));
        assert!(!hint.is_empty() || !ended.contains("= hint:"), "{typed}: {ended}");
        let hint = if hint.is_empty() { String::new() } else { format!("  = hint: {hint}\n") };
        assert!(
            ended.starts_with(&format!("error: {message}\n")) && ended.ends_with(&hint),
            "{typed}: {ended}"
        );
        assert_eq!(ended.matches("error: ").count(), 1, "{ended}");
    }
}

/// The direction follows from the metric.
#[test]
fn directions_of_metrics() {
    let place = Sandbox::new(LINREG);
    for key in [
        "checkpoint.mode",
        "schedule.plateau.mode",
        "trainer.early_stopping.mode",
        "trainer.monitor_mode",
        "sweep.direction",
    ] {
        let ended = refused(&place, &format!("check spec.toml {key}=min"));
        let hint = "leave it out: whether less or more is better follows from the metric";
        assert!(ended.contains(&format!("error: unknown key `{key}`\n")), "{ended}");
        assert!(ended.contains(&format!("  = hint: {hint}\n")), "{ended}");
    }
}

#[test]
fn a_range_is_as_long_as_its_step() {
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
    assert_eq!(place.runner(&["check", "spec.toml", "seed=0..1"]).code, Some(0));
}

#[test]
fn values_of_other_programs() {
    let place = Sandbox::new(LINREG);
    for (typed, hint) in [
        ("optimizer.name=adam", "write `'optimizer.adam={ ... }'` instead\n"),
        ("data.type=CSV", "write `'data.csv={ ... }'` instead\n"),
        ("model.name=mlp", "`name` stands outside of tables; known here: "),
        ("model.layers.0.out_features=3", "did you mean `model.layers.0.linear.out_features`?\n"),
        ("model.layers=[{units=3}]", "write `{ linear = { out_features = ... } }`\n"),
        ("model.init=0.02", "write `{ normal = { std = 0.02 } }`\n"),
        ("trainer.early_stopping=true", "`early_stopping` has keys of its own: "),
        (
            "trainer.early_stopping=false",
            "leave `early_stopping` out, or delete it with `~trainer.early_stopping`",
        ),
        (
            "trainer.early_stopping=null",
            "leave `early_stopping` out, or delete it with `~trainer.early_stopping`",
        ),
        ("trainer.max_epochs=10.0", "write `10`"),
        (
            "+trainer.max_epochs=5",
            "leave `+` out: `trainer.max_epochs=5` sets a key, be it in the file or not",
        ),
    ] {
        let message = refused(&place, &format!("spec.toml {typed}"));
        assert!(message.contains(&format!("hint: {hint}")), "{typed}: {message}");
    }
}
