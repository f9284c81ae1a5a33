//! The mean of the models of a setting, compared with what the models predict alone.

use std::{fs, io::Write, path::Path};

use serde_json::Value;

use super::{
    super::process::{Ended, Folder, Sandbox, Table},
    FIXTURES,
    arrays::{npy, singles},
    fed, near,
};

/// A table whose scales and fills each fold fits to rows of its own.
pub fn spec(target: &str, other: &str, outputs: usize, loss: &str) -> String {
    let scaled = loss == "mse";
    format!(
        r#"
name = "models"
[data.csv]
path = "train.csv"
target = "{target}"
ignore = ["{other}"]
categorical = ["colour", "place"]
missing = "mean"
standardize_target = {scaled}
[model]
layers = [{{ linear = {{ out_features = 8 }} }}, "tanh", {{ linear = {{ out_features = {outputs} }} }}]
loss = "{loss}"
[optimizer.adam]
lr = 0.02
[trainer]
max_epochs = 3
"#
    )
}

/// A sweep and its trials, in their order.
pub struct Sweep {
    pub place: Sandbox,
    pub folder: String,
    pub trials: Vec<String>,
}

impl Sweep {
    pub fn new(spec: &str, words: &[&str]) -> Self {
        Self::with_file(spec, words, ("", ""))
    }

    /// With a file of this name and text.
    pub fn with_file(spec: &str, words: &[&str], (name, text): (&str, &str)) -> Self {
        let place = Sandbox::new(spec);
        if !name.is_empty() {
            fs::write(place.path().join(name), text).unwrap();
        }
        for name in ["train.csv", "new.csv", "rare.csv"] {
            fs::copy(Path::new(FIXTURES).join(name), place.path().join(name)).unwrap();
        }
        let folder = place.run(&[words, &["-q"]].concat()).ended_by(0);
        Self::from_folder(place, &folder)
    }

    fn from_folder(sandbox: Sandbox, folder: &Folder) -> Self {
        let table = folder.table("sweep.csv");
        let trials = table.column("folder").into_iter();
        let trials = trials.map(|trial| folder.0.join(trial).display().to_string()).collect();
        Self { folder: folder.0.display().to_string(), place: sandbox, trials }
    }

    pub fn call(&self, words: &[&str]) -> Ended {
        self.place.runner(&[&[words[0], &self.folder], &words[1..]].concat())
    }

    pub fn table(&self, words: &[&str]) -> Table {
        Table::read(&self.call(words).ended_by(0).stdout)
    }

    pub fn metrics(&self, words: &[&str]) -> Value {
        json(self.call(&[&["evaluate"], words, &["--json"]].concat()))
    }

    /// What each trial predicts.
    pub fn alone(&self, words: &[&str]) -> Vec<Table> {
        let of =
            |trial: &String| self.place.runner(&[&["predict", trial], words].concat()).ended_by(0).stdout;
        self.trials.iter().map(|trial| Table::read(&of(trial))).collect()
    }

    /// The metrics of each trial.
    pub fn metrics_alone(&self, words: &[&str]) -> Vec<Value> {
        let of = |trial: &String| json(self.place.runner(&[&["evaluate", trial, "--json"], words].concat()));
        self.trials.iter().map(of).collect()
    }

    fn with_input(&self, words: &[&str], bytes: Vec<u8>) -> Ended {
        fed(self.place.command(&[&[words[0], &self.folder], &words[1..]].concat()), bytes)
    }
}

fn json(ended: Ended) -> Value {
    serde_json::from_str(&ended.ended_by(0).stdout).unwrap()
}

pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// The mean of a column over tables.
fn mean_column(tables: &[Table], name: &str) -> Vec<f64> {
    let columns: Vec<Vec<f64>> = tables.iter().map(|table| table.f64s(name)).collect();
    (0..columns[0].len()).map(|row| mean(columns.iter().map(|column| column[row]))).collect()
}

