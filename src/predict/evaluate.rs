//! A model's metrics on labelled rows.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{PredictError, Trained, forward::forward, output_file::OutputFile, scores::Scores};
use crate::{
    data::{Input, NewRows},
    record::Lines,
    units,
};

/// Metrics by name, in the order in which they are shown.
pub struct Evaluation {
    rows: usize,
    /// What the loss is.
    loss: String,
    /// Names and values.
    metrics: Vec<(&'static str, f64)>,
    scores: Scores,
}

/// Evaluates all rows of `input`, or those that the run set aside for a test where there is none; labels of arrays are in a
/// file of their own. The confusion matrix is written to a file
/// where one is named. `warn` takes warnings about the rows.
///
/// # Errors
/// What is wrong with the rows, or with the file of the matrix.
pub fn evaluate(
    trained: &Trained,
    input: Option<&Input>,
    labels: Option<&Path>,
    confusion: Option<&Path>,
    warn: &mut dyn FnMut(String),
) -> Result<Evaluation, PredictError> {
    let Some(path) = confusion else { return evaluated(trained, input, labels, warn) };
    let names = trained.data.class_names().ok_or(PredictError::NoClasses)?;
    let file = OutputFile::new(path, &trained.folder, input.and_then(Input::path).into_iter().chain(labels))?;
    file.check_replaces(b"actual,", "a confusion matrix")?;
    let evaluation = evaluated(trained, input, labels, warn)?;
    let matrix = evaluation.confusion(&names);
    file.write(|out| {
        out.write_all(&matrix).map_err(|source| PredictError::Write { to: file.name(), source })
    })?;
    Ok(evaluation)
}

fn evaluated(
    trained: &Trained,
    input: Option<&Input>,
    labels: Option<&Path>,
    warn: &mut dyn FnMut(String),
) -> Result<Evaluation, PredictError> {
    let mut rows = match input {
        Some(input) => trained.data.labelled_rows(input, labels)?,
        None => NewRows::from_part(trained.test_rows()?),
    };
    let mut scores = Scores::new(&trained.data, trained.outputs);
    let mut take = |predictions: &[f32], targets: &[f32]| {
        scores.add(&trained.data, predictions, targets);
        Ok(())
    };
    let (count, [loss, hits]) = forward(trained, &mut rows, warn, &mut take)?;
    if rows.dropped() > 0 {
        warn(format!("rows left out for missing cells, as in training: {}", rows.dropped()));
    }
    let mut metrics = vec![("loss", loss / count as f64)];
    if trained.spec.model.loss.classifies() {
        metrics.push(("accuracy", hits / count as f64));
    }
    metrics.extend(scores.metrics());
    let scaled = if trained.data.target_scale().is_some() { " of the standardized target" } else { "" };
    let loss = format!("{}{scaled}, as in training", trained.spec.model.loss.name());
    Ok(Evaluation { rows: count, loss, metrics, scores })
}

impl Evaluation {
    /// A line for each metric.
    pub fn table(&self) -> String {
        let mut out = format!("{:<9}  {}\n", "rows", units::count(self.rows as u64));
        for (name, value) in &self.metrics {
            let words = match *name {
                "loss" => format!("  {}", self.loss),
                "f1" | "precision" | "recall" => "  mean over classes".to_owned(),
                _ => String::new(),
            };
            out.push_str(&format!("{name:<9}  {}{words}\n", units::number(*value)));
        }
        out
    }

    /// The confusion matrix as CSV, a line for each actual class; empty for numbers.
    fn confusion(&self, names: &[String]) -> Vec<u8> {
        let Scores::Classes(confusion) = &self.scores else { return Vec::new() };
        let mut lines = Lines::new();
        lines.text("actual");
        for name in names {
            lines.text(name);
        }
        lines.end();
        for (name, counts) in names.iter().zip(confusion.counts.chunks_exact(confusion.classes)) {
            lines.text(name);
            for count in counts {
                lines.u64(*count);
            }
            lines.end();
        }
        lines.bytes().to_vec()
    }

    /// One JSON object, with the weights that were used.
    pub fn json(&self, trained: &Trained) -> String {
        let number = |text: &str| text.parse::<u64>().map_or(Value::Null, Value::from);
        let mut object = Map::new();
        object.insert("run".to_owned(), json!(trained.folder));
        object.insert("weights".to_owned(), json!(trained.file));
        object.insert("epoch".to_owned(), number(&trained.epoch));
        object.insert("step".to_owned(), number(&trained.step));
        object.insert("rows".to_owned(), json!(self.rows));
        object.extend(self.metrics.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
        format!("{}\n", Value::Object(object))
    }
}
