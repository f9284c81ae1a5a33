//! A model's metrics on labelled rows.

use std::path::Path;

use super::{
    DecisionRequest, PredictError, Predictor, Trained,
    baseline::Baseline,
    decision::Decision,
    evaluation::{Evaluation, only_class},
    forward::{Chunk, Take, forward, sums},
    importance::{self, Importance},
    intervals::IntervalRows,
    out_of_fold::OutOfFold,
    predictor::Models,
    row_warnings::{warn_of_new_rows, warn_of_rows, warn_of_threshold},
    thresholds::Thresholds,
    trained::HeldRows,
};
use crate::{
    data::{Input, NewRows, RowBlock, RowOptions},
    host::escape_line,
    plan::MOST_RANKED,
    spec::Metric,
    train::{DecisionRule, Drawn, Scores},
    units,
};

/// Which rows are evaluated.
#[derive(Clone, Copy)]
pub enum EvaluatedRows<'a> {
    New(&'a Input),
    /// Those that the run held out for a test.
    Test,
    /// Those that the run validated with.
    Validation,
    /// Those that the folds of a sweep validated with, each predicted by the models that did not train on it.
    OutOfFold,
}

/// What is evaluated.
pub struct EvaluateRequest<'a> {
    pub rows: EvaluatedRows<'a>,
    /// How they are read.
    pub options: &'a RowOptions,
    /// The file of the labels of arrays.
    pub labels: Option<&'a Path>,
    /// How a class is chosen of two, and whether other ways are shown.
    pub decision: DecisionRequest<'a>,
    /// Whether each column's values are permuted, too.
    pub importance: bool,
}

/// Evaluates rows. `warn` receives warnings about them.
pub fn evaluate(
    predictor: &Predictor,
    request: &EvaluateRequest<'_>,
    warn: &mut dyn FnMut(String),
) -> Result<Evaluation, PredictError> {
    let trained = predictor.first();
    let decision = Decision::new(trained, &request.decision)?;
    let mut collector = Collector::new(predictor, decision.rule);
    let mut sample = request.importance.then(|| importance::sample_for(trained)).transpose()?;
    let mut see = |block: &RowBlock| sample.iter_mut().for_each(|sample| sample.see(block));
    let Passed { rows, count, sums, groups } = pass(predictor, request, &mut see, warn, &mut |chunk| {
        collector.add(chunk);
        Ok(())
    })?;
    let Collector { scores, alone, weight, drawn, .. } = collector;
    warn_of(predictor, request, (rows.as_ref(), count), &scores, warn);
    let lacks_weights = rows.as_ref().is_some_and(|rows| rows.lacks_weights().is_some());
    let column = trained.data.weight().filter(|_| !lacks_weights);
    if let Some(column) = column.filter(|_| weight == 0.0) {
        return Err(PredictError::NoWeight { column: column.to_owned() });
    }
    let classifies = trained.spec.model.loss.classifies();
    let classes = trained.data.class_names().unwrap_or_default();
    let targets = trained.data.target_names();
    let named = |loss, accuracy, scores: &Scores| all_metrics(loss, accuracy, scores, &targets);
    let metrics_of = |[loss, hits]: [f64; 2], scores: &Scores| {
        let accuracy = match decision.threshold {
            None => classifies.then(|| hits / count as f64),
            Some(_) => scores.accuracy(),
        };
        named(loss / weight, accuracy, scores)
    };
    let metrics = metrics_of(sums, &scores);
    let of_one = mean_of(alone.iter().map(|(scores, sums)| metrics_of(*sums, scores)));
    let values = |drawn: &Drawn| {
        let metrics = named(drawn.loss, drawn.accuracy, &drawn.scores);
        metrics.into_iter().map(|(_, value)| value).collect()
    };
    let baseline = Baseline::new(trained, &scores, drawn.targets(), &metrics, named);
    let intervals = drawn.intervals(trained, &scores, groups, &metrics, &values);
    let loss = loss_in_words(predictor, column);
    let counts_equally = classifies && column.is_some();
    let thresholds = request.decision.table.then(|| &classes[decision.rule.positive]);
    let thresholds = thresholds.and_then(|class| Thresholds::new(class, scores.probabilities(), warn));
    let importance = sample.map(|sample| Importance::new(trained, &sample)).transpose()?;
    Ok(Evaluation {
        rows: count,
        loss,
        counts_equally,
        metrics,
        of_one,
        intervals,
        baseline,
        scores,
        classes,
        decision,
        thresholds,
        importance,
    })
}

