//! `runner plot`.

use std::{fmt::Write, fs};

use super::{process::Sandbox, run::LINREG};

/// A folder with a `metrics.csv` of these rows, as `step,epoch,split,rows,loss,accuracy,elapsed_s`.
fn run(place: &Sandbox, name: &str, rows: &str) {
    let folder = place.path().join("runs").join(name);
    fs::create_dir_all(&folder).unwrap();
    let head = "step,epoch,split,rows,loss,accuracy,elapsed_s\n";
    fs::write(folder.join("metrics.csv"), format!("{head}{rows}")).unwrap();
    fs::write(folder.join("summary.csv"), "name,status\nx,finished\n").unwrap();
    fs::write(folder.join("spec.toml"), "name = \"a\"\n").unwrap();
}

/// Training losses that halve with each step, and validation at every fourth.
fn halving(steps: u32) -> String {
    let mut rows = String::new();
    for step in 1..=steps {
        let loss = 64.0 / 2f64.powi(step as i32);
        writeln!(rows, "{step},1,train,8,{loss},0.{step},0.1").unwrap();
        if step % 4 == 0 {
            writeln!(rows, "{step},1,validation,8,{},,0.1", loss * 2.0).unwrap();
        }
    }
    rows
}

#[test]
fn both_splits_of_a_run() {
    let place = Sandbox::new(LINREG);
    run(&place, "one", &halving(16));
    let ended = place.runner(&["plot", "runs/one", "--width", "50", "--height", "10"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    insta::assert_snapshot!(ended.stdout, @r"
    runs/one

          │••••
          │    ••••xxxx
          │        •••xxxxx
        1 ┤             ••xxxxx
          │                •••xxxxx
          │                     •••xxxxx
          │                          ••xxxxx
     0.01 ┤                              •••xxxxx
          │                                  •••xxxxx
          │                                       •••x
          └───────────────────────────────────────────
           1                  step                  16

      •• train loss
         last 0.0009766, lowest 0.0009766 at step 16
      xx validation loss
         last 0.001953, lowest 0.001953 at step 16
    ");
}

/// One curve per run: validation, if all runs have it. Non-finite values are counted and not drawn; a torn
/// last line is ignored.
#[test]
fn several_runs() {
    let place = Sandbox::new(LINREG);
    run(&place, "a", "1,1,validation,8,3,,0.1\n9,1,validation,8,1,,0.1\n");
    run(&place, "b", "1,1,validation,8,2,,0.1\n9,1,validation,8,NaN,,0.1\n11,1,valid");
    run(&place, "c", "");
    let ended = place.runner(&["plot", "runs/*", "--width", "40", "--height", "6"]);
    insta::assert_snapshot!(ended.stdout, @r"
    validation loss

     3 ┤••••••
       │     •••••••
     2 ┤x           ••••••
       │                  ••••••
       │                        •••••••
     1 ┤                              ••••••
       └────────────────────────────────────
        1               step               9

      •• runs/a
         last 1.000, lowest 1.000 at step 9
      xx runs/b
         last 2.000; 1 value not finite
    ");
}

/// Several runs are drawn by what they monitor, as `compare` ranks them; one run, or runs that monitor different metrics, by the loss.
#[test]
fn several_runs_are_drawn_by_what_they_monitor() {
    let place = Sandbox::new(LINREG);
    for name in ["a", "b"] {
        run(&place, name, "1,1,validation,8,3,0.5,0.1\n9,1,validation,8,1,0.75,0.1\n");
        let spec = "name = \"a\"\ntrainer.monitor = \"validation.accuracy\"\n";
        fs::write(place.path().join("runs").join(name).join("spec.toml"), spec).unwrap();
    }
    let title =
        |paths: &[&str]| place.runner(&[&["plot"], paths].concat()).stdout.lines().next().unwrap().to_owned();
    assert_eq!(title(&["runs"]), "validation accuracy");
    assert_eq!(title(&["runs", "--metric", "loss"]), "validation loss");
    assert_eq!(title(&["runs/a"]), "runs/a");
    run(&place, "c", "1,1,validation,8,3,0.5,0.1\n9,1,validation,8,1,0.75,0.1\n");
    assert_eq!(title(&["runs"]), "validation loss");
}

/// Runs that minimize different losses are drawn together, and the title says that they are not comparable; metrics of the same rows
/// are.
#[test]
fn several_tasks_are_said_to_be_so() {
    let place = Sandbox::new(LINREG);
    for (name, loss) in [("a", "mse"), ("b", "l1")] {
        run(&place, name, "1,1,validation,8,3,0.5,0.1\n9,1,validation,8,1,0.75,0.1\n");
        let spec = format!("name = \"a\"\nkind = \"train\"\nmodel.loss = \"{loss}\"\n");
        fs::write(place.path().join("runs").join(name).join("spec.toml"), spec).unwrap();
    }
    let title = |words: &[&str]| {
        place.runner(&[&["plot", "runs"], words].concat()).stdout.lines().next().unwrap().to_owned()
    };
    assert_eq!(title(&[]), "validation loss; 2 tasks, whose losses are not comparable");
    assert_eq!(title(&["--metric", "accuracy"]), "validation accuracy");
}

/// If there are many runs, only the best are drawn, and the title says so.
#[test]
fn the_best_of_many_runs() {
    let place = Sandbox::new(LINREG);
    for number in 0..11 {
        let accuracy = f64::from((number * 7) % 11) / 11.0;
        run(&place, &format!("r{number:02}"), &format!("1,1,train,8,1,{accuracy},0.1\n"));
    }
    let ended = place.runner(&["plot", "runs", "--metric", "accuracy"]);
    let title = "train accuracy; the 8 of 11 runs with the highest value\n";
    assert!(ended.stdout.starts_with(title), "{}", ended.stdout);
    let shown: Vec<_> = ended.stdout.lines().filter(|line| line.contains("  last ")).collect();
    let named = |name: &str| shown.iter().any(|line| line.contains(name));
    // 0, 1/11 and 2/11 belong to runs 0, 8 and 5.
    assert!(shown.len() == 8 && !named("r00") && !named("r08") && !named("r05"), "{shown:?}");
}

#[test]
fn a_metric_that_no_run_has() {
    let place = Sandbox::new(LINREG);
    run(&place, "one", &halving(8));
    let ended = place.runner(&["plot", "runs/one", "--metric", "grad_norm"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr, @"
    error: no value of `grad_norm` in 1 run
      = hint: `--metric` takes a column of `metrics.csv`, such as `loss` or `validation.loss`; `logging.metrics` adds columns
    ");
    assert_eq!(place.runner(&["plot", "none"]).code, Some(2));
    let ended = place.runner(&["plot", "runs/one", "--metric", "val_loss"]);
    let message = "error: no value of `val_loss` in 1 run\n  = hint: did you mean `validation.loss`?\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), message));
    let place =
        Sandbox::new("kind = \"tensors\"\ntensors.step = [{ name = \"X\", ones = [2], device = \"cpu\" }]\n");
    let lab = place.runner(&["spec.toml", "-q"]).stdout.trim_end().to_owned();
    let hint = "what trains nothing has no curves: `runner report` draws its times";
    let message = format!("error: no value of `loss` in 1 run\n  = hint: {hint}\n");
    assert_eq!(place.runner(&["plot", &lab]).stderr, message);
    assert!(
        place.runner(&["watch", &lab]).stdout.ends_with(&format!("no value of `loss` in 1 run; {hint}\n"))
    );
}

/// With color, escape codes surround each cell of a curve; the terminal's default colour is left alone.
#[test]
fn colours_tell_curves_apart() {
    let place = Sandbox::new(LINREG);
    run(&place, "one", &halving(8));
    let ended = place.runner(&["plot", "runs/one", "--color", "always"]);
    assert!(
        ended.stdout.contains("\u{1b}[34m⠤\u{1b}[0m\u{1b}[34m⠤\u{1b}[0m train loss "),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("\u{1b}[33m"), "{}", ended.stdout);
}

/// A narrow chart has a narrow legend. A curve hidden by an equal one is marked. A column of words has no
/// values.
#[test]
fn legends_fit_and_name_what_is_hidden() {
    let place = Sandbox::new(LINREG);
    for name in ["one", "two", "three"] {
        run(&place, name, &halving(if name == "three" { 8 } else { 16 }));
    }
    let ended = place.runner(&["plot", "runs/one", "runs/two", "runs/three", "--width", "44"]);
    let (_, legend) = ended.stdout.rsplit_once("\n\n").unwrap();
    assert!(legend.lines().all(|line| line.chars().count() <= 44), "{legend}");
    insta::assert_snapshot!(legend, @r"
    •• runs/one
       hidden by an equal curve below
    xx runs/two
       last 0.001953
    ++ runs/three
       last 0.5000, lowest 0.5000 at step 8
    ");
    // Nearly equal curves meet in the same cells.
    let nearly = halving(16).replace("1,1,train,8,32,", "1,1,train,8,32.01,");
    run(&place, "two", &nearly);
    let ended = place.runner(&["plot", "runs/one", "runs/two", "--metric", "train.loss", "--width", "80"]);
    let (_, legend) = ended.stdout.rsplit_once("\n\n").unwrap();
    insta::assert_snapshot!(legend, @r"
    •• runs/one
       hidden by curves below: last 0.0009766, lowest 0.0009766 at step 16
    xx runs/two
       last 0.0009766, lowest 0.0009766 at step 16, highest 32.01 at step 1
    ");
    let ended = place.runner(&["plot", "runs/one", "--metric", "split"]);
    assert!(ended.stderr.starts_with("error: no value of `split` in 1 run\n"), "{}", ended.stderr);
}
