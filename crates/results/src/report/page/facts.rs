//! The figures of a single run, at the top of its page: what it learned, from which rows, and how good it is; then times.

use std::path::Path;

use super::{Content, html::Html, predicted::Predicted, table};
use crate::{
    report::{best, run::Run},
    units,
};

/// Maximum classes that are listed.
const MOST_CLASSES: usize = 10;

/// Metrics of the test rows that are shown beside the one that chose the model.
const SHOWN: [&str; 9] =
    ["accuracy", "f1", "precision", "recall", "auc", "average_precision", "mae", "rmse", "r2"];

/// The parts of a run's rows.
const PARTS: [&str; 3] = ["training rows", "validation rows", "test rows"];

/// What a run's model does with the run's data.
pub struct OfModel {
    /// The rows that the run knew, and those of its test.
    pub rows: RunRows,
    /// The predictions for the validation rows, if there are any.
    pub predicted: Option<Predicted>,
}

/// The rows of a run.
pub struct RunRows {
    /// How many it was trained on and validated with, and how many it kept for a test.
    pub counts: [usize; 3],
    /// Each class with the number of its rows in these parts; empty for numbers.
    pub classes: Vec<(String, [u64; 3])>,
    /// Metrics of the test rows.
    pub test: Vec<TestMetric>,
}

/// A metric of the test rows.
pub struct TestMetric {
    pub name: String,
    pub value: f64,
    /// The 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// What a model without features has.
    pub baseline: Option<f64>,
}

impl Content<'_> {
    /// Adds them.
    pub(super) fn facts(&self, html: &mut Html) {
        let run = &self.comparison.runs[0];
        let mut facts: Vec<(String, String)> =
            target(run).map(|target| ("target".to_owned(), target)).into_iter().collect();
        if let Some(rows) = self.rows {
            facts.extend(rows.parts());
            let shown = rows.shown(run.monitor().trim_start_matches("validation."));
            facts.extend(shown);
            facts.extend(rows.classes_in_words());
        }
        if !facts.is_empty() {
            table::facts(html, facts.iter().map(|(title, words)| (title.as_str(), words.as_str())));
        }
        let mut columns = self.runs().1.split_off(1);
        // The reason has a line of its own; one rate of products of several sizes says nothing.
        let has_sizes = self.comparison.findings.has_several_products();
        columns.retain(|column| column.title != "reason" && !(has_sizes && column.title == "products/s"));
        // What was learned comes before where and how fast.
        if let Some(time) = columns.iter().position(|column| column.title == "train time") {
            columns[..time].sort_by_key(|column| ["devices", "steps"].contains(&column.title.as_str()));
        }
        table::facts(html, columns.iter().map(|column| (column.title.as_str(), column.cells[0].as_str())));
    }

    /// Which rows the confusion matrix of a run's folder counts.
    pub(super) fn rows_of_confusion(&self, rows: u64) -> String {
        let place = best::place(&self.comparison.runs[0]);
        let weights = place.map(|place| format!(", by the best weights, of {place}")).unwrap_or_default();
        format!("{} validation rows{weights}", units::count(rows))
    }
}

/// The columns that the run predicts, or the file of its labels.
fn target(run: &Run) -> Option<String> {
    let column = ["csv", "parquet"].iter().find_map(|source| run.setting(&format!("data.{source}.target")));
    let file = || ["idx", "npy"].iter().find_map(|source| run.setting(&format!("data.{source}.labels")));
    let name = |path: &str| Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    let names = |column: &str| match column.strip_prefix("[\"").and_then(|rest| rest.strip_suffix("\"]")) {
        Some(several) => several.replace("\", \"", ", "),
        None => column.to_owned(),
    };
    column.map(names).or_else(|| name(file()?))
}

impl RunRows {
    /// The number of rows of each part that has some.
    fn parts(&self) -> impl Iterator<Item = (String, String)> {
        let parts = PARTS.into_iter().zip(self.counts);
        let parts = parts.filter(|(_, count)| *count > 0);
        parts.map(|(title, count)| (title.to_owned(), units::count(count as u64)))
    }

    /// `training rows of each class` with `no 19,400 (97.0 %), yes 600 (3.00 %)`, and those of other parts that have rows.
    fn classes_in_words(&self) -> impl Iterator<Item = (String, String)> {
        let more = self.classes.len().saturating_sub(MOST_CLASSES);
        let more = (more > 0).then(|| format!("and {more} more"));
        let of_part = move |(part, title)| {
            let all: u64 = self.classes.iter().map(|(_, counts)| counts[part]).sum();
            let word = |(name, counts): &(String, [u64; 3])| {
                let share = units::percent(counts[part] as f64 / all as f64);
                format!("{name} {} ({share})", units::count(counts[part]))
            };
            let shown = self.classes.iter().take(MOST_CLASSES).map(word).chain(more.clone());
            (all > 0).then(|| (format!("{title} of each class"), shown.collect::<Vec<_>>().join(", ")))
        };
        PARTS.into_iter().enumerate().filter_map(of_part)
    }

    /// Metrics of the test rows, that by which the model was chosen first.
    fn shown(&self, monitor: &str) -> Vec<(String, String)> {
        let names = std::iter::once(monitor).chain(SHOWN.into_iter().filter(|name| *name != monitor));
        let value = |name: &str| {
            let own = self.test.iter().find(|own| own.name == name && own.value.is_finite())?;
            let word = if name == "accuracy" { units::percent } else { units::number };
            let baseline =
                own.baseline.map(|value| format!("; baseline {}", word(value))).unwrap_or_default();
            Some(match own.interval.map(|interval| interval.map(word)) {
                Some([low, high]) => (
                    format!("test {name} [95 %, bootstrap]"),
                    format!("{} [{low}, {high}]{baseline}", word(own.value)),
                ),
                None => (format!("test {name}"), format!("{}{baseline}", word(own.value))),
            })
        };
        names.filter_map(value).collect()
    }
}
