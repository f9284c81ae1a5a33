//! A model's metrics on labelled rows.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{
    DecisionRequest, PredictError, Trained,
    baseline::Baseline,
    decision::Decision,
    forward::forward,
    importance::{self, Importance},
    intervals::{IntervalRows, Intervals},
    row_warnings::{warn_of_new_rows, warn_of_rows, warn_of_threshold},
    thresholds::Thresholds,
};
use crate::{
    data::{Input, NewRows, RowBlock, RowOptions},
    host::escape_line,
    plan::MOST_RANKED,
    report::ClassTable,
    spec::Metric,
    train::{ClassCounts, Drawn, Scores},
    units,
};

/// Metrics by name, in display order.
pub struct Evaluation {
    pub(super) rows: usize,
    /// The name of the loss.
    loss: String,
    /// Whether rows have weights that metrics of classes leave out.
    counts_equally: bool,
    /// Names and values.
    pub(super) metrics: Vec<(String, f64)>,
    pub(super) intervals: Intervals,
    pub(super) baseline: Baseline,
    pub(super) scores: Scores,
    /// The names of the classes; empty for numbers.
    pub(super) classes: Vec<String>,
    decision: Decision,
    thresholds: Option<Thresholds>,
    importance: Option<Importance>,
}

/// Which rows are evaluated.
#[derive(Clone, Copy)]
pub enum EvaluatedRows<'a> {
    New(&'a Input),
    /// Those that the run held out for a test.
    Test,
    /// Those that the run validated with.
    Validation,
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
    trained: &Trained,
    request: &EvaluateRequest<'_>,
    warn: &mut dyn FnMut(String),
) -> Result<Evaluation, PredictError> {
    let decision = Decision::new(trained, &request.decision)?;
    let (mut rows, groups) = rows_of(trained, request)?;
    let classifies = trained.spec.model.loss.classifies();
    let mut scores = if classifies {
        Scores::of_classes_by(decision.rule, trained.outputs, true)
    } else {
        Scores::of_numbers(&trained.data.target_scales())
    };
    let mut weight = 0.0;
    let mut drawn = IntervalRows::new(trained);
    let mut take = |predictions: &[f32], targets: &[f32], cells: &[String]| {
        scores.add(predictions, targets, trained.data.target_width());
        drawn.add(predictions, targets, cells);
        weight += trained.data.weight_of(targets);
        Ok(())
    };
    let mut sample = request.importance.then(|| importance::sample_for(trained)).transpose()?;
    let mut see = |block: &RowBlock| sample.iter_mut().for_each(|sample| sample.see(block));
    let (count, [loss, hits]) = forward(trained, &mut rows, &mut see, warn, &mut take)?;
    warn_of(trained, request, (&rows, count), &scores, warn);
    let column = trained.data.weight().filter(|_| rows.lacks_weights().is_none());
    if let Some(column) = column.filter(|_| weight == 0.0) {
        return Err(PredictError::NoWeight { column: column.to_owned() });
    }
    let classes = trained.data.class_names().unwrap_or_default();
    let targets = trained.data.target_names();
    let named = |loss, accuracy, scores: &Scores| all_metrics(loss, accuracy, scores, &targets);
    let accuracy = match decision.threshold {
        None => classifies.then(|| hits / count as f64),
        Some(_) => scores.accuracy(),
    };
    let metrics = named(loss / weight, accuracy, &scores);
    let values = |drawn: &Drawn| {
        let metrics = named(drawn.loss, drawn.accuracy, &drawn.scores);
        metrics.into_iter().map(|(_, value)| value).collect()
    };
    let baseline = Baseline::new(trained, &scores, drawn.targets(), &metrics, named);
    let intervals = drawn.intervals(trained, &scores, groups, &metrics, &values);
    let loss = loss_in_words(trained, column);
    let counts_equally = classifies && column.is_some();
    let thresholds = request.decision.table.then(|| &classes[decision.rule.positive]);
    let thresholds = thresholds.and_then(|class| Thresholds::new(class, scores.probabilities(), warn));
    let importance = sample.map(|sample| Importance::new(trained, &sample)).transpose()?;
    Ok(Evaluation {
        rows: count,
        loss,
        counts_equally,
        metrics,
        intervals,
        baseline,
        scores,
        classes,
        decision,
        thresholds,
        importance,
    })
}

