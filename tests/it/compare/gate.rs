//! `--fail-if`: the condition, the difference and its interval are of the same runs, and what is not judged is named.

use std::fs;

use runner::record::RunLock;

use super::{FACTS, Facts, Runs, answer::learned};
use crate::process::{Ended, Sandbox};

fn gate(runs: &Runs, own: &str, base: Option<&str>, condition: &str) -> Ended {
    let own = runs.named(own);
    let base = base.map(|base| runs.named(base));
    let baseline = base.iter().flat_map(|base| ["--baseline", base]);
    let words: Vec<&str> = ["compare", &own, "--fail-if", condition].into_iter().chain(baseline).collect();
    Sandbox::new("").runner(&words)
}

/// Changes each trial's spec.
fn respec(runs: &Runs, name: &str, trials: usize, change: impl Fn(usize, String) -> String) {
    for trial in 0..trials {
        let path = format!("{name}/S/{trial:03}/spec.toml");
        let spec = fs::read_to_string(runs.path(&path)).unwrap();
        runs.write(&path, &change(trial, spec));
    }
}

/// Each run is better by some 0.1 than that of the same seed, but the seeds that only one of the two has are worse: the mean of
/// all is above the baseline's. The interval is `scipy.stats.ttest_rel` of the three shared seeds.
#[test]
fn partly_shared_seeds_decide_by_those_that_both_have() {
    let runs = Runs::new();
    learned(&runs, "own", &[("0.1", "32", &[1.5, 1.6, 1.7, 0.41, 0.389, 0.406])]);
    learned(&runs, "base", &[("0.1", "32", &[0.51, 0.49, 0.505, 0.52])]);
    respec(&runs, "base", 4, |trial, spec| {
        spec.replace(&format!("seed = {trial}"), &format!("seed = {}", trial + 3))
    });
    let ended = gate(&runs, "own", Some("base"), "mean(validation.loss) > baseline");
    insta::assert_snapshot!(ended.stdout, @r"
    fail if mean(validation.loss) > baseline
      lr 0.1 width 32: 1.001 of n 6 against 0.5062 = 1 * 0.5062 of n 4; difference over 3 seeds of both -0.1000 [-0.1025, -0.0975]: passes
    passed
    ");
    assert_eq!(ended.code, Some(0));
    let ended = gate(&runs, "own", Some("base"), "mean(validation.loss) < baseline");
    assert!(ended.stdout.ends_with(": fails\nfailed\n") && ended.code == Some(1), "{ended:?}");
    // The other way round.
    let ended = gate(&runs, "base", Some("own"), "mean(validation.loss) > baseline");
    assert!(ended.stdout.ends_with(": fails\nfailed\n") && ended.code == Some(1), "{ended:?}");
}

/// Times of two kinds: the medians are 10 apart one way, the median of all differences is 900 apart the other.
#[test]
fn medians_are_judged_by_the_shift_that_the_interval_is_of() {
    let runs = Runs::new();
    let times = |name: &str, parts: [(usize, f64); 2]| {
        let values = parts.into_iter().flat_map(|(count, value)| vec![value; count]);
        let mut rows = "trial,repeat,status,folder,reason\n".to_owned();
        for (trial, value) in values.enumerate() {
            let summary = format!(
                "run,status,devices_used,steps,train_s,steps_per_s\n{trial},finished,cpu,100,0.5,{value}\n"
            );
            runs.write(&format!("{name}/S/{trial:03}/summary.csv"), &summary);
            runs.write(&format!("{name}/S/{trial:03}/spec.toml"), "seed = 0\n[optimizer.sgd]\nlr = 0.1\n");
            rows += &format!("{trial},{trial},finished,{trial:03},\n");
        }
        runs.write(&format!("{name}/S/sweep.csv"), &rows);
    };
    times("own", [(18, 100.0), (22, 1010.0)]);
    times("base", [(21, 1000.0), (19, 5000.0)]);
    let ended = gate(&runs, "own", Some("base"), "median(steps_per_s) > baseline");
    assert!(
        ended.stdout.contains("; difference (median of all pairs) -900 [-3990, -900]: passes\npassed\n"),
        "{ended:?}"
    );
    let ended = gate(&runs, "own", Some("base"), "median(steps_per_s) < baseline");
    assert!(ended.stdout.ends_with(": fails\nfailed\n") && ended.code == Some(1), "{ended:?}");
}

const ROWS: &str = "[data]\nrows_to_train_on = 80\nrows_to_validate_on = 20\nsplit_digest = ";

/// The interval of a median knows nothing of rows that seeds share.
#[test]
fn the_median_of_drawn_splits_is_refused() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.3, 0.31, 0.32, 0.33, 0.34, 0.35])]);
    for trial in 0..6 {
        runs.write(&format!("a/S/{trial:03}/environment.toml"), &format!("{ROWS}\"{trial}\"\n"));
    }
    let ended = gate(&runs, "a", None, "median(validation.loss) > 0.1");
    let words = "error: the median of validation loss has no interval over runs that validate on other rows of the same \
                 table\n  = hint: take `mean`, whose interval allows for the training rows that they share\n";
    assert_eq!((ended.code, &*ended.stderr), (Some(2), words));
    assert_eq!(gate(&runs, "a", None, "mean(validation.loss) > 0.1").code, Some(1));
    // Nor does it know whether they do.
    respec(&runs, "a", 6, |_, spec| spec + "[data.csv]\npath = \"a.csv\"\n");
    fs::remove_file(runs.path("a/S/003/environment.toml")).unwrap();
    let ended = gate(&runs, "a", None, "median(validation.loss) > 0.1");
    let words = "error: the median of validation loss has no interval where runs do not record their validation rows\n";
    assert_eq!((ended.code, &*ended.stderr), (Some(2), words));
}

