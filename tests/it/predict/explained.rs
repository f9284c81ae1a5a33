//! Why a model says what it says: its figures for each class, and which columns it relies on.

use std::fs;

use serde_json::Value;

use super::{
    Model,
    arrays::{npy, singles},
    expected_metrics, near, spec,
};
use crate::process::Sandbox;

/// A model that is judged by this metric.
fn judged_by(metric: &str, target: &str, other: &str, outputs: usize, loss: &str) -> Model {
    let monitored = format!("[trainer]\nmonitor = \"validation.{metric}\"");
    Model::new(&spec(target, other, outputs, loss).replace("[trainer]", &monitored))
}

fn f64_of(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Precision, recall and F1 are those of scikit-learn's `classification_report`.
#[test]
fn figures_of_each_class() {
    let found = Model::kind().evaluated(&["new.csv"])["classes"].take();
    let expected = expected_metrics("kind")["classes"].take();
    let (found, expected) = (found.as_array().unwrap(), expected.as_array().unwrap());
    assert_eq!(found.len(), 3);
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found["class"], expected["class"]);
        let names =
            [("rows", "support"), ("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")];
        for (own, peers) in names {
            near(&[f64_of(&found[own])], &[f64_of(&expected[peers])], 1e-15);
        }
    }
}

/// The means over classes are then those of one class, as good as they look.
#[test]
fn rows_of_one_class_are_said_to_be_so() {
    let model = Model::kind();
    let is_small = |line: &&str| line.starts_with("kind,") || line.starts_with("small,");
    let small: String = model.new_rows().split_inclusive('\n').filter(is_small).collect();
    model.write("small.csv", small);
    let ended = model.place.runner(&["evaluate", &model.run, "small.csv"]);
    insta::assert_snapshot!(ended.stdout + &ended.stderr, @r#"
    rows               243                      baseline
    loss               0.8036 [0.7726, 0.8341]  0         cross_entropy, as in training
    accuracy           0.7407 [0.6871, 0.7942]  1.000
    f1                 0.2837 [0.2715, 0.2951]  1.000     mean over classes
    f1_weighted        0.8511 [0.8146, 0.8853]  1.000     by the rows of each class
    precision          0.3333                   1.000     mean over classes
    recall             0.2469 [0.2290, 0.2647]  1.000     mean over classes
    auc                none                               mean over classes, each against the rest
    average_precision  1.000                    1.000     mean over classes, each against the rest
    95 % intervals: bootstrap over 243 rows, 2,000 resamples; of the model as it is, not of its training
    baseline: a model that always predicts `small`, with the shares of the classes in these rows as probabilities

    class           rows  precision  recall      f1
    a "middle" one  none
    large           none
    small            243      1.000  0.7407  0.8511
    weights: best.safetensors, of epoch 1, step 3
    warning: columns that the model does not use: `note`
    warning: every row is `small`: auc needs rows of two classes, and f1, precision and recall say little
    "#);
    let all = model.place.runner(&["evaluate", &model.run, "new.csv"]);
    assert!(all.code == Some(0) && !all.stderr.contains("every row"), "{all:?}");
    let json = model.evaluated(&["small.csv"]);
    assert_eq!(
        json["classes"][0].to_string(),
        r#"{"class":"a \"middle\" one","rows":0,"precision":null,"recall":null,"f1":null,"average_precision":null}"#
    );
}

/// Of two classes the average precision is that of the second. A run warns if that is nearly all rows, and `evaluate` has both.
#[test]
fn average_precision_names_its_class() {
    let rows: String = (0..60)
        .map(|row| format!("{},{}\n", row % 7, if row % 7 == 3 || row % 10 == 0 { "ja" } else { "nein" }))
        .collect();
    let spec = "data.csv = { path = 'rows.csv', target = 'again', validation_fraction = 0.2 }\n\
                model = { layers = [{ linear = { out_features = 2 } }], loss = 'cross_entropy' }\n\
                optimizer.adam.lr = 0.1\ntrainer = { max_epochs = 2, monitor = 'validation.average_precision' }\n";
    let place = Sandbox::new(spec);
    fs::write(place.path().join("rows.csv"), format!("days,again\n{rows}")).unwrap();
    let ran = place.runner(&["spec.toml", "-q"]);
    let (before, rest) = ran.stderr.split_once(" of 48 rows to train on are: ").unwrap();
    assert!(
        before.starts_with("warning: `average_precision` is that of `nein`, the second class, which "),
        "{ran:?}"
    );
    let way = "for the rarer `ja` choose by `auc`, which is the same for both; `runner evaluate` prints the average precision of each\n";
    assert_eq!(rest, way);
    let often: String =
        (0..60).map(|row| format!("{row},{}\n", if row % 9 < 4 { "ja" } else { "nein" })).collect();
    fs::write(place.path().join("even.csv"), format!("days,again\n{often}")).unwrap();
    let even = place.runner(&["check", "spec.toml", "data.csv.path=even.csv", "-q"]);
    assert_eq!((even.code, even.stderr.as_str()), (Some(0), ""), "33 of 60 rows are `nein`");
    let run = ran.stdout.trim();
    let ended = place.runner(&["evaluate", run, "rows.csv"]);
    let json = place.runner(&["evaluate", run, "rows.csv", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["positive_class"], "nein");
    assert_eq!(json["classes"][1]["average_precision"], json["average_precision"]);
    let [ja, nein] =
        [0, 1].map(|class| runner::units::number(f64_of(&json["classes"][class]["average_precision"])));
    let interval = &json["intervals"]["metrics"]["average_precision"];
    let [low, high] = ["low", "high"].map(|end| runner::units::number(f64_of(&interval[end])));
    let share = "0.7667    ";
    let line =
        format!("\naverage_precision  {nein} [{low}, {high}]  {share}of `nein`; that of `ja` is {ja}\n");
    assert!(ended.stdout.contains(&line), "{ended:?}");
}

/// With two values of a column, a permutation changes nothing or exchanges them: the mean and the deviation follow from
/// how many of the five do, and from the figures with both exchanged. The categories of a column of words move together.
#[test]
fn a_column_is_permuted_as_a_whole() {
    const ROWS: &str = "colour,place,width,height,depth,price,kind\n\
        red,north,1,-130,0.001,60000,small\nblue,south,6,-80,0.004,90000,large\n";
    let monitored = |spec: String, metric: &str| {
        spec.replace("[trainer]", &format!("[trainer]\nmonitor = \"validation.{metric}\""))
    };
    let both = spec("price", "kind", 2, "mse").replace("price.safetensors", "both.safetensors");
    let both = both.replace("target = \"price\"", "target = [\"price\", \"height\"]");
    for (spec, metric, features) in [
        (monitored(spec("kind", "price", 3, "cross_entropy"), "accuracy"), "accuracy", 5),
        (monitored(both, "mae_height"), "mae_height", 4),
    ] {
        let model = Model::new(&spec);
        model.write("two.csv", ROWS);
        let plain = model.evaluated(&["two.csv", "--importance"]);
        let found = &plain["importance"];
        assert_eq!((&found["rows"], &found["repeats"]), (&2.into(), &5.into()));
        let columns = found["columns"].as_array().unwrap();
        assert_eq!(columns.len(), features);
        let cells: Vec<Vec<&str>> = ROWS.lines().map(|line| line.split(',').collect()).collect();
        for own in columns {
            let column = cells[0].iter().position(|name| own["column"] == *name).unwrap();
            let mut swapped = cells.clone();
            (swapped[1][column], swapped[2][column]) = (cells[2][column], cells[1][column]);
            let lines: Vec<String> = swapped.iter().map(|line| line.join(",")).collect();
            model.write("swapped.csv", lines.join("\n"));
            let swapped = model.evaluated(&["swapped.csv"]);
            let swaps = |name: &str| {
                let change = f64_of(&swapped[name]) - f64_of(&plain[name]);
                let worse = if name == "accuracy" { -change } else { change };
                let [mean, std] = ["mean", "std"].map(|of| f64_of(&own[name][of]));
                let share = if worse == 0.0 { mean } else { mean / worse };
                near(&[std], &[worse.abs() * (share * (1.0 - share)).max(0.0).sqrt()], 1e-6);
                near(&[5.0 * share], &[(5.0 * share).round().clamp(0.0, 5.0)], 1e-5);
                (worse != 0.0).then_some((5.0 * share).round())
            };
            let of_loss = swaps("loss");
            assert!(of_loss.is_some() && swaps(metric).is_none_or(|swaps| Some(swaps) == of_loss), "{own}");
        }
    }
}

/// Five permutations of each column agree with 300 of scikit-learn's `permutation_importance`: of a metric of which more
/// is better, and of one of which less is.
#[test]
fn importance_is_that_of_the_peers() {
    for (metric, model) in [
        ("auc", judged_by("auc", "kind", "price", 3, "cross_entropy")),
        ("mae", judged_by("mae", "price", "kind", 1, "mse")),
    ] {
        let expected = expected_metrics(if metric == "auc" { "kind" } else { "price" })["importance"].take();
        let all = model.evaluated(&["new.csv", "--importance"]);
        assert_eq!(all, model.evaluated(&["new.csv", "--importance"]), "the same bits each time");
        let columns = all["importance"]["columns"].as_array().unwrap();
        assert_eq!(columns.len(), 5);
        for column in columns {
            for name in ["loss", metric] {
                let peers = &expected[column["column"].as_str().unwrap()][name];
                let [found, wanted] = [&column[name], peers].map(|of| [&of["mean"], &of["std"]].map(f64_of));
                // Four standard errors of a mean of five.
                let apart = (found[0] - wanted[0]).abs() / (wanted[1] * (1.0 / 5.0 + 1.0 / 300.0_f64).sqrt());
                assert!(
                    apart < 4.0 && (0.1..2.5).contains(&(found[1] / wanted[1])),
                    "{name}: {column}, {peers}"
                );
            }
        }
        let means: Vec<f64> = columns.iter().map(|column| f64_of(&column[metric]["mean"])).collect();
        assert!(means.is_sorted_by(|a, b| a >= b), "the most important first: {means:?}");
        let shown = model.place.runner(&["evaluate", &model.run, "new.csv", "--importance"]).stdout;
        let (_, table) = shown.split_once("\nthe values of one column permuted among 700 rows: ").unwrap();
        let verb = if metric == "auc" { "falls" } else { "rises" };
        let heading = format!("column {metric} {verb} by loss rises by");
        let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words.join(" "), heading);
        assert_eq!(table.lines().count(), 7, "{table}");
        let first = &columns[0];
        let figures = [metric, "loss"].map(|name| {
            let [mean, std] = ["mean", "std"].map(|of| runner::units::number(f64_of(&first[name][of])));
            format!("{mean} \u{b1} {std}")
        });
        let words: Vec<&str> = table.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(words.join(" "), format!("{} {}", first["column"].as_str().unwrap(), figures.join(" ")));
    }
}

/// Features of arrays have numbers. Of a linear model of independent features, the squared error rises by
/// `2 * weight^2 * variance`, whether the rows are those of a file or the test rows.
#[test]
fn features_of_arrays_are_numbered() {
    let model = Model::new(&crate::run::LINREG.replace("max_epochs = 4", "max_epochs = 40"));
    let rows: Vec<[f32; 2]> =
        (0..30_u8).flat_map(|a| (0..30_u8).map(move |b| [a, b].map(|x| f32::from(x) / 10.0))).collect();
    let targets: Vec<f32> = rows.iter().map(|[a, b]| 2.0 * a - 3.4 * b + 4.2).collect();
    model.write("x.npy", npy("<f4", "(900, 2)", singles(rows.as_flattened())));
    model.write("y.npy", npy("<f4", "(900,)", singles(&targets)));
    let found = model.evaluated(&["x.npy", "--labels", "y.npy", "--importance"]);
    let columns = found["importance"]["columns"].as_array().unwrap();
    let variance = (900.0 - 1.0) / 12.0 / 100.0;
    for (column, (feature, weight)) in columns.iter().zip([("1", 3.4_f64), ("0", 2.0)]) {
        assert_eq!(column["feature"], feature);
        let expected = 2.0 * weight.powi(2) * variance;
        assert!((f64_of(&column["loss"]["mean"]) / expected - 1.0).abs() < 0.1, "{column}, {expected}");
    }
}
