//! Whether the times of runs can be compared: it depends on the hardware they used, and is reported once.

use super::{FACTS, Facts, Runs, sweep};
use crate::{process::Sandbox, run::LINREG};

/// The first line, and the text below the machine.
fn said(runs: &Runs) -> (String, Vec<String>) {
    let text = runs.table(&["linreg"], 200);
    let (_, machine) = text.split_once("\ndifferences of environment\n").unwrap_or_default();
    (text.lines().next().unwrap().to_owned(), machine.lines().map(str::to_owned).collect())
}

/// Runs with `[used, available]` threads each.
fn with_threads(threads: &[[u32; 2]]) -> Runs {
    let runs = Runs::new();
    for (place, &threads) in threads.iter().enumerate() {
        runs.run(&format!("linreg/{place}"), &Facts { threads, ..FACTS });
    }
    runs
}

#[test]
fn threads_are_judged_by_those_that_computed() {
    let same = "2 runs, comparable: same processor, instruction set, threads and version".to_owned();
    assert_eq!(said(&with_threads(&[[1, 2], [1, 2]])), (same.clone(), vec![]));
    // What a run was resumed after is no part of the machine.
    let resumed = with_threads(&[[1, 2], [1, 2]]);
    let place = "linreg/0/environment.toml";
    let environment = std::fs::read_to_string(resumed.path(place)).unwrap();
    resumed.write(place, &format!("resumed_after = 20\n{environment}"));
    assert_eq!(said(&resumed), (same.clone(), vec![]));
    // Equal numbers of threads, one run with more available.
    let why = "each on the CPU computed with 1 thread, though there were 1 or 2";
    assert_eq!(said(&with_threads(&[[1, 2], [1, 1]])), (format!("{same}; {why}"), vec![]));
    // The plan chose differently among equally many threads.
    assert_eq!(
        said(&with_threads(&[[1, 2], [2, 2]])),
        (
            "2 runs, to be compared with care: host.threads (chosen by the plan) differs".to_owned(),
            vec!["  host.threads  1 (#1)  2 (#2)".to_owned()]
        )
    );
    // Some runs were given fewer threads, and their times say what more of them are worth.
    let runs = with_threads(&[[2, 2], [1, 1], [2, 2]]);
    assert_eq!(
        said(&runs),
        (
            "3 runs, comparable: same processor, instruction set and version; ran with other numbers of threads (1, 2)".to_owned(),
            vec![
                "  host.available_threads  2 (#1, 3)  1 (#2)".to_owned(),
                "  host.threads            2 (#1, 3)  1 (#2)".to_owned(),
            ]
        )
    );
    // The host's thread count does not affect a run on a GPU.
    let gpu = Facts { num_gpus: 1, devices: "gpu:0", threads: [1, 1], ..FACTS };
    let runs = with_threads(&[[2, 2]]);
    runs.run("linreg/gpu", &gpu);
    assert_eq!(said(&runs).1, Vec::<String>::new());
}

/// The comparison says so in its first line; an export has no such line and prints a warning.
#[test]
fn what_decides_times_is_said_once() {
    let runs = with_threads(&[[2, 2]]);
    runs.run("linreg/1", &Facts { cpu: "B", ..FACTS });
    let place = Sandbox::new("");
    let compare = |more: &[&str]| place.runner(&[&["compare", &runs.named("linreg")], more].concat());
    let ended = compare(&[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout.matches("say nothing of each other").count(), 1, "{}", ended.stdout);
    let quiet = compare(&["-q"]);
    let first = ended.stdout.lines().next().map(|line| format!("{line}\n"));
    assert_eq!((quiet.code, Some(quiet.stdout), quiet.stderr.as_str()), (Some(0), first, ""));
    let warning = "warning: `cpu.model` differs between the runs: their times say nothing of each other\n";
    let ended = compare(&["--export", "csv"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), warning));
}

/// Rows and ratios name the threads that runs were given.
#[test]
fn times_at_other_numbers_of_threads_are_compared() {
    let table = with_threads(&[[2, 2], [1, 1]]).table(&["linreg"], 200);
    for words in [" cpu 2 threads ", " cpu 1 thread ", " rows/s vs #1 ", " 1.00x "] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let same = with_threads(&[[1, 2], [1, 2]]).table(&["linreg"], 200);
    assert!(!same.contains("thread "), "{same}");
}