/// `data.split.seed` divides the rows into the same folds for all seeds.
#[test]
fn seeds_with_the_same_folds_validate_on_the_same_rows() {
    let runs = Runs::new();
    learned(
        &runs,
        "a",
        &[("0.1", "32", &[0.30, 0.34, 0.31, 0.37]), ("0.01", "32", &[0.4, 0.45, 0.42, 0.47])],
    );
    respec(&runs, "a", 8, |trial, spec| {
        // Two folds of two seeds.
        let [seed, fold] = [trial / 4, trial / 2 % 2];
        let spec = spec.replace(&format!("seed = {}", trial / 2), &format!("seed = {seed}"));
        format!("{spec}[data]\nfolds = 2\nfold = {fold}\nsplit = {{ seed = 7 }}\n")
    });
    for trial in 0..8 {
        let halves = ROWS.replace("80", "50").replace("20", "50");
        runs.write(&format!("a/S/{trial:03}/environment.toml"), &format!("{halves}\"{}\"\n", trial / 2 % 2));
    }
    let words = "\n  seeds validate on the same rows: intervals and p are of what seeds draw; other rows may rank otherwise \
                 (`data.split.seed=0..5` divides them otherwise)\n";
    let text = runs.answer(&["a"], 120);
    assert!(text.contains(words), "{text}");
    let ended = gate(&runs, "a", None, "mean(validation.loss) > 0.1");
    assert!(ended.stdout.contains(words), "{ended:?}");
}

/// Files of one name in two folders are two data sets; the same files of a project that was moved are the same.
#[test]
fn files_of_one_name_are_told_apart() {
    let runs = Runs::new();
    for (name, place) in [("a", "/here"), ("b", "/there")] {
        learned(&runs, name, &[("0.1", "32", &[0.2, 0.21, 0.22]), ("0.2", "32", &[0.9, 0.96, 1.0])]);
        respec(&runs, name, 6, |trial, spec| {
            format!("{spec}[data.csv]\npath = \"{place}/{}/t.csv\"\n", ["one", "two"][trial % 2])
        });
        for trial in 0..6 {
            let rows = "[data]\nrows_to_train_on = 80\nrows_to_validate_on = 20\n";
            runs.write(&format!("{name}/S/{trial:03}/environment.toml"), rows);
        }
        let table = format!("{name}/S/sweep.csv");
        let rows = fs::read_to_string(runs.path(&table)).unwrap();
        let rows = rows.replace("optimizer.sgd.lr", "data.csv.path");
        let rows = rows.replace(",0.1,", &format!(",{place}/one/t.csv,"));
        runs.write(&table, &rows.replace(",0.2,", &format!(",{place}/two/t.csv,")));
        respec(&runs, name, 6, |_, spec| spec.replace("lr = 0.2", "lr = 0.1"));
    }
    let ended = gate(&runs, "a", None, "mean(validation.loss) > 0.5");
    assert!(ended.stdout.contains("one/t.csv") && ended.stdout.contains("two/t.csv"), "{ended:?}");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let text = Sandbox::new("").runner(&["compare", &runs.named("a"), &runs.named("b")]).stdout;
    assert!(text.contains("2 shared settings"), "{text}");
}

