//! The files of a trained model's weights.

use std::{collections::BTreeMap, path::Path};

use crate::{
    data::Dataset,
    event::Outcome,
    plan::Trial,
    record::{RecordError, RunDir, write_model},
};

/// Writes `best.safetensors` and `model.safetensors`, if there are weights for them.
pub(super) fn save_all(
    trial: &Trial,
    made_of: (&Dataset, &str),
    values: &Option<Vec<f32>>,
    best: &Option<Vec<f32>>,
    folder: &RunDir,
    outcome: &Outcome,
) -> Result<(), RecordError> {
    let mut at = (outcome.steps, outcome.epochs.unwrap_or(0));
    if let (Some(values), Some(best)) = (best, outcome.best) {
        let monitored = [("monitor", best.monitor.name().to_owned()), ("value", best.value.to_string())];
        save(trial, made_of, values, (best.step, best.epoch), &monitored, &folder.file("best.safetensors"))?;
        if best.is_restored {
            at = (best.step, best.epoch);
        }
    }
    let Some(values) = values else { return Ok(()) };
    save(trial, made_of, values, at, &[], &folder.file("model.safetensors"))
}

/// Writes weights and their metadata; `step` and `epoch` tell when they were taken.
fn save(
    trial: &Trial,
    (dataset, spec_hash): (&Dataset, &str),
    values: &[f32],
    (step, epoch): (u64, u64),
    more: &[(&str, String)],
    path: &Path,
) -> Result<(), RecordError> {
    let parameters = &trial.programs.layout.parameters;
    let tensors: Vec<_> = parameters.iter().map(|p| (p.name.clone(), p, values)).collect();
    let mut metadata = BTreeMap::from([
        ("format".to_owned(), "pt".to_owned()),
        ("framework".to_owned(), concat!("runner ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("name".to_owned(), trial.spec.name.to_string()),
        ("spec_hash".to_owned(), spec_hash.to_owned()),
        ("step".to_owned(), step.to_string()),
        ("epoch".to_owned(), epoch.to_string()),
    ]);
    metadata.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    metadata.extend(dataset.stored_preprocessing().map(|text| ("preprocessing".to_owned(), text)));
    write_model(path, &tensors, &metadata)
}
