//! Runs the code blocks of docs/notebooks.md if a Python has pandas and Polars. Parquet files are read back
//! by pyarrow.

use std::{env, fs, path::Path, process::Command};

use super::process::{Sandbox, python_with};

/// The texts of a page's blocks whose first line is `begin`.
fn blocks(page: &str, begin: &str) -> Vec<String> {
    let begin = format!("\n```{begin}\n");
    let parts = page.split(&begin).skip(1);
    parts.map(|part| format!("{}\n", part.split("\n```\n").next().unwrap())).collect()
}

#[test]
fn blocks_run_in_a_notebook() {
    let (Some(python), Some(_)) = (python_with("pandas"), python_with("polars")) else { return };
    let page = fs::read_to_string("docs/notebooks.md").unwrap();
    let place = Sandbox::new("");
    fs::write(place.path().join("wave.toml"), &blocks(&page, "toml wave.toml")[0]).unwrap();
    place.runner(&["wave.toml", "optimizer.sgd.lr=0.03,0.1,0.3", "sweep.repeats=2", "-q"]).ended_by(0);
    let mut code = blocks(&page, "python");
    if cfg!(feature = "parquet") && python_with("pyarrow").is_some() {
        code.extend(blocks(&page, "python parquet"));
    }
    // One after the other, like cells of a notebook.
    let runner = Path::new(env!("CARGO_BIN_EXE_runner")).parent().unwrap();
    let path = env::join_paths(
        [runner.to_owned()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap())),
    );
    let output = Command::new(python)
        .args(["-c", &code.concat()])
        .env("PATH", path.unwrap())
        .current_dir(place.path())
        .output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The output has the learning rates, five epochs, four of the runs, and the best of six.
    assert!(text.contains("0.30") && text.contains("\n5 ") && text.contains("shape: (6, 3)"), "{text}");
}

/// The Parquet file has the values of the CSV, with types and nulls.
#[test]
#[cfg(feature = "parquet")]
fn parquet_is_read_back() {
    const READ: &str = r#"
import pandas as pd
metrics = pd.read_parquet("m.parquet")
for path, rows in metrics.groupby("path"):
    own = pd.read_csv(f"{path}/metrics.csv")
    pd.testing.assert_frame_equal(rows.drop(columns="path").reset_index(drop=True), own, check_dtype=False)
runs, csv = pd.read_parquet("r.parquet"), pd.read_csv("r.csv")
assert list(runs.columns) == list(csv.columns), runs.columns
for column in ["steps", "best_value", "train_s", "optimizer.sgd.lr", "final_validation_accuracy"]:
    assert (runs[column].fillna(-1) == csv[column].fillna(-1)).all(), column
print(metrics.shape, metrics.dtypes["step"], metrics.dtypes["loss"], runs.dtypes["virtual"], runs["name"][0])
"#;
    let place = Sandbox::new(
        "name = 'lin'\ndata.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 32 }\n\
         model.layers = [{ linear = { out_features = 1 } }]\ntrainer.max_epochs = 3\nlogging.metrics = ['loss', 'mae']\n",
    );
    let ran = place.runner(&["spec.toml", "optimizer.sgd.lr=0.1,0.2", "-q"]);
    let sweep = ran.stdout.trim().to_owned();
    let shown = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_runner"))
            .args(words)
            .current_dir(place.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert_eq!(shown(&["export", &sweep, "--parquet", "m.parquet"]), b"m.parquet\n");
    for format in ["parquet", "csv"] {
        let table = shown(&["compare", "runs", "--export", format]);
        fs::write(place.path().join(format!("r.{format}")), table).unwrap();
    }
    assert!(fs::read(place.path().join("m.parquet")).unwrap().starts_with(b"PAR1"));
    assert!(!place.path().join("m.partial").exists());
    let notes = place.path().join("notes.parquet");
    fs::write(&notes, "a file of the user").unwrap();
    let refused = place.runner(&["export", &sweep, "--parquet", "notes.parquet"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    insta::assert_snapshot!(refused.stderr, @r"
    error: `notes.parquet` is no Parquet file, and is not replaced
      = hint: write to another file
    ");
    assert_eq!(fs::read_to_string(notes).unwrap(), "a file of the user");
    shown(&["export", &sweep, "--parquet", "m.parquet"]);
    let (Some(python), Some(_)) = (python_with("pandas"), python_with("pyarrow")) else { return };
    let output = Command::new(python).args(["-c", READ]).current_dir(place.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "(18, 8) int64 float64 bool lin\n");
}

#[test]
#[cfg(not(feature = "parquet"))]
fn a_build_without_parquet_says_so() {
    let place = Sandbox::new("");
    fs::write(place.path().join("s.toml"), "data.synthetic_regression = { weights = [1.0] }\nmodel.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1\ntrainer.max_epochs = 1\n").unwrap();
    let run = place.runner(&["s.toml", "-q"]).stdout.trim().to_owned();
    fs::write(place.path().join("m.partial"), "a file of the user").unwrap();
    for words in [&["compare", &run, "--export", "parquet"][..], &["export", &run, "--parquet", "m.parquet"]]
    {
        let ended = place.runner(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(ended.stderr, @r"
            error: this build writes no Parquet files
              = hint: build it with `cargo build --release --features parquet`
            ");
        }
    }
    assert_eq!(fs::read_to_string(place.path().join("m.partial")).unwrap(), "a file of the user");
    assert!(!place.path().join("m.parquet").exists());
}