/// One setting that was clamped to other numbers of devices is one place of the ranking, which names these, and its times are of each.
#[test]
fn devices_of_one_setting_are_named() {
    let place = Sandbox::new(LINREG);
    let run = |lr: &str, virtual_gpus: &str| {
        let clamped = ["devices.num_gpus=4", "devices.on_missing=clamp", "--virtual-gpus", virtual_gpus];
        let run = place.run(&[&clamped[..], &["-q", lr]].concat()).ended_by(0);
        run.0.to_str().unwrap().to_owned()
    };
    let [lr, other] = ["optimizer.sgd.lr=0.01", "optimizer.sgd.lr=0.02"];
    let runs = [run(lr, "1"), run(lr, "2"), run(other, "1")];
    let table = place.runner(&[&["compare"][..], &runs.each_ref().map(String::as_str)].concat()).stdout;
    let row = |lr: &str| table.lines().find(|line| line.contains(lr) && line.starts_with(' ')).unwrap();
    assert!(table.contains("  devices  ") && !table.contains("taken together"), "{table}");
    let both = row(" 0.01  virtual:0, virtual:0 virtual:1  ");
    assert!(both.contains("s to ") && !row(" 0.02  virtual:0  ").contains(" to "), "{table}");
    let ranked = [&["compare", "--metric", "train_s"][..], &runs.each_ref().map(String::as_str)].concat();
    let ranked = place.runner(&ranked).stdout;
    assert_eq!(ranked.lines().filter(|line| line.contains("  virtual:0 virtual:1  ")).count(), 1, "{ranked}");
}

/// What differs in devices alone learns the same: none is the best, and more seeds would tell nothing.
#[test]
fn settings_of_equal_mathematics_are_equal() {
    let place = Sandbox::new(LINREG);
    let run = |num_gpus: &str, lr: &str| {
        let run = place.run(&[num_gpus, lr, "--virtual-gpus", "2", "-q"]).ended_by(0);
        run.0.to_str().unwrap().to_owned()
    };
    let [one, two] = ["devices.num_gpus=1", "devices.num_gpus=2"];
    let [lr, other] = ["optimizer.sgd.lr=0.02", "optimizer.sgd.lr=0.01"];
    let [a, b, c] = [run(one, lr), run(two, lr), run(one, other)];
    let compare = |runs: &[&String]| {
        let runs = runs.iter().map(|run| run.as_str());
        place.runner(&["compare", "--metric", "loss"].into_iter().chain(runs).collect::<Vec<_>>()).stdout
    };
    let equal = compare(&[&a, &b]);
    assert!(equal.starts_with("none is best: validation loss "), "{equal}");
    let words = " within rounding: they differ in nothing that changes what is learned\n";
    assert!(equal.contains(words) && equal.contains(" equals #") && !equal.contains("luck"), "{equal}");
    assert!(equal.contains("  virtual:0 virtual:1  ") && !equal.contains("  best  "), "{equal}");
    let three = compare(&[&a, &b, &c]);
    assert!(three.starts_with("best: #") && three.contains("luck") && three.contains(words), "{three}");
}

/// Runs of a debug build are named as the table of the runs names them.
#[test]
fn debug_builds_are_named() {
    let runs = Runs::new();
    let debug = |path: &str| {
        let environment = FACTS.environment() + "[versions]\nbuild = \"debug\"\n";
        runs.write(&format!("{path}/environment.toml"), &environment);
    };
    sweep(&runs);
    debug("linreg/S/000-devices.num_gpus=0");
    debug("linreg/S/002-devices.num_gpus=2");
    let builds = |paths: &[&str]| runs.read(paths).builds().unwrap();
    let words = "is debug: its times say nothing of a release build (`cargo build --release`)";
    assert_eq!(builds(&["linreg/S"]), format!("the build of #0, 2 {words}"));
    for name in ["a", "b", "c"] {
        runs.run(&format!("alone/{name}"), &FACTS);
    }
    debug("alone/b");
    assert_eq!(builds(&["alone"]), format!("the build of #2 {words}"));
    debug("alone/c");
    assert_eq!(builds(&["alone"]), format!("the build of #2, 3 {words}"));
    assert_eq!(builds(&["alone", "linreg/S"]), format!("the build of #2 B, #3 C, #0 D, #2 D {words}"));
}