/// Each fold has a scale of its own: the mean is in the units of the file, the loss in those of the first model.
#[test]
fn numbers_are_the_mean_of_what_the_models_predict() {
    let sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &["data.folds=3", "data.fold=0..3"]);
    let ended = sweep.call(&["predict", "new.csv", "--ensemble"]).ended_by(0);
    let words: Vec<&str> = ended.stderr.lines().collect();
    assert!(words[0].starts_with("models: 3 of the best setting, folds 0 to 2: #"), "{words:?}");
    assert!(words[1].starts_with("weights: best.safetensors, of epoch"), "{words:?}");
    assert_eq!(words[2..], ["warning: columns that the model does not use: `note`"]);
    let found = Table::read(&ended.stdout).f64s("prediction");
    let expected = mean_column(&sweep.alone(&["new.csv"]), "prediction");
    near(&found, &expected, 1e-6);

    let metrics = sweep.metrics(&["new.csv", "--ensemble"]);
    let actual = Table::read(&fs::read_to_string(sweep.place.path().join("new.csv")).unwrap()).f64s("price");
    let errors = || expected.iter().zip(&actual).map(|(predicted, actual)| predicted - actual);
    let rmse = mean(errors().map(|error| error * error).collect::<Vec<_>>().into_iter()).sqrt();
    let mae = mean(errors().map(f64::abs).collect::<Vec<_>>().into_iter());
    let middle = mean(actual.iter().copied());
    let spread = mean(actual.iter().map(|value| (value - middle).powi(2)));
    let of = |name: &str| number(&metrics[name]);
    near(&[of("rmse"), of("mae"), of("r2")], &[rmse, mae, 1.0 - rmse * rmse / spread], 1e-6);
    let alone = sweep.metrics_alone(&["new.csv"]);
    let scale = number(&alone[0]["rmse"]).powi(2) / number(&alone[0]["loss"]);
    near(&[of("loss")], &[rmse * rmse / scale], 1e-6);
    let one = |name: &str| number(&metrics["one_model"][name]);
    for name in ["rmse", "mae", "r2"] {
        near(&[one(name)], &[mean(alone.iter().map(|own| number(&own[name])))], 1e-6);
    }
    near(&[one("loss")], &[mean(alone.iter().map(|own| number(&own["rmse"]).powi(2))) / scale], 1e-6);
    // The square of a mean is at most the mean of squares.
    assert!(of("loss") < one("loss"));
    let runs: Vec<&str> =
        metrics["models"].as_array().unwrap().iter().map(|own| own["run"].as_str().unwrap()).collect();
    assert_eq!(
        (metrics["run"].as_str(), runs),
        (Some(&*sweep.folder), sweep.trials.iter().map(String::as_str).collect())
    );
    let table = sweep.call(&["evaluate", "new.csv", "--ensemble", "-q"]).ended_by(0).stdout;
    assert!(table.starts_with("rows  700 "), "{table}");
    assert!(table.lines().next().unwrap().ends_with("one model  baseline"), "{table}");
    assert!(
        table.ends_with("\none model: the mean of what each model of the ensemble reaches alone\n"),
        "{table}"
    );
}

#[test]
fn classes_are_those_of_the_mean_probability() {
    let sweep =
        Sweep::new(&spec("kind", "price", 3, "cross_entropy"), &["sweep.repeats=4", "data.split.test=0.2"]);
    let found = sweep.table(&["predict", "new.csv", "--ensemble"]);
    let alone = sweep.alone(&["new.csv"]);
    let names: Vec<&str> = found.columns[1..].iter().map(|name| &name[2..]).collect();
    let shares: Vec<Vec<f64>> = found.columns[1..].iter().map(|name| mean_column(&alone, name)).collect();
    for (name, shares) in found.columns[1..].iter().zip(&shares) {
        near(&found.f64s(name), shares, 1e-6);
    }
    let largest = |row: usize| {
        (1..3).fold(0, |best, class| if shares[class][row] > shares[best][row] { class } else { best })
    };
    let classes: Vec<&str> = (0..700).map(|row| names[largest(row)]).collect();
    assert_eq!(found.column("class"), classes);

    let metrics = sweep.metrics(&["new.csv", "--ensemble"]);
    let new = Table::read(&fs::read_to_string(sweep.place.path().join("new.csv")).unwrap());
    let actual: Vec<usize> =
        new.column("kind").iter().map(|kind| names.iter().position(|name| name == kind).unwrap()).collect();
    let loss = mean(actual.iter().enumerate().map(|(row, class)| -shares[*class][row].ln()));
    let accuracy = mean(
        actual.iter().zip(&classes).map(|(actual, found)| f64::from(u8::from(names[*actual] == *found))),
    );
    near(&[number(&metrics["loss"]), number(&metrics["accuracy"])], &[loss, accuracy], 1e-6);
    let of_each = sweep.metrics_alone(&["new.csv"]);
    for name in ["loss", "accuracy", "f1", "f1_weighted", "precision", "recall", "auc", "average_precision"] {
        near(
            &[number(&metrics["one_model"][name])],
            &[mean(of_each.iter().map(|own| number(&own[name])))],
            1e-6,
        );
    }
    assert!(number(&metrics["loss"]) < number(&metrics["one_model"]["loss"]));

    // All seeds keep the same rows for the test.
    let test = sweep.metrics(&["--ensemble"]);
    assert_eq!(test["rows"], 18);
    let words = sweep.call(&["evaluate", "--ensemble"]).ended_by(0).stderr;
    assert!(words.starts_with("models: 4 of the best setting, seeds 0 to 3: #"), "{words}");
}

