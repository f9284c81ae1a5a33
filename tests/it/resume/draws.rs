//! Trials that are drawn from the results of earlier ones, by a Tree-structured Parzen Estimator.

use std::{fs, path::Path};

use super::{
    super::{
        ends::{quiet, send, wait_until},
        process::{Folder, Sandbox, Table},
    },
    SPEC,
    sweeps::{are_equal, statuses},
};

const SPACE: [&str; 5] = [
    "sweep.sampler=tpe",
    "sweep.trials=24",
    "optimizer.adam.lr=loguniform(1e-4, 1)",
    "data.batch_size=int(4, 64)",
    "trainer.max_epochs=40",
];

fn text(sweep: &Path, file: &str) -> String {
    fs::read_to_string(sweep.join(file)).unwrap_or_default()
}

#[test]
fn later_trials_learn_from_earlier_ones() {
    let place = Sandbox::new(SPEC);
    let ran = place.run(&SPACE);
    let sweep = ran.ended_by(0).0;
    let table = text(&sweep, "sweep.csv");
    let table = Table::read(&table);
    let values: Vec<f64> = table.column("best_value").iter().map(|value| value.parse().unwrap()).collect();
    let median = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    assert!(median(&values[10..]) < median(&values[..10]), "{values:?}");
    assert_eq!(text(&sweep, "points.csv").lines().count(), 15);
    // Side by side they are others, each of them once.
    let beside = place.run(&[&SPACE[..], &["-q", "--jobs=3"]].concat()).ended_by(0).0;
    assert_eq!(statuses(&beside), ["finished"; 24]);
    let mut points: Vec<String> =
        text(&beside, "sweep.csv").lines().map(|row| row.split(',').skip(1).take(2).collect()).collect();
    points.sort();
    points.dedup();
    assert_eq!(points.len(), 25);
}

#[test]
fn a_cut_sweep_draws_the_same_trials() {
    let place = Sandbox::new(SPEC);
    let arguments = [&SPACE[..], &["-q"]].concat();
    let whole = place.run(&arguments).ended_by(0).0;
    for (signal, last) in [("-KILL", "005"), ("-INT", "012"), ("-KILL", "017")] {
        let (command, runs) = place.prepared(&arguments);
        let mut child = quiet(command);
        let mut sweep = None;
        wait_until(&mut child, || {
            sweep = Folder::within(&runs);
            let files = sweep.iter().flat_map(|sweep| fs::read_dir(&sweep.0).into_iter().flatten().flatten());
            files.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(last))
        });
        send(signal, &child);
        child.wait().unwrap();
        let sweep = sweep.unwrap().0;
        let ended = place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{signal} {last}: {ended:?}");
        assert_eq!(text(&sweep, "points.csv"), text(&whole, "points.csv"), "{signal} {last}");
        are_equal(&sweep, &whole);
    }
}

/// What has no values yet says so, and no other process joins.
#[test]
fn trials_that_are_not_drawn_say_so() {
    let place = Sandbox::new(SPEC);
    let listed = place.runner(&[&["check", "spec.toml", "--threads=1"], &SPACE[..]].concat()).stdout;
    assert_eq!(
        listed.lines().nth(13),
        Some("  10 to 23: drawn from the results of earlier trials"),
        "{listed}"
    );
    let (command, runs) = place.prepared(&[&SPACE[..], &["-q"]].concat());
    let mut child = quiet(command);
    wait_until(&mut child, || Folder::within(&runs).is_some_and(|sweep| sweep.0.join("sweep.csv").exists()));
    let sweep = Folder::within(&runs).unwrap().0;
    let row = text(&sweep, "sweep.csv").lines().last().unwrap().to_owned();
    let other = place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(row.starts_with("23,,,planned,,drawn later from the results of earlier trials,"), "{row}");
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.stderr.contains("is under way in another process"), "{}", other.stderr);
}
