//! Exports runs to MLflow, and reads them back with MLflow's own client if a Python has it.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    time::SystemTime,
};

use serde_json::{Value, json};

use super::process::{Folder, Sandbox, python_with};

/// Prints everything that the client finds in a store, as one JSON object.
const READ: &str = r#"
import json, math, os, sys
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
from mlflow.tracking import MlflowClient

client = MlflowClient(sys.argv[1])
found = {}
for experiment in client.search_experiments():
    for run in client.search_runs([experiment.experiment_id]):
        metrics = {
            key: [
                [m.step, m.value if math.isfinite(m.value) else None]
                for m in client.get_metric_history(run.info.run_id, key)
            ]
            for key in run.data.metrics
        }
        found[run.info.run_name] = {
            "experiment": experiment.name, "id": run.info.run_id, "status": run.info.status,
            "lasted": run.info.end_time - run.info.start_time, "params": run.data.params,
            "metrics": metrics, "tags": run.data.tags,
            "artifacts": sorted(file.path for file in client.list_artifacts(run.info.run_id)),
        }
json.dump(found, sys.stdout)
"#;

fn name(run: &Folder) -> &str {
    run.0.file_name().unwrap().to_str().unwrap()
}

/// The curve in `metrics.csv`.
fn curve(run: &Folder, split: &str) -> Value {
    let rows = run.metrics().only("split", split);
    let points = rows.column("step").into_iter().zip(rows.f64s("loss"));
    json!(points.map(|(step, loss)| json!([step.parse::<u64>().unwrap(), loss])).collect::<Vec<_>>())
}

