//! The figures of a single run, at the top of its page: what it learned, from which rows, and how good it is; then times.

use std::path::Path;

use super::{Content, html::Html, predicted::Predicted, table};
use crate::{
    report::{
        best,
        grid::{Column, Columns},
        run::Run,
    },
    units,
};

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
        let target = target(run).map(|target| ("target".to_owned(), target));
        let parts = self.rows.into_iter().flat_map(RunRows::parts);
        let facts: Vec<(String, String)> = target.into_iter().chain(parts).collect();
        let mut columns = self.runs().1.split_off(1);
        // The reason has a line of its own; one rate of products of several sizes says nothing.
        let has_sizes = self.comparison.findings.has_several_products();
        columns.retain(|column| column.title != "reason" && !(has_sizes && column.title == "products/s"));
        // What was learned comes before where and how fast.
        if let Some(time) = columns.iter().position(|column| column.title == "train time") {
            columns[..time].sort_by_key(|column| ["devices", "steps"].contains(&column.title.as_str()));
        }
        let facts = facts.iter().map(|(title, words)| (title.as_str(), words.as_str()));
        let columns = columns.iter().map(|column| (column.title.as_str(), column.cells[0].as_str()));
        table::facts(html, facts.chain(columns));
        if let Some(rows) = self.rows {
            rows.tables(html, run.monitor().trim_start_matches("validation."));
        }
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

    /// The metrics of the test rows, and the number of rows of each class.
    fn tables(&self, html: &mut Html, monitor: &str) {
        let test = self.shown(monitor);
        if !test.is_empty() {
            let caption = "Metrics of the test rows, 95 % intervals by the bootstrap; the baseline is a model without features";
            table::table(html, caption, &test_columns(&test));
        }
        if !self.classes.is_empty() {
            table::table(html, "Rows of each class", &self.class_columns());
        }
    }

    /// Metrics of the test rows, that by which the model was chosen first.
    fn shown(&self, monitor: &str) -> Vec<&TestMetric> {
        let names = std::iter::once(monitor).chain(SHOWN.into_iter().filter(|name| *name != monitor));
        let found = names.filter_map(|name| self.test.iter().find(|own| own.name == name));
        found.filter(|own| own.value.is_finite()).collect()
    }

    /// For each class how many rows of each part it has, and its share of them.
    fn class_columns(&self) -> Vec<Column> {
        let mut columns = Columns::new(&self.classes);
        columns.words("class", |(name, _)| name.clone());
        for (part, title) in PARTS.into_iter().enumerate() {
            let all: u64 = self.classes.iter().map(|(_, counts)| counts[part]).sum();
            if all > 0 {
                columns.figures(
                    title,
                    |rows| units::count(rows as u64),
                    |(_, counts)| Some(counts[part] as f64),
                );
                columns
                    .figures("share", units::percent, |(_, counts)| Some(counts[part] as f64 / all as f64));
            }
        }
        columns.all()
    }
}

fn test_columns(test: &[&TestMetric]) -> Vec<Column> {
    let word = |own: &TestMetric| if own.name == "accuracy" { units::percent } else { units::number };
    let mut columns = Columns::new(test);
    columns.words("metric", |own| own.name.clone());
    columns.numbers("value", |own| word(own)(own.value));
    columns.numbers("95 % interval", |own| {
        let ends = own.interval.map(|interval| interval.map(word(own)));
        ends.map(|[low, high]| format!("[{low}, {high}]")).unwrap_or_default()
    });
    columns.numbers("baseline", |own| own.baseline.map(word(own)).unwrap_or_default());
    columns.known()
}