/// Runs without the metric, and settings of one group alone, are not judged; a line says which.
#[test]
fn what_is_not_judged_is_named() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.2, 0.21]), ("0.2", "32", &[0.3, 0.31])]);
    learned(&runs, "b", &[("0.1", "32", &[0.2, 0.21]), ("0.3", "32", &[0.3, 0.31])]);
    let ended = gate(&runs, "b", Some("a"), "mean(validation.loss) > 2 * baseline");
    let words = "passes\n  1 setting that the baseline lacks (#1)\n  baseline: 1 setting that these runs lack (#1)\npassed\n";
    assert!(ended.stdout.ends_with(words), "{ended:?}");
    for trial in [1, 3] {
        let summary = format!("run,status,devices_used,steps,train_s\n{trial},finished,cpu,100,0.5\n");
        runs.write(&format!("b/S/{trial:03}/summary.csv"), &summary);
    }
    let ended = gate(&runs, "b", None, "mean(validation.loss) > 0.5");
    let words = "passes\n  2 runs finished without validation loss (#1, 3)\npassed\n";
    assert!(ended.stdout.ends_with(words) && ended.code == Some(0), "{ended:?}");
}

/// A schedule as long as the run is one setting for runs of 4 and of 8 epochs, also for a run that ended within an epoch.
#[test]
fn schedules_as_long_as_their_runs_are_one_setting() {
    let runs = Runs::new();
    for (name, epochs) in [("a", 4), ("b", 8)] {
        learned(&runs, name, &[("0.1", "32", &[0.2, 0.21, 0.22])]);
        respec(&runs, name, 3, |_, spec| {
            let t_max = 8 * epochs;
            format!(
                "{spec}[data]\nbatch_size = 10\n[trainer]\nmax_epochs = {epochs}\n[schedule]\ninterval = \"step\"\n\
                 [schedule.cosine]\nt_max = {t_max}\neta_min = 0.0\n"
            )
        });
        for trial in 0..3 {
            let text = "[data]\nrows_to_train_on = 80\nrows_to_validate_on = 20\n";
            runs.write(&format!("{name}/S/{trial:03}/environment.toml"), text);
        }
        let table = format!("{name}/S/sweep.csv");
        let rows = fs::read_to_string(runs.path(&table)).unwrap();
        runs.write(&table, &rows.replace("model.width", "schedule").replace(",32,", ",cosine,"));
    }
    let condition = "mean(validation.loss) > 2 * baseline";
    let ended = gate(&runs, "b", Some("a"), condition);
    let stdout = &ended.stdout;
    assert!(stdout.contains(" of n 3 against ") && stdout.ends_with("\npassed\n"), "{ended:?}");
    assert!(!stdout.contains("lack"), "{ended:?}");
    let ended = |path: String| {
        let text = fs::read_to_string(runs.path(&path)).unwrap();
        runs.write(
            &path,
            &text.replace("1,finished,cpu,100", "1,diverged,cpu,5").replace(",1,finished,", ",1,diverged,"),
        );
    };
    ended("b/S/001/summary.csv".to_owned());
    ended("b/S/sweep.csv".to_owned());
    let ended = gate(&runs, "b", Some("a"), condition);
    assert!(
        ended.stdout.contains("1 of 3 runs diverged (#1): fails\n") && ended.code == Some(1),
        "{ended:?}"
    );
}

