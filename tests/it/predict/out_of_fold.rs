//! Rows predicted by the models that did not train on them, compared with what each model predicts for the whole file.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use super::{
    super::process::Table,
    FIXTURES,
    ensemble::{Sweep, mean, number, spec},
    near,
};

/// For each row in `rows.csv` of a trial as one to validate on, what that trial predicts for it: as `cross_val_predict` has it.
fn expected(sweep: &Sweep, column: &str) -> BTreeMap<usize, Vec<f64>> {
    let mut rows: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (trial, table) in sweep.trials.iter().zip(sweep.alone(&["train.csv"])) {
        let held = Table::read(&fs::read_to_string(format!("{trial}/rows.csv")).unwrap());
        let predicted = table.f64s(column);
        for row in held.only("split", "validation").column("row") {
            let row: usize = row.parse().unwrap();
            rows.entry(row).or_default().push(predicted[row]);
        }
    }
    rows
}

#[track_caller]
fn check(sweep: &Sweep, columns: &[&str], rows: usize) -> Table {
    let found = sweep.table(&["predict", "--out-of-fold"]);
    for column in columns {
        let expected = expected(sweep, column);
        let numbers: Vec<String> = expected.keys().map(usize::to_string).collect();
        assert_eq!(found.column("row"), numbers);
        let means: Vec<f64> = expected.into_values().map(|all| mean(all.into_iter())).collect();
        near(&found.f64s(column), &means, 1e-6);
    }
    assert_eq!(found.rows.len(), rows);
    found
}

/// The mean of a metric over the folds, each by its rows.
fn weighted(folds: &[Value], name: &str, power: i32) -> f64 {
    let rows = |fold: &Value| number(&fold["rows"]);
    let sum: f64 = folds.iter().map(|fold| rows(fold) * number(&fold[name]).powi(power)).sum();
    sum / folds.iter().map(rows).sum::<f64>()
}

#[test]
fn each_row_is_predicted_by_the_model_of_its_fold() {
    let sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &["data.folds=4", "data.fold=0..4"]);
    let found = check(&sweep, &["prediction"], 90);
    assert_eq!(found.columns, ["row", "prediction", "actual"]);
    let train = Table::read(&fs::read_to_string(sweep.place.path().join("train.csv")).unwrap());
    assert_eq!(found.f64s("actual"), train.f64s("price"));
    let metrics = sweep.metrics(&["--out-of-fold"]);
    let folds = sweep.metrics_alone(&["--validation"]);
    assert_eq!(metrics["rows"], 90);
    near(&[number(&metrics["mae"])], &[weighted(&folds, "mae", 1)], 1e-6);
    near(&[number(&metrics["rmse"])], &[weighted(&folds, "rmse", 2).sqrt()], 1e-6);
    assert_eq!((&metrics["one_model"], metrics["models"].as_array().unwrap().len()), (&Value::Null, 4));
    let interval = &metrics["intervals"]["metrics"]["rmse"];
    assert!(
        number(&interval["low"]) < number(&metrics["rmse"])
            && number(&metrics["rmse"]) < number(&interval["high"])
    );

    // Without the fold 2 its rows are left out.
    fs::remove_dir_all(&sweep.trials[2]).unwrap();
    let of_fold = number(&folds[2]["rows"]);
    let ended = sweep.call(&["predict", "--out-of-fold"]).ended_by(0);
    let warned = format!("warning: {of_fold} of 90 rows are left out: fold 2 has no model\n");
    assert!(ended.stderr.ends_with(&warned), "{}", ended.stderr);
    assert_eq!(Table::read(&ended.stdout).rows.len(), 90 - of_fold as usize);
    let left = [0, 1, 3].map(|fold: usize| folds[fold].clone());
    let metrics = sweep.metrics(&["--out-of-fold"]);
    near(&[number(&metrics["mae"])], &[weighted(&left, "mae", 1)], 1e-6);
}

