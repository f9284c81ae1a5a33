//! Exported models, compared with `runner predict` through ONNX Runtime, if a Python has it.

use std::{fs, process::Command};

use super::{
    super::process::python_with,
    arrays::{npy, singles, standardized},
    *,
};

/// The predictions of ONNX Runtime, as CSV.
fn served(python: &Path, model: &Path, rows: &Path) -> String {
    let script = Path::new(FIXTURES).join("onnx_outputs.py");
    let output = Command::new(python).arg(script).arg(model).arg(rows).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn exported(model: &Model) -> (Ended, PathBuf) {
    let ended = model.place.runner(&["export", &model.run, "--onnx", "model.onnx"]).ended_by(0);
    (ended, model.place.path().join("model.onnx"))
}

#[track_caller]
pub fn serves_as_predicted(model: &Model, rows: &str) {
    let Some(python) = python_with("onnxruntime") else { return };
    let (_, file) = exported(model);
    let expected = Table::read(&model.predicted(rows));
    let found = Table::read(&served(&python, &file, &model.place.path().join(rows)));
    assert_eq!(found.columns, expected.columns);
    assert!(!expected.rows.is_empty());
    for column in &expected.columns {
        match &column[..] {
            "class" => assert_eq!(found.column(column), expected.column(column)),
            _ => near(&found.f64s(column), &expected.f64s(column), 1e-5),
        }
    }
}

/// Filled, standardized and one-hot columns; layer_norm, tanh and dropout; outputs in the file's units,
/// classes, and two targets under their names.
#[test]
fn a_model_of_a_table_serves_as_predicted() {
    serves_as_predicted(&Model::price(), "new.csv");
    serves_as_predicted(&Model::kind(), "new.csv");
    serves_as_predicted(&Model::both(), "new.csv");
}

/// What stands for missing cells, however it is written.
#[test]
fn missing_values_serve_as_predicted() {
    let spec = spec("price", "kind", 1, "mse")
        .replace("missing = ", "missing_values = [\"-999\", \"NA\", \"0.5\"]\nmissing = ");
    let model = Model::new(&spec);
    model.write(
        "odd.csv",
        "colour,place,width,height,depth\ngreen,north,-999.0,2,3\nred,south,1,5e-1,-9.99e2\nNA,south,1,0.5001,-998\n\
         na,south,1,1,1\n,south,1,1,1\n-999,north,1,1,1\n",
    );
    serves_as_predicted(&model, "odd.csv");
}

/// Unknown categories are errors of ONNX Runtime, or all inputs of their columns 0 as for `predict`.
#[test]
fn unknown_categories_are_taken_if_wanted() {
    let model = Model::price();
    let (_, file) = exported(&model);
    let strict = fs::read(&file).unwrap();
    let ignore = ["--unknown-category", "ignore"];
    model.place.runner(&[&["export", &model.run, "--onnx", "model.onnx"], &ignore[..]].concat()).ended_by(0);
    let lenient = fs::read(&file).unwrap();
    let changed = strict.iter().zip(&lenient).filter(|(a, b)| a != b).map(|(a, b)| (*a, *b));
    assert_eq!(changed.collect::<Vec<_>>(), [(0, 1); 2], "`zeros` of two columns");
    let other = model.place.runner(&[&["export", &model.run, "--mlflow", "store"], &ignore[..]].concat());
    assert!(other.code == Some(2) && other.stderr.contains(" does not go with `--"), "{other:?}");
    let Some(python) = python_with("onnxruntime") else { return };
    model.write("odd.csv", "colour,place,width,height,depth\npink,west,1,2,3\nred,north,1,2,3\n");
    let predicted = model.place.runner(&[&["predict", &model.run, "odd.csv"], &ignore[..]].concat()).stdout;
    let [found, expected] = [served(&python, &file, &model.place.path().join("odd.csv")), predicted]
        .map(|text| Table::read(&text));
    near(&found.f64s("prediction"), &expected.f64s("prediction"), 1e-5);
}

/// Every other layer; several targets; images.
#[test]
fn a_model_of_arrays_serves_as_predicted() {
    let layers = r#"layers = [{ linear = { out_features = 4 } }, "relu", { layer_norm = { eps = 0.1 } },
        { linear = { out_features = 4, bias = false } }, "gelu", { linear = { out_features = 5 } }, "sigmoid", "silu",
        { linear = { out_features = 1 } }]"#;
    let spec = crate::run::LINREG;
    let start = spec.find("layers = ").unwrap();
    let end = start + spec[start..].find('\n').unwrap();
    let model = Model::new(&[&spec[..start], layers, &spec[end..]].concat());
    let values: Vec<f32> = (0..40).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
    model.write("x.npy", npy("<f4", "(20, 2)", singles(&values)));
    serves_as_predicted(&model, "x.npy");

    let digits = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/digits.toml"));
    let place = Sandbox::with_spec(digits);
    let run = place.run(&["trainer.max_epochs=2"]).ended_by(0).0.display().to_string();
    let model = Model { place, run };
    let pixels: Vec<u8> = (0..640_u32).map(|i| (i * i % 17) as u8).collect();
    model.write("images.npy", npy("|u1", "(10, 64)", pixels));
    serves_as_predicted(&model, "images.npy");

    serves_as_predicted(&standardized("name=standardized", &[], |row| row), "new.npy");

    let place = Sandbox::new(
        "data.npy = { features = \"x.npy\", labels = \"y.npy\", standardize = true, validation_fraction = 0.2 }\n\
         model = { layers = [{ linear = { out_features = 3 } }], loss = \"mse\" }\noptimizer.sgd.lr = 0.01\n",
    );
    for (name, width, step) in [("x.npy", 4, 0.7_f32), ("y.npy", 3, 1.1)] {
        let values: Vec<f32> = (0..40 * width).map(|i| (i as f32 * step).sin() * 9.0).collect();
        let array = npy("<f4", &format!("(40, {width})"), singles(&values));
        fs::write(place.path().join(name), array).unwrap();
    }
    let run = place.run(&[]).ended_by(0).0.display().to_string();
    serves_as_predicted(&Model { place, run }, "x.npy");
}

