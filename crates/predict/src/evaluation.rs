//! The metrics of rows in words: a table, or a JSON object.

use serde_json::{Map, Value, json};

use super::{
    Predictor, baseline::Baseline, decision::Decision, importance::Importance, intervals::Intervals,
    thresholds::Thresholds,
};
use crate::{
    report::ClassTable,
    spec::Metric,
    train::{ClassCounts, Scores},
    units,
};

/// Metrics by name, in display order.
pub struct Evaluation {
    pub(super) rows: usize,
    /// The name of the loss.
    pub(super) loss: String,
    /// Whether rows have weights that metrics of classes leave out.
    pub(super) counts_equally: bool,
    /// Names and values.
    pub(super) metrics: Vec<(String, f64)>,
    /// Of an ensemble, the means of what its models reach alone, in the order of the metrics.
    pub(super) of_one: Option<Vec<f64>>,
    pub(super) intervals: Intervals,
    pub(super) baseline: Baseline,
    pub(super) scores: Scores,
    /// The names of the classes; empty for numbers.
    pub(super) classes: Vec<String>,
    pub(super) decision: Decision,
    pub(super) thresholds: Option<Thresholds>,
    pub(super) importance: Option<Importance>,
}

impl Evaluation {
    /// A line for each metric, each class and each column.
    pub fn table(&self) -> String {
        let mut out = self.metric_lines();
        let accuracy = self.metrics.iter().find(|(name, _)| name == "accuracy").map(|(_, value)| *value);
        out.push_str(&self.intervals.text(accuracy));
        out.push_str(&self.baseline.text(self.decision.threshold.is_some()));
        if self.of_one.is_some() {
            out.push_str("one model: the mean of what each model of the ensemble reaches alone\n");
        }
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

    /// A line for each metric, with what one model of an ensemble reaches and what a model without features does.
    fn metric_lines(&self) -> String {
        let beside = |one: &str, baseline: &str| {
            self.of_one.iter().map(|_| one.to_owned()).chain([baseline.to_owned()]).collect::<Vec<_>>()
        };
        let first = ["rows".to_owned(), units::count(self.rows as u64)];
        let mut lines = vec![[&first[..], &beside("one model", "baseline"), &[String::new()]].concat()];
        for (place, (name, value)) in self.metrics.iter().enumerate() {
            let number = |value: f64| match name.as_str() {
                "auc" | "average_precision" if value.is_nan() && self.is_of_one_class() => "none".to_owned(),
                _ => units::number(value),
            };
            let interval = self.intervals.ends[place].map(|ends| ends.map(units::number));
            let interval = interval.map(|[low, high]| format!(" [{low}, {high}]")).unwrap_or_default();
            let one = self.of_one.as_ref().map(|of_one| number(of_one[place])).unwrap_or_default();
            let baseline = self.baseline.values[place].map(units::number).unwrap_or_default();
            let value = [name.clone(), format!("{}{interval}", number(*value))];
            lines.push([&value[..], &beside(&one, &baseline), &[self.words(name)]].concat());
        }
        let wide = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..lines[0].len()).map(wide).collect();
        let line = |cells: &Vec<String>| {
            let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        };
        lines.iter().map(line).collect()
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

    /// One JSON object, which begins with the models.
    pub fn json(&self, predictor: &Predictor) -> String {
        let mut object = predictor.json();
        object.insert("rows".to_owned(), json!(self.rows));
        object.extend(self.metrics.iter().map(|(name, value)| (name.clone(), json!(value))));
        if let Some(of_one) = &self.of_one {
            let names = self.metrics.iter().map(|(name, _)| name.clone());
            let values: Map<_, _> = names.zip(of_one.iter().map(|value| json!(value))).collect();
            object.insert("one_model".to_owned(), Value::Object(values));
        }
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

/// The class of all rows, if there are several classes.
pub fn only_class<'a>(scores: &Scores, names: &'a [String]) -> Option<&'a str> {
    let Scores::Classes(all) = scores else { return None };
    let mut rows = all.counts.chunks_exact(all.classes).zip(names);
    let (_, name) = rows.by_ref().find(|(counts, _)| counts.iter().any(|count| *count > 0))?;
    rows.all(|(counts, _)| counts.iter().all(|count| *count == 0)).then_some(name)
}