/// `>=` holds where both are equal in each run, and `>` does not.
#[test]
fn what_is_equal_in_each_run_is_decided() {
    let runs = Runs::new();
    let settings: &[(&str, &str, &[f64])] = &[("0.1", "32", &[0.2, 0.21, 0.22])];
    ["a", "b"].iter().for_each(|name| learned(&runs, name, settings));
    let judged = |condition: &str| {
        let ended = gate(&runs, "b", Some("a"), condition);
        (ended.code, ended.stdout.lines().nth(1).unwrap_or_default().to_owned())
    };
    let words = "  lr 0.1 width 32: 0.2100 of n 3 against 0.2100 = 1 * 0.2100 of n 3; the difference is 0 in each run: ";
    for (condition, code, word) in
        [(">=", 1, "fails"), ("<=", 1, "fails"), (">", 0, "passes"), ("<", 0, "passes")]
    {
        let expected = (Some(code), format!("{words}{word}"));
        assert_eq!(judged(&format!("mean(validation.loss) {condition} baseline")), expected);
    }
}

/// So it is without a shared seed, of medians, of one run each, and against a number; 12 against 13 is a difference of two numbers
/// without a spread.
#[test]
fn equal_values_need_no_interval() {
    let runs = Runs::new();
    for (name, count, first, steps) in [
        ("three", 3, 1, "12"),
        ("six", 6, 4, "12"),
        ("more", 6, 4, "13"),
        ("one", 1, 1, "12"),
        ("another", 1, 2, "12"),
    ] {
        learned(&runs, name, &[("0.1", "32", &vec![0.2; count])]);
        respec(&runs, name, count, |trial, spec| {
            spec.replace(&format!("seed = {trial}"), &format!("seed = {}", trial + first))
        });
        for trial in 0..count {
            let path = format!("{name}/S/{trial:03}/summary.csv");
            let summary = fs::read_to_string(runs.path(&path)).unwrap();
            runs.write(&path, &summary.replace(",100,", &format!(",{steps},")));
        }
    }
    for (own, base, statistic) in [
        ("six", Some("three"), "mean(steps)"),
        ("three", Some("another"), "median(steps)"),
        ("six", Some("three"), "mean(validation.loss)"),
        ("one", Some("another"), "mean(steps)"),
        ("one", Some("one"), "median(steps)"),
        ("three", None, "mean(steps)"),
        ("three", None, "median(steps)"),
        ("one", None, "median(steps)"),
    ] {
        let bound = if base.is_some() { "baseline" } else { "12" };
        for (operator, code, word) in [(">=", 1, "fails"), ("<", 0, "passes")] {
            let ended = gate(&runs, own, base, &format!("{statistic} {operator} {bound}"));
            let line = ended.stdout.lines().nth(1).unwrap_or_default();
            assert!(line.ends_with(&format!(" is 0 in each run: {word}")), "{own} {statistic}: {ended:?}");
            assert_eq!(ended.code, Some(code), "{ended:?}");
        }
    }
    let ended = gate(&runs, "more", Some("three"), "mean(steps) >= baseline");
    let line = "  lr 0.1 width 32: 13.00 of n 6 against 12.00 = 1 * 12.00 of n 3; too few runs for an interval: undecided";
    assert_eq!(ended.stdout.lines().nth(1), Some(line), "{ended:?}");
}

/// A run that a process works on may still end well: its setting is undecided, while one that was killed fails.
#[test]
fn runs_under_way_are_undecided() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.2, 0.21, 0.22]), ("0.2", "32", &[0.3, 0.31, 0.33])]);
    let folder = runs.path("a/S/004");
    runs.write("a/S/004/summary.csv", "run,status\n4,running\n");
    runs.write("a/S/004/metrics.csv", "epoch,step,split,loss\n");
    let table = fs::read_to_string(runs.path("a/S/sweep.csv")).unwrap();
    runs.write("a/S/sweep.csv", &table.replace(",2,finished,004,", ",2,planned,004,"));
    let condition = "mean(validation.loss) > 0.5";
    let lock = RunLock::take(&folder).unwrap().unwrap();
    let ended = gate(&runs, "a", None, condition);
    let words = "  lr 0.1 width 32: 1 of 3 runs running (#4): undecided\n";
    assert!(ended.stdout.contains(words) && ended.stdout.contains("\nundecided"), "{ended:?}");
    assert_eq!(
        (ended.code, &*ended.stderr),
        (Some(0), "warning: 1 setting undecided, which `--strict` counts as a failure\n")
    );
    drop(lock);
    let ended = gate(&runs, "a", None, condition);
    assert!(
        ended.stdout.contains("1 of 3 runs unfinished (#4): fails\n") && ended.code == Some(1),
        "{ended:?}"
    );
}

