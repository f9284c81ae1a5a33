//! Metrics of classes count rows alike, so runs with and without weights of rows can be compared by them.

use std::fs;

use crate::process::Sandbox;

const SPEC: &str = r#"
[data]
batch_size = 8
[data.csv]
path = "survey.csv"
target = "y"
weight = "w"
validation_fraction = 0.3
[model]
layers = [{ linear = { out_features = 2 } }]
loss = "cross_entropy"
[optimizer.sgd]
lr = 0.02
[trainer]
max_epochs = 2
[logging]
metrics = ["loss", "accuracy"]
"#;

#[test]
fn accuracies_are_compared_and_losses_are_not() {
    let place = Sandbox::new(SPEC);
    let row = |n: u32| format!("{},{},{}\n", n % 7, u32::from(n % 7 > 3), n % 3 + 1);
    fs::write(place.path().join("survey.csv"), "x,y,w\n".to_owned() + &(0..40).map(row).collect::<String>())
        .unwrap();
    let run = |words: &[&str]| place.run(&[&["-q"], words].concat()).ended_by(0).0.display().to_string();
    let runs = [run(&[]), run(&["~data.csv.weight", "data.csv.ignore=[\"w\"]"])];
    let compared =
        |metric: &str| place.runner(&["compare", &runs[0], &runs[1], "--metric", metric]).ended_by(0).stdout;
    let accuracy = compared("validation.accuracy");
    assert!(!accuracy.contains("not comparable"), "{accuracy}");
    let loss = compared("validation.loss");
    assert!(loss.contains("losses are not comparable: data.csv.weight differs"), "{loss}");
}