/// Standard input is read once, whatever the number of models; cells are kept; a file is written.
#[test]
fn rows_may_come_from_standard_input() {
    let sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &["seed=0,1"]);
    let expected = sweep.call(&["predict", "new.csv", "--ensemble", "--keep", "note"]).ended_by(0).stdout;
    assert!(expected.starts_with("note,prediction\nx,"), "{expected}");
    let rows = fs::read(sweep.place.path().join("new.csv")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&rows).unwrap();
    for rows in [rows, gzip.finish().unwrap()] {
        let found = sweep.with_input(&["predict", "-", "--ensemble", "--keep", "note"], rows).ended_by(0);
        assert_eq!(found.stdout, expected);
    }
    sweep.call(&["predict", "new.csv", "--ensemble", "--keep", "note", "-o", "out.csv"]).ended_by(0);
    assert_eq!(fs::read_to_string(sweep.place.path().join("out.csv")).unwrap(), expected);
    let wrong = sweep.with_input(&["predict", "-", "--ensemble", "-q"], b"width\n1\n".to_vec()).ended_by(2);
    assert!(wrong.stderr.contains("--> <stdin>"), "{wrong:?}");

    let arrays = Sweep::new(&crate::run::LINREG.replace("max_epochs = 4", "max_epochs = 1"), &["seed=0,1"]);
    let bytes = npy("<f4", "(2, 2)", singles(&[0.5, 1.0, -2.0, 3.0]));
    fs::write(arrays.place.path().join("x.npy"), &bytes).unwrap();
    let expected = arrays.call(&["predict", "x.npy", "--ensemble"]).ended_by(0).stdout;
    near(
        &Table::read(&expected).f64s("prediction"),
        &mean_column(&arrays.alone(&["x.npy"]), "prediction"),
        1e-6,
    );
    assert_eq!(arrays.with_input(&["predict", "-", "--ensemble"], bytes).ended_by(0).stdout, expected);
}

const RARE: &str = r#"
name = "rare"
[data.csv]
path = "rare.csv"
target = "state"
[data.split]
validation = 0.4
test = 0.4
stratify = true
[model]
layers = [{ linear = { out_features = 2 } }]
loss = "cross_entropy"
[optimizer.adam]
lr = 0.03
[trainer]
max_epochs = 3
"#;

