//! The model's predictions for the run's validation rows, for its report.

use super::{PredictError, Trained, forward::forward};
use crate::{
    data::NewRows,
    report::{Pairs, Predicted},
    spec::Metric,
    train::Scores,
};

/// Maximum points per target; of more rows, every second, fourth and so on is kept.
const MOST: usize = 2000;

/// Predicts the validation rows of the run; `None` if it had none.
pub fn predict_validation(trained: &Trained) -> Result<Option<Predicted>, PredictError> {
    let Some(rows) = trained.validation_rows()? else { return Ok(None) };
    let scales = trained.data.target_scales();
    let names = trained.data.class_names();
    let mut scores = match &names {
        Some(_) => Scores::of_classes(trained.outputs, false),
        None => Scores::of_numbers(&scales),
    };
    let (mut kept, mut every, mut row) = (Vec::new(), 1, 0);
    let mut take = |predictions: &[f32], targets: &[f32], _: &[String]| {
        scores.add(predictions, targets);
        if names.is_none() {
            let rows = predictions.chunks_exact(scales.len()).zip(targets.chunks_exact(scales.len()));
            for (predicted, actual) in rows {
                if row % every == 0 {
                    kept.push((actual.to_vec(), predicted.to_vec()));
                }
                row += 1;
                if kept.len() == MOST {
                    let mut number = 0;
                    kept.retain(|_| {
                        number += 1;
                        number % 2 == 1
                    });
                    every *= 2;
                }
            }
        }
        Ok(())
    };
    let (rows, _) = forward(trained, &mut NewRows::from_part(rows), &mut |_| {}, &mut take)?;
    let of = format!("{} validation rows, by {}", crate::units::count(rows as u64), trained.file);
    Ok(Some(match (scores, names) {
        (Scores::Classes(classes), Some(names)) => Predicted::Classes { of, names, counts: classes.counts },
        (Scores::Classes(_), None) => return Ok(None),
        (Scores::Numbers(errors), _) => {
            let targets = errors.iter().zip(&scales).enumerate().map(|(target, (errors, scale))| Pairs {
                name: trained.data.target_name(target).unwrap_or_else(|| "target".to_owned()),
                points: kept
                    .iter()
                    .map(|(actual, predicted)| {
                        [actual[target], predicted[target]].map(|value| scale.original(value.into()))
                    })
                    .collect(),
                r2: errors.value(Metric::R2).unwrap_or(f64::NAN),
                rmse: errors.value(Metric::Rmse).unwrap_or(f64::NAN),
            });
            Predicted::Numbers { of, every, targets: targets.collect() }
        }
    }))
}
