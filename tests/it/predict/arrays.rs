//! Models trained on arrays: npy and IDX files as new rows.

use std::path::Path;

use runner::data::read_metadata;
use serde_json::Value;

use super::{
    super::process::{Folder, Sandbox, Table},
    *,
};

/// An array in NumPy's format, little-endian.
pub fn npy(descr: &str, shape: &str, bytes: Vec<u8>) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    header.push_str(&" ".repeat((64 - (10 + header.len() + 1) % 64) % 64));
    header.push('\n');
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &bytes].concat()
}

pub fn singles(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The predictions are checked against the true weights.
#[test]
fn arrays_are_predicted_and_evaluated() {
    let model = Model::new(&crate::run::LINREG.replace("max_epochs = 4", "max_epochs = 40"));
    let rows = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-2.0, 3.0]];
    let targets = rows.map(|[a, b]: [f32; 2]| 2.0 * a - 3.4 * b + 4.2);
    model.write("x.npy", npy("<f4", "(4, 2)", singles(rows.as_flattened())));
    model.write("y.npy", npy("<f4", "(4,)", singles(&targets)));
    model.write("wide.npy", npy("<f4", "(2, 3)", singles(&[0.0; 6])));
    model.write("nan.npy", npy("<f4", "(1, 2)", singles(&[0.0, f32::NAN])));
    let found = Table::read(&model.predicted("x.npy")).f64s("prediction");
    near(&found, &targets.map(f64::from), 0.02);
    let metrics = model.evaluated(&["x.npy", "--labels", "y.npy"]);
    assert!(metrics["r2"].as_f64().unwrap() > 0.9999, "{metrics}");
    for (arguments, words) in [
        (&["predict", "wide.npy"][..], "rows of 3 features: the model was trained on 2"),
        (&["predict", "nan.npy"], "row 0, feature 1 (both counted from 0) is NaN: expected a finite number"),
        (&["predict", "new.csv"], "not an NPY file: it does not start with `\\x93NUMPY`\n--> new.csv\n"),
        (&["predict", "-"], "not an NPY file: it does not start with `\\x93NUMPY`\n--> <stdin>\n"),
        (&["evaluate", "x.npy"], "name the file of their labels with `--labels FILE`"),
        (&["evaluate", "x.npy", "--labels", "wide.npy"], "2 labels, but `x.npy` has 4 rows"),
    ] {
        let ended = model.place.runner(&[&[arguments[0], &model.run], &arguments[1..]].concat()).ended_by(2);
        assert!(ended.stderr.contains(words), "{ended:?}");
        assert_eq!(ended.stdout, "");
    }
}

/// 60 rows of 3 features of very different size, and their targets.
pub const STANDARDIZED: &str = r#"
[data.npy]
features = "x.npy"
labels = "y.npy"
validation_features = "vx.npy"
validation_labels = "vy.npy"
standardize = true
[model]
layers = [{ linear = { out_features = 4 } }, "tanh", { linear = { out_features = 1 } }]
loss = "mse"
[optimizer.sgd]
lr = 0.05
"#;

/// The folder of [`STANDARDIZED`]'s run, and rows for it in `new.npy`; `change` is applied to each row.
pub fn standardized(name: &str, overrides: &[&str], change: impl Fn([f32; 3]) -> [f32; 3]) -> Model {
    let row = |i: usize| {
        let [a, b, c] = [1.3, 2.1, 3.7].map(|step| (i as f32 * step).sin());
        [1e4 + 300.0 * a, 0.002 * b, 5.0 - c]
    };
    let rows = |range: std::ops::Range<usize>| -> Vec<f32> { range.flat_map(|i| change(row(i))).collect() };
    let targets =
        |range: std::ops::Range<usize>| -> Vec<f32> { range.map(|i| (i as f32 * 1.3).sin()).collect() };
    let place = Sandbox::new(STANDARDIZED);
    let write = |file: &str, shape: &str, values: Vec<f32>| {
        std::fs::write(place.path().join(file), npy("<f4", shape, singles(&values))).unwrap();
    };
    write("x.npy", "(40, 3)", rows(0..40));
    write("y.npy", "(40,)", targets(0..40));
    write("vx.npy", "(20, 3)", rows(40..60));
    write("vy.npy", "(20,)", targets(40..60));
    write("new.npy", "(30, 3)", rows(60..90));
    let run = place.run(&[overrides, &[name]].concat()).ended_by(0).0.display().to_string();
    Model { place, run }
}

/// Standardizing within a run equals training on arrays standardized before: bit-identical training, and the
/// same predictions for new rows that are not standardized.
#[test]
fn arrays_are_standardized_as_by_hand() {
    let model = standardized("name=own", &[], |row| row);
    let metadata = read_metadata(&Path::new(&model.run).join("model.safetensors")).unwrap();
    let stored: Value = serde_json::from_str(&metadata["preprocessing"]).unwrap();
    let scale = |column: usize, key: &str| stored["features"][column][key].as_f64().unwrap();
    let by_hand = standardized("name=by_hand", &["~data.npy.standardize"], |row| {
        let scaled = |c: usize| ((f64::from(row[c]) - scale(c, "mean")) / scale(c, "std")) as f32;
        [0, 1, 2].map(scaled)
    });
    let numbers = [&model, &by_hand].map(|model| Folder(model.run.clone().into()).numbers());
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(model.predicted("new.npy"), by_hand.predicted("new.npy"));
    let metrics = model.evaluated(&["vx.npy", "--labels", "vy.npy"]);
    assert_eq!(metrics["loss"].to_string(), Folder(model.run.clone().into()).summary("best_value"));

    model.write("large.npy", npy("<f4", "(1, 3)", singles(&[1e4, 3e38, 5.0])));
    let ended = model.predict("large.npy").ended_by(2);
    assert!(
        ended.stderr.contains(
            "row 0, feature 1 (both counted from 0) is 3e38, and more than f32 holds once scaled\n"
        ),
        "{ended:?}"
    );
}