/// Each seed draws folds of its own, so a row is in one fold of each; test rows are in none.
#[test]
fn of_several_seeds_the_mean_counts() {
    let words = ["data.folds=3", "data.fold=0..3", "seed=0,1", "data.split.test=0.2"];
    let sweep = Sweep::new(&spec("kind", "price", 3, "cross_entropy"), &words);
    let found = check(&sweep, &["p_large", "p_small"], 72);
    assert_eq!(found.columns[..2], ["row", "class"]);
    assert_eq!(found.columns.last().map(String::as_str), Some("actual"));
    let train = Table::read(&fs::read_to_string(sweep.place.path().join("train.csv")).unwrap());
    let kinds = train.column("kind");
    let actual: Vec<&str> =
        found.column("row").iter().map(|row| kinds[row.parse::<usize>().unwrap()]).collect();
    assert_eq!(found.column("actual"), actual);
    let metrics = sweep.metrics(&["--out-of-fold"]);
    let hits = actual.iter().zip(found.column("class")).filter(|(actual, found)| *actual == found).count();
    near(&[number(&metrics["accuracy"])], &[hits as f64 / 72.0], 1e-12);
    let losses = (0..72).map(|row| -found.f64s(&format!("p_{}", actual[row]))[row].ln());
    near(&[number(&metrics["loss"])], &[mean(losses)], 1e-6);
    // Of one seed the loss of classes is that of the folds, each by its rows.
    let one = Sweep::new(&spec("kind", "price", 3, "cross_entropy"), &["data.folds=3", "data.fold=0..3"]);
    let folds = one.metrics_alone(&["--validation"]);
    let metrics = one.metrics(&["--out-of-fold"]);
    for name in ["loss", "accuracy"] {
        near(&[number(&metrics[name])], &[weighted(&folds, name, 1)], 1e-6);
    }
}

/// The weights of rows are those of the file, in metrics of the mean as in those of one model.
#[test]
fn weights_of_rows_count() {
    let plain = fs::read_to_string(format!("{FIXTURES}/train.csv")).unwrap();
    let weight = |row: usize| (row % 3 + 1) as f64;
    let lines = plain.lines().enumerate().map(|(row, line)| match row {
        0 => format!("{line},w\n"),
        _ => format!("{line},{}\n", weight(row - 1)),
    });
    let table: String = lines.collect();
    let spec = spec("price", "kind", 1, "l1").replace("\"train.csv\"", "\"weighted.csv\"\nweight = \"w\"");
    let sweep = Sweep::with_file(&spec, &["data.folds=3", "data.fold=0..3"], ("weighted.csv", &table));
    let actual = Table::read(&plain).f64s("price");
    for (predict, evaluate) in [
        (&["predict", "--out-of-fold"][..], &["--out-of-fold"][..]),
        (&["predict", "weighted.csv", "--ensemble"], &["weighted.csv", "--ensemble"]),
    ] {
        let predicted = sweep.table(predict).f64s("prediction");
        let errors = predicted.iter().zip(&actual).enumerate();
        let sum: f64 = errors.map(|(row, (y, actual))| weight(row) * (y - actual).abs()).sum();
        let expected = sum / (0..90).map(weight).sum::<f64>();
        let metrics = sweep.metrics(evaluate);
        near(&[number(&metrics["mae"]), number(&metrics["loss"])], &[expected; 2], 1e-6);
    }
}

/// With 90 rows and 4 folds in their order, the last four blocks of 18 rows validate.
#[test]
fn folds_in_order_predict_the_rows_after_the_first_block() {
    let words = ["data.folds=4", "data.fold=0..4", "data.split.shuffle=false"];
    let sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &words);
    let found = check(&sweep, &["prediction"], 72);
    assert_eq!((found.cell(0, "row"), found.cell(71, "row")), ("18", "89"));
    fs::remove_dir_all(&sweep.trials[0]).unwrap();
    let ended = sweep.call(&["predict", "--out-of-fold"]).ended_by(0);
    assert!(ended.stderr.contains("warning: 18 of 72 rows are left out: fold 0 has no model\n"), "{ended:?}");
    // The mean is of models that trained on as many rows: of the last fold there is one.
    let refused = sweep.call(&["predict", "new.csv", "--ensemble"]).ended_by(2);
    assert!(
        refused.stderr.contains(" has one model of the last fold, and an ensemble is the mean of several\n"),
        "{refused:?}"
    );
}

/// Rows that one seed's lost model validated with are predicted by fewer models than others; a warning says that one is missing.
#[test]
fn a_model_that_is_missing_is_told() {
    let words = ["data.folds=3", "data.fold=0..3", "seed=0,1", "data.split.seed=0"];
    let sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &words);
    fs::remove_dir_all(&sweep.trials[1]).unwrap();
    let said = "warning: 1 of 6 models are missing, one for each fold and seed: they did not finish, or `compare` cannot rank them\n";
    for words in [&["predict", "--out-of-fold"][..], &["predict", "new.csv", "--ensemble"]] {
        let ended = sweep.call(words).ended_by(0);
        let models = "models: 5 of the best setting, folds 0 to 2, seeds 0, 1: ";
        assert!(ended.stderr.starts_with(models), "{ended:?}");
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
}

