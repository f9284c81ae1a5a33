//! The metrics that a run records for its validations equal those of `evaluate` on the same rows, to the bit.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{FIXTURES, Model};
use crate::process::Folder;

/// `train.csv` for training, `new.csv` for validation.
const SPEC: &str = r#"
[data.csv]
path = "train.csv"
validation_path = "new.csv"
target = TARGET
features = ["width", "depth"]
categorical = ["colour"]
missing = "mean"
standardize_target = SCALED
[model]
layers = [{ linear = { out_features = 8 } }, "relu", { linear = { out_features = OUT } }]
loss = "LOSS"
[optimizer.adam]
lr = 0.03
[trainer]
max_epochs = 9
[logging]
metrics = ["loss", SCORES]
"#;

const NUMBERS: [&str; 3] = ["mae", "rmse", "r2"];
const CLASSES: [&str; 7] =
    ["accuracy", "f1", "f1_weighted", "precision", "recall", "auc", "average_precision"];

fn trained(target: &str, outputs: &str, loss: &str, scores: &[&str]) -> (Model, Folder) {
    let spec = SPEC.replace("TARGET", target).replace("OUT", outputs).replace("LOSS", loss);
    let spec = spec.replace("SCALED", if outputs == "2" { "true" } else { "false" });
    let model = Model::new(&spec.replace("SCORES", format!("{scores:?}").trim_matches(['[', ']'])));
    let run = Folder(PathBuf::from(&model.run));
    (model, run)
}

/// The training file under another name is known by its digest; other rows are not.
#[test]
fn rows_that_the_run_was_trained_on() {
    let spec = SPEC.replace("validation_path = \"new.csv\"\n", "").replace("TARGET", "\"price\"");
    let spec = spec.replace("SCALED", "true").replace("OUT", "1").replace("LOSS", "mse");
    let model = Model::new(&spec.replace("SCORES", "\"mae\", \"r2\""));
    fs::copy(Path::new(FIXTURES).join("train.csv"), model.place.path().join("copy.csv")).unwrap();
    let warned = |data: &str| {
        let ended = model.place.runner(&["evaluate", &model.run, data]).ended_by(0);
        ended.stderr.contains("warning: these rows include those that the run was trained on")
    };
    assert!(warned("copy.csv") && !warned("new.csv"));
    // `show` has the metrics that the spec logs, as of the validation with the smallest loss.
    let shown = model.place.runner(&["show", &model.run]).stdout;
    let metrics = Folder(PathBuf::from(&model.run)).metrics().only("split", "validation");
    let losses = metrics.f64s("loss");
    let best = (0..losses.len()).min_by(|a, b| losses[*a].total_cmp(&losses[*b])).unwrap();
    for name in ["mae", "r2"] {
        let value = runner::units::number(metrics.f64s(name)[best]);
        let row = shown.lines().find(|line| line.trim().starts_with(&format!("best epoch's {name} ")));
        assert!(row.is_some_and(|row| row.trim().ends_with(&value)), "{shown}");
    }
}

/// Every metric of every target, and the confusion matrix of the best weights.
#[test]
fn evaluation_repeats_the_recorded_validation() {
    let of_both = ["mae_price", "mae_height", "rmse_price", "rmse_height", "r2_price", "r2_height"];
    let both = [&NUMBERS[..], &of_both].concat();
    for (target, outputs, loss, named, scores) in [
        ("\"price\"", "1", "huber", &NUMBERS[..], &NUMBERS[..]),
        ("[\"price\", \"height\"]", "2", "mse", &NUMBERS, &both),
        ("\"kind\"", "3", "cross_entropy", &CLASSES, &CLASSES),
    ] {
        let (model, run) = trained(target, outputs, loss, named);
        let rows = run.metrics().only("split", "validation");
        let losses = rows.f64s("loss");
        let best = run.summary("best_epoch").parse().unwrap();
        for (option, epoch) in [(&["--last"][..], 9), (&[], best)] {
            let metrics = model.evaluated(&[&["new.csv"], option].concat());
            assert_eq!(metrics["epoch"], epoch);
            assert_eq!(metrics["loss"].as_f64(), Some(losses[epoch - 1]), "{target} {option:?}");
            for score in scores {
                assert_eq!(metrics[score].as_f64(), Some(rows.f64s(score)[epoch - 1]), "{score} {option:?}");
            }
            if outputs == "3" && epoch == 9 {
                let recorded = run.summary("final_validation_accuracy").parse().unwrap();
                assert_eq!(metrics["accuracy"].as_f64(), Some(recorded));
            }
            assert_eq!(metrics["rows"], 700);
        }
        assert_eq!(run.0.join("confusion.csv").exists(), outputs == "3");
        if outputs == "3" {
            let own = run.text("confusion.csv");
            let cells = |row: &str| row.split(',').skip(1).map(|n| n.parse().unwrap()).collect::<Vec<u64>>();
            let own: Vec<Vec<u64>> = own.lines().skip(1).map(cells).collect();
            assert_eq!(model.evaluated(&["new.csv"])["confusion"], serde_json::json!(own));
        }
    }
}

/// Each of several targets has its own columns after those of the mean; they are empty in rows of steps.
#[test]
fn columns_of_several_targets() {
    let (_model, run) = trained("[\"price\", \"height\"]", "2", "mse", &["r2", "lr", "mae"]);
    let text = run.text("metrics.csv");
    let mut lines = text.lines();
    let header = "step,epoch,split,rows,loss,r2,r2_price,r2_height,lr,mae,mae_price,mae_height,elapsed_s";
    assert_eq!(lines.next(), Some(header));
    let cells: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!((cells[5..8].concat(), cells[8], cells[9..12].concat()), ("".into(), "0.03", "".into()));
    let rows = run.metrics().only("split", "validation");
    let [all, price, height] = ["mae", "mae_price", "mae_height"].map(|name| rows.f64s(name));
    for ((all, price), height) in all.iter().zip(price).zip(height) {
        assert!((all - (price + height) / 2.0).abs() < 1e-9 * all.abs());
    }
}

