//! How sure metrics are: intervals by the bootstrap, compared with those of SciPy.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{FIXTURES, Model};
use crate::process::Sandbox;

fn ends(interval: &Value) -> [f64; 2] {
    ["low", "high"].map(|end| interval[end].as_f64().unwrap_or_else(|| panic!("{interval} is no interval")))
}

/// Both draw at random: of 2,000 resamples the quantile of 2.5 % of a normal distribution has a standard deviation of 1.5 % of the
/// interval's width.
#[test]
fn intervals_are_those_of_scipy() {
    let expected: Value =
        serde_json::from_str(&fs::read_to_string(Path::new(FIXTURES).join("intervals.json")).unwrap())
            .unwrap();
    for (model, name) in [(Model::price(), "price"), (Model::kind(), "kind")] {
        let found = model.evaluated(&["new.csv"])["intervals"].take();
        let drawn = ["confidence", "over", "drawn", "resamples"].map(|key| &found[key]);
        assert_eq!(drawn, [&json!(0.95), &json!("rows"), &json!(700), &json!(2000)]);
        let (found, expected) = (found["metrics"].as_object().unwrap(), expected[name].as_object().unwrap());
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for ((metric, found), expected) in found.iter().zip(expected.values()) {
            let (found, expected) = (ends(found), [0, 1].map(|end| expected[end].as_f64().unwrap()));
            let width = expected[1] - expected[0];
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found - expected).abs() < 0.06 * width, "{metric}: {found}, expected {expected}");
            }
        }
    }
}

/// Of several targets each has intervals of its own.
#[test]
fn several_targets_have_intervals() {
    let found = Model::both().evaluated(&["new.csv"]);
    let metrics = found["intervals"]["metrics"].as_object().unwrap();
    let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
    let of_targets =
        ["mae_price", "rmse_price", "r2_price", "mae_height", "rmse_height", "r2_height"].map(String::from);
    assert_eq!(
        names,
        [&["loss", "mae", "rmse", "r2"][..], &of_targets.each_ref().map(|name| &name[..])].concat()
    );
    for (name, interval) in metrics {
        let ([low, high], value) = (ends(interval), found[name].as_f64().unwrap());
        assert!(low < value && value < high, "{name}: {value} in {interval}");
    }
}

/// A trained classifier of visits, and the rows of `visits`.
fn trained(rows: &str, more: &str) -> (Sandbox, String) {
    let spec = format!(
        "{more}\n[data.csv]\npath = \"rows.csv\"\ntarget = \"ill\"\ngroup = \"patient\"\n\
         [model]\nlayers = [{{ linear = {{ out_features = 2 }} }}]\nloss = \"cross_entropy\"\n\
         [optimizer.adam]\nlr = 0.1\n[trainer]\nmax_epochs = 3\n"
    );
    let place = Sandbox::new(&spec);
    fs::write(place.path().join("rows.csv"), rows).unwrap();
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    (place, run)
}

/// Eight equal visits of each patient: a resample of patients has the spread of as many rows, not of eight times as many.
fn visits() -> String {
    let row = |n: usize| {
        let patient = n / 8;
        format!(
            "p{patient},{},{},{}\n",
            patient * 17 % 23,
            patient * 29 % 31,
            usize::from(patient * 17 % 23 + patient % 5 > 13)
        )
    };
    format!("patient,age,dose,ill\n{}", (0..480).map(row).collect::<String>())
}

