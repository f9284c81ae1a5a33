//! A run's model on new rows, compared with scikit-learn and PyTorch on the same files; and everything that
//! can be wrong with such rows.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::process::{Ended, Folder, Sandbox, Table};

mod arrays;
mod baselines;
mod ensemble;
mod explained;
mod faults;
mod foreign;
mod indicators;
mod intervals;
mod killed;
mod onnx;
mod out_of_fold;
mod outputs;
mod recorded;
mod thresholds;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/predict");

/// Training that keeps the fixture's weights: a single step too small to change them.
fn spec(target: &str, other: &str, outputs: usize, loss: &str) -> String {
    format!(
        r#"
[data.csv]
path = "{FIXTURES}/train.csv"
validation_path = "train.csv"
target = "{target}"
ignore = ["{other}"]
categorical = ["colour", "place"]
missing = "mean"
standardize_target = {}
[model]
layers = [{{ linear = {{ out_features = 16 }} }}, "tanh", {{ dropout = {{ p = 0.5 }} }}, {{ layer_norm = {{}} }},
          {{ linear = {{ out_features = {outputs} }} }}]
loss = "{loss}"
init = {{ file = "{FIXTURES}/{target}.safetensors" }}
[optimizer.sgd]
lr = 1e-30
[trainer]
max_epochs = 1
"#,
        loss == "mse"
    )
}

/// A trained model; its training file has been deleted.
struct Model {
    place: Sandbox,
    run: String,
}

impl Model {
    fn new(spec: &str) -> Self {
        let place = Sandbox::new(spec);
        for name in ["train.csv", "new.csv"] {
            fs::copy(Path::new(FIXTURES).join(name), place.path().join(name)).unwrap();
        }
        let run = place.run(&[]).ended_by(0).0.display().to_string();
        fs::remove_file(place.path().join("train.csv")).unwrap();
        Self { place, run }
    }

    fn price() -> Self {
        Self::new(&spec("price", "kind", 1, "mse"))
    }

    fn both() -> Self {
        let one = spec("price", "kind", 2, "mse").replace("price.safetensors", "both.safetensors");
        Self::new(&one.replace("target = \"price\"", "target = [\"price\", \"height\"]"))
    }

    fn kind() -> Self {
        Self::new(&spec("kind", "price", 3, "cross_entropy"))
    }

    fn predict(&self, data: &str) -> Ended {
        self.place.runner(&["predict", &self.run, data])
    }

    /// Predictions of rows that are right.
    #[track_caller]
    fn predicted(&self, data: &str) -> String {
        let ended = self.predict(data).ended_by(0);
        ended.stdout
    }

