//! A threshold in place of the more probable class, compared with scikit-learn on rows of a rare class.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{FIXTURES, Model, near};
use crate::process::{Sandbox, Table};

/// A model of `ill`, which few rows are, and `well`; some of the rows validate it, and some are for a test.
fn rare() -> (Sandbox, String) {
    let place = Sandbox::new(&format!(
        "[data.csv]\npath = \"{FIXTURES}/rare.csv\"\ntarget = \"state\"\nstandardize = false\n\
         [data.split]\nvalidation = 0.4\ntest = 0.4\nstratify = true\n\
         [model]\nlayers = [{{ linear = {{ out_features = 2 }} }}]\nloss = \"cross_entropy\"\n\
         init = {{ file = \"{FIXTURES}/rare.safetensors\" }}\n\
         [optimizer.sgd]\nlr = 1e-30\n[trainer]\nmax_epochs = 1\n[logging]\nmetrics = [\"loss\", \"f1\"]\n"
    ));
    fs::copy(Path::new(FIXTURES).join("rare.csv"), place.path().join("rare.csv")).unwrap();
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    (place, run)
}

fn evaluated(place: &Sandbox, run: &str, words: &[&str]) -> Value {
    let ended = place.runner(&[&["evaluate", run, "--json", "-q"], words].concat()).ended_by(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn f64_of(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Metrics of classes follow the threshold, those of probabilities do not, and the baseline predicts the most frequent class still.
#[test]
fn metrics_at_a_threshold_are_those_of_scikit_learn() {
    let (place, run) = rare();
    let text = fs::read_to_string(Path::new(FIXTURES).join("thresholds.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let plain = evaluated(&place, &run, &["rare.csv"]);
    assert_eq!([&plain["threshold"], &plain["thresholds"]], [&Value::Null; 2]);
    for (number, (class, expected)) in expected.as_object().unwrap().iter().enumerate() {
        for (threshold, wanted) in expected["at"].as_object().unwrap() {
            let found = evaluated(
                &place,
                &run,
                &["rare.csv", "--threshold", threshold, "--positive", class, "--thresholds"],
            );
            assert_eq!(found["threshold"].to_string(), *threshold);
            assert_eq!(found["positive_class"], *class);
            for name in ["accuracy", "f1", "f1_weighted", "precision", "recall"] {
                near(&[f64_of(&found[name])], &[f64_of(&wanted[name])], 1e-12);
            }
            for name in ["loss", "auc", "average_precision"] {
                near(&[f64_of(&found[name])], &[f64_of(&expected[name])], 1e-6);
            }
            assert_eq!(found["confusion"], wanted["confusion"]);
            let rows = found["thresholds"]["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["threshold"] == found["threshold"]).unwrap();
            for own in [row, &found["classes"][number]] {
                for name in ["precision", "recall", "f1"] {
                    near(&[f64_of(&own[name])], &[f64_of(&wanted["of_class"][name])], 1e-12);
                }
            }
            let cell = |actual: usize, predicted: usize| wanted["confusion"][actual][predicted].clone();
            let other = 1 - number;
            let counts = [cell(number, number), cell(other, number), cell(number, other), cell(other, other)];
            assert_eq!(["tp", "fp", "fn", "tn"].map(|name| row[name].clone()), counts);
            for name in ["accuracy", "f1", "f1_weighted", "precision", "recall", "loss", "auc"] {
                let [own, usual] = [&found, &plain].map(|of| &of["baseline"]["metrics"][name]);
                assert_eq!(own, usual, "{name}");
            }
            let best = &found["thresholds"]["highest_f1_at"];
            let of_peer = &expected["best"];
            assert!(
                (f64_of(&of_peer["above"])..=f64_of(&of_peer["at_most"])).contains(&f64_of(best)),
                "{best}"
            );
            let row = rows.iter().find(|row| row["threshold"] == *best).unwrap();
            for name in ["precision", "recall", "f1"] {
                near(&[f64_of(&row[name])], &[f64_of(&of_peer[name])], 1e-12);
            }
        }
    }
}

/// A threshold is chosen on the validation rows of the run's own file, whose loss is the recorded one, and judged on the test rows.
#[test]
fn validation_rows_choose_and_test_rows_judge() {
    let (place, run) = rare();
    let words = ["evaluate", &run, "--validation", "--thresholds", "--positive", "ill"];
    let shown = place.runner(&words).ended_by(0);
    let (_, table) = shown.stdout.split_once("\n\n`ill` where").unwrap();
    insta::assert_snapshot!(format!("`ill` where{table}"), @"
    `ill` where its probability is at least the threshold:
    threshold  precision  recall      f1  tp   fp  fn   tn
         0.01    0.06897   1.000  0.1290  10  135   0   55
         0.02    0.08911  0.9000  0.1622   9   92   1   98
         0.05     0.1296  0.7000  0.2188   7   47   3  143
          0.1     0.2258  0.7000  0.3415   7   24   3  166
          0.2     0.5000  0.6000  0.5455   6    6   4  184
         0.23     0.5455  0.6000  0.5714   6    5   4  185
          0.3     0.5000  0.5000  0.5000   5    5   5  185
          0.4     0.3333  0.2000  0.2500   2    4   8  186
          0.5          0       0       0   0    3  10  187
          0.6          0       0       0   0    1  10  189
          0.7          0       0       0   0    1  10  189
          0.8          0       0       0   0    0  10  190
          0.9          0       0       0   0    0  10  190
    the f1 of `ill` is highest at 0.23: on other rows than these it is likely to be lower
    ");
    let recorded = fs::read_to_string(Path::new(&run).join("metrics.csv")).unwrap();
    let recorded = Table::read(&recorded);
    let validation = recorded.column("split").iter().position(|split| *split == "validation").unwrap();
    let found = evaluated(&place, &run, &["--validation"]);
    assert_eq!(found["loss"].as_f64().unwrap() as f32, recorded.f64s("loss")[validation] as f32);
    let confusion = fs::read_to_string(Path::new(&run).join("confusion.csv")).unwrap();
    let cells: Vec<Vec<u64>> = confusion
        .lines()
        .skip(1)
        .map(|line| line.split(',').skip(1).map(|n| n.parse().unwrap()).collect())
        .collect();
    assert_eq!(found["confusion"], json!(cells));
    let judged = place.runner(&["evaluate", &run, "--threshold", "0.3", "--positive", "ill"]).ended_by(0);
    insta::assert_snapshot!(judged.stdout, @"
    rows               200                       baseline
    loss               0.1201 [0.06610, 0.1813]  0.1985    cross_entropy, as in training
    accuracy           0.9550 [0.9250, 0.9800]   0.9500
    f1                 0.6883 [0.4885, 0.8464]   0.4872    mean over classes
    f1_weighted        0.9478 [0.9090, 0.9800]   0.9256    by the rows of each class
    precision          0.7821 [0.4822, 0.9872]   0.4750    mean over classes
    recall             0.6447 [0.4948, 0.8257]   0.5000    mean over classes
    auc                0.9263 [0.8419, 0.9895]   0.5000
    average_precision  0.6150 [0.2953, 0.8764]   0.05000   of `ill`; that of `well` is 0.9956
    95 % intervals: bootstrap over 200 rows, 2,000 resamples; of the model as it is, not of its training
    baseline: a model that always predicts `well`, whatever the threshold, with the shares of the classes in these rows as probabilities
    threshold: `ill` where its probability is at least 0.3, otherwise `well`

    class  rows  precision  recall      f1
    ill      10     0.6000  0.3000  0.4000
    well    190     0.9641  0.9895  0.9766
    ");
}

/// The predicted class follows the threshold, also where a printed probability is the threshold; probabilities do not.
#[test]
fn predictions_follow_the_threshold() {
    let (place, run) = rare();
    let predicted = |words: &[&str]| {
        let ended = place.runner(&[&["predict", &run, "rare.csv"], words].concat()).ended_by(0);
        (Table::read(&ended.stdout), ended.stderr)
    };
    let (plain, _) = predicted(&[]);
    let shares = plain.column("p_ill");
    let threshold = shares[7];
    let (found, words) = predicted(&["--threshold", threshold, "--positive", "ill"]);
    assert_eq!(
        words.lines().nth(1),
        Some(&*format!("threshold: `ill` where its probability is at least {threshold}, otherwise `well`"))
    );
    assert_eq!(found.column("p_ill"), shares);
    let limit = threshold.parse::<f32>().unwrap();
    let wanted: Vec<&str> =
        shares.iter().map(|p| if p.parse::<f32>().unwrap() >= limit { "ill" } else { "well" }).collect();
    assert_eq!((found.column("class"), wanted[7]), (wanted.clone(), "ill"));
    assert_eq!(predicted(&["--threshold=0.5", "-q"]).0.column("class"), plain.column("class"));
}

/// Test rows do not choose a threshold, and that of the frequent class is rarely meant.
#[test]
fn thresholds_of_the_wrong_rows_or_class_are_warned_of() {
    let (place, run) = rare();
    let warned =
        |words: &[&str]| place.runner(&[&["evaluate", &run, "-q"], words].concat()).ended_by(0).stderr;
    let test = "warning: these are the test rows: choose the threshold on the validation rows, with `--validation`\n";
    let class = "warning: the threshold is of `well`, which has more rows than `ill`: `--positive` names another class\n";
    assert_eq!(warned(&["--thresholds"]), format!("{test}{class}"));
    assert_eq!(warned(&["--threshold", "1"]), class);
    assert_eq!(warned(&["--validation", "--thresholds", "--positive", "ill"]), "");
}

#[test]
fn thresholds_that_mean_nothing() {
    let (place, run) = rare();
    let refused = |run: &str, words: &[&str]| {
        let ended = place.runner(&[&["evaluate", run, "-q"], words].concat()).ended_by(2);
        ended.stderr
    };
    for value in ["0", "1.5", "-0.3", "nan", "text", "1e-60"] {
        let message = format!(
            "error: invalid value '{value}' for '--threshold <P>': expected a probability above 0 and at most 1, such as 0.3\n\
             \nFor more information, try '--help'.\n"
        );
        assert_eq!(refused(&run, &["--threshold", value]), message);
        assert_eq!(place.runner(&["predict", &run, "rare.csv", "--threshold", value]).stderr, message);
    }
    insta::assert_snapshot!(refused(&run, &["--threshold", "0.3", "--positive", "sick"]), @"
    error: `sick` is no class of this model: its classes are `ill`, `well`
      = hint: write the name as the training file does
    ");
    assert!(refused(&run, &["--positive", "-1"]).starts_with("error: `-1` is no class of this model: "));
    let (kind, price) = (Model::kind(), Model::price());
    for words in [&["--threshold", "0.3"][..], &["--thresholds"], &["--positive", "large"]] {
        let three = refused(&kind.run, &[&["rare.csv"], words].concat());
        let number = refused(&price.run, &[&["rare.csv"], words].concat());
        let option = words[0];
        assert_eq!(
            three,
            format!(
                "error: `{option}` is for models of two classes: this one has 3\n  \
                 = hint: leave it out: the class of the highest probability is predicted; `runner predict` prints those of all classes\n"
            )
        );
        assert_eq!(
            number,
            format!(
                "error: `{option}` is for models of two classes: this one predicts numbers\n  \
                 = hint: leave it out: the predictions are numbers\n"
            )
        );
    }
    let words =
        ["spec.toml", "-q", "~data.split", "data.csv.validation_fraction=0.0", "logging.metrics=[loss]"];
    let ended = place.runner(&words).ended_by(0);
    let all = ended.stdout.trim();
    assert_eq!(
        refused(all, &["--validation"]),
        format!(
            "error: `{all}` has no rows to validate on\n  \
             = hint: name a run that validates (a final model is trained on all rows), or give other rows that have the target\n"
        )
    );
}
