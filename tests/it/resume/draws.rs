//! Trials that are drawn from the results of earlier ones, by a Tree-structured Parzen Estimator.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    super::{
        ends::{quiet, send, wait_until},
        process::{Folder, Sandbox, Table},
    },
    SPEC,
    sweeps::{are_equal, statuses, trials},
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
    // With parallel trials the values differ, but each is drawn once.
    let beside = place.run(&[&SPACE[..], &["-q", "--jobs=3"]].concat()).ended_by(0).0;
    assert_eq!(statuses(&beside), ["finished"; 24]);
    let mut points: Vec<String> =
        text(&beside, "sweep.csv").lines().map(|row| row.split(',').skip(1).take(2).collect()).collect();
    points.sort();
    points.dedup();
    assert_eq!(points.len(), 25);
}

/// The folder of a sweep that a signal ended once it had a file or a folder whose name begins like this.
pub fn cut(place: &Sandbox, arguments: &[&str], signal: &str, file: &str) -> PathBuf {
    let (command, runs) = place.prepared(arguments);
    let mut child = quiet(command);
    let mut sweep = None;
    wait_until(&mut child, || {
        sweep = Folder::within(&runs);
        let files = sweep.iter().flat_map(|sweep| fs::read_dir(&sweep.0).into_iter().flatten().flatten());
        files.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(file))
    });
    send(signal, &child);
    child.wait().unwrap();
    sweep.unwrap().0
}

#[test]
fn a_cut_sweep_draws_the_same_trials() {
    let place = Sandbox::new(SPEC);
    let arguments = [&SPACE[..], &["-q"]].concat();
    let whole = place.run(&arguments).ended_by(0).0;
    for (signal, last) in [("-KILL", "005"), ("-INT", "012"), ("-KILL", "017")] {
        let sweep = cut(&place, &arguments, signal, last);
        let ended = place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{signal} {last}: {ended:?}");
        assert_eq!(text(&sweep, "points.csv"), text(&whole, "points.csv"), "{signal} {last}");
        are_equal(&sweep, &whole);
    }
}

/// Trials without values yet say so, and no other process joins.
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
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(row.starts_with("23,,,planned,,drawn later from the results of earlier trials,"), "{row}");
}