/// Times of virtual devices say nothing of real ones, whether or not the machines are the same.
#[test]
fn times_of_virtual_devices_have_a_warning() {
    let runs = Runs::new();
    runs.run("a", &Facts { devices: "virtual:0", ..FACTS });
    let ended = gate(&runs, "a", None, "mean(steps_per_s) < 1");
    assert!(ended.stderr.contains("virtual"), "{ended:?}");
    assert!(!gate(&runs, "a", None, "mean(validation.loss) > 100").stderr.contains("virtual"));
}

/// One run gives no interval: a gate that must not let it pass says so by its exit code.
#[test]
fn a_strict_gate_fails_where_it_is_undecided() {
    let runs = Runs::new();
    learned(&runs, "own", &[("0.1", "32", &[1.5])]);
    learned(&runs, "base", &[("0.1", "32", &[0.51, 0.49, 0.505, 0.52])]);
    let (own, base) = (runs.named("own"), runs.named("base"));
    let condition = "mean(validation.loss) > baseline";
    let ran = |more: &[&str]| {
        let words = ["compare", &own, "--fail-if", condition, "--baseline", &base];
        Sandbox::new("").runner(&[&words, more].concat())
    };
    let (ended, strict) = (ran(&[]), ran(&["--strict"]));
    assert!(ended.stdout.ends_with(": undecided\nundecided\n"), "{ended:?}");
    assert_eq!([ended.code, strict.code], [Some(0), Some(1)]);
    assert_eq!(
        (strict.stdout, strict.stderr),
        (ended.stdout, "warning: 1 setting undecided, which `--strict` counts as a failure\n".to_owned())
    );
    let json: serde_json::Value = serde_json::from_str(&ran(&["--export", "json"]).stdout).unwrap();
    assert_eq!([&json["condition"], &json["result"]], [condition, "undecided"]);
    let csv = ran(&["--export", "csv"]);
    let message = "error: the result of `--fail-if` is text, or JSON\n  = hint: `--export json`\n";
    assert_eq!((csv.code, &*csv.stderr), (Some(2), message));
    let alone = Sandbox::new("").runner(&["compare", &own, "--strict"]);
    assert_eq!(alone.code, Some(2), "{alone:?}");
}

/// The interval of the three shared seeds is that of `scipy.stats.ttest_rel`, as in the text.
#[test]
fn the_result_as_json() {
    let runs = Runs::new();
    learned(&runs, "own", &[("0.1", "32", &[0.41, 0.389, 0.406])]);
    learned(&runs, "base", &[("0.1", "32", &[0.51, 0.49, 0.505])]);
    let (own, base) = (runs.named("own"), runs.named("base"));
    let words = [
        "compare",
        &own,
        "--baseline",
        &base,
        "--export",
        "json",
        "--fail-if",
        "mean(validation.loss) < baseline",
    ];
    let ended = Sandbox::new("").runner(&words);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(json["result"], "failed");
    let setting = &json["settings"][0];
    assert_eq!(
        [&setting["setting"], &setting["result"], &setting["interval"]],
        ["lr 0.1 width 32", "failed", "confidence"]
    );
    assert_eq!([&setting["n"], &setting["baseline_n"]], [3, 3]);
    // scipy.stats.ttest_rel([.41, .389, .406], [.51, .49, .505]).confidence_interval(): mean -0.1, half-width 4.302653 * 0.001 / sqrt(3)
    let half = 4.302652729911275 * 0.001 / 3_f64.sqrt();
    for (key, expected) in [
        ("value", 0.40166666666666667),
        ("bound", 0.5016666666666667),
        ("difference", -0.1),
        ("difference_low", -0.1 - half),
        ("difference_high", -0.1 + half),
        ("confidence", 0.95),
    ] {
        let found = setting[key].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-12, "{key}: {found} {expected}");
    }
}