#[test]
fn mlflow_finds_runs_and_sweeps() {
    let Some(python) = python_with("mlflow") else { return };
    let place = Sandbox::new(super::run::LINREG);
    let run = place.run(&["description=a run of: \"its\" kind"]).ended_by(0);
    let sweep = place.run(&["optimizer.sgd.lr=0.03,60.0"]).runs;
    let sweep = fs::read_dir(sweep.join("spec")).unwrap().next().unwrap().unwrap().path();
    let store = place.path().join("a store #1");
    for (path, count) in [(&run.0, "1 run written\n"), (&sweep, "3 runs written\n")] {
        let arguments = ["export", path.to_str().unwrap(), "--mlflow", store.to_str().unwrap()];
        let ended = place.runner(&arguments);
        assert_eq!((ended.code, &ended.stderr[..]), (Some(0), count), "{ended:?}");
        let again = place.runner(&arguments).ended_by(2);
        assert!(again.stderr.contains("is in the store: its run is `"), "{again:?}");
    }
    let output = Command::new(python).args(["-c", READ]).arg(&store).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.as_object().unwrap().len(), 4, "{found}");

    let own = &found[name(&run)];
    assert_eq!([&own["experiment"], &own["status"]], ["spec", "FINISHED"], "one experiment for both");
    assert_eq!(own["params"]["optimizer.sgd.lr"], "0.03");
    assert_eq!(own["tags"]["mlflow.note.content"], "a run of: \"its\" kind");
    assert_eq!(own["metrics"]["train.loss"], curve(&run, "train"));
    assert_eq!(own["metrics"]["validation.loss"], curve(&run, "validation"));
    let steps: u64 = run.summary("steps").parse().unwrap();
    let best: f64 = run.summary("best_value").parse().unwrap();
    assert_eq!(own["metrics"]["best_value"], json!([[steps, best]]));
    let files = own["artifacts"].as_array().unwrap();
    for file in ["spec.toml", "metrics.csv", "model.safetensors", "environment.toml"] {
        assert!(files.contains(&json!(file)), "{own}");
    }
    let parent = &found[sweep.file_name().unwrap().to_str().unwrap()];
    assert_eq!(parent["status"], "FAILED", "a trial diverged");
    let table = Folder(sweep.clone()).table("sweep.csv");
    for (trial, status) in table.column("folder").into_iter().zip(["FINISHED", "FAILED"]) {
        let run = Folder(sweep.join(trial));
        let child = &found[trial];
        assert_eq!([&child["status"], &child["tags"]["mlflow.parentRunId"]], [&json!(status), &parent["id"]]);
        if trial.starts_with("000") {
            assert_eq!(child["metrics"]["train.loss"], curve(&run, "train"));
        }
        assert!(child["lasted"].as_i64() <= parent["lasted"].as_i64(), "{found}");
    }
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let place = Sandbox::new(super::run::LINREG);
    let run = place.run(&[]).ended_by(0).0.display().to_string();
    for (arguments, code, words) in [
        (&[&run[..], "--mlflow", "spec.toml"][..], 1, "cannot write `spec.toml`: file exists"),
        (&["none", "--mlflow", "store"], 2, "`none` does not exist"),
        (&[&run], 2, "`export` needs `--onnx FILE` or `--mlflow DIR` or `--parquet FILE`\n"),
        (&[&run, "--mlflow", "store", "--onnx", "m.onnx"], 2, " does not go with `--"),
    ] {
        let ended = place.runner(&[&["export"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
    assert!(!Path::new(&place.path().join("store")).exists());
    fs::create_dir(place.path().join("full")).unwrap();
    fs::write(place.path().join("full/notes"), "").unwrap();
    let inside = format!("{run}/none/store");
    for (store, words) in [("full", "holds something else"), (&inside, "lies in the folder of a run")] {
        let ended = place.runner(&["export", &run, "--mlflow", store]).ended_by(2);
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
}

/// Text from CSV files becomes names in the store, never paths.
#[test]
fn names_of_a_run_stay_in_the_store() {
    let place = Sandbox::new(super::run::LINREG);
    let run = place.run(&[]).ended_by(0);
    let [absolute, above] =
        [place.path().join("escaped").display().to_string(), "../../../../escaped".to_owned()];
    let add = |file: &str, change: &dyn Fn(&str) -> String| {
        fs::write(run.0.join(file), change(&run.text(file))).unwrap();
    };
    add("summary.csv", &|text| {
        let (head, row) = text.trim_end().split_once('\n').unwrap();
        format!("{head},{absolute},{above}\n{row},1,2\n")
    });
    add("metrics.csv", &|text| text.replacen("train", &absolute, 1).replacen("train", &above, 1));
    let path = run.0.display().to_string();
    // An export that failed before does not block the next.
    let store = place.path().join("store");
    for attempt in 0..2 {
        place.runner(&["export", &path, "--mlflow", "store"]).ended_by(0);
        let experiment = fs::read_dir(&store).unwrap().next().unwrap().unwrap().path();
        let mut entries = fs::read_dir(&experiment).unwrap().map(|entry| entry.unwrap().path());
        let written = entries.find(|path| path.is_dir()).unwrap();
        let mut names: Vec<String> = fs::read_dir(written.join("metrics"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("escaped"))
            .collect();
        names.sort();
        assert!(names.len() >= 4, "attempt {attempt}: {names:?}");
        assert!(names[0].starts_with(".._.._.._.._escaped"), "{names:?}");
        fs::remove_file(written.join("meta.yaml")).unwrap();
    }
    let mut left: Vec<_> =
        fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.retain(|name| name.to_string_lossy().contains("escaped"));
    assert!(left.is_empty() && !place.path().join("../escaped").exists(), "{left:?}");
}

/// An export that was killed at once leaves the beginning of a file.
#[test]
fn an_export_that_was_killed_is_repeated() {
    let place = Sandbox::new(super::run::LINREG);
    let run = place.run(&[]).ended_by(0).0.display().to_string();
    let store = place.path().join("store");
    let export = || place.runner(&["export", &run, "--mlflow", store.to_str().unwrap()]);
    export().ended_by(0);
    let experiment = fs::read_dir(&store).unwrap().next().unwrap().unwrap().path();
    let [old, new] = ["1-5-0", "2-5-0"].map(|process| experiment.join(format!(".meta.yaml.{process}.tmp")));
    let anew = || {
        fs::remove_dir_all(&store).unwrap();
        fs::create_dir_all(&experiment).unwrap();
    };
    anew();
    [&old, &new].iter().for_each(|path| fs::write(path, "{").unwrap());
    File::options().write(true).open(&old).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let ended = export();
    assert_eq!((ended.code, &ended.stderr[..]), (Some(0), "1 run written\n"), "{ended:?}");
    // Another process may be at work on the new one.
    assert_eq!([&old, &new].map(|path| path.exists()), [false, true]);
    anew();
    fs::write(experiment.join(".notes.tmp"), "theirs").unwrap();
    let refused = export().ended_by(2);
    assert!(refused.stderr.contains("holds something else than a store of MLflow"), "{refused:?}");
}
