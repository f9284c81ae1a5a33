//! `weight`: a column says how much each row counts. PyTorch's curves are in `parity`, the ops in `conformance` and `kernels`, the
//! engines of a GPU in `cuda`.

use std::fs;

use runner::{data::Scale, spec::Metric, train::Scores};

use super::process::{Folder, Sandbox};

const SPEC: &str = r#"
[data]
batch_size = 16
shuffle = false
[data.csv]
path = "survey.csv"
target = "y"
weight = "w"
standardize = false
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.02
[trainer]
max_epochs = 3
"#;

/// 103 rows of `a,b,y,w` with the weights 0, 0.5, ..., 2.
pub fn rows() -> Vec<[f64; 4]> {
    let row = |n: u32| {
        let [a, b] = [f64::from(n * 7 % 13) / 6.0 - 1.0, f64::from(n * 3 % 11) / 5.0 - 1.0];
        [a, b, a - 2.0 * b + f64::from(n % 4) * 0.25, f64::from(n * 2 % 5) / 2.0]
    };
    (0..103).map(row).collect()
}

pub fn text(rows: impl IntoIterator<Item = [f64; 4]>) -> String {
    let lines = rows.into_iter().map(|[a, b, y, w]| format!("{a},{b},{y},{w}\n"));
    "a,b,y,w\n".to_owned() + &lines.collect::<String>()
}

pub fn sandbox() -> Sandbox {
    let place = Sandbox::new(SPEC);
    fs::write(place.path().join("survey.csv"), text(rows())).unwrap();
    place
}

pub fn losses(run: &Folder) -> Vec<f64> {
    run.metrics().f64s("loss")
}

#[track_caller]
pub fn near(own: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(own.len(), wanted.len());
    let pairs = own.iter().zip(wanted);
    pairs.for_each(|(own, want)| assert!((own - want).abs() <= tolerance * want.abs(), "{own} {want}"));
}