    fn evaluated(&self, arguments: &[&str]) -> Value {
        let ended =
            self.place.runner(&[&["evaluate", &self.run], arguments, &["--json"]].concat()).ended_by(0);
        serde_json::from_str(&ended.stdout).unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.place.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn new_rows(&self) -> String {
        fs::read_to_string(self.place.path().join("new.csv")).unwrap()
    }
}

/// A table whose rows are repeated several times.
fn repeated(table: &str, times: usize) -> String {
    let (header, body) = table.split_once('\n').unwrap();
    format!("{header}\n{}", body.repeat(times))
}

fn fixture(name: &str) -> Table {
    Table::read(&fs::read_to_string(Path::new(FIXTURES).join(name)).unwrap())
}

fn expected_metrics(of: &str) -> Value {
    let text = fs::read_to_string(Path::new(FIXTURES).join("metrics.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[of].take()
}

#[track_caller]
fn near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let apart = (found - expected).abs() / expected.abs().max(1.0);
        assert!(apart <= tolerance, "row {row}: {found}, expected {expected}");
    }
}

/// Scaled, filled and one-hot features, dropout off, outputs in the file's units: equal to scikit-learn and
/// PyTorch.
#[test]
fn numbers_are_those_of_the_peers() {
    let model = Model::price();
    let ended = model.predict("new.csv");
    insta::assert_snapshot!(ended.stderr, @"
    weights: best.safetensors, of epoch 1, step 3
    warning: columns that the model does not use: `note`
    ");
    let found = Table::read(&ended.stdout);
    assert_eq!(found.columns, ["prediction"]);
    near(&found.f64s("prediction"), &fixture("price.csv").f64s("prediction"), 1e-5);
    let metrics = model.evaluated(&["new.csv"]);
    assert_eq!(metrics["rows"], 700);
    let expected = expected_metrics("price");
    for (name, value) in expected.as_object().unwrap().iter().filter(|(_, value)| value.is_number()) {
        near(&[metrics[name].as_f64().unwrap()], &[value.as_f64().unwrap()], 1e-6);
    }
}

#[test]
fn classes_are_those_of_the_peers() {
    let model = Model::kind();
    let found = Table::read(&model.predicted("new.csv"));
    let expected = fixture("kind.csv");
    assert_eq!(found.columns, expected.columns);
    assert_eq!(found.column("class"), expected.column("class"));
    for share in &expected.columns[1..] {
        near(&found.f64s(share), &expected.f64s(share), 1e-5);
    }
    let metrics = model.evaluated(&["new.csv"]);
    let expected = expected_metrics("kind");
    for (name, value) in expected.as_object().unwrap().iter().filter(|(_, value)| value.is_number()) {
        near(&[metrics[name].as_f64().unwrap()], &[value.as_f64().unwrap()], 1e-6);
    }
    assert_eq!(metrics["confusion"], expected["confusion"]);
    assert_eq!(expected["confusion"].to_string(), "[[5,0,95],[16,7,334],[54,9,180]]");
}

/// Gzipped, from standard input, without the target, without a final newline, with a byte order mark, with
/// CRLF: the answer is the same.
#[test]
fn the_form_of_the_file_does_not_matter() {
    let model = Model::price();
    let rows = repeated(&model.new_rows(), 6);
    assert!(rows.len() > 2 << 16, "no part of the file ends within it");
    model.write("long.csv", &rows);
    let expected = model.predicted("long.csv");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(rows.as_bytes()).unwrap();
    let gzipped = gzip.finish().unwrap();
    let other = rows.replace(",price,", ",extra,");
    let trimmed = rows.trim_end();
    let forms: [(&str, Vec<u8>); 5] = [
        ("rows.csv.gz", gzipped),
        ("without.csv", other.into_bytes()),
        ("cut.csv", trimmed.as_bytes().to_vec()),
        ("marked.csv", format!("\u{feff}{rows}").into_bytes()),
        ("crlf.csv", rows.replace('\n', "\r\n").into_bytes()),
    ];
    for (name, bytes) in forms {
        model.write(name, &bytes);
        assert_eq!(model.predicted(name), expected, "{name}");
        let ended = fed(model.place.command(&["predict", &model.run, "-"]), bytes);
        assert_eq!((ended.code, ended.stdout), (Some(0), expected.clone()), "{name} as standard input");
    }
}

/// How a command ends that reads these bytes from standard input, if need be not to their end.
fn fed(mut command: Command, bytes: Vec<u8>) -> Ended {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let ended = Ended::from_output(child.wait_with_output().unwrap());
    writer.join().unwrap();
    ended
}

/// Reading the file in many parts gives the same chunks as the rows in memory.
#[test]
fn a_long_file_is_answered_row_by_row() {
    let model = Model::kind();
    let (rows, short) = (model.new_rows(), model.predicted("new.csv"));
    model.write("long.csv", repeated(&rows, 8));
    assert_eq!(model.predicted("long.csv"), repeated(&short, 8));
}

/// A target with large numbers that differ little: rounding to f32 would erase the differences.
#[test]
fn predictions_have_all_digits() {
    let spec = spec("price", "kind", 1, "mse").replace("\"train.csv\"", "\"high.csv\"");
    let spec = spec.replace(&format!("{FIXTURES}/train.csv"), "high.csv").replace("init = ", "# ");
    let spec = spec.replace("ignore = [\"kind\"]\n", "");
    let place = Sandbox::new(&spec);
    let row =
        |i: usize| format!("red,north,{i},{},{},{}.5\n", i % 7, i % 5, 1_000_000_000_000_u64 + i as u64);
    let rows: String = (0..60).map(row).collect();
    fs::write(place.path().join("high.csv"), format!("colour,place,width,height,depth,price\n{rows}"))
        .unwrap();
    let run = place.run(&[]).ended_by(0).0.display().to_string();
    let ended = place.runner(&["predict", &run, "high.csv"]);
    let found = Table::read(&ended.stdout).f64s("prediction");
    let errors = found.iter().enumerate().map(|(i, y)| (y - (1e12 + 0.5 + i as f64)).abs());
    let ended = place.runner(&["evaluate", &run, "high.csv", "--json"]);
    let metrics: Value = serde_json::from_str(&ended.stdout).unwrap();
    near(&[errors.sum::<f64>() / 60.0], &[metrics["mae"].as_f64().unwrap()], 1e-4);
}

/// Each of several targets has its own scale, prediction column and metrics.
#[test]
fn several_targets_are_those_of_the_peers() {
    let model = Model::both();
    let found = Table::read(&model.predicted("new.csv"));
    assert_eq!(found.columns, ["prediction_price", "prediction_height"]);
    for column in &found.columns {
        near(&found.f64s(column), &fixture("both.csv").f64s(column), 1e-5);
    }
    let metrics = model.evaluated(&["new.csv"]);
    for (name, value) in expected_metrics("both").as_object().unwrap() {
        near(&[metrics[name].as_f64().unwrap()], &[value.as_f64().unwrap()], 1e-6);
    }
    let table = model.place.runner(&["evaluate", &model.run, "new.csv"]).stdout;
    insta::assert_snapshot!(table, @r"
    rows         700                         baseline
    loss         1.438 [1.340, 1.546]        0.8428    mse of the standardized target, as in training
    mae          10564 [10055, 11086]        7678
    rmse         12615 [12089, 13143]        9655
    r2           -0.7059 [-0.8406, -0.5912]  0
    mae_price    21098 [20079, 22141]        15332
    rmse_price   25192 [24139, 26248]        19281
    r2_price     -0.7071 [-0.8951, -0.5455]  0
    mae_height   30.95 [29.29, 32.73]        23.96
    rmse_height  38.62 [36.64, 40.64]        29.58
    r2_height    -0.7048 [-0.8703, -0.5642]  0
    95 % intervals: bootstrap over 700 rows, 2,000 resamples; of the model as it is, not of its training
    baseline: a model that always predicts the means of these rows
    ");
}

/// Columns without names are found by number, also in files separated by `;`. An output beyond the
/// classes is called `unnamed`.
#[test]
fn tables_of_other_forms_are_predicted() {
    let spec = r#"
[data.csv]
path = "train.csv"
header = false
delimiter = ";"
target = "2"
categorical = ["1"]
validation_fraction = 0.0
[model]
layers = [{ linear = { out_features = 3 } }]
loss = "cross_entropy"
[optimizer.sgd]
lr = 0.5
"#;
    let place = Sandbox::new(spec);
    let rows = (0..40).map(|i| format!("{i};{};{}\n", i % 3, if i < 20 { "low" } else { "high" }));
    fs::write(place.path().join("train.csv"), rows.collect::<String>()).unwrap();
    let run = place.run(&[]).ended_by(0).0.display().to_string();
    fs::write(place.path().join("new.csv"), "1;0\n39;2\n").unwrap();
    let ended = place.runner(&["predict", &run, "new.csv"]);
    assert_eq!(ended.stderr, "weights: model.safetensors, of epoch 10, step 20\n");
    let found = Table::read(&ended.stdout);
    assert_eq!(found.columns, ["class", "p_high", "p_low", "p_unnamed_2"]);
    assert_eq!(found.column("class"), ["low", "high"]);
    let ended = place.runner(&["predict", &run, "new.npy"]);
    assert!(ended.stderr.contains("an array, and the model was trained on a table"), "{ended:?}");
    let ended = place.runner(&["eval", &run, "new.csv"]);
    assert!(ended.stderr.contains("did you mean `runner evaluate`?"), "{ended:?}");
}

#[test]
fn the_best_weights_are_used_unless_the_last_are_wanted() {
    let model = Model::new(super::best::SPEC);
    model.write("x.npy", arrays::npy("<f4", "(1, 3)", arrays::singles(&[1.0; 3])));
    let with =
        |more: &[&str]| model.place.runner(&[&["predict", &model.run, "x.npy"], more].concat()).ended_by(0);
    let run = Folder(PathBuf::from(&model.run));
    let [epoch, step] = ["best_epoch", "best_step"].map(|column| run.summary(column));
    let (best, last) = (with(&[]), with(&["--last"]));
    assert_eq!(best.stderr, format!("weights: best.safetensors, of epoch {epoch}, step {step}\n"));
    assert_eq!(last.stderr, "weights: model.safetensors, of epoch 12, step 48\n");
    assert_ne!(best.stdout, last.stdout);
    fs::remove_file(run.0.join("best.safetensors")).unwrap();
    assert_eq!((with(&[]).stderr, with(&[]).stdout), (last.stderr, last.stdout));
}

#[test]
fn a_folder_without_one_model_is_refused() {
    let place = Sandbox::new(super::run::LINREG);
    let diverged =
        ["optimizer.sgd.lr=50.0", "data.synthetic_regression.validation_rows=0", "trainer.max_epochs=99"];
    let diverged = place.run(&diverged).ended_by(1).0.display().to_string();
    let best =
        place.run(&["optimizer.sgd.lr=50.0", "trainer.max_epochs=99"]).ended_by(1).0.display().to_string();
    let sweep = place.run(&["optimizer.sgd.lr=50.0", "trainer.max_epochs=99", "seed=1,2"]);
    let sweep = sweep.runs.display().to_string();
    let lab = Sandbox::new("kind = \"matmul\"\n[matmul]\nsizes = [4]\ncount = 2\n");
    let lab = lab.run(&[]);
    fs::create_dir(place.path().join("empty")).unwrap();
    let runs = place.path().join("both").display().to_string();
    for seed in ["seed=1", "seed=2"] {
        assert_eq!(place.runner(&["spec.toml", "-q", "--runs-dir", &runs, seed]).code, Some(0));
    }
    let old = place.path().join("old");
    let csv = Model::price();
    fs::create_dir(&old).unwrap();
    for file in ["spec.toml", "summary.csv"] {
        fs::copy(Path::new(&csv.run).join(file), old.join(file)).unwrap();
    }
    fs::copy(Path::new(FIXTURES).join("price.safetensors"), old.join("model.safetensors")).unwrap();
    for (run, more, words) in [
        (&diverged[..], "x.npy", "has no weights: the run is `diverged`"),
        (&best, "--last", "a run that diverged has only its best weights: leave out `--last`"),
        (&best, "--last", "has no model.safetensors: the run is `diverged`"),
        (&diverged, "--last", "has no model.safetensors: the run is `diverged`\n"),
        (&sweep, "x.npy", "is a sweep, and holds a run for each trial"),
        (&sweep, "x.npy", "hint: name the folder of one trial: none of them finished: "),
        (lab.runs.to_str().unwrap(), "x.npy", "is a run of the lab: it trains no model"),
        (&runs, "x.npy", "holds 2 runs\n  = hint: the newest"),
        ("empty", "x.npy", "`empty` holds no run"),
        ("nowhere", "x.npy", "`nowhere` does not exist"),
        ("spec.toml", "x.npy", "`spec.toml` holds no run"),
        ("old", "x.npy", "cannot be used on new rows: it has no preprocessing of the training rows"),
    ] {
        let ended = place.runner(&["predict", run, "x.npy", more][..if more == "x.npy" { 3 } else { 4 }]);
        assert_eq!(ended.code, Some(2), "{run}: {ended:?}");
        assert!(ended.stderr.contains(words), "{run}: {ended:?}");
        assert!(run != diverged || !ended.stderr.contains("hint"), "{ended:?}");
    }
}