/// Runs the Python code in docs/predict.md.
#[test]
fn the_page_serves_a_penguin() {
    let Some(python) = python_with("onnxruntime") else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/predict.md")).unwrap();
    let code = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let place = Sandbox::with_spec(&root.join("experiments/penguins.toml"));
    let run = place.run(&[]).ended_by(0).0.display().to_string();
    assert_eq!(place.runner(&["export", &run, "--onnx", "penguins.onnx"]).code, Some(0));
    let output = Command::new(python).args(["-c", code]).current_dir(place.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.starts_with("Chinstrap ["), "{output:?}");
}

/// A column may share its name with anything else in the graph.
#[test]
fn columns_of_any_name_are_inputs() {
    let rows =
        |i: u32| format!("{i},{},{},{}\n", i % 7, if i.is_multiple_of(3) { "0" } else { "weight" }, i % 2);
    let table: String = (0..60).map(rows).collect();
    let place = Sandbox::new(
        r#"
[data.csv]
path = "train.csv"
target = "label"
categorical = ["0.weight"]
[model]
layers = [{ linear = { out_features = 2 } }]
loss = "cross_entropy"
[optimizer.sgd]
lr = 0.1
"#,
    );
    fs::write(place.path().join("train.csv"), format!("probabilities,class,0.weight,label\n{table}"))
        .unwrap();
    let run = place.run(&[]).ended_by(0).0.display().to_string();
    let model = Model { place, run };
    let (ended, _) = exported(&model);
    let words = "inputs: `probabilities`, `class`, `0.weight`\noutputs: `class_`, `probabilities_`\n";
    assert!(ended.stderr.ends_with(words), "{ended:?}");
}

#[test]
fn a_model_takes_the_place_of_a_model_only() {
    let model = Model::new(crate::run::LINREG);
    let export = |file: &str| model.place.runner(&["export", &model.run, "--onnx", file]);
    let (_, file) = exported(&model);
    let first = fs::read(&file).unwrap();
    assert_eq!(export("model.onnx").code, Some(0));
    assert_eq!(fs::read(&file).unwrap(), first, "equal bytes each time");
    let printed = model.place.command(&["export", &model.run, "--onnx", "/dev/stdout"]).output().unwrap();
    assert!(printed.stdout == first && printed.stderr.ends_with(b"/dev/stdout\n"), "the file alone");
    let quiet = |file: &str| model.place.runner(&["export", &model.run, "--onnx", file, "-q"]);
    let ended = quiet("quiet.onnx");
    assert_eq!((ended.code, &ended.stdout[..], &ended.stderr[..]), (Some(0), "quiet.onnx\n", ""));
    let inside = format!("{}/m.onnx", model.run);
    for (file, words) in [
        ("new.csv", "`new.csv` holds something else than a model that `runner export` wrote"),
        (&inside, "lies in the run's folder"),
        ("none/m.onnx", "cannot write `none/m.onnx`: no such file or directory"),
    ] {
        let ended = export(file);
        assert_eq!(ended.code, Some(if file.starts_with("none") { 1 } else { 2 }), "{ended:?}");
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
}
