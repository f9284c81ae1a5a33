//! A model's metrics on labelled rows.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{
    PredictError, Trained,
    baseline::Baseline,
    forward::forward,
    importance::{self, Importance},
    intervals::{IntervalRows, Intervals, group_name},
};
use crate::{
    data::{Input, NewRows, RowBlock, RowOptions, digest_of_files},
    host::{escape_line, read_text},
    plan::MOST_RANKED,
    report::{ClassTable, run_digest},
    spec::{Metric, Missing, Source},
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
    baseline: Baseline,
    pub(super) scores: Scores,
    /// The names of the classes; empty for numbers.
    classes: Vec<String>,
    importance: Option<Importance>,
}

/// What is evaluated.
pub struct EvaluateRequest<'a> {
    /// The rows; `None` for those that the run held out for a test.
    pub input: Option<&'a Input>,
    /// How they are read.
    pub options: &'a RowOptions,
    /// The file of the labels of arrays.
    pub labels: Option<&'a Path>,
    /// Whether each column's values are permuted, too.
    pub importance: bool,
}

/// Evaluates rows. `warn` receives warnings about them.
pub fn evaluate(
    trained: &Trained,
    request: &EvaluateRequest<'_>,
    warn: &mut dyn FnMut(String),
) -> Result<Evaluation, PredictError> {
    let EvaluateRequest { input, options, labels, .. } = *request;
    let (mut rows, groups) = match input {
        Some(input) => (trained.data.labelled_rows(input, labels, options)?, None),
        None => {
            let (part, groups) = trained.test_rows()?;
            (NewRows::from_part(part), groups)
        }
    };
    let classifies = trained.spec.model.loss.classifies();
    let mut scores = if classifies {
        Scores::of_classes(trained.outputs, true)
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
    if let Some(input) = input {
        warn_of_new_rows(trained, (input, labels), count, warn);
    }
    warn_of_rows(trained, &rows, warn);
    let column = trained.data.weight().filter(|_| rows.lacks_weights().is_none());
    if let Some(column) = column.filter(|_| weight == 0.0) {
        return Err(PredictError::NoWeight { column: column.to_owned() });
    }
    let classes = trained.data.class_names().unwrap_or_default();
    warn_of_classes(&scores, &classes, count, warn);
    let targets = trained.data.target_names();
    let named = |loss, accuracy, scores: &Scores| all_metrics(loss, accuracy, scores, &targets);
    let metrics = named(loss / weight, classifies.then(|| hits / count as f64), &scores);
    let values = |drawn: &Drawn| {
        let metrics = named(drawn.loss, drawn.accuracy, &drawn.scores);
        metrics.into_iter().map(|(_, value)| value).collect()
    };
    let baseline = Baseline::new(trained, &scores, drawn.targets(), &metrics, named);
    let intervals = drawn.intervals(trained, &scores, groups, &metrics, &values);
    let loss = loss_in_words(trained, column);
    let counts_equally = classifies && column.is_some();
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
        importance,
    })
}

/// What rows that the run did not hold out are, and what a file of arrays cannot have.
fn warn_of_new_rows(
    trained: &Trained,
    (input, labels): (&Input, Option<&Path>),
    count: usize,
    warn: &mut dyn FnMut(String),
) {
    if is_of_the_run(trained, input, labels) {
        warn(format!("these rows include those that the run was trained on{}", which(trained, count)));
    }
    if let Some(groups) = array_groups(&trained.spec.data.source).and_then(|_| group_name(trained)) {
        warn(format!(
            "without groups such as those of `{groups}`, intervals take each row as one of its own"
        ));
    }
}

/// What the rows lack that those to train on have, and how many are left out.
fn warn_of_rows(trained: &Trained, rows: &NewRows<'_>, warn: &mut dyn FnMut(String)) {
    if let Some((group, false)) = rows.group() {
        let group = group.escape_debug();
        warn(format!(
            "without the column `{group}`, whose rows belong together, intervals take each row as one of its own"
        ));
    }
    if let Some(column) = rows.lacks_weights() {
        warn(format!("without the column `{column}`, which weighs the rows, each counts as 1"));
    }
    if rows.dropped() > 0 {
        let table = trained.spec.data.source.table();
        let fills = table.is_some_and(|(_, table)| table.missing == Missing::Mean);
        let why = if fills { "without a target" } else { "for missing cells" };
        warn(format!("rows left out {why}, as in training: {}", rows.dropped()));
    }
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

/// The file of the groups of an array's rows.
fn array_groups(source: &Source) -> Option<&Path> {
    if let Source::Npy(npy) = source { npy.groups.as_deref() } else { None }
}

/// Whether a file is the one that the run was trained on.
fn is_of_the_run(trained: &Trained, input: &Input, labels: Option<&Path>) -> bool {
    let Input::File(path) = input else { return false };
    // The groups of rows count as data of the run, not of new rows.
    let groups = array_groups(&trained.spec.data.source);
    let files = std::iter::once(path.as_path()).chain(labels).chain(groups);
    let digest = digest_of_files(&trained.spec.data.source, files);
    digest.is_some() && digest == run_digest(&trained.folder)
}

/// `: 258 of 344 (the others: 52 validation, 34 test)`, of the rows of the run's own file; nothing if no others are listed.
fn which(trained: &Trained, count: usize) -> String {
    let listed = read_text(&trained.folder.join("rows.csv")).unwrap_or_default();
    let is_of = |line: &&str, part| line.split(',').next() == Some(part);
    let parts = ["validation", "test", "later"]
        .map(|part| (part, listed.lines().filter(|line| is_of(line, part)).count()));
    let held: usize = parts.iter().map(|(_, rows)| rows).sum();
    let Some(trains) = count.checked_sub(held).filter(|_| held > 0) else { return String::new() };
    let counted = |rows: usize| units::count(rows as u64);
    let others = parts.iter().filter(|(_, rows)| *rows > 0);
    let others: Vec<String> = others.map(|(part, rows)| format!("{} {part}", counted(*rows))).collect();
    format!(": {} of {} (the others: {})", counted(trains), counted(count), others.join(", "))
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
        out.push_str(&self.baseline.text());
        let classes = self.class_counts().map(|counts| ClassTable::new(&self.classes, counts).text());
        for table in classes.into_iter().chain(self.importance.as_ref().map(Importance::table)) {
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

    /// `of `no`; that of `yes` is 0.3607`: the first is that of the second class.
    fn average_precisions_in_words(&self) -> String {
        let own = self.scores.average_precision_of(0).filter(|own| own.is_finite());
        let other = own.map(|own| format!("; that of `{}` is {}", self.classes[0], units::number(own)));
        format!("of `{}`{}", self.classes[1], other.unwrap_or_default())
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
            object.insert("positive_class".to_owned(), json!(self.classes[1]));
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
        if let Some(importance) = &self.importance {
            object.insert("importance".to_owned(), importance.json());
        }
        format!("{}\n", Value::Object(object))
    }
}
