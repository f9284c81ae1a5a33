//! Weights of rows on every engine of a GPU.

use std::fs;

use super::parity::every_engine;
use crate::process::Sandbox;

/// Two numbers, or one, and the weight of each row, which may be 0.
const WEIGHTS: &str = r#"
name = "weights"
[devices]
num_gpus = 1
[data]
batch_size = 24
[data.csv]
path = "rows.csv"
target = ["y", "z"]
weight = "w"
validation_fraction = 0.3
[model]
layers = [ { linear = { out_features = 16 } }, "tanh", { linear = { out_features = 2 } } ]
loss = "huber"
[optimizer.adamw]
lr = 0.01
[trainer]
max_epochs = 3
gradient_clip_val = 0.5
[logging]
metrics = ["loss", "grad_norm", "mae", "r2"]
"#;

#[test]
fn weights_of_rows() {
    let place = Sandbox::new(WEIGHTS);
    let row = |i: u32| {
        let [a, b] = [f64::from(i * 37 % 101) / 50.0 - 1.0, f64::from(i * 53 % 89) / 44.0 - 1.0];
        format!("{a},{b},{},{},{}\n", 2.0 * a - b, a * b, f64::from(i * 7 % 5) / 2.0)
    };
    let rows: String = (0..130).map(row).collect();
    fs::write(place.path().join("rows.csv"), format!("a,b,y,z,w\n{rows}")).unwrap();
    every_engine(&place, &[]);
    every_engine(&place, &["data.placement=streamed", "data.batch_size=7", "trainer.max_epochs=1"]);
    let linear =
        ["data.csv.target=y", "data.csv.ignore=[\"z\"]", "model.loss=mse", "logging.metrics=[\"loss\"]"];
    let layer = "model.layers=[{linear={out_features=1}}]";
    let plain = [layer, "~optimizer.adamw", "optimizer.sgd.lr=0.05", "trainer.gradient_clip_val=0"];
    every_engine(&place, &[&linear[..], &plain].concat());
}