/// Cells that are no weights, and columns that cannot be weights; all messages.
#[test]
fn what_is_no_weight() {
    let place = sandbox();
    let refused = |words: &[&str]| {
        let ended = place.runner(&[&["check", "spec.toml"], words].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.stderr
    };
    let with = |cells: &[(usize, &str)]| {
        let mut lines: Vec<String> = text(rows()).lines().map(str::to_owned).collect();
        for (line, cell) in cells {
            let end = lines[line - 1].rfind(',').unwrap();
            lines[line - 1].replace_range(end + 1.., cell);
        }
        fs::write(place.path().join("survey.csv"), lines.join("\n") + "\n").unwrap();
        refused(&[])
    };
    let folder = place.path().to_string_lossy();
    let all = [
        refused(&["data.csv.weight=v"]),
        refused(&["data.csv.weight=y"]),
        with(&[(3, "-1"), (4, ""), (5, "many"), (6, "inf")]),
    ];
    insta::assert_snapshot!(all.join("\n").replace(&*folder, "[folder]"), @r#"
    error: no column `v` in `survey.csv`
     --> argument:1:17
      |
    1 | data.csv.weight=v
      |                 ^
      |
      = hint: the columns are `a`, `b`, `y`, `w`

    error: `data.csv.weight`: the column `y` is already in `target`
     --> argument:1:17
      |
    1 | data.csv.weight=y
      |                 ^
      |
      = hint: a column has one use: name it once

    error: `-1` in the weight column `w` is negative
     --> [folder]/survey.csv:3:45
      |
    3 | 0.16666666666666674,-0.4,1.2166666666666668,-1
      |                                             ^
      |
      = hint: a weight is a number of 0 or more: how much the row counts

    error: missing cell in the weight column `w`
     --> [folder]/survey.csv:4:61
      |
    4 | -0.8333333333333334,0.19999999999999996,-0.7333333333333334,
      |                                                             ^
      |
      = hint: `data.csv.missing = "mean"` and `"drop"` leave such rows out; a weight is never filled

    error: `many` in the weight column `w` is not a number
     --> [folder]/survey.csv:5:45
      |
    5 | 0.33333333333333326,0.8,-0.5166666666666668,many
      |                                             ^
      |
      = hint: a weight is a number of 0 or more: how much the row counts

    error: `inf` in the weight column `w` is not a finite number
     --> [folder]/survey.csv:6:45
      |
    6 | -0.6666666666666667,-0.8,0.9333333333333333,inf
      |                                             ^

    error: 4 problems in spec.toml
    "#);
    fs::write(place.path().join("survey.csv"), text(rows().into_iter().map(|[a, b, y, _]| [a, b, y, 0.0])))
        .unwrap();
    insta::assert_snapshot!(refused(&[]), @r#"
    error: the weights of all rows to train on are 0
     --> spec.toml:2:2
      |
    2 | [data]
      |  ^^^^
    "#);
}

/// Rows without a weight are left out where rows without a target are.
#[test]
fn rows_without_a_weight() {
    let place = sandbox();
    let cut = text(rows()).replace(",1.5\n", ",\n");
    fs::write(place.path().join("survey.csv"), cut).unwrap();
    let checked = place.runner(&["check", "spec.toml", "data.csv.missing=mean"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(
        checked.stdout.contains("             dropped 20 rows without a target or a weight\n"),
        "{checked:?}"
    );
}

/// A weight of 2 is the row twice, and 0 is no row: in the loss, in its gradient, and in metrics of the validation. The number of
/// rows is that of the file.
#[test]
fn a_weight_counts_like_as_many_rows() {
    let place = sandbox();
    let whole = |rows: Vec<[f64; 4]>| rows.into_iter().map(|[a, b, y, w]| [a, b, y, 2.0 * w]);
    let repeated = whole(rows()).flat_map(|[a, b, y, w]| vec![[a, b, y, 1.0]; w as usize]);
    fs::write(place.path().join("whole.csv"), text(whole(rows()))).unwrap();
    fs::write(place.path().join("repeated.csv"), text(repeated)).unwrap();
    for loss in ["mse", "l1", "huber"] {
        let run = |file: &str, more: &[&str]| {
            let loss = format!("model.loss={loss}");
            let files = [format!("data.csv.path={file}"), format!("data.csv.validation_path={file}")];
            let metrics = "logging.metrics=[\"loss\", \"grad_norm\", \"mae\", \"rmse\", \"r2\"]";
            let words = ["-q", &loss, &files[0], &files[1], "data.batch_size=500", metrics];
            place.run(&[&words[..], more].concat()).ended_by(0).metrics()
        };
        let plain = run("repeated.csv", &["~data.csv.weight", "data.csv.ignore=[\"w\"]"]);
        let weighted = run("whole.csv", &[]);
        assert_eq!(weighted.cell(0, "rows"), "103");
        near(&weighted.f64s("loss"), &plain.f64s("loss"), 1e-5);
        for split in ["train", "validation"] {
            let of = |table: &super::process::Table, metric: &str| {
                let cells = table.column("split").into_iter().zip(table.column(metric));
                cells
                    .filter(|(own, _)| *own == split)
                    .map(|(_, cell)| cell.parse().unwrap())
                    .collect::<Vec<f64>>()
            };
            let metrics: &[&str] = if split == "train" { &["grad_norm"] } else { &["mae", "rmse", "r2"] };
            metrics.iter().for_each(|metric| near(&of(&weighted, metric), &of(&plain, metric), 1e-5));
        }
    }
}

/// `check` tells how unequal the weights are; the recorded spec repeats the run; equal weights are none, whatever they are.
#[test]
fn weights_are_recorded() {
    let place = sandbox();
    let split = ["data.split.test=0.1", "data.split.validation=0.2", "data.split.shuffle=false"];
    let run = |words: &[&str]| place.run(&[&["-q"], &split[..], words].concat()).ended_by(0);
    let trained = rows().into_iter().take(72).map(|[.., w]| w);
    let effective = trained.clone().sum::<f64>().powi(2) / trained.map(|w| w * w).sum::<f64>();
    let note =
        format!("`w` weighs the rows: the 72 rows to train on count like {effective:.2} of equal weight\n");
    let weighted = run(&[]);
    assert!(weighted.text("run.log").contains(&note), "{note} {}", weighted.text("run.log"));
    assert!(weighted.text("spec.toml").contains("weight = \"w\"\n"));
    fs::write(place.path().join("again.toml"), weighted.text("spec.toml")).unwrap();
    let again = place.runner(&["again.toml", "-q"]);
    assert_eq!(losses(&Folder(place.path().join(again.stdout.trim()))), losses(&weighted));
    let plain = run(&["~data.csv.weight", "data.csv.ignore=[\"w\"]"]);
    assert!(losses(&plain)[0] != losses(&weighted)[0]);
    let compared = [&weighted, &plain].map(|run| run.0.display().to_string());
    let compared = place.runner(&["compare", &compared[0], &compared[1]]).stdout;
    assert!(compared.contains("losses are not comparable: data.csv."), "{compared}");
    let equal = |of: f64| rows().into_iter().map(move |[a, b, y, _]| [a, b, y, of]);
    // Sums of the largest overflow f32, and the smallest are subnormal in it.
    for weight in [3.0, 1e-40, 1.7e38] {
        fs::write(place.path().join("survey.csv"), text(equal(weight))).unwrap();
        near(&losses(&run(&[])), &losses(&plain), 1e-6);
    }
}

/// A sweep over folds reads its table once; each fold's rows have their weights.
#[test]
fn folds_have_weights() {
    let place = sandbox();
    let ended = place.runner(&["spec.toml", "data.folds=3", "data.fold=0..3", "-q"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let sweep = place.path().join(ended.stdout.trim());
    for fold in 0..3 {
        let folder = Folder(sweep.join(format!("00{fold}-fold={fold}")));
        fs::write(place.path().join("fold.toml"), folder.text("spec.toml")).unwrap();
        let alone = place.runner(&["fold.toml", "-q"]);
        assert_eq!(losses(&Folder(place.path().join(alone.stdout.trim()))), losses(&folder));
    }
}

/// `evaluate` weighs rows whose file has the column, and says so where it has none; `predict` leaves it alone.
#[test]
fn new_rows_have_weights_or_none() {
    let place = sandbox();
    let run = place.run(&[
        "-q",
        "data.csv.validation_path=survey.csv",
        "logging.metrics=[\"loss\", \"mae\", \"r2\"]",
    ]);
    let run = run.ended_by(0);
    let folder = run.0.display().to_string();
    let evaluate = |file: &str| {
        let ended = place.runner(&["evaluate", &folder, file, "--json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let object: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        (["loss", "mae", "r2"].map(|name| object[name].as_f64().unwrap()), ended.stderr)
    };
    let (own, _) = evaluate("survey.csv");
    let validated = run.metrics().only("split", "validation");
    near(&own, &["loss", "mae", "r2"].map(|name| *validated.f64s(name).last().unwrap()), 1e-6);
    // From predictions, by the definitions.
    let predicted = place.runner(&["predict", &folder, "survey.csv"]);
    assert!(!predicted.stderr.contains("`w`"), "{predicted:?}");
    let predicted: Vec<f64> = predicted.stdout.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    let mean = |weighs: bool, value: &dyn Fn(f64, f64) -> f64| {
        let weigh = |w: f64| if weighs { w } else { 1.0 };
        let terms = rows().into_iter().zip(&predicted).map(|([.., y, w], p)| weigh(w) * value(y, *p));
        terms.sum::<f64>() / rows().iter().map(|[.., w]| weigh(*w)).sum::<f64>()
    };
    let figures = |weighs: bool| {
        let squared = mean(weighs, &|y, p| (y - p) * (y - p));
        let centre = mean(weighs, &|y, _| y);
        let spread = mean(weighs, &|y, _| (y - centre) * (y - centre));
        [squared, mean(weighs, &|y, p| (y - p).abs()), 1.0 - squared / spread]
    };
    near(&own, &figures(true), 1e-5);
    let without: Vec<String> =
        text(rows()).lines().map(|line| line[..line.rfind(',').unwrap()].to_owned()).collect();
    fs::write(place.path().join("new.csv"), without.join("\n") + "\n").unwrap();
    let (plain, words) = evaluate("new.csv");
    near(&plain, &figures(false), 1e-5);
    assert!(
        words.contains("warning: without the column `w`, which weighs the rows, each counts as 1\n"),
        "{words}"
    );
    let table = |file: &str| place.runner(&["evaluate", &folder, file]).stdout;
    assert!(
        table("survey.csv").contains("  mse, weighted by `w`, as in training\n"),
        "{}",
        table("survey.csv")
    );
    assert!(table("new.csv").contains("  mse, as in training\n"), "{}", table("new.csv"));
    let none: String = text(rows().into_iter().map(|[a, b, y, _]| [a, b, y, 0.0]));
    fs::write(place.path().join("none.csv"), none).unwrap();
    let ended = place.runner(&["evaluate", &folder, "none.csv"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("error: the weights of all rows, in the column `w`, are 0\n"), "{ended:?}");
}

/// Metrics of classes count rows equally, and where they are shown it is said.
#[test]
fn metrics_of_classes_count_rows_equally() {
    let place = sandbox();
    let text = text(rows());
    let kind = |n: usize| if n == 0 { "kind" } else { ["x", "y", "y"][n % 3] };
    let named = text.lines().enumerate().map(|(n, line)| format!("{line},{}\n", kind(n)));
    fs::write(place.path().join("kinds.csv"), named.collect::<String>()).unwrap();
    let words = [
        "data.csv.path=kinds.csv",
        "data.csv.validation_path=kinds.csv",
        "data.csv.target=kind",
        "model.loss=cross_entropy",
        "model.layers=[{linear={out_features=2}}]",
        "logging.metrics=[\"loss\", \"accuracy\", \"f1\"]",
    ];
    let run = place.run(&[&["-q"], &words[..]].concat()).ended_by(0);
    let note = "of equal weight; accuracy and other metrics of classes count rows equally\n";
    assert!(run.text("run.log").contains(note), "{}", run.text("run.log"));
    let folder = run.0.display().to_string();
    let ended = place.runner(&["evaluate", &folder, "kinds.csv", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let validated = run.metrics().only("split", "validation");
    for name in ["loss", "accuracy", "f1"] {
        near(&[object[name].as_f64().unwrap()], &[*validated.f64s(name).last().unwrap()], 1e-6);
    }
    let table = place.runner(&["evaluate", &folder, "kinds.csv"]).stdout;
    for words in
        ["  cross_entropy, weighted by `w`, as in training\n", "  mean over classes, rows count equally\n"]
    {
        assert!(table.contains(words), "{table}");
    }
}

/// A draft names columns that may be weights.
#[test]
fn a_draft_tells_of_weights() {
    let place = sandbox();
    let named = text(rows()).replacen(",w\n", ",sample_weight\n", 1);
    fs::write(place.path().join("survey.csv"), named).unwrap();
    let ended = place.runner(&["new", "csv", "draft.toml", "--from", "survey.csv", "--target", "y"]);
    let words = "`sample_weight` may say how much each row counts; if it does, `weight` in place of a feature has losses and metrics of \
                 numbers count rows so\n";
    assert!(ended.stderr.contains(words), "{ended:?}");
}

/// The values that scikit-learn's metrics give with `sample_weight`.
#[test]
fn metrics_follow_scikit_learn() {
    let mut scores = Scores::of_numbers(&[Scale::IDENTITY]);
    scores.add(&[1.0, 2.0, 4.0], &[1.0, 0.5, 2.5, 2.0, 3.0, 0.0], 2);
    scores.add(&[8.0, 0.0], &[7.0, 3.0, 5.0, 1.25], 2);
    let values = [Metric::Mae, Metric::Rmse, Metric::R2].map(|metric| scores.value(metric).unwrap());
    near(&values, &[1.5185185185185186, 2.2689530951846817, -0.07412707498568971], 1e-14);
}

/// A file is read in parts, whose weights are of very different sizes.
#[test]
fn parts_of_a_file_are_weighed_alike() {
    let place = sandbox();
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    let mut many: Vec<[f64; 4]> = (0..80).flat_map(|_| rows()).collect();
    let half = many.len() / 2;
    many.iter_mut().zip(0..).for_each(|(row, n)| row[3] = if n < half { 1e-3 } else { 1e3 });
    many.iter_mut().take(half).for_each(|row| row[2] += 1.0);
    let mut evaluated = |name: &str| -> Vec<f64> {
        fs::write(place.path().join(name), text(many.iter().copied())).unwrap();
        assert!(fs::metadata(place.path().join(name)).unwrap().len() > 1 << 17);
        many.reverse();
        let shown = place.runner(&["evaluate", &run, name, "--json"]).ended_by(0).stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        ["loss", "mae", "rmse", "r2"].iter().map(|metric| shown[metric].as_f64().unwrap()).collect()
    };
    let (forward, backward) = (evaluated("a.csv"), evaluated("b.csv"));
    near(&forward, &backward, 1e-6);
}
