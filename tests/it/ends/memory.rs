//! Peak memory against what the plan counts.

use crate::process::Sandbox;

/// Two steps of a model of `width` squared parameters.
fn spec(width: usize) -> String {
    format!(
        r#"
data = {{ synthetic_regression = {{ weights = [2.0, -3.4], train_rows = 64, validation_rows = 32 }} }}
model.layers = [
    {{ linear = {{ out_features = {width} }} }},
    {{ linear = {{ out_features = {width} }} }},
    {{ linear = {{ out_features = 1 }} }},
]
optimizer.adam.lr = 1e-5
trainer.max_epochs = 1
"#
    )
}

/// Saving a model needs no more memory than the plan counts, so a run that fits while it trains can also save
/// its weights.
#[test]
fn the_peak_is_what_the_plan_counts() {
    for more in [&[][..], &["checkpoint.every_epochs=1"], &["devices.num_gpus=2", "--virtual-gpus=2"]] {
        let [small, large] = [10, 1300].map(|width| {
            let sandbox = Sandbox::new(&spec(width));
            let folder = sandbox.run(more).ended_by(0);
            ["peak_rss_bytes", "peak_planned_bytes"]
                .map(|column| folder.summary(column).parse::<f64>().unwrap())
        });
        let [taken, planned] = [0, 1].map(|i| large[i] - small[i]);
        assert!(taken < 1.1 * planned, "{more:?}: {taken} of {planned}");
    }
}