/// The rows, and the groups of those that the run held out.
fn rows_of<'a>(
    trained: &'a Trained,
    request: &EvaluateRequest<'a>,
) -> Result<(NewRows<'a>, Option<Vec<u32>>), PredictError> {
    let held = |(part, groups)| (NewRows::from_part(part), groups);
    Ok(match request.rows {
        EvaluatedRows::New(input) => {
            (trained.data.labelled_rows(input, request.labels, request.options)?, None)
        }
        EvaluatedRows::Test => held(trained.test_rows()?),
        EvaluatedRows::Validation => held(trained.validation_rows()?),
    })
}

/// Warnings about the rows, and about metrics that say little of them.
fn warn_of(
    trained: &Trained,
    request: &EvaluateRequest<'_>,
    (rows, count): (&NewRows<'_>, usize),
    scores: &Scores,
    warn: &mut dyn FnMut(String),
) {
    if let EvaluatedRows::New(input) = request.rows {
        warn_of_new_rows(trained, (input, request.labels), count, warn);
    }
    warn_of_rows(trained, rows, warn);
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
fn loss_in_words(trained: &Trained, weight: Option<&str>) -> String {
    let is_scaled = trained.data.target_scales().iter().any(|scale| !scale.is_identity());
    let scaled = if is_scaled { " of the standardized target" } else { "" };
    let by = weight.map(|column| format!(", weighted by `{}`", escape_line(column))).unwrap_or_default();
    let has_weights = trained.spec.model.class_weights.is_some();
    let how = if has_weights { "without class weights" } else { "as in training" };
    format!("{}{scaled}{by}, {how}", trained.spec.model.loss.name())
}

/// The class of all rows, if there are several classes.
fn only_class<'a>(scores: &Scores, names: &'a [String]) -> Option<&'a str> {
    let Scores::Classes(all) = scores else { return None };
    let mut rows = all.counts.chunks_exact(all.classes).zip(names);
    let (_, name) = rows.by_ref().find(|(counts, _)| counts.iter().any(|count| *count > 0))?;
    rows.all(|(counts, _)| counts.iter().all(|count| *count == 0)).then_some(name)
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

impl Evaluation {
    /// A line for each metric, each class and each column.
    pub fn table(&self) -> String {
        let mut lines =
            vec![["rows".to_owned(), units::count(self.rows as u64), "baseline".to_owned(), String::new()]];
        let values = self.metrics.iter().zip(&self.intervals.ends).zip(&self.baseline.values);
        lines.extend(values.map(|(((name, value), interval), baseline)| {
            let value = match name.as_str() {
                "auc" | "average_precision" if value.is_nan() && self.is_of_one_class() => "none".to_owned(),
                _ => units::number(*value),
            };
            let [low, high] = interval.map(|interval| interval.map(units::number)).unwrap_or_default();
            let interval = if interval.is_some() { format!(" [{low}, {high}]") } else { String::new() };
            let baseline = baseline.map(units::number).unwrap_or_default();
            [name.clone(), format!("{value}{interval}"), baseline, self.words(name)]
        }));
        let widths =
            [0, 1, 2].map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0));
        let mut out = String::new();
        for [name, value, baseline, words] in &lines {
            let [first, second, third] = widths;
            let line = format!("{name:<first$}  {value:<second$}  {baseline:<third$}  {words}");
            out.push_str(line.trim_end());
            out.push('\n');
        }
        let accuracy = self.metrics.iter().find(|(name, _)| name == "accuracy").map(|(_, value)| *value);
        out.push_str(&self.intervals.text(accuracy));
        out.push_str(&self.baseline.text(self.decision.threshold.is_some()));
        out.push_str(&self.decision.text);
        let classes = self.class_counts().map(|counts| ClassTable::new(&self.classes, counts).text());
        let more = [
            classes,
            self.thresholds.as_ref().map(Thresholds::text),
            self.importance.as_ref().map(Importance::table),
        ];
        for table in more.into_iter().flatten() {
            out.push_str(&format!("\n{table}"));
        }
        out
    }

    /// What a metric is of.
    fn words(&self, name: &str) -> String {
        let words = match name {
            "loss" => self.loss.clone(),
            "f1" | "precision" | "recall" => "mean over classes".to_owned(),
            "f1_weighted" => "by the rows of each class".to_owned(),
            "average_precision" if self.classes.len() == 2 => self.average_precisions_in_words(),
            "auc" | "average_precision" => self.ranked_in_words().to_owned(),
            _ => String::new(),
        };
        let equally = if self.counts_equally && name != "loss" { "rows count equally" } else { "" };
        let words = [words.as_str(), equally].into_iter().filter(|words| !words.is_empty());
        words.collect::<Vec<_>>().join(", ")
    }

    /// Rows by actual and predicted class, if these say anything.
    fn class_counts(&self) -> Option<&[u64]> {
        let is_known = |scores: &Scores| scores.value(Metric::F1).is_some_and(f64::is_finite);
        match &self.scores {
            Scores::Classes(all) if is_known(&self.scores) => Some(&all.counts),
            _ => None,
        }
    }

    fn is_of_one_class(&self) -> bool {
        only_class(&self.scores, &self.classes).is_some()
    }

    fn ranked_in_words(&self) -> &'static str {
        match &self.scores {
            Scores::Classes(all) if all.classes > 2 => "mean over classes, each against the rest",
            _ => "",
        }
    }

    /// `of `no`; that of `yes` is 0.3607`: the first is that of the positive class.
    fn average_precisions_in_words(&self) -> String {
        let positive = self.decision.rule.positive;
        let other = 1 - positive;
        let own = self.scores.average_precision_of(other).filter(|own| own.is_finite());
        let words = own.map(|own| format!("; that of `{}` is {}", self.classes[other], units::number(own)));
        format!("of `{}`{}", self.classes[positive], words.unwrap_or_default())
    }

    /// One JSON object, which also names the weights used.
    pub fn json(&self, trained: &Trained) -> String {
        let number = |text: &str| text.parse::<u64>().map_or(Value::Null, Value::from);
        let mut object = Map::new();
        object.insert("run".to_owned(), json!(trained.folder));
        object.insert("weights".to_owned(), json!(trained.file));
        object.insert("epoch".to_owned(), number(&trained.epoch));
        object.insert("step".to_owned(), number(&trained.step));
        object.insert("rows".to_owned(), json!(self.rows));
        object.extend(self.metrics.iter().map(|(name, value)| (name.clone(), json!(value))));
        object.insert("intervals".to_owned(), self.intervals.json(&self.metrics));
        object.insert("baseline".to_owned(), self.baseline.json(&self.metrics));
        if self.classes.len() == 2 {
            object.insert("positive_class".to_owned(), json!(self.classes[self.decision.rule.positive]));
        }
        if let Some(threshold) = self.decision.threshold {
            object.insert("threshold".to_owned(), json!(threshold));
        }
        let class = |(place, (name, counts)): (usize, (&String, ClassCounts))| {
            let figure = |value: f64| (counts.rows > 0).then_some(value);
            let [precision, recall, f1] = [counts.precision(), counts.recall(), counts.f1()].map(figure);
            let average_precision = self.scores.average_precision_of(place).and_then(figure);
            json!({
                "class": name, "rows": counts.rows, "precision": precision, "recall": recall, "f1": f1,
                "average_precision": average_precision,
            })
        };
        if let Some(counts) = self.class_counts() {
            let classes = self.classes.iter().zip(ClassCounts::all(counts, self.classes.len()));
            object.insert("classes".to_owned(), classes.enumerate().map(class).collect());
        }
        if let Scores::Classes(all) = &self.scores {
            // Rows by actual class, columns by predicted class.
            let rows = all.counts.chunks_exact(all.classes);
            object.insert("confusion".to_owned(), rows.map(|row| json!(row)).collect());
        }
        if let Some(thresholds) = &self.thresholds {
            object.insert("thresholds".to_owned(), thresholds.json());
        }
        if let Some(importance) = &self.importance {
            object.insert("importance".to_owned(), importance.json());
        }
        format!("{}\n", Value::Object(object))
    }
}
