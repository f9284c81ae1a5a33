//! What a model without features would have, beside each metric of `runner evaluate`.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use super::{FIXTURES, Model};
use crate::process::Sandbox;

/// A model without features has the metrics of scikit-learn's.
#[test]
fn baselines_are_those_of_scikit_learn() {
    let text = fs::read_to_string(Path::new(FIXTURES).join("baselines.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    for (model, name) in [(Model::price(), "price"), (Model::both(), "both"), (Model::kind(), "kind")] {
        let found = &model.evaluated(&["new.csv"])["baseline"];
        let (own, expected) = (found["metrics"].as_object().unwrap(), expected[name].as_object().unwrap());
        assert_eq!(own.keys().collect::<BTreeSet<_>>(), expected.keys().collect::<BTreeSet<_>>());
        for (metric, expected) in expected {
            let [found, expected] = [&own[metric], expected].map(|value| value.as_f64().unwrap());
            assert!(
                (found - expected).abs() < 1e-6 * expected.abs().max(1e-3),
                "{metric}: {found}, {expected}"
            );
        }
        assert_eq!(found.get("class").and_then(Value::as_str), (name == "kind").then_some("large"));
    }
}

/// Weights of rows change the mean, but not the shares of classes; a huber loss has no baseline, nor what the rows do not define.
#[test]
fn baselines_of_weighted_rows() {
    let place = Sandbox::new(
        "[data.csv]\npath = \"a.csv\"\ntarget = \"y\"\nweight = \"w\"\nvalidation_fraction = 0.0\n\
         [model]\nlayers = [{ linear = { out_features = 1 } }]\nloss = \"l1\"\n\
         [optimizer.sgd]\nlr = 0.001\n[trainer]\nmax_epochs = 1\n",
    );
    fs::write(place.path().join("a.csv"), "x,y,w\n1,2,1\n2,4,1\n3,10,2\n4,1,0\n").unwrap();
    let baseline = |words: &[&str]| {
        let run = place.run(&[&["-q"], words].concat()).ended_by(0).0.display().to_string();
        let json = place.runner(&["evaluate", &run, "a.csv", "--json"]).ended_by(0).stdout;
        serde_json::from_str::<Value>(&json).unwrap()["baseline"].take()
    };
    // The mean is 6.5: errors of 4.5, 2.5 and twice 3.5.
    let (mae, rmse) = (14.0 / 4.0, (51.0_f64 / 4.0).sqrt());
    assert_eq!(baseline(&[]), json!({ "metrics": { "loss": mae, "mae": mae, "rmse": rmse, "r2": 0.0 } }));
    let huber = baseline(&["model.loss=huber"]);
    assert_eq!(huber, json!({ "metrics": { "loss": null, "mae": mae, "rmse": rmse, "r2": 0.0 } }));
    fs::write(place.path().join("a.csv"), "x,y,w\n1,a,1\n2,a,1\n3,b,2\n4,a,0\n").unwrap();
    let classes = baseline(&["model.loss=cross_entropy", "model.layers.0.linear.out_features=2"]);
    assert_eq!([&classes["class"], &classes["metrics"]["accuracy"]], [&json!("a"), &json!(0.75)]);
    let [auc, own, loss] = ["auc", "average_precision", "loss"].map(|name| &classes["metrics"][name]);
    assert_eq!([auc, own, loss], [&json!(0.5), &json!(0.25), &Value::Null]);
}
