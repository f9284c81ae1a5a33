//! Models with indicators of missing cells, compared with scikit-learn on the same files; and what else follows their features.

use runner::data::read_metadata;

use super::{super::process::tensors, onnx::serves_as_predicted, *};

/// A linear model with the fixture's weights.
fn spec() -> String {
    format!(
        r#"
name = "indicated"
[data.csv]
path = "{FIXTURES}/missing_train.csv"
validation_path = "{FIXTURES}/missing_train.csv"
target = "risk"
categorical = ["ward"]
missing = "mean"
missing_values = ["NA", "-999"]
missing_indicators = true
[model]
layers = [{{ linear = {{ out_features = 1 }} }}]
loss = "mse"
init = {{ file = "{FIXTURES}/missing.safetensors" }}
[optimizer.sgd]
lr = 1e-30
[trainer]
max_epochs = 1
"#
    )
}

fn model() -> Model {
    let model = Model::new(&spec());
    fs::copy(Path::new(FIXTURES).join("missing_new.csv"), model.place.path().join("new.csv")).unwrap();
    model
}

fn expected() -> Value {
    serde_json::from_str(&fs::read_to_string(Path::new(FIXTURES).join("missing.json")).unwrap()).unwrap()
}

fn f64_of(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// In the new rows `age` is missing, too, which it never is in the training rows: it is filled, and nothing says where.
#[test]
fn predictions_are_those_of_scikit_learn() {
    let (model, expected) = (model(), expected());
    let found = Table::read(&model.predicted("new.csv")).f64s("prediction");
    let predictions: Vec<f64> = expected["predictions"].as_array().unwrap().iter().map(f64_of).collect();
    near(&found, &predictions, 1e-6);
    let metrics = model.evaluated(&["new.csv"]);
    for name in ["loss", "mae"] {
        near(&[f64_of(&metrics[name])], &[f64_of(&expected[name])], 1e-6);
    }
}

/// A column and its indicator are permuted as one.
#[test]
fn importance_is_that_of_scikit_learn() {
    let expected = &expected()["importance"];
    let all = model().evaluated(&["new.csv", "--importance"]);
    let columns = all["importance"]["columns"].as_array().unwrap();
    let mut names: Vec<&str> = columns.iter().map(|column| column["column"].as_str().unwrap()).collect();
    for (column, name) in columns.iter().zip(&names) {
        let [found, wanted] =
            [&column["loss"], &expected[name]].map(|of| [&of["mean"], &of["std"]].map(f64_of));
        // Four standard errors of a mean of five.
        let apart = (found[0] - wanted[0]).abs() / (wanted[1] * (1.0 / 5.0 + 1.0 / 300.0_f64).sqrt());
        assert!(apart < 4.0, "{column}, {wanted:?}");
    }
    names.sort_unstable();
    assert_eq!(names, ["age", "bmi", "glucose", "ward"]);
}

/// The graph finds missing cells by NaN and by `missing_values`.
#[test]
fn an_exported_model_serves_as_predicted() {
    let model = model();
    serves_as_predicted(&model, "new.csv");
    model
        .write("odd.csv", "ward,bmi,age,glucose\nnorth,-999.0,40,-9.99e2\nsouth,30.5,-999,NA\nNA,NA,NA,NA\n");
    serves_as_predicted(&model, "odd.csv");
}

/// `runner check` and `run.log` name the columns; the weights' metadata have them.
#[test]
fn they_are_told_and_stored() {
    let model = model();
    let ended = model.place.runner(&["check", "spec.toml"]).ended_by(0);
    let words = "2 indicators of missing cells: `glucose`, `bmi`";
    assert!(ended.stdout.contains("csv: 8 features, 1 target"), "{ended:?}");
    assert!(ended.stdout.contains(words), "{ended:?}");
    let run = Folder(PathBuf::from(&model.run));
    assert!(run.text("run.log").contains(words));
    let metadata = read_metadata(&run.0.join("model.safetensors")).unwrap();
    let stored: Value = serde_json::from_str(&metadata["preprocessing"]).unwrap();
    let kept: Vec<&Value> = (0..4).map(|column| &stored["features"][column]["indicator"]).collect();
    assert_eq!(kept, [&Value::from(true), &Value::Null, &Value::from(true), &Value::Null]);
}

const FOLDS: &str = r#"
name = "folds"
[data]
batch_size = 8
[data.csv]
path = "rows.csv"
target = "y"
missing = "mean"
[model]
layers = [{ linear = { out_features = 1 } }]
loss = "mse"
[optimizer.adam]
lr = 0.1
[trainer]
max_epochs = 30
"#;

/// `x` is missing where `y` is 3 higher; `z` in the last row alone, so that its indicator is always 0 in one fold.
fn folds() -> Sandbox {
    let place = Sandbox::new(FOLDS);
    let line = |row: usize| {
        let (x, z) = ((row * 7 % 20) as f64 / 10.0, row % 3);
        let is_missing = row % 4 == 1;
        let y = if is_missing { 4.0 } else { x };
        let x = if is_missing { String::new() } else { x.to_string() };
        let z = if row == 59 { String::new() } else { z.to_string() };
        format!("{x},{z},{y}\n")
    };
    fs::write(place.path().join("rows.csv"), format!("x,z,y\n{}", (0..60).map(line).collect::<String>()))
        .unwrap();
    place
}

/// The model has one shape in all folds and in the final one; runs with and without indicators are one task.
#[test]
fn folds_are_swept_compared_and_refitted() {
    let place = folds();
    let sweep = [
        "data.folds=3",
        "data.fold=0..3",
        "data.csv.missing_indicators=false,true",
        "-q",
        "--runs-dir",
        "runs",
    ];
    place.runner(&[&["spec.toml"], &sweep[..]].concat()).ended_by(0);
    let compared = place.runner(&["compare", "runs/folds"]).ended_by(0).stdout;
    assert!(compared.starts_with("best: "), "{compared}");
    assert!(compared.lines().next().unwrap().contains("missing_indicators true"), "{compared}");
    assert!(!compared.contains("task"), "{compared}");
    let ended = place.runner(&["refit", "runs/folds", "--runs-dir", "final"]).ended_by(0);
    let last = Folder::within(&place.path().join("final")).unwrap();
    assert!(last.text("spec.toml").contains("\nmissing_indicators = true\n"), "{ended:?}");
    let weights = tensors(&last.model());
    assert_eq!(weights["0.weight"].0, [1, 4]);
    fs::write(place.path().join("new.csv"), "x,z\n,1\n1.0,1\n").unwrap();
    let predicted = place.runner(&["predict", &last.0.display().to_string(), "new.csv"]).ended_by(0).stdout;
    let found = Table::read(&predicted).f64s("prediction");
    assert!((found[0] - 4.0).abs() < 0.5 && (found[1] - 1.0).abs() < 0.5, "{found:?}");
}

/// An indicator that is always 0 in training is so in new rows and in the exported model.
#[test]
fn an_indicator_of_no_training_row_is_always_0() {
    let place = folds();
    let split = "data.split={ validation = 0.1, shuffle = false }";
    let run =
        place.run(&[split, "data.csv.missing_indicators=true", "-q"]).ended_by(0).0.display().to_string();
    let model = Model { place, run };
    // The training rows are the first 54, whose `z` are 0, 1 and 2 in turn.
    model.write("new.csv", "x,z\n1.0,\n1.0,NA\n1.0,1\n1.0,2\n");
    let found = Table::read(&model.predicted("new.csv")).f64s("prediction");
    assert_eq!(found[..2], [found[2]; 2]);
    assert_ne!(found[2], found[3]);
    serves_as_predicted(&model, "new.csv");
    let logged = Folder(PathBuf::from(&model.run)).text("run.log");
    assert!(
        logged.contains("1 indicator always 0, with no missing cell in the training rows: `z`"),
        "{logged}"
    );
}

/// A run that goes on, and devices that compute it, have the same features.
#[test]
fn resumed_runs_and_devices_have_them() {
    let place = folds();
    let indicators = "data.csv.missing_indicators=true";
    let whole = place.run(&[indicators, "-q"]).ended_by(0);
    let part =
        place.run(&[indicators, "-q", "trainer.max_epochs=10", "checkpoint.every_epochs=5"]).ended_by(0);
    let path = part.0.display().to_string();
    place.runner(&["run", "--resume", &path, "trainer.max_epochs=30", "-q"]).ended_by(0);
    let [resumed, whole] = [part, whole].map(|run| tensors(&run.model()));
    assert_eq!(resumed, whole);
    place.runner(&["parity", "spec.toml", indicators, "--virtual-gpus", "2", "--steps", "3"]).ended_by(0);
}