#[test]
fn groups_are_drawn_whole() {
    let (place, run) = trained(&visits(), "data.split = { validation = 0.2, test = 0.3 }");
    let evaluated = |words: &[&str]| {
        let ended = place.runner(&[&["evaluate", &run, "--json"], words].concat()).ended_by(0);
        (serde_json::from_str::<Value>(&ended.stdout).unwrap(), ended.stderr)
    };
    // The test rows of the run, and the rows of a file.
    let (own, _) = evaluated(&[]);
    assert_eq!([&own["rows"], &own["intervals"]["drawn"]], [&json!(144), &json!(18)]);
    let (all, words) = evaluated(&["rows.csv"]);
    assert_eq!([&all["intervals"]["over"], &all["intervals"]["drawn"]], [&json!("groups"), &json!(60)]);
    assert!(!words.contains("without the column"), "{words}");
    let line = "\n95 % intervals: bootstrap over 60 groups of `patient`, 2,000 resamples; of the model as it is, not of its training\n";
    assert!(place.runner(&["evaluate", &run, "rows.csv"]).stdout.contains(line));
    // A missing cell names no patient.
    fs::write(place.path().join("unknown.csv"), visits().replace("\np0,", "\nNA,").replace("\np1,", "\n,"))
        .unwrap();
    assert_eq!(evaluated(&["unknown.csv"]).0["intervals"]["drawn"], 58 + 16);
    // One row of each patient is the same sample of patients.
    let once = |(n, line): &(usize, &str)| *n == 0 || n % 8 == 1 && !line.is_empty();
    let once: String =
        visits().lines().enumerate().filter(once).map(|(_, line)| format!("{line}\n")).collect();
    fs::write(place.path().join("once.csv"), &once).unwrap();
    let (rows, _) = evaluated(&["once.csv"]);
    for metric in ["accuracy", "auc", "average_precision", "f1"] {
        assert_eq!(all["intervals"]["metrics"][metric], rows["intervals"]["metrics"][metric], "{metric}");
    }
    // Without their patients the rows are taken for as many independent ones.
    let rows: String =
        visits().lines().map(|line| format!("{}\n", line.split_once(',').unwrap().1)).collect();
    fs::write(place.path().join("apart.csv"), rows).unwrap();
    let (apart, words) = evaluated(&["apart.csv"]);
    let warning = "warning: without the column `patient`, whose rows belong together, intervals take each row as one of its own\n";
    assert!(words.contains(warning), "{words}");
    let width = |of: &Value| {
        let [low, high] = ends(&of["intervals"]["metrics"]["accuracy"]);
        high - low
    };
    let ratio = width(&all) / width(&apart);
    assert!((2.5..3.2).contains(&ratio), "{ratio} is about the root of 8");
}

/// Resamples without a row of a rare class define no area; where no row is wrong, none has a lower accuracy.
#[test]
fn what_resamples_do_not_show_is_said() {
    let row = |n: usize| format!("p{n},{},{}\n", n % 7, usize::from(n.is_multiple_of(20)));
    let rows = format!("patient,age,ill\n{}", (0..40).map(row).collect::<String>());
    let (place, run) = trained(&rows, "data.folds = 2\ndata.fold = 0");
    let words = place.runner(&["evaluate", &run, "rows.csv"]).stdout;
    insta::assert_snapshot!(words, @r"
    rows               40                        baseline
    loss               0.2667 [0.1487, 0.4481]   0.1985    cross_entropy, as in training
    accuracy           0.9500 [0.8750, 1.000]    0.9500
    f1                 0.4872 [0.4667, 1.000]    0.4872    mean over classes
    f1_weighted        0.9256 [0.8167, 1.000]    0.9256    by the rows of each class
    precision          0.4750 [0.4375, 1.000]    0.4750    mean over classes
    recall             0.5000 [0.5000, 1.000]    0.5000    mean over classes
    auc                0.4934 [0.01408, 0.9733]  0.5000
    average_precision  0.1083 [0.02500, 0.5000]  0.05000   of `1`; that of `0` is 0.9319
    95 % intervals: bootstrap over 40 groups of `patient`, 2,000 resamples; of the model as it is, not of its training
    260 of 2,000 resamples are left out of auc and average_precision, which they do not define
    baseline: a model that always predicts `0`, with the shares of the classes in these rows as probabilities

    class  rows  precision  recall      f1
    1         2          0       0       0
    0        38     0.9500   1.000  0.9744
    ");
    let only: String =
        rows.lines().filter(|line| !line.ends_with(",1")).map(|line| format!("{line}\n")).collect();
    fs::write(place.path().join("only.csv"), only).unwrap();
    let words = place.runner(&["evaluate", &run, "only.csv"]).stdout;
    insta::assert_snapshot!(words, @r"
    rows               38                       baseline
    loss               0.1660 [0.1330, 0.1998]  0         cross_entropy, as in training
    accuracy           1.000                    1.000
    f1                 1.000                    1.000     mean over classes
    f1_weighted        1.000                    1.000     by the rows of each class
    precision          1.000                    1.000     mean over classes
    recall             1.000                    1.000     mean over classes
    auc                none
    average_precision  none                               of `1`; that of `0` is 1.000
    95 % intervals: bootstrap over 38 groups of `patient`, 2,000 resamples; of the model as it is, not of its training
    no row is wrong, so no resample shows a lower accuracy: one of 0.9075 fits as well (Clopper and Pearson)
    baseline: a model that always predicts `0`, with the shares of the classes in these rows as probabilities

    class  rows  precision  recall     f1
    1      none
    0        38      1.000   1.000  1.000
    ");
    let json: Value =
        serde_json::from_str(&place.runner(&["evaluate", &run, "only.csv", "--json"]).stdout).unwrap();
    assert_eq!(json["intervals"]["metrics"]["accuracy"], Value::Null);
}
