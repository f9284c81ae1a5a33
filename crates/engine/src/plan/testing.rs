//! Trials for the plan's tests.

use super::{DatasetInfo, Gpu, Machine, PlanError, Trial, plan};
use crate::spec::{Problem, load};

pub const LINE: &str = "{ linear = { out_features = 1 } }";
pub const WIDE: &str = "{ linear = { out_features = 2048 } }, \"relu\", { linear = { out_features = 2048 } }, \"relu\", { linear = { out_features = 1 } }";

/// The facts of a regression with one target.
pub fn facts(train_rows: usize, features: usize, in_file: bool) -> DatasetInfo {
    let file_row_bytes = in_file.then_some(4 * features as u64);
    DatasetInfo {
        train_rows,
        validation_rows: 0,
        features,
        targets: 1,
        weighted: false,
        classes: None,
        target_spread: None,
        file_row_bytes,
        digest: 0,
    }
}

/// `count` GPUs with this much free memory each.
pub fn gpus(is_virtual: bool, count: usize, memory_free: u64) -> Vec<Gpu> {
    let mut gpu = Gpu { is_virtual, ..Gpu::virtual_of(memory_free) };
    gpu.limits.most_elements = usize::MAX;
    vec![gpu; count]
}

/// The plan of a linear model with these overrides, for two threads.
pub fn planned(overrides: &[&str], facts: DatasetInfo, machine: &Machine) -> Result<Trial, Problem> {
    by_threads(overrides, facts, machine, 2)
}

/// The plan of a model with these layers.
pub fn of_layers(layers: &str, overrides: &[&str], facts: DatasetInfo, threads: usize) -> Trial {
    let layers = format!("model.layers=[{layers}]");
    let run = ["data.shuffle=true", "trainer.max_epochs=10", "logging.metrics=[\"loss\"]", layers.as_str()];
    let overrides = [&run, overrides].concat();
    let machine = Machine::typical(gpus(true, 1, 1 << 36), 1 << 36);
    by_threads(&overrides, facts, &machine, threads).expect("a plan")
}

fn by_threads(
    overrides: &[&str],
    facts: DatasetInfo,
    machine: &Machine,
    threads: usize,
) -> Result<Trial, Problem> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/parity/sgd/spec.toml");
    let overrides: Vec<String> = overrides.iter().map(|&word| word.to_owned()).collect();
    let experiment = load(path.as_ref(), &overrides).expect("a spec");
    plan(&experiment.trials[0].spec, facts, machine, threads).map_err(|e| match e {
        PlanError::Problems(mut problems) => problems.remove(0),
        PlanError::Missing(problem) => problem,
    })
}
