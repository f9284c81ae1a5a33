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
            ended.stderr.contains("warning: too few runs to decide 1 setting\n"),
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
    failed: the intervals of 2 settings cover 97.5 % each, 95 % together
    ");
    assert_eq!(code, Some(1));
    let (text, code) = gate("mean(validation.loss) > 1.05 * baseline", &[&a, &b, "--by", "width"]);
    insta::assert_snapshot!(text, @"
    fail if mean(validation.loss) > 1.05 * baseline
      width 32: 0.06804 of n 6 against 0.06414 = 1.05 * 0.06108 of n 6; difference 0.0039 [0.0024, 0.0054]; means over 3 combinations of the other axes against 2, which may decide it: fails
    failed
    ");
    assert_eq!(code, Some(1));
    // Intervals of two medians that cover 97.5 % each need seven runs; if the runs form one setting, six are
    // enough.
    let condition = "median(validation.loss) > 1.05 * baseline";
    let (text, code) = gate(condition, &[&a, &b]);
    assert!(text.contains("take 7 or more of each") && code == Some(0), "{text}");
    assert_eq!(gate(condition, &[&a, &b, "--where", "lr = 0.1"]).1, Some(1));
    assert_eq!(gate("median(validation.loss) > 2 * baseline", &[&b, "--baseline", &a]).1, Some(0));
    assert_eq!(gate("median(validation.loss) > 0.05", &[&a, "--where", "lr = 0.1"]).1, Some(1));
    let few = Runs::new();
    learned(&few, "a", &[("0.1", "32", &[0.1, 0.2])]);
    let (text, code) = gate("median(validation.loss) > 0.05", &[&few.named("a")]);
    assert!(text.contains("too few runs for an interval of the median: take 6 or more of each"), "{text}");
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
    assert!(text.contains("\n  lr 0.1 width 32: no run of it finished: fails\nfailed\n"), "{text}");
    assert_eq!(code, Some(1));
    let ended = ran(&[&a, "--fail-if", "mean(validation.loss) > nan"]);
    assert!(ended.stderr.contains("expected a number, found `nan`"), "{ended:?}");
    let ended = ran(&[&a, "--fail-if", "mean(validation.loss) > baseline"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("needs a baseline"), "{}", ended.stderr);
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
    warning: too few runs to decide 1 setting
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
