//! Two sweeps held against each other: setting by setting, and by `--fail-if`.

use std::{fs, path::Path};

use super::{
    Runs,
    answer::{BEST, learned, shifted},
};
use crate::process::Sandbox;

/// Two sweeps are matched by their common axes and by seed. A gate fails only if the difference is certain.
#[test]
fn sweeps_are_held_against_each_other() {
    let runs = Runs::new();
    let (near, far) = (shifted(0.0004, 0.002), shifted(0.02, 0.001));
    learned(&runs, "a", &[("0.1", "32", &BEST), ("0.01", "32", &BEST), ("0.01", "8", &BEST)]);
    learned(&runs, "b", &[("0.1", "32", &far), ("0.01", "32", &near), ("0.5", "32", &near)]);
    let place = Sandbox::new("");
    let [a, b] = ["a", "b"].map(|name| runs.named(name));
    let ran = |more: &[&str]| place.runner(&[&["compare"], more].concat());
    insta::assert_snapshot!(runs.masked(&ran(&[&a, &b]).stdout), @r"
    2 shared settings, validation loss: second better in 0, worse in 1, unclear in 1
      first   RUNS/a/S
              best #6 lr 0.1 width 32, 0.0611 [0.0590, 0.0632]; not shared: 1 setting (#8)
      second  RUNS/b/S
              best #7 lr 0.01, 0.0615 [0.0590, 0.0640]; not shared: 1 setting (#8)

       lr  width  n                    first                   second                difference  p-value
     0.01     32  6  0.0611 [0.0590, 0.0632]  0.0615 [0.0590, 0.0640]  0.0004 [-0.0014, 0.0022]     0.56
      0.1     32  6  0.0611 [0.0590, 0.0632]  0.0811 [0.0790, 0.0832]   0.0200 [0.0191, 0.0209]   <0.001
      differences of means, paired by seed [95 %, Student]; p by Holm
    ");
    let gate = |condition: &str, paths: &[&str]| {
        let ended = ran(&[paths, &["--fail-if", condition]].concat());
        let is_undecided = ended.stdout.contains("\nundecided");
        assert_eq!(
            ended.stderr.contains("warning: 1 setting undecided, which `--strict` counts as a failure\n"),
            is_undecided,
            "{ended:?}"
        );
        (ended.stdout, ended.code)
    };
    let (text, code) = gate("mean(validation.loss) > 1.05 * baseline", &[&a, &b]);
    insta::assert_snapshot!(text, @r"
    fail if mean(validation.loss) > 1.05 * baseline
      lr 0.01 width 32: 0.06152 of n 6 against 0.06414 = 1.05 * 0.06108 of n 6; difference -0.0026 [-0.0048, -0.0004]: passes
      lr 0.1 width 32: 0.08110 of n 6 against 0.06414 = 1.05 * 0.06108 of n 6; difference 0.0170 [0.0158, 0.0181]: fails
      1 setting that the baseline lacks (#2)
      baseline: 1 setting that these runs lack (#2)
    failed: the intervals of 2 settings cover 97.5 % each, 95 % together
    ");
    assert_eq!(code, Some(1));
    let (text, code) = gate("mean(validation.loss) > 1.05 * baseline", &[&a, &b, "--by", "width"]);
    insta::assert_snapshot!(text, @"
    fail if mean(validation.loss) > 1.05 * baseline
      width 32: 0.06804 of n 6 against 0.06414 = 1.05 * 0.06108 of n 6; difference 0.0039 [0.0024, 0.0054]; means over 3 combinations of the other axes against 2, which may decide it: fails
      baseline: 1 setting that these runs lack (#2)
    failed
    ");
    assert_eq!(code, Some(1));
    let condition = "median(validation.loss) > 1.05 * baseline";
    assert_eq!(gate(condition, &[&a, &b]).1, Some(1));
    let first = ["--where", "lr = 0.1 and seed < 3"];
    let (text, code) = gate(condition, &[&a, &b, first[0], first[1]]);
    assert!(text.contains("too few runs for an interval of the median: take 4 or more of each"), "{text}");
    assert_eq!(code, Some(0));
    assert_eq!(gate("median(validation.loss) > 2 * baseline", &[&b, "--baseline", &a]).1, Some(0));
    assert_eq!(gate("median(validation.loss) > 0.05", &[&a, "--where", "lr = 0.1"]).1, Some(1));
    let few = Runs::new();
    learned(&few, "a", &[("0.1", "32", &[0.1, 0.2])]);
    let (text, code) = gate("median(validation.loss) > 0.05", &[&few.named("a")]);
    assert!(text.contains("too few runs for an interval of the median: take 6 or more: "), "{text}");
    assert_eq!(code, Some(0));
    // Equal runs differ by nothing: that is no lack of runs.
    let (text, code) = gate("mean(validation.loss) > baseline", &[&a, &a, "--where", "lr = 0.1"]);
    insta::assert_snapshot!(text, @r"
    fail if mean(validation.loss) > baseline
      lr 0.1 width 32: 0.06108 of n 6 against 0.06108 = 1 * 0.06108 of n 6; the difference is 0 in each run: passes
    passed
    ");
    assert_eq!(code, Some(0));
    // A setting whose runs all fail from now on.
    learned(&runs, "c", &[("0.1", "32", &far), ("0.01", "32", &near)]);
    let c = runs.named("c");
    let table = Path::new(&c).join("S/sweep.csv");
    let rows = fs::read_to_string(&table).unwrap();
    let broken = rows.split_inclusive('\n').map(|row| {
        if row.contains(",0.1,") { row.replace(",finished,", ",failed,") } else { row.to_owned() }
    });
    fs::write(&table, broken.collect::<String>()).unwrap();
    let (text, code) = gate("mean(validation.loss) > 1.05 * baseline", &[&a, &c]);
    assert!(text.contains("\n  lr 0.1 width 32: 6 of 6 runs failed (#0, 2, 4, 6, 8, 10): fails\n"), "{text}");
    assert_eq!(code, Some(1));
    let ended = ran(&[&a, "--fail-if", "mean(validation.loss) > nan"]);
    assert!(ended.stderr.contains("expected a number, found `nan`"), "{ended:?}");
    let ended = ran(&[&a, "--fail-if", "mean(validation.loss) > baseline"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("needs a baseline"), "{}", ended.stderr);
}

/// Takes the column of the width out of a sweep, whose specs all have one width.
fn without_width(runs: &Runs, name: &str) {
    let path = format!("{name}/S/sweep.csv");
    let rows = fs::read_to_string(runs.path(&path)).unwrap();
    let row = |row: &str| {
        let mut cells: Vec<&str> = row.split(',').collect();
        cells.remove(2);
        cells.join(",") + "\n"
    };
    runs.write(&path, &rows.lines().map(row).collect::<String>());
}

/// An axis that one sweep lacks has its value in that sweep's specs: nothing is averaged over it.
#[test]
fn an_axis_of_one_sweep_is_matched_by_the_specs_of_the_other() {
    let runs = Runs::new();
    let far = shifted(0.02, 0.001);
    learned(&runs, "a", &[("0.1", "32", &BEST), ("0.01", "32", &BEST)]);
    without_width(&runs, "a");
    let both: [(&str, &str, &[f64]); 4] =
        [("0.1", "32", &BEST), ("0.01", "32", &BEST), ("0.1", "8", &far), ("0.01", "8", &far)];
    learned(&runs, "b", &both);
    learned(&runs, "c", &[("0.5", "32", &BEST), ("0.7", "32", &BEST)]);
    without_width(&runs, "c");
    let [a, b, c] = ["a", "b", "c"].map(|name| runs.named(name));
    let ran = |more: &[&str]| Sandbox::new("").runner(&[&["compare"], more].concat());
    for paths in [[&a, &b], [&b, &a]] {
        let text = ran(&[paths[0], paths[1]]).stdout;
        assert!(
            text.starts_with("2 shared settings, validation loss: second better in 0, worse in 0,"),
            "{text}"
        );
        assert_eq!(
            text.matches("32  6  0.0611 [0.0590, 0.0632]  0.0611 [0.0590, 0.0632]").count(),
            2,
            "{text}"
        );
        assert!(text.contains("not shared: 2 settings (#10, 11)"), "{text}");
    }
    let ended = ran(&[&a, &b, "--fail-if", "mean(validation.loss) > baseline"]);
    assert!(ended.stdout.contains("\n  lr 0.1 width 32: 0.06108 of n 6 against 0.06108 = "), "{ended:?}");
    assert!(ended.stdout.ends_with("\npassed\n") && !ended.stdout.contains("width 8"), "{ended:?}");
    // Nothing is shared: all are ranked together.
    let ended = ran(&[&c, &b]);
    let words = "no finished runs of both share a setting of optimizer.sgd.lr, model.width";
    assert_eq!(ended.stderr, format!("warning: {words}: all are ranked together\n"));
    assert!(ended.stdout.starts_with("best: ") && ended.stdout.contains("  0.7  "), "{ended:?}");
    let ended = ran(&[&c, &b, "--fail-if", "mean(validation.loss) > baseline"]);
    let hint = "`compare` without `--fail-if` ranks the runs of both together";
    assert_eq!((ended.code, ended.stderr), (Some(2), format!("error: {words}\n  = hint: {hint}\n")));
}

/// Each setting says which of its runs diverged or did not run, and fails the gate unless they are left out.
#[test]
fn runs_without_a_result_fail_the_gate() {
    let runs = Runs::new();
    let near = shifted(0.0004, 0.002);
    learned(&runs, "a", &[("0.1", "32", &BEST)]);
    learned(&runs, "b", &[("0.1", "32", &near)]);
    let with = |ends: &[(usize, &str)]| {
        for (trial, end) in ends {
            let ended = |path: String| {
                let text = fs::read_to_string(runs.path(&path)).unwrap();
                let is_of_trial = |row: &str| row.starts_with(&format!("{trial},"));
                let row =
                    |row: &str| if is_of_trial(row) { row.replace("finished", end) } else { row.to_owned() };
                runs.write(&path, &text.split_inclusive('\n').map(row).collect::<String>());
            };
            ended("b/S/sweep.csv".to_owned());
            ended(format!("b/S/{trial:03}/summary.csv"));
        }
    };
    with(&[(1, "diverged"), (2, "diverged"), (4, "interrupted")]);
    let [a, b] = ["a", "b"].map(|name| runs.named(name));
    let ran = |more: &[&str]| Sandbox::new("").runner(&[&["compare"], more].concat());
    let loose = "mean(validation.loss) > 0.5";
    let ended = ran(&[&b, "--fail-if", loose]);
    insta::assert_snapshot!(ended.stdout, @r"
    fail if mean(validation.loss) > 0.5
      lr 0.1 width 32: 0.06110 of n 3 against 0.5000; difference -0.4389 [-0.4417, -0.4361]: passes
      lr 0.1 width 32: 2 of 6 runs diverged (#1, 2), 1 interrupted (#4): fails
      `--where 'status = finished'` holds finished runs alone against it
    failed
    ");
    assert_eq!(ended.code, Some(1));
    let ended = ran(&[&b, "--fail-if", loose, "--where", "status = finished"]);
    assert!(ended.stdout.ends_with(": passes\npassed\n") && ended.code == Some(0), "{ended:?}");
    // Those of the baseline as well.
    let ended = ran(&[&b, &a, "--fail-if", "mean(validation.loss) > 2 * baseline"]);
    let words = "\n  lr 0.1 width 32: baseline: 2 of 6 runs diverged (#1, 2), 1 interrupted (#4): fails\n";
    assert!(
        ended.stdout.replace("  baseline: ", "  lr 0.1 width 32: baseline: ").contains(words),
        "{ended:?}"
    );
    let text = ran(&[&a, &b]).stdout;
    assert!(
        text.contains("\n  lr 0.1 width 32: second: 2 of 6 runs diverged (#1, 2), 1 interrupted (#4)\n"),
        "{text}"
    );
    with(&[(0, "diverged"), (3, "diverged"), (5, "diverged")]);
    let ended = ran(&[&b, "--fail-if", loose]);
    let words = "no run has finished, so that nothing can be held against a bound: 5 of 6 runs diverged (#0 to 3, 5), 1 interrupted (#4)";
    assert_eq!((ended.stderr, ended.code), (format!("error: {words}\n"), Some(2)));
}

/// A difference beyond the bound that may be chance is undecided, with the runs that would do.
#[test]
fn what_may_be_chance_is_undecided() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &BEST)]);
    learned(&runs, "b", &[("0.1", "32", &shifted(0.0004, 0.002))]);
    let [a, b] = ["a", "b"].map(|name| runs.named(name));
    let ran = |condition: &str| Sandbox::new("").runner(&["compare", &a, &b, "--fail-if", condition]);
    let ended = ran("mean(validation.loss) > baseline");
    insta::assert_snapshot!(ended.stdout + &ended.stderr, @r"
    fail if mean(validation.loss) > baseline
      lr 0.1 width 32: 0.06152 of n 6 against 0.06108 = 1 * 0.06108 of n 6; difference 0.0004 [-0.0014, 0.0022]: undecided: the interval does not exclude equality; about 62 runs of each would, if the difference stays
    undecided
    warning: 1 setting undecided, which `--strict` counts as a failure
    ");
    assert_eq!(ended.code, Some(0));
}

/// What the differences are is said of each: those of settings without shared seeds are not paired.
#[test]
fn partly_shared_seeds_pair_only_their_settings() {
    let runs = Runs::new();
    let far = shifted(0.02, 0.001);
    learned(&runs, "a", &[("0.1", "32", &BEST), ("0.01", "32", &BEST)]);
    learned(&runs, "b", &[("0.1", "32", &far), ("0.01", "32", &far)]);
    let [a, b] = ["a", "b"].map(|name| runs.named(name));
    let other_seeds = |lr: &str| {
        for trial in 0..12 {
            let path = format!("b/S/{trial:03}/spec.toml");
            let spec = fs::read_to_string(runs.path(&path)).unwrap();
            if spec.contains(&format!("lr = {lr}\n")) {
                runs.write(&path, &spec.replace("seed = ", "seed = 1"));
            }
        }
    };
    let said = || {
        let text = Sandbox::new("").runner(&["compare", &a, &b]).stdout;
        text.lines().last().unwrap().trim().to_owned()
    };
    assert_eq!(said(), "differences of means, paired by seed [95 %, Student]; p by Holm");
    other_seeds("0.1");
    let words = "differences of means, paired by seed where seeds are shared [95 %, Student]; p by Holm";
    assert_eq!(said(), words);
    other_seeds("0.01");
    assert_eq!(said(), "differences of means, unpaired [95 %, Student]; p by Holm");
}

/// A single value has no spread, so there is no p-value, no interval and no gate.
#[test]
fn one_run_each_has_no_interval() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.2]), ("0.01", "32", &[0.1])]);
    learned(&runs, "b", &[("0.1", "32", &[0.3]), ("0.01", "32", &[0.1])]);
    let [a, b] = ["a", "b"].map(|name| runs.named(name));
    let ran = |more: &[&str]| Sandbox::new("").runner(&[&["compare"], more].concat());
    insta::assert_snapshot!(runs.masked(&ran(&[&a, &b]).stdout), @r"
    2 shared settings, validation loss: second better in 0, worse in 0, unclear in 2
      first   RUNS/a/S
              best #1 lr 0.01, 0.1000
      second  RUNS/b/S
              best #1 lr 0.01, 0.1000

       lr  width  n   first  second  difference
     0.01     32  1  0.1000  0.1000           0
      0.1     32  1  0.2000  0.3000      0.1000
      one run each: no interval
    ");
    let ended = ran(&[&a, &b, "--fail-if", "mean(validation.loss) > 1.1 * baseline"]);
    insta::assert_snapshot!(ended.stdout + &ended.stderr, @r"
    fail if mean(validation.loss) > 1.1 * baseline
      lr 0.01 width 32: 0.1000 of n 1 against 0.1100 = 1.1 * 0.1000 of n 1; one run each: no interval: passes
      lr 0.1 width 32: 0.3000 of n 1 against 0.2200 = 1.1 * 0.2000 of n 1; one run each: no interval: undecided
    undecided
    warning: 1 setting undecided, which `--strict` counts as a failure
    ");
    assert_eq!(ended.code, Some(0));
}

/// Adds lines to the spec and a column to the summary of each of the two trials of a sweep.
fn add(runs: &Runs, name: &str, spec: &str, [column, value]: [&str; 2]) {
    for trial in ["000", "001"] {
        let read = |file: &str| fs::read_to_string(runs.path(&format!("{name}/S/{trial}/{file}"))).unwrap();
        let (own, summary) = (read("spec.toml"), read("summary.csv"));
        runs.write(&format!("{name}/S/{trial}/spec.toml"), &(own + spec));
        let rows: Vec<String> =
            summary.lines().zip([column, value]).map(|(line, more)| format!("{line},{more}\n")).collect();
        runs.write(&format!("{name}/S/{trial}/summary.csv"), &rows.concat());
    }
}

/// Values of other data, splits or weights are beside each other, but what they differ in is named.
#[test]
fn sweeps_of_other_tasks_are_said_to_be_so() {
    let runs = Runs::new();
    let names = ["a", "b", "c"].map(|name| {
        learned(&runs, name, &[("0.1", "32", &[0.2]), ("0.01", "32", &[0.1])]);
        runs.named(name)
    });
    let [a, b, c] = &names;
    let data =
        |split: &str| format!("[data]\nsplit = {{ validation = {split} }}\ncsv = {{ path = \"/x.csv\" }}\n");
    add(&runs, "a", &data("0.2"), ["data_digest", "d1"]);
    add(&runs, "b", &data("0.05"), ["data_digest", "d2"]);
    add(&runs, "c", &(data("0.2") + "[trainer]\nmax_epochs = 3\n"), ["data_digest", "d1"]);
    let ran = |more: &[&str]| Sandbox::new("").runner(&[&["compare"], more].concat());
    insta::assert_snapshot!(runs.masked(&ran(&[a, b]).stdout), @r"
    2 tasks, whose losses are not comparable: data.csv.validation_fraction, the data differ (first; second)

    2 shared settings, validation loss: second better in 0, worse in 0, unclear in 2
      first   RUNS/a/S
              best #1 lr 0.01, 0.1000
      second  RUNS/b/S
              best #1 lr 0.01, 0.1000

       lr  width  n   first  second  difference
     0.01     32  1  0.1000  0.1000           0
      0.1     32  1  0.2000  0.2000           0
      one run each: no interval

    differences of spec
      data.csv.validation_fraction  0.2 (first)  0.05 (second)
    ");
    let exported = ran(&[a, b, "--export", "md"]);
    let words = "2 tasks, whose losses are not comparable: data.csv.validation_fraction, the data differ (first; second)";
    assert_eq!(exported.stderr, format!("warning: {words}\n"));
    // One task, but other trainings.
    let text = ran(&[a, c]).stdout;
    assert!(text.starts_with("2 shared settings, validation loss: "), "{text}");
    assert!(
        text.ends_with("\ndifferences of spec\n  trainer.max_epochs  absent (first)  3 (second)\n"),
        "{text}"
    );
}

/// The metric of the second compares both; that is no choice to make silently.
#[test]
fn sweeps_that_are_judged_by_different_metrics_are_said_to_be_so() {
    let runs = Runs::new();
    let names = ["a", "b"].map(|name| {
        learned(&runs, name, &[("0.1", "32", &[0.2]), ("0.01", "32", &[0.1])]);
        add(&runs, name, "", ["final_validation_loss", "0.5"]);
        runs.named(name)
    });
    let [a, b] = &names;
    add(&runs, "a", "[trainer]\nmonitor = \"validation.auc\"\n", ["final_validation_auc", "0.75"]);
    let ran = |more: &[&str]| Sandbox::new("").runner(&[&["compare"], more].concat());
    insta::assert_snapshot!(runs.masked(&ran(&[a, b]).stdout), @r"
    runs are judged by different metrics: validation auc (first), validation loss (second), by which both are compared; `--metric` names another

    2 shared settings, validation loss: second better in 0, worse in 0, unclear in 2
      first   RUNS/a/S
              best #0 lr 0.1, 0.5000
      second  RUNS/b/S
              best #0 lr 0.1, 0.5000

       lr  width  n   first  second  difference
      0.1     32  1  0.5000  0.5000           0
     0.01     32  1  0.5000  0.5000           0
      one run each: no interval
      validation loss of the last epoch: only some of the runs monitor it

    differences of spec
      trainer.monitor  validation.auc (first)  absent (second)
    ");
    assert!(!ran(&[a, b, "--metric", "loss"]).stdout.contains("judged by"));
}

/// Under weak scaling two devices take twice the batch: no setting of the other sweep.
#[test]
fn weak_scaling_is_another_setting() {
    let place = Sandbox::new(
        "[data]\nbatch_size = 16\n[data.synthetic_regression]\nweights = [1.0, 2.0]\ntrain_rows = 64\nvalidation_rows = 32\n\
         [model]\nlayers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 0.05\n[trainer]\nmax_epochs = 2\n",
    );
    let sweep = |more: &[&str]| {
        let arguments = [&["devices.num_gpus=1,2", "--virtual-gpus", "2", "-q"], more].concat();
        place.run(&arguments).ended_by(0).0.display().to_string()
    };
    let [strong, both] = [sweep(&[]), sweep(&["devices.scaling=weak,strong"])];
    let text = place.runner(&["compare", &strong, &both]).ended_by(0).stdout;
    let shared = |gpus: u32| {
        let row = text.lines().find(|line| line.trim_start().starts_with(&format!("{gpus}   strong  1 ")));
        row.is_some_and(|row| row.ends_with(" 0"))
    };
    assert!(shared(1) && shared(2) && text.contains("; not shared: 2 settings"), "{text}");
}