/// An array from a pipe, also gzipped; its header may be wrong.
#[test]
fn an_array_may_come_from_standard_input() {
    let model = Model::new(crate::run::LINREG);
    let rows: Vec<f32> = (0..300_000).map(|i| (i % 1009) as f32 / 7.0).collect();
    let array = npy("<f4", "(150000, 2)", singles(&rows));
    model.write("x.npy", &array);
    let expected = model.predicted("x.npy");
    let piped = |bytes: Vec<u8>| fed(model.place.command(&["predict", &model.run, "-"]), bytes);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&array).unwrap();
    for bytes in [array.clone(), gzip.finish().unwrap()] {
        let ended = piped(bytes);
        assert_eq!((ended.code, ended.stdout == expected), (Some(0), true), "{}", ended.stderr);
    }
    let cut = array[..array.len() - 4].to_vec();
    let long = [&array[..], b"x"].concat();
    let huge = npy("<f4", "(4000000000, 2)", singles(&rows));
    let wide = npy("<f4", "(3, 4611686018427387904)", singles(&rows));
    for (bytes, words) in [
        (cut, "the header declares 1200000 bytes of elements, and only 1199996 are there\n--> <stdin>"),
        (long, "the header declares 1200000 bytes of elements, and more are there\n--> <stdin>"),
        (huge, "and only 1200000 are there\n--> <stdin>"),
        (wide, "no file holds its shape"),
        (Vec::new(), "not an NPY file"),
    ] {
        let ended = piped(bytes);
        assert_eq!(ended.code, Some(2), "{words}: {ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
}

/// Arrays given by name are read twice, so a pipe is rejected without waiting for it.
#[test]
fn an_array_is_no_pipe() {
    let model = Model::new(crate::run::LINREG);
    let pipe = model.place.path().join("pipe.npy");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let command = model.place.command(&["predict", &model.run, "pipe.npy"]);
    let ended = crate::ends::ended(crate::ends::quiet(command)).ended_by(2);
    let words = "error: cannot read `pipe.npy`: it is a named pipe: expected a regular file";
    assert!(ended.stderr.contains(words), "{ended:?}");
}

/// Arrays with several targets reproduce the recorded validation, with one column per target.
#[test]
fn several_targets_are_predicted_and_evaluated() {
    let parity = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity");
    let place = Sandbox::with_spec(&Path::new(parity).join("three_targets/spec.toml"));
    let run = place.run(&["trainer.max_epochs=3"]).ended_by(0);
    let folder = run.0.display().to_string();
    let [features, targets] = ["features", "targets"].map(|name| format!("{parity}/{name}.npy"));
    let ended = place.runner(&["evaluate", &folder, &features, "--labels", &targets, "--json"]);
    let metrics: Value = serde_json::from_str(&ended.stdout).unwrap();
    let rmse = metrics["rmse"].as_f64().unwrap();
    assert_eq!(metrics["loss"].as_f64(), Some(run.summary("best_value").parse().unwrap()));
    assert!(rmse > 0.0 && rmse <= metrics["loss"].as_f64().unwrap().sqrt(), "{metrics}");
    let found = Table::read(&place.runner(&["predict", &folder, &features]).stdout);
    assert_eq!(found.columns, ["prediction_0", "prediction_1", "prediction_2"]);
    assert_eq!(found.rows.len(), 150);
    let watched = place.run(&["trainer.max_epochs=3", "trainer.monitor=validation.mae_2"]).ended_by(0);
    assert!(!watched.summary("best_value").is_empty());
    let refused = place.run(&["trainer.monitor=validation.mae_3"]).ended;
    let words = "no target is called `3`";
    let hint = "it is `validation.mae_0`, `validation.mae_1`, `validation.mae_2`, or `validation.mae` for the mean over them";
    assert!(
        refused.code == Some(2) && [words, hint].iter().all(|words| refused.stderr.contains(words)),
        "{refused:?}"
    );
}

/// Images in IDX format, gzipped, are scaled as in training; the labels are those of the digits.
#[test]
fn images_are_predicted_and_evaluated() {
    let place =
        Sandbox::with_spec(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/digits.toml")));
    let run = place.run(&["trainer.max_epochs=5"]).ended_by(0).0.display().to_string();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data/digits-");
    let [images, labels] = ["images-idx3", "labels-idx1"].map(|name| format!("{data}{name}-ubyte.gz"));
    let ended = place.runner(&["evaluate", &run, &images, "--labels", &labels, "--json"]);
    let metrics: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(metrics["accuracy"].as_f64().unwrap() > 0.9, "{metrics}");
    let ended = place.runner(&["predict", &run, &images]);
    assert!(ended.stdout.starts_with("class,p_0,p_1,p_2,p_3,p_4,p_5,p_6,p_7,p_8,p_9\n"), "{ended:?}");
    assert_eq!(Some(ended.stdout.lines().count() as u64), metrics["rows"].as_u64().map(|rows| rows + 1));
}
