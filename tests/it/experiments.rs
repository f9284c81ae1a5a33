//! Every spec in `experiments/` passes `check`, runs, and leaves a complete folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::process::Place;

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

fn specs() -> Vec<PathBuf> {
    let entries =
        fs::read_dir("experiments").unwrap().map(|entry| entry.unwrap().path().canonicalize().unwrap());
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
    let place = Place::new("");
    for spec in specs() {
        let ended = place.runner(&["check", spec.to_str().unwrap()]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", spec.display());
    }
}

#[test]
fn every_spec_runs_and_leaves_a_complete_folder() {
    let place = Place::new("");
    for spec in specs() {
        let ended = place.runner(&[spec.to_str().unwrap(), "trainer.max_epochs=2", "-q"]);
        assert_eq!(ended.code, Some(0), "{}: {ended:?}", spec.display());
        let folder = place.path().join(ended.stdout.trim_end());
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
