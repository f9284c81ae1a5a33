//! Every spec in `experiments/` passes `check`, runs, and leaves a complete folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::process::Sandbox;

/// The files of every training run.
pub const FILES: [&str; 9] = [
    "best.safetensors",
    "environment.toml",
    "metrics.csv",
    "model.safetensors",
    "run.log",
    "spec.toml",
    "summary.csv",
    "timing.csv",
    "transfers.csv",
];

/// The files of every lab run, besides the CSV files of its kind.
const LAB_FILES: [&str; 5] = ["environment.toml", "run.log", "spec.toml", "summary.csv", "transfers.csv"];

/// The kind of a spec, and the files that a run of it leaves.
fn kind_and_files(spec: &Path) -> (String, Vec<&'static str>) {
    let table: toml::Table = toml::from_str(&fs::read_to_string(spec).unwrap()).unwrap();
    let kind = table.get("kind").map_or("train", |kind| kind.as_str().unwrap()).to_owned();
    let own: &[&str] = match kind.as_str() {
        "matmul" if table["matmul"]["norm"].as_str() == Some("none") => &["matmul.csv"],
        "matmul" => &["matmul.csv", "norms.csv"],
        "transfer" => &["transfer.csv"],
        "tensors" if spec.ends_with("parameters.toml") => &["net.safetensors", "tensors.csv"],
        "tensors" => &["tensors.csv"],
        _ => {
            let data = table["data"].as_table().unwrap();
            let divides = !data.keys().any(|key| key.starts_with("synthetic_"));
            let mut files = [&FILES[..], if divides { &["rows.csv"] } else { &[] }].concat();
            files.sort_unstable();
            return (kind, files);
        }
    };
    let mut files = [&LAB_FILES[..], own].concat();
    files.sort_unstable();
    (kind, files)
}

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
    let place = Sandbox::new("");
    for spec in specs() {
        let ended = place.runner(&["check", spec.to_str().unwrap()]);
        // Which devices a sweep lacks depends on the machine.
        let is_missing = |line: &&str| {
            line.starts_with("warning: trial") && line.contains(": `devices.num_gpus` asks for ")
        };
        let said: Vec<&str> = ended.stderr.lines().filter(|line| !is_missing(line)).collect();
        assert_eq!((ended.code, &said[..]), (Some(0), &[][..]), "{}", spec.display());
    }
}

#[test]
fn every_spec_runs_and_leaves_a_complete_folder() {
    let place = Sandbox::new("");
    for spec in specs() {
        let (kind, files) = kind_and_files(&spec);
        let shorter: &[&str] = match kind.as_str() {
            "train" if spec.ends_with("logging_policies.toml") => {
                &["trainer.max_epochs=2", "sweep.repeats=2"]
            }
            "train" => &["trainer.max_epochs=2"],
            "matmul" if spec.ends_with("matmul.toml") => &["matmul.sizes=[16, 64]"],
            "matmul" => &["matmul.count=3"],
            _ => &[],
        };
        let ended = place.runner(&[&[spec.to_str().unwrap(), "-q"], shorter].concat());
        assert_eq!(ended.code, Some(0), "{}: {ended:?}", spec.display());
        let folder = place.path().join(ended.stdout.trim_end());
        let inside = names(&folder);
        if !inside.iter().any(|name| name == "sweep.csv") {
            assert_eq!(inside, files, "{}", spec.display());
            continue;
        }
        // The claims of processes that share the sweep are in a hidden file.
        let is_trial = |name: &&String| !name.starts_with("sweep.") && name.as_str() != ".claims";
        for trial in inside.iter().filter(is_trial) {
            assert_eq!(names(&folder.join(trial)), files, "{} {trial}", spec.display());
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