/// Thresholds are of the mean probability.
#[test]
fn a_threshold_is_of_the_mean_probability() {
    let sweep = Sweep::new(RARE, &["seed=0..3"]);
    let rows = Table::read(&fs::read_to_string(sweep.place.path().join("rare.csv")).unwrap());
    let shares = mean_column(&sweep.alone(&["rare.csv"]), "p_ill");
    let mut sorted = shares.clone();
    sorted.sort_by(f64::total_cmp);
    // Between two probabilities, so that rounding decides nothing.
    let at = (400..480)
        .max_by(|a, b| (sorted[*a + 1] - sorted[*a]).total_cmp(&(sorted[*b + 1] - sorted[*b])))
        .unwrap();
    let threshold = f64::midpoint(sorted[at], sorted[at + 1]).to_string();
    let words = ["rare.csv", "--ensemble", "--threshold", &threshold, "--positive", "ill"];
    let found = sweep.table(&[&["predict"], &words[..]].concat());
    let limit = sorted[at];
    let wanted: Vec<&str> = shares.iter().map(|share| if *share > limit { "ill" } else { "well" }).collect();
    assert_eq!(found.column("class"), wanted);
    let metrics = sweep.metrics(&[&words[..], &["--thresholds"]].concat());
    let count = |actual: &str, predicted: &str| {
        rows.column("state").iter().zip(&wanted).filter(|(a, p)| **a == actual && **p == predicted).count()
            as u64
    };
    let cells = ["ill", "well"].map(|actual| ["ill", "well"].map(|predicted| count(actual, predicted)));
    assert_eq!(metrics["confusion"], serde_json::json!(cells));
    let hits = (cells[0][0] + cells[1][1]) as f64;
    near(&[number(&metrics["accuracy"])], &[hits / 500.0], 1e-12);
    assert!(metrics["thresholds"]["rows"].as_array().unwrap().len() >= 12);
}

/// Nothing ranks final models; those of several seeds are of one setting.
#[test]
fn final_models_make_an_ensemble() {
    let sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &["seed=0,1", "trainer.max_epochs=2"]);
    let refit = |words: &[&str], to: &str| {
        sweep.call(&[&["refit", "-q", "--runs-dir", to], words].concat()).ended_by(0);
        Folder::within(&sweep.place.path().join(to)).unwrap()
    };
    let [seeds, rates] = [refit(&["seed=0..3"], "seeds"), refit(&["optimizer.adam.lr=0.1,0.01"], "rates")];
    let finals = Sweep::from_folder(sweep.place, &seeds);
    let found = finals.table(&["predict", "new.csv", "--ensemble"]).f64s("prediction");
    near(&found, &mean_column(&finals.alone(&["new.csv"]), "prediction"), 1e-6);
    let refused = "which nothing ranks\n";
    assert!(finals.call(&["predict", "new.csv"]).ended_by(2).stderr.ends_with(refused));
    let others = Sweep::from_folder(finals.place, &rates);
    assert!(others.call(&["predict", "new.csv", "--ensemble"]).ended_by(2).stderr.ends_with(refused));
}

#[test]
fn what_makes_no_ensemble_is_refused() {
    let sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &["seed=0,1", "trainer.max_epochs=1"]);
    let first = Path::new(&sweep.trials[0]).file_name().unwrap().to_string_lossy().into_owned();
    let refused = |words: &[&str]| {
        let ended = sweep.place.runner(words).ended_by(2);
        assert_eq!(ended.stdout, "");
        ended.stderr.replace(&sweep.folder, "SWEEP").replace(&first, "TRIAL")
    };
    insta::assert_snapshot!(refused(&["predict", &sweep.trials[0], "new.csv", "--ensemble"]), @r"
    error: `SWEEP/TRIAL` has one model, and an ensemble is the mean of several
      = hint: name a sweep whose settings were trained several times: over seeds, with `sweep.repeats=5`, or over folds, with `data.folds=5 data.fold=0..5`
    ");
    insta::assert_snapshot!(refused(&["evaluate", &sweep.folder, "-q", "--ensemble", "--validation"]), @r"
    error: the models of `SWEEP` have other validation rows each, so that none are new to all
      = hint: give rows that have the target, or train with `data.split.seed=0`, which is one split for all seeds
    ");
    insta::assert_snapshot!(refused(&["evaluate", &sweep.folder, "new.csv", "--ensemble", "--importance"]), @r"
    error: `--ensemble` does not go with `--importance`
      = hint: leave one of them out; `--help` says what each is for
    ");
    let warned = sweep.call(&["evaluate", "train.csv", "--ensemble"]).ended_by(0).stderr;
    assert!(
        warned.ends_with("\nwarning: these rows include those that the models were trained on\n"),
        "{warned}"
    );
}
