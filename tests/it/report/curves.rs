//! Curves that can be read: their axes, and noise below what it hides.

use std::{fmt::Write, fs, path::Path};

use serde_json::{Value, json};

use super::{SWEEP, charts, line_names, page, run};
use crate::{
    ends::{quiet, send, wait_for_lines, wait_until},
    process::Sandbox,
};

fn names(chart: &Value) -> Vec<&str> {
    chart["lines"].as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap()).collect()
}

/// Single steps are grey, below the means of epochs; their outliers do not choose the axis.
#[test]
fn noise_does_not_hide_what_a_run_learned() {
    let place = Sandbox::new("");
    let mut rows = String::new();
    for epoch in 1..=4 {
        for step in 1..=10 {
            // Two rows each, but for the last batch of an epoch.
            let (at, rows_of_step) = (epoch * 10 - 10 + step, if step == 10 { 1 } else { 2 });
            let loss = if step == 5 { 0.001 } else { 8.0 / f64::from(epoch) };
            writeln!(rows, "{at},{epoch},train,{rows_of_step},{loss},0.1").unwrap();
        }
        writeln!(rows, "{},{epoch},validation,8,{},0.1", epoch * 10, 9.0 / f64::from(epoch)).unwrap();
    }
    run(place.path(), "a", "", &rows);
    let page = page(&place, &["runs/a", "--svg", "figures"]);
    let chart = &charts(&page)[0];
    assert_eq!(names(chart), ["validation", "train", "train, each step"]);
    let pale: Vec<&Value> = (0..3).map(|line| &chart["lines"][line]["pale"]).collect();
    assert_eq!(pale, [false, false, true]);
    assert_eq!(chart["log"], false, "0.001 is an outlier of single steps");
    let means = chart["lines"][1]["y"].as_array().unwrap();
    let places: Vec<usize> = (0..means.len()).filter(|&at| !means[at].is_null()).collect();
    assert_eq!(places, [9, 19, 29, 39], "at the last step of each epoch");
    for (epoch, at) in (1..).zip(places) {
        // 17 of 19 rows.
        let wanted = (17.0 * 8.0 / f64::from(epoch) + 2.0 * 0.001) / 19.0;
        assert!((means[at].as_f64().unwrap() - wanted).abs() < 1e-4, "{} {wanted}", means[at]);
    }
    assert!(page.contains("train is the mean over the rows of each epoch; each step is grey.</p>"));
    let drawing = fs::read_to_string(place.path().join("figures/00-loss.svg")).unwrap();
    assert_eq!(drawing.matches("<polyline class=\"faint\"").count(), 1, "{drawing}");
    assert!(drawing.contains(">train, each step</text>"), "{drawing}");
    // As in the terminal.
    let plot = place.runner(&["plot", "runs/a", "--color", "never"]).stdout;
    for words in ["\u{b7}\u{b7} train loss, each step", "\u{2022}\u{2022} train loss, mean of each epoch"] {
        assert!(plot.contains(words), "{words}: {plot}");
    }
    assert!(plot.contains("\n  0 \u{2524}"), "a linear axis: {plot}");
}

/// A loss that falls to a tenth has a logarithmic axis, a share that rises as far has none; bands do not count.
#[test]
fn losses_that_fall_far_have_a_logarithmic_axis() {
    let place = Sandbox::new("");
    let head = "step,epoch,split,rows,loss,accuracy,elapsed_s\n";
    let write = |name: &str, losses: [f64; 2]| {
        run(place.path(), name, "", "");
        let row =
            |step: usize, loss: f64, share: f64| format!("{step},{step},validation,8,{loss},{share},0.1\n");
        let rows = row(1, losses[0], 0.05) + &row(2, losses[1], 0.9);
        fs::write(place.path().join("runs").join(name).join("metrics.csv"), format!("{head}{rows}")).unwrap();
    };
    write("a", [5.0, 0.45]);
    write("b", [4.0, 0.45]);
    let log = |paths: &[&str]| -> Vec<Value> {
        let page = page(&place, paths);
        charts(&page).iter().map(|chart| json!([chart["title"], chart["log"]])).collect()
    };
    assert_eq!(log(&["runs/a"]), [json!(["loss", true]), json!(["accuracy", false])]);
    assert_eq!(log(&["runs/b"]), [json!(["loss", false]), json!(["accuracy", false])]);
}

