//! Trials of a sweep whose files were cut, emptied or replaced since they ended: each is named, and trained again.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    super::process::{Ended, Folder, Sandbox, Table},
    SPEC, copy,
    sweeps::{are_equal, statuses, trials},
};

const GRID: &str = "optimizer.adam.lr=0.01,0.1,0.02";

/// Empties a file.
const EMPTIED: &[u8] = b"";

/// What happened to a file of trial 1; `other` is the same file of trial 2.
type Damage = fn(file: &Path, other: &Path);

fn empty(file: &Path, _: &Path) {
    fs::write(file, EMPTIED).unwrap();
}

fn swap(file: &Path, other: &Path) {
    fs::copy(other, file).unwrap();
}

fn remove(file: &Path, _: &Path) {
    fs::remove_file(file).unwrap();
}

fn cut(file: &Path, _: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() - 3]).unwrap();
}

fn cut_a_line(file: &Path, _: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.trim_end().rfind('\n').unwrap();
    fs::write(file, &text[..=lines]).unwrap();
}

fn cut_half(file: &Path, _: &Path) {
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, &text[..text.find("[optimizer").unwrap() + 5]).unwrap();
}

fn pipe(file: &Path, _: &Path) {
    fs::remove_file(file).unwrap();
    assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
}

/// Files and what is said of them; `...` stands for what another library words.
const CASES: [(&str, Damage, &str); 17] = [
    ("spec.toml", empty, "is empty"),
    ("spec.toml", cut_half, "is malformed at line ..."),
    ("spec.toml", remove, "is missing"),
    ("spec.toml", swap, "is not the trial's: `optimizer.adam.lr` is 0.02, not 0.1"),
    ("environment.toml", empty, "is empty"),
    ("summary.csv", empty, "is empty"),
    ("summary.csv", cut_a_line, "has lost its row"),
    ("summary.csv", remove, "is missing"),
    ("summary.csv", pipe, "it is a named pipe: expected a regular file"),
    ("metrics.csv", empty, "is empty"),
    ("metrics.csv", cut, "ends within a line"),
    ("metrics.csv", cut_a_line, "does not end with the last loss of `summary.csv`"),
    ("metrics.csv", swap, "does not end with the last loss of `summary.csv`"),
    ("model.safetensors", empty, "is empty"),
    ("model.safetensors", cut, "was cut, or is no safetensors file"),
    ("best.safetensors", cut, "was cut, or is no safetensors file"),
    ("best.safetensors", pipe, "it is a named pipe: expected a regular file"),
];

/// A copy of a sweep in which a file of trial 1 is damaged.
fn damaged(whole: &Path, to: PathBuf, file: &str, damage: Damage) -> PathBuf {
    copy(whole, &to);
    let [one, two] = [1, 2].map(|trial| trials(whole)[trial].0.strip_prefix(whole).unwrap().join(file));
    damage(&to.join(one), &to.join(two));
    to
}

fn resumed(place: &Sandbox, sweep: &Path) -> Ended {
    place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()])
}

#[test]
fn a_damaged_trial_is_named_and_begins_again() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&[GRID]).ended_by(0).0;
    for (case, (file, damage, what)) in CASES.into_iter().enumerate() {
        let sweep = damaged(&whole, place.path().join(format!("copy-{case}")), file, damage);
        let path = sweep.to_str().unwrap();
        // What is no sweep's folder by its spec is none of `compare`'s runs, and is named all the same.
        let compared = place.runner(&["compare", path]);
        assert_eq!(compared.code, Some(0), "{file} {what}: {compared:?}");
        assert!(compared.stderr.starts_with("warning: left out: "), "{file} {what}: {compared:?}");
        let listed = place.runner(&["list", path]).stdout;
        assert!(listed.contains("2 finished, 1 damaged"), "{file} {what}: {listed}");

        let trial = trials(&sweep)[1].0.clone();
        let ended = resumed(&place, &sweep);
        assert_eq!(ended.code, Some(0), "{file} {what}: {ended:?}");
        let named = format!("`{}` ", trial.join(file).display());
        let said = match what.strip_prefix("it is") {
            Some(_) => format!("cannot read {}: {what}", named.trim_end()),
            None => format!("{named}{what}"),
        };
        let said = format!("warning: trial 1: begins again, since {said}");
        let aside = format!("; its old files are in `{}/earlier/1`\n", trial.display());
        let is_said = match said.strip_suffix("...") {
            Some(start) => ended.stderr.starts_with(start) && ended.stderr.ends_with(&aside),
            None => ended.stderr == said.clone() + &aside,
        };
        assert!(is_said, "{file} {what}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(trial.join("earlier/1/metrics.csv").exists() && !trial.join("earlier/2").exists());
        are_equal(&sweep, &whole);
        let tables = [&sweep, &whole].map(|sweep| Table::read(&Folder(sweep.clone()).text("sweep.csv")));
        for column in ["trial", "optimizer.adam.lr", "status", "folder", "reason", "steps", "best_value"] {
            assert_eq!(tables[0].column(column), tables[1].column(column), "{file} {what}");
        }
        let again = resumed(&place, &sweep);
        assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""), "{file} {what}");
    }
}

/// Whoever removes weights or rows saves space; the trial has finished all the same.
#[test]
fn removed_weights_and_rows_are_no_damage() {
    let place = Sandbox::new(SPEC);
    let sweep = place.run(&[GRID]).ended_by(0).0;
    for file in ["model.safetensors", "best.safetensors", "metrics.csv"] {
        fs::remove_file(trials(&sweep)[1].0.join(file)).unwrap();
    }
    let ended = resumed(&place, &sweep);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(!trials(&sweep)[1].0.join("model.safetensors").exists());
    assert_eq!(place.runner(&["compare", sweep.to_str().unwrap()]).stderr, "");
}

/// Several trials at once, of which one goes on from a checkpoint; the report of the sweep leaves them out.
#[test]
fn each_damaged_trial_is_told() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&[GRID, "checkpoint={}", "trainer.max_epochs=3"]).ended_by(0).0;
    let sweep = place.path().join("copy");
    copy(&whole, &sweep);
    let folders = trials(&sweep);
    fs::write(folders[0].0.join("summary.csv"), EMPTIED).unwrap();
    let model = fs::OpenOptions::new().write(true).open(folders[2].0.join("model.safetensors")).unwrap();
    model.write_all_at(b"\xff\xff\xff\xff\xff\xff\xff\xff", 0).unwrap();
    let path = sweep.to_str().unwrap();
    let reported = place.runner(&["report", path, "-o", "page.html"]).ended_by(0);
    assert!(reported.stderr.contains("summary.csv` is empty"), "{reported:?}");
    let ended = place.runner(&["run", "--resume", path, "--jobs", "2"]).ended_by(0);
    let said: Vec<&str> = ended.stderr.lines().take(3).collect();
    let line = |trial: usize, file: &str, what: &str| {
        let folder = folders[trial].0.display();
        format!(
            "warning: trial {trial}: begins again, since `{folder}/{file}` {what}; its old files are in `{folder}/earlier/1`"
        )
    };
    assert_eq!(
        said,
        [
            line(0, "summary.csv", "is empty"),
            line(2, "model.safetensors", "was cut, or is no safetensors file"),
            "2 of 3 trials left to run".to_owned(),
        ]
    );
    assert_eq!(statuses(&sweep), ["finished"; 3]);
    are_equal(&sweep, &whole);
}
