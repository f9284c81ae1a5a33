//! What a run's report says of its model: the rows that it knows, its metrics on the test rows, and its predictions for the
//! validation rows.

use super::{
    DecisionRequest, PredictError, Predictor, Trained,
    evaluate::{EvaluateRequest, EvaluatedRows, evaluate},
    forward::{Chunk, forward},
};
use crate::{
    data::{Dataset, NewRows, ParsedTables, Part, RowOptions},
    report::{OfModel, Pairs, Predicted, RunRows, TestMetric},
    spec::Metric,
    train::Scores,
    units,
};

/// Maximum points per target; of more rows, every second, fourth and so on is kept.
const MOST: usize = 2000;

/// Reads the run's data again, and applies its model to them.
pub fn of_model(predictor: &Predictor) -> Result<OfModel, PredictError> {
    let trained = predictor.first();
    let dataset = trained.rows(&mut ParsedTables::default())?;
    let mut rows = rows_of(trained, &dataset);
    if trained.has_test_rows() {
        let options = RowOptions::default();
        let request = EvaluateRequest {
            rows: EvaluatedRows::Test,
            options: &options,
            labels: None,
            decision: DecisionRequest::default(),
            importance: false,
        };
        let evaluation = evaluate(predictor, &request, &mut |_| {})?;
        rows.counts[2] = evaluation.rows;
        let ends = evaluation.intervals.ends.into_iter().zip(evaluation.baseline.values);
        let metrics = evaluation.metrics.into_iter().zip(ends);
        rows.test = metrics
            .map(|((name, value), (interval, baseline))| TestMetric { name, value, interval, baseline })
            .collect();
        if let Scores::Classes(all) = evaluation.scores {
            let actual = all.counts.chunks_exact(all.classes.max(1)).map(|row| row.iter().sum());
            rows.classes.iter_mut().zip(actual).for_each(|((_, counts), rows): (_, u64)| counts[2] = rows);
            let predicted = Predicted::Classes {
                of: described(trained, rows.counts[2], "test"),
                are_test: true,
                names: evaluation.classes,
                counts: all.counts,
            };
            return Ok(OfModel { rows, predicted: Some(predicted) });
        }
    }
    let predicted = dataset.validation.map(|rows| predict_validation(trained, rows)).transpose()?;
    Ok(OfModel { rows, predicted: predicted.flatten() })
}

/// Which rows are predicted, by which weights.
fn described(trained: &Trained, rows: usize, part: &str) -> String {
    format!("{} {part} rows, by {}", units::count(rows as u64), trained.described())
}

/// The rows to train and to validate on.
fn rows_of(trained: &Trained, dataset: &Dataset) -> RunRows {
    let names = trained.data.class_names().unwrap_or_default();
    let mut classes: Vec<(String, [u64; 3])> = names.into_iter().map(|name| (name, [0; 3])).collect();
    let mut take = |place: usize, part: &Part| {
        for class in dataset.targets_of(part) {
            classes.get_mut(class as usize).into_iter().for_each(|(_, counts)| counts[place] += 1);
        }
        part.rows
    };
    let counts = [take(0, &dataset.train), dataset.validation.as_ref().map_or(0, |part| take(1, part)), 0];
    RunRows { counts, classes, test: Vec::new() }
}

/// Predicts the validation rows of the run.
fn predict_validation(trained: &Trained, rows: Part) -> Result<Option<Predicted>, PredictError> {
    let scales = trained.data.target_scales();
    let names = trained.data.class_names();
    let mut scores = match &names {
        Some(_) => Scores::of_classes(trained.outputs, false),
        None => Scores::of_numbers(&scales),
    };
    let (mut kept, mut every, mut row) = (Vec::new(), 1, 0);
    let mut take = |chunk: &Chunk<'_>| {
        let width = trained.data.target_width();
        scores.add(chunk.outputs, chunk.targets, width);
        if names.is_none() {
            let rows = chunk.outputs.chunks_exact(scales.len());
            let rows = rows.zip(chunk.targets.chunks_exact(width));
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
    let (models, mut rows) = (std::slice::from_ref(trained), [NewRows::from_part(rows)]);
    let (rows, _) = forward(models, &mut rows, &mut |_| {}, &mut |_| {}, &mut take)?;
    let of = described(trained, rows, "validation");
    Ok(Some(match (scores, names) {
        (Scores::Classes(classes), Some(names)) => {
            Predicted::Classes { of, are_test: false, names, counts: classes.counts }
        }
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