/// `monitor` and early stopping watch one target, whether or not its metric is a column; `compare` and `list` follow.
#[test]
fn one_target_chooses_the_best_weights() {
    let (model, _) = trained("[\"price\", \"height\"]", "2", "mse", &["mae"]);
    fs::copy(Path::new(FIXTURES).join("train.csv"), model.place.path().join("train.csv")).unwrap();
    let restless = "optimizer.adam.lr=0.3";
    let best = |run: &Folder, column: &str| {
        let values = run.metrics().only("split", "validation").f64s(column);
        values.iter().copied().fold(f64::INFINITY, f64::min)
    };
    let run = model.place.run(&["trainer.monitor=validation.mae_height", restless]).ended_by(0);
    assert_eq!(run.summary("best_value").parse(), Ok(best(&run, "mae_height")));
    assert!(best(&run, "mae_height") != best(&run, "mae"));
    assert!(run.text("spec.toml").contains("monitor = \"validation.mae_height\""));
    let path = run.0.display().to_string();
    let shown = model.place.runner(&["list", &path]).stdout;
    assert!(shown.lines().next().unwrap().ends_with("best validation.mae_height"), "{shown}");
    // Neither the metric nor its column is logged.
    let watched = "trainer.early_stopping={ patience = 2, metric = \"validation.rmse_height\" }";
    let stopped = model.place.run(&[watched, restless, "trainer.max_epochs=200"]);
    let reason = "early stopping: the best validation rmse_height, ";
    assert!(stopped.ended.stdout.contains(reason), "{:?}", stopped.ended);
    let copied = stopped.ended_by(0).0.join("spec.toml").display().to_string();
    assert_eq!(model.place.runner(&["check", &copied, "-q"]).code, Some(0));
}

/// `--metric` takes what each target has of its own, at the epoch of the best validation; of `r2` more is better.
#[test]
fn runs_are_ranked_by_a_metric_of_one_target() {
    let (model, first) = trained("[\"price\", \"height\"]", "2", "mse", &["r2", "mae"]);
    fs::copy(Path::new(FIXTURES).join("train.csv"), model.place.path().join("train.csv")).unwrap();
    let second = model.place.run(&["optimizer.adam.lr=0.003"]).ended_by(0);
    let runs = [&first, &second];
    let paths = runs.map(|run| run.0.display().to_string());
    let ran =
        |command: &str, more: &[&str]| model.place.runner(&[&[command, &paths[0], &paths[1]], more].concat());
    for (metric, is_more_better) in
        [("validation.mae_height", false), ("mae_price", false), ("r2_height", true)]
    {
        let column = metric.trim_start_matches("validation.");
        let values = runs.map(|run| {
            let epoch: usize = run.summary("best_epoch").parse().unwrap();
            run.metrics().only("split", "validation").f64s(column)[epoch - 1]
        });
        let best = usize::from((values[0] < values[1]) == is_more_better);
        let ended = ran("compare", &["--metric", metric]);
        let value = runner::units::number(values[best]);
        let (number, lr) = (best + 1, ["0.03", "0.003"][best]);
        let words = format!("best: #{number} lr {lr}, validation {} {value};", column.replace('_', " "));
        assert!(ended.stdout.starts_with(&words), "{words}: {ended:?}");
        let between = f64::midpoint(values[0], values[1]);
        let [less, more] = ["<", ">"].map(|order| {
            let filter = format!("{metric} {order} {between}");
            ran("compare", &["-q", "--where", &filter]).stdout
        });
        assert_eq!([&*less, &*more], ["1 run\n"; 2], "{metric}");
    }
    let page = model.place.path().join("page.html").display().to_string();
    assert_eq!(ran("report", &["--metric", "mae_height", "-o", &page]).code, Some(0));
    let refused = ran("compare", &["--metric", "mae_hight"]);
    let hint = "did you mean `mae_height`? runs here have validation.loss, train.loss, validation.mae, validation.r2, \
                validation.mae_height, validation.mae_price, ";
    assert!(refused.code == Some(2) && refused.stderr.contains(hint), "{refused:?}");
}

/// An interrupted run has the confusion matrix of its best validation, even if that was before the checkpoint
/// from which it resumes.
#[test]
fn a_resumed_run_has_the_confusion_matrix_of_its_best_validation() {
    let (model, _) = trained("\"kind\"", "3", "cross_entropy", &["f1"]);
    fs::copy(Path::new(FIXTURES).join("train.csv"), model.place.path().join("train.csv")).unwrap();
    let restless = ["optimizer.adam.lr=2.0", "checkpoint.every_epochs=1"];
    let whole = model.place.run(&[&restless[..], &["trainer.max_epochs=20"]].concat()).ended_by(0);
    let best: u64 = whole.summary("best_epoch").parse().unwrap();
    assert!(best < 19, "{best}");
    let part = format!("trainer.max_epochs={}", best + 1);
    let part = model.place.run(&[&restless[..], &[&part]].concat()).ended_by(0);
    fs::remove_file(part.0.join("confusion.csv")).unwrap();
    model.place.runner(&["run", "--resume", part.0.to_str().unwrap(), "trainer.max_epochs=20"]).ended_by(0);
    assert_eq!(part.summary("best_epoch"), best.to_string());
    assert_eq!(part.text("confusion.csv"), whole.text("confusion.csv"));
}