/// What metrics are computed from.
struct Collector<'a> {
    trained: &'a Trained,
    scores: Scores,
    /// Those of each model of an ensemble, and the sums of its losses and correct predictions.
    alone: Vec<(Scores, [f64; 2])>,
    /// The sum of the rows' weights.
    weight: f64,
    drawn: IntervalRows,
}

impl<'a> Collector<'a> {
    fn new(predictor: &'a Predictor, rule: DecisionRule) -> Self {
        let trained = predictor.first();
        let new = || match trained.spec.model.loss.classifies() {
            true => Scores::of_classes_by(rule, trained.outputs, true),
            false => Scores::of_numbers(&trained.data.target_scales()),
        };
        let ensemble = if predictor.which == Models::Ensemble { &predictor.models[..] } else { &[] };
        let alone = ensemble.iter().map(|_| (new(), [0.0; 2])).collect();
        Self { trained, scores: new(), alone, weight: 0.0, drawn: IntervalRows::new(trained) }
    }

    fn add(&mut self, chunk: &Chunk<'_>) {
        let (targets, width) = (chunk.targets, self.trained.data.target_width());
        self.scores.add(chunk.outputs, targets, width);
        self.drawn.add(chunk.outputs, targets, chunk.kept);
        self.weight += self.trained.data.weight_of(targets);
        for ((scores, all), outputs) in self.alone.iter_mut().zip(chunk.of_models) {
            scores.add(outputs, targets, width);
            all.iter_mut().zip(sums(self.trained, outputs, targets)).for_each(|(all, own)| *all += own);
        }
    }
}

/// The mean of each metric over models; `None` without models.
fn mean_of(models: impl ExactSizeIterator<Item = Vec<(String, f64)>>) -> Option<Vec<f64>> {
    let count = models.len() as f64;
    let values = models.map(|metrics| metrics.into_iter().map(|(_, value)| value).collect::<Vec<f64>>());
    let sums = values.reduce(|sums, own| sums.iter().zip(own).map(|(sum, own)| sum + own).collect())?;
    Some(sums.into_iter().map(|sum| sum / count).collect())
}

/// Rows that went through the models.
struct Passed<'a> {
    /// As the first model read them; `None` if each row has models of its own.
    rows: Option<NewRows<'a>>,
    count: usize,
    /// Of their losses, and the number of correct predictions.
    sums: [f64; 2],
    /// The groups of rows that were held out.
    groups: Option<Vec<u32>>,
}

fn pass<'a>(
    predictor: &'a Predictor,
    request: &EvaluateRequest<'a>,
    see: &mut dyn FnMut(&RowBlock),
    warn: &mut dyn FnMut(String),
    take: Take<'_>,
) -> Result<Passed<'a>, PredictError> {
    let held = |held: Vec<HeldRows>| {
        let groups = held.first().and_then(|held| held.groups.clone());
        (held.into_iter().map(|held| NewRows::from_part(held.part)).collect(), groups)
    };
    let (mut rows, groups): (Vec<NewRows<'_>>, _) = match request.rows {
        EvaluatedRows::New(input) => {
            let rows = predictor.models.iter();
            let rows = rows.map(|model| model.data.labelled_rows(input, request.labels, request.options));
            (rows.collect::<Result<_, _>>()?, None)
        }
        EvaluatedRows::Test => held(predictor.held_rows(Trained::test_rows, "test")?),
        EvaluatedRows::Validation => held(predictor.held_rows(Trained::validation_rows, "validation")?),
        EvaluatedRows::OutOfFold => {
            let rows = OutOfFold::new(predictor, warn)?;
            let chunk = rows.chunk();
            take(&chunk)?;
            let (count, sums) = (rows.numbers.len(), sums(predictor.first(), chunk.outputs, chunk.targets));
            return Ok(Passed { rows: None, count, sums, groups: rows.groups });
        }
    };
    let (count, sums) = forward(&predictor.models, &mut rows, see, warn, take)?;
    Ok(Passed { rows: rows.into_iter().next(), count, sums, groups })
}