/// What a reader asks of a run that goes on: how far it is, how fast, how long still.
#[test]
fn a_run_that_goes_on_says_where_it_is() {
    let place = Sandbox::new(SWEEP);
    let words = ["~sweep", "trainer.max_epochs=100000000", "logging.flush_every_s=0.05"];
    let (command, runs) = place.prepared(&words);
    let mut child = quiet(command);
    wait_for_lines(&runs, 2);
    let page = page(&place, &[runs.to_str().unwrap()]);
    send("-TERM", &child);
    child.wait().unwrap();
    let (_, verdict) = page.split_once("<p class=\"verdict\">").unwrap();
    let (verdict, _) = verdict.split_once("</p>").unwrap();
    let parts: Vec<&str> = verdict.split(", ").collect();
    assert!(parts[0].starts_with("running: epoch ") && parts[0].ends_with(" of 100,000,000"), "{verdict}");
    assert!(parts[1].starts_with("step ") && parts[2].ends_with(" steps/s"), "{verdict}");
    assert!(parts[3].starts_with("about ") && parts[3].ends_with(" left"), "{verdict}");
}

/// The page of a sweep under way says which trial is best so far, how far all are, how long they still take, and whose the curves are.
#[test]
fn a_sweep_that_goes_on_says_where_it_is() {
    let place = Sandbox::new(SWEEP);
    let words = ["trainer.max_epochs=100000000", "logging.flush_every_s=0.05", "--jobs", "2"];
    let (command, runs) = place.prepared(&words);
    let mut child = quiet(command);
    let lines =
        |folder: &Path| fs::read_to_string(folder.join("metrics.csv")).unwrap_or_default().lines().count();
    let trials = || {
        let sweep = fs::read_dir(runs.join("small")).ok()?.next()?.ok()?.path();
        let trials = fs::read_dir(sweep).ok()?.filter_map(Result::ok).map(|entry| entry.path());
        Some(trials.filter(|trial| lines(trial) > 2).count())
    };
    wait_until(&mut child, || trials() == Some(2));
    let page = page(&place, &[runs.to_str().unwrap()]);
    send("-TERM", &child);
    child.wait().unwrap();
    assert!(page.contains("<p class=\"verdict\">best: no run has finished; so far #"), "{page}");
    assert!(page.contains("<p class=\"note\">6 runs: 2 running, 4 planned, about "), "{page}");
    assert!(page.contains("2 runs (not begun: 4), comparable: "), "{page}");
    let mut names = line_names(&page);
    names.sort();
    assert_eq!(names, ["#0 lr 0.03, running", "#1 lr 0.1, running"]);
}

/// What happened, and the way out.
#[test]
fn a_run_that_diverged_says_why() {
    let place = Sandbox::new(SWEEP);
    let words = ["spec.toml", "~sweep", "optimizer.sgd.lr=1e9", "trainer.max_epochs=50", "-q"];
    let ended = place.runner(&words);
    assert_eq!(ended.code, Some(1));
    let page = page(&place, &["runs"]);
    let (_, rest) = page.split_once("<p class=\"verdict\">diverged").unwrap();
    let (_, rest) = rest.split_once("<p class=\"doubt\">").unwrap();
    let (why, _) = rest.split_once("</p>").unwrap();
    let why = why.replace("<code>", "`").replace("</code>", "`");
    assert!(ended.stderr.contains(&why), "{why} {ended:?}");
    assert!(!page.contains("<dt>reason</dt>"), "it is there once");
}