fn remove_trials(sweep: &Path, names: &[&str]) {
    for entry in fs::read_dir(sweep).unwrap().flatten() {
        if names.iter().any(|name| entry.file_name().to_string_lossy().starts_with(name)) {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}

/// The sampler learns from the same metric, also after a kill.
#[test]
fn trials_are_judged_by_what_they_monitor() {
    let place = Sandbox::new(SPEC);
    let by_r2 = [
        "-q",
        "sweep.sampler=tpe",
        "sweep.trials=16",
        "optimizer.adam.lr=loguniform(1e-4, 1)",
        "trainer.max_epochs=4",
        "sweep.stop={ asha = { min_epochs = 1, factor = 2 } }",
        "trainer.monitor=validation.r2",
    ];
    let whole = place.run(&by_r2).ended_by(0).0;
    let judged = text(&whole, "rungs.csv");
    let judged = Table::read(&judged);
    let columns = ["epochs", "trial", "value", "goes_on"].map(|name| judged.column(name));
    let mut firsts: Vec<(f64, bool)> = Vec::new();
    for row in 0..columns[0].len() {
        let [epochs, trial, value, goes_on] = columns.each_ref().map(|column| column[row]);
        let metrics = trials(&whole)[trial.parse::<usize>().unwrap()].table("metrics.csv");
        let validations = metrics.column("split").into_iter().zip(metrics.column("r2"));
        let values: Vec<&str> =
            validations.filter(|(split, _)| *split == "validation").map(|row| row.1).collect();
        assert_eq!(value, values[epochs.parse::<usize>().unwrap() - 1]);
        if epochs == "1" {
            let value: f64 = value.parse().unwrap();
            let better = firsts.iter().filter(|(other, _)| *other >= value).count();
            assert_eq!(
                goes_on == "true",
                better < (firsts.len().div_ceil(2)).max(1),
                "{value} of {firsts:?}"
            );
            firsts.push((value, goes_on == "true"));
        }
    }
    assert_eq!(firsts.len(), 16);
    for (signal, last) in [("-KILL", "011"), ("-INT", "013")] {
        let sweep = cut(&place, &by_r2, signal, last);
        let ended = place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{signal} {last}: {ended:?}");
        for file in ["points.csv", "rungs.csv"] {
            assert_eq!(text(&sweep, file), text(&whole, file), "{signal} {last}");
        }
    }
}

/// A truncated file loses its last trials, which are drawn again. A file with foreign rows is rejected.
#[test]
fn points_that_are_damaged_are_drawn_again_or_refused() {
    let place = Sandbox::new(SPEC);
    let arguments = [
        "-q",
        "sweep.sampler=tpe",
        "sweep.trials=13",
        "optimizer.adam.lr=loguniform(1e-4, 1)",
        "data.batch_size=int(0, 64)",
        "sweep.sampler_seed=1",
        "trainer.max_epochs=4",
    ];
    let sweep = place.run(&arguments).ended_by(0).0;
    let resumed = || place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
    let write = |text: &str| fs::write(sweep.join("points.csv"), text).unwrap();
    let whole = text(&sweep, "points.csv");
    let cut = whole.rfind(',').unwrap();
    for (left, lost) in
        [(&whole[..cut], &["012"][..]), ("", &["010", "011", "012"]), ("trial,opt", &["010", "011", "012"])]
    {
        write(left);
        remove_trials(&sweep, lost);
        for _ in 0..2 {
            let ended = resumed();
            assert_eq!(
                (ended.code, text(&sweep, "points.csv")),
                (Some(0), whole.clone()),
                "{left}: {ended:?}"
            );
        }
    }
    let last = whole.lines().last().unwrap();
    for row in ["12,5.0,8", "12,0.1,65", "12,0.1", "12,0.1,", "3,0.1,8", "x,0.1,8", "12,\"0.1,8"] {
        write(&whole.replace(last, row));
        let ended = resumed();
        assert_eq!(ended.code, Some(2), "{row}: {ended:?}");
        let shown = ended.stderr.replace(sweep.to_str().unwrap(), "SWEEP");
        insta::allow_duplicates! {
            insta::assert_snapshot!(shown, @r"
            error: `SWEEP/points.csv`: line 4 is no point of this sweep
              = hint: mend the line, or remove it: its trial is drawn anew
            ");
        }
    }
    // The trial keeps its drawn values, even if the spec rejects them.
    let refused = whole.replace(last, "12,0.1,0");
    write(&refused);
    remove_trials(&sweep, &["012"]);
    for _ in 0..2 {
        let ended = resumed();
        assert_eq!((ended.code, text(&sweep, "points.csv")), (Some(1), refused.clone()), "{ended:?}");
        let table = text(&sweep, "sweep.csv");
        insta::allow_duplicates! {
            insta::assert_snapshot!(table.lines().last().unwrap().trim_end_matches(','), @r#"12,0.1,0,failed,,"the spec is wrong with optimizer.adam.lr 0.1, data.batch_size 0""#);
            let gone = "warning: trial 12: begins again, since its folder is gone\n";
            let shown = ended.stderr.replace(sweep.to_str().unwrap(), "SWEEP").replace(gone, "");
            insta::assert_snapshot!(shown, @r#"
            error: `data.batch_size`: expected an integer of at least 1, found `0`
              --> SWEEP/sweep.toml:28:21
               |
            28 | "data.batch_size" = "int(0, 64)"
               |                     ^^^^^^^^^^^^ rows per optimizer step
            "#);
        }
    }
}

/// An empty string is a value, unlike a key that does not vary and keeps what the spec says.
#[test]
fn an_empty_text_is_a_value() {
    let sweep = r#"description = "base"
[sweep]
sampler = "tpe"
trials = 20
[sweep.grid]
description = ["", "x"]
"data.batch_size" = [8, 16]
"optimizer.adam.lr" = "uniform(0.01, 0.1)"
[sweep.when]
description = { "data.batch_size" = 16 }
"#;
    let (head, sweep) = sweep.split_once('\n').unwrap();
    let place = Sandbox::new(&format!("{head}\n{SPEC}\n{sweep}"));
    let sweep = place.run(&["-q", "trainer.max_epochs=1"]).ended_by(0).0;
    let table = text(&sweep, "sweep.csv");
    let table = Table::read(&table);
    let [shown, sizes, folders] = ["description", "data.batch_size", "folder"].map(|name| table.column(name));
    let mut seen = std::collections::BTreeSet::new();
    assert_eq!(folders.len(), 20);
    for (trial, folder) in folders.iter().enumerate() {
        let wanted = if sizes[trial] == "16" { shown[trial] } else { "base" };
        seen.insert(wanted);
        let spec = text(&sweep.join(folder), "spec.toml");
        assert!(spec.contains(&format!("description = \"{wanted}\"")), "{trial}: {spec}");
    }
    assert_eq!(seen.len(), 3, "{}", text(&sweep, "points.csv"));
    place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]).ended_by(0);
}