/// The file that the runs read, and what is in the sweep's folder, is never replaced.
#[test]
fn files_that_are_read_are_not_replaced() {
    let mut sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &["data.folds=2", "data.fold=0,1"]);
    let own = sweep.place.path().join("own.csv");
    sweep.call(&["predict", "--out-of-fold", "-o", "own.csv"]).ended_by(0);
    let stacked = "[data.csv]\npath = \"own.csv\"\ntarget = \"actual\"\nignore = [\"row\"]\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 0.01\n[trainer]\nmax_epochs = 1\n";
    fs::write(sweep.place.path().join("stacked.toml"), stacked).unwrap();
    let folder =
        sweep.place.runner(&["stacked.toml", "-q", "data.folds=2", "data.fold=0,1"]).ended_by(0).stdout;
    sweep.folder = folder.trim_end().to_owned();
    let before = fs::read(&own).unwrap();
    for (file, why) in [
        ("own.csv".to_owned(), "is a file that is read"),
        (format!("{}/sweep.csv", sweep.folder), "lies in the run's folder"),
        ("out.csv.gz".to_owned(), "would hold plain text, and its name says gzip"),
    ] {
        let ended = sweep.call(&["predict", "--out-of-fold", "--force", "-o", &file]).ended_by(2);
        assert!(ended.stderr.contains(why), "{ended:?}");
    }
    assert_eq!(fs::read(&own).unwrap(), before);
}

/// Rows of a group are in one fold, and intervals draw whole groups.
#[test]
fn intervals_draw_the_groups_of_all_folds() {
    let spec = spec("price", "kind", 1, "mse")
        .replace("\"colour\", ", "")
        .replace("missing =", "group = \"colour\"\nmissing =");
    let sweep = Sweep::new(&spec, &["data.folds=3", "data.fold=0..3", "seed=0,1"]);
    let train = Table::read(&fs::read_to_string(sweep.place.path().join("train.csv")).unwrap());
    let mut groups = train.column("colour");
    groups.sort_unstable();
    groups.dedup();
    let metrics = sweep.metrics(&["--out-of-fold"]);
    assert_eq!(metrics["intervals"]["over"], "groups");
    // Rows without a group are left out, which moves no other.
    check(&sweep, &["prediction"], 84);
    groups.retain(|group| !group.is_empty());
    assert_eq!(metrics["intervals"]["drawn"], groups.len());
}

#[test]
fn what_has_no_folds_is_refused() {
    let sweep = Sweep::new(&spec("price", "kind", 1, "mse"), &["seed=0,1", "trainer.max_epochs=1"]);
    let refused = |words: &[&str]| {
        let ended = sweep.call(words).ended_by(2);
        assert_eq!(ended.stdout, "");
        ended.stderr.replace(&sweep.folder, "SWEEP")
    };
    let words = refused(&["predict", "--out-of-fold"]);
    let hint = "  = hint: name a sweep with `data.folds=5 data.fold=0..5`: each row is then predicted by the models that did not train on it\n";
    assert!(words.contains("` is none\n") && words.ends_with(hint), "{words}");
    for (words, with) in [
        (&["predict", "new.csv", "--out-of-fold"][..], "`DATA`"),
        (&["predict", "--out-of-fold", "--ensemble"], "`--ensemble`"),
        (&["predict", "--out-of-fold", "--keep", "note"], "`--keep`"),
        (&["evaluate", "--out-of-fold", "--validation"], "`--validation`"),
        (&["evaluate", "--out-of-fold", "--importance"], "`--importance`"),
        (&["evaluate", "--out-of-fold", "--labels", "y.npy"], "`--labels`"),
    ] {
        let refused = refused(words);
        let both = [[with, "`--out-of-fold`"], ["`--out-of-fold`", with]];
        let said = both.map(|[one, other]| format!("error: {one} does not go with {other}\n"));
        assert!(said.iter().any(|said| refused.starts_with(said)), "{refused}");
    }
    let needed = refused(&["predict"]);
    assert!(needed.starts_with("error: `predict` needs `DATA`\n"), "{needed}");
}
