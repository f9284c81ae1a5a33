//! Every spec in `experiments/` passes `check`, runs, and leaves a complete folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// What every run leaves.
const FILES: [&str; 8] = [
    "environment.toml",
    "metrics.csv",
    "model.safetensors",
    "run.log",
    "spec.toml",
    "summary.csv",
    "timing.csv",
    "transfers.csv",
];

fn runner(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_runner")).args(arguments).output().unwrap()
}

fn specs() -> Vec<PathBuf> {
    let entries = fs::read_dir("experiments").unwrap().map(|entry| entry.unwrap().path());
    let mut specs: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    specs.sort();
    assert!(specs.len() >= 8, "{specs:?}");
    specs
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

#[test]
fn every_spec_passes_check() {
    for spec in specs() {
        let output = runner(&["check", spec.to_str().unwrap()]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""), "{}", spec.display());
    }
}

#[test]
fn every_spec_runs_and_leaves_a_complete_folder() {
    let runs = tempfile::tempdir().unwrap();
    for spec in specs() {
        let arguments = [spec.to_str().unwrap(), "trainer.max_epochs=2", "-q", "--runs-dir"];
        let output = runner(&[&arguments[..], &[runs.path().to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(0), "{}: {output:?}", spec.display());
        let folder = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end());
        let inside = names(&folder);
        if !inside.iter().any(|name| name == "sweep.csv") {
            assert_eq!(inside, FILES, "{}", spec.display());
            continue;
        }
        for trial in inside.iter().filter(|name| *name != "sweep.csv") {
            assert_eq!(names(&folder.join(trial)), FILES, "{} {trial}", spec.display());
        }
        assert!(inside.len() > 1, "{}: {inside:?}", spec.display());
    }
}

#[test]
fn the_first_run_is_one_run_that_asks_for_a_gpu() {
    let text = fs::read_to_string("experiments/linreg_gpu.toml").unwrap();
    let spec: toml::Table = toml::from_str(&text).unwrap();
    assert!(!spec.contains_key("sweep"));
    assert_eq!(spec["devices"]["num_gpus"].as_integer(), Some(1));
    assert_eq!(spec["devices"]["on_missing"].as_str(), Some("clamp"));
}
