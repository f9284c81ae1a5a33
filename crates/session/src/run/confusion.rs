//! The confusion matrix of a run that has ended.

use crate::{
    data::{Dataset, TrainedData},
    event::Confusion,
    plan::Trial,
    record::{self, RecordError, RunDir},
};

/// A name for each of the model's outputs, of which there may be more than classes; `None` for a regression.
pub fn class_names(trial: &Trial, dataset: &Dataset) -> Option<Vec<String>> {
    let classes = dataset.classes?;
    let layers = trial.spec.model.layers.iter();
    let outputs = layers.fold(dataset.features, |width, layer| layer.outputs(width)).max(classes);
    let stored = dataset.stored_preprocessing();
    let names = TrainedData::new(&trial.spec, stored.as_deref(), outputs).ok();
    let names = names.and_then(|data| data.class_names());
    Some(names.unwrap_or_else(|| (0..outputs).map(|class| class.to_string()).collect()))
}

/// Writes `confusion.csv`: the confusion matrix of the best weights on the validation rows.
pub fn save_confusion(names: &[String], confusion: &Confusion, folder: &RunDir) -> Result<(), RecordError> {
    let mut counts = vec![0; names.len() * names.len()];
    for [cell, count] in confusion {
        if let Some(to) = usize::try_from(*cell).ok().and_then(|cell| counts.get_mut(cell)) {
            *to = *count;
        }
    }
    folder.write("confusion.csv", &record::confusion_csv(names, &counts))
}