/// Warnings about the rows, and about metrics that say little of them.
fn warn_of(
    predictor: &Predictor,
    request: &EvaluateRequest<'_>,
    (rows, count): (Option<&NewRows<'_>>, usize),
    scores: &Scores,
    warn: &mut dyn FnMut(String),
) {
    if let EvaluatedRows::New(input) = request.rows {
        warn_of_new_rows(predictor, (input, request.labels), count, warn);
    }
    let trained = predictor.first();
    rows.into_iter().for_each(|rows| warn_of_rows(trained, rows, warn));
    let classes = trained.data.class_names().unwrap_or_default();
    warn_of_classes(scores, &classes, count, warn);
    warn_of_threshold(&request.decision, matches!(request.rows, EvaluatedRows::Test), scores, &classes, warn);
}

/// Metrics of classes that these rows do not define, or that say little of them.
fn warn_of_classes(scores: &Scores, classes: &[String], rows: usize, warn: &mut dyn FnMut(String)) {
    let Scores::Classes(_) = scores else { return };
    if scores.value(Metric::Auc).is_none() {
        warn(format!(
            "auc and average_precision are left out: they rank at most {} outputs, and {} rows have more; evaluate fewer at a time",
            units::count(MOST_RANKED as u64),
            units::count(rows as u64)
        ));
    }
    if let Some(class) = only_class(scores, classes) {
        warn(format!(
            "every row is `{class}`: auc needs rows of two classes, and f1, precision and recall say little"
        ));
    }
}

/// The loss and what its mean is of; `weight` is the column that weighs the rows.
fn loss_in_words(predictor: &Predictor, weight: Option<&str>) -> String {
    let trained = predictor.first();
    let is_scaled = trained.data.target_scales().iter().any(|scale| !scale.is_identity());
    let scaled = match (is_scaled, predictor.is_several()) {
        (false, _) => "",
        (true, false) => " of the standardized target",
        (true, true) => " of the target as the first model standardizes it",
    };
    let by = weight.map(|column| format!(", weighted by `{}`", escape_line(column))).unwrap_or_default();
    let has_weights = trained.spec.model.class_weights.is_some();
    let how = match (has_weights, is_scaled && predictor.is_several()) {
        (true, _) => ", without class weights",
        (_, true) => "",
        (false, false) => ", as in training",
    };
    format!("{}{scaled}{by}{how}", trained.spec.model.loss.name())
}

/// Names and values; with several targets, those of each target follow the means.
fn all_metrics(loss: f64, accuracy: Option<f64>, scores: &Scores, targets: &[String]) -> Vec<(String, f64)> {
    const NUMBERS: [Metric; 3] = [Metric::Mae, Metric::Rmse, Metric::R2];
    const CLASSES: [Metric; 6] = [
        Metric::F1,
        Metric::F1Weighted,
        Metric::Precision,
        Metric::Recall,
        Metric::Auc,
        Metric::AveragePrecision,
    ];
    let all = NUMBERS.into_iter().chain(CLASSES);
    let own = all.filter_map(|metric| Some((metric.name().to_owned(), scores.value(metric)?)));
    let first = [("loss".to_owned(), loss)].into_iter();
    let mut metrics: Vec<_> =
        first.chain(accuracy.map(|accuracy| ("accuracy".to_owned(), accuracy))).chain(own).collect();
    if let Scores::Numbers(errors) = scores {
        for (errors, target) in errors.iter().zip(targets) {
            let own = |metric: Metric| Some((metric.of_target(target), errors.value(metric)?));
            metrics.extend(NUMBERS.into_iter().filter_map(own));
        }
    }
    metrics
}
