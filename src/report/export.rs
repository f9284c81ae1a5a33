//! A comparison as data: one row per run, axes as columns.

use serde_json::{Value, json};

use super::{
    columns,
    comparison::Comparison,
    curve::CurveDifference,
    grid::{Column, Columns},
    run::Run,
};
use crate::record::{Lines, summary_columns};

/// The formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Every figure as written in the run's files; an empty cell is not known.
    Csv,
    /// An array of objects; `null` is not known.
    Json,
    /// The table of the screen, in GitHub's Markdown.
    Md,
}

/// Columns that hold words, even where they look like numbers.
const WORDS: [&str; 11] = [
    "path",
    "reason",
    "run",
    "name",
    "status",
    "devices_requested",
    "devices_used",
    "scaling",
    "precision",
    "engine",
    "data_digest",
];

impl Comparison {
    /// The comparison in a format for other programs.
    pub fn export(&self, format: Format) -> String {
        match format {
            Format::Csv => self.csv(),
            Format::Json => self.json(),
            Format::Md => self.markdown(),
        }
    }

    /// A column per figure of a run.
    fn data(&self) -> Vec<Column> {
        let mut columns = Columns::new(&self.runs);
        columns.words("path", |run| run.path.clone());
        for axis in &self.axes {
            columns.words(axis, |run| run.axis(axis).unwrap_or_default().to_owned());
        }
        columns.words("reason", |run| run.reason.clone());
        for figure in summary_columns().into_iter().filter(|c| !self.axes.iter().any(|a| a == c)) {
            columns.words(figure, |run| match figure {
                "status" => run.status.clone(),
                _ => run.figure(figure).unwrap_or_default().to_owned(),
            });
        }
        let ratios = self.runs.iter().zip(&self.ratios);
        let ratios = ratios.map(|(run, ratio)| ratio.and_then(|ratio| self.steps_ratio(run, ratio.base)));
        let parted = self.curves.iter().map(|curve| match curve {
            Some(CurveDifference::Parts { parting, .. }) => {
                [parting.step.to_string(), parting.largest.1.to_string()]
            }
            Some(CurveDifference::Same { .. }) => [String::new(), "0".to_owned()],
            _ => [String::new(), String::new()],
        });
        let (steps, largest): (Vec<_>, Vec<_>) = parted.map(|[step, largest]| (step, largest)).unzip();
        columns.extend([
            Column::of_numbers("steps_per_s_ratio", ratios.map(Option::unwrap_or_default)),
            Column::of_numbers("curve_parts_at_step", steps),
            Column::of_numbers("curve_largest_relative", largest),
        ]);
        columns.all()
    }

    /// Steps per second over those of the base: beside rows per second where batches differ.
    fn steps_ratio(&self, run: &Run, base: usize) -> Option<String> {
        let base = self.runs.get(base)?.number("steps_per_s")?;
        Some((run.number("steps_per_s")? / base).to_string())
    }

    fn csv(&self) -> String {
        let columns = self.data();
        let mut lines = Lines::new();
        columns.iter().for_each(|column| _ = lines.text(&column.title));
        lines.end();
        for row in 0..self.runs.len() {
            columns.iter().for_each(|column| _ = lines.text(&column.cells[row]));
            lines.end();
        }
        String::from_utf8_lossy(lines.bytes()).into_owned()
    }

    fn json(&self) -> String {
        let columns = self.data();
        let cell = |column: &Column, row: usize| {
            (column.title.clone(), json_value(&column.title, column.cells[row].clone()))
        };
        let object = |row| Value::Object(columns.iter().map(|column| cell(column, row)).collect());
        let array = Value::Array((0..self.runs.len()).map(object).collect());
        format!("{array:#}\n")
    }

    fn markdown(&self) -> String {
        let columns = columns::columns(self, "run", 1);
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let safe = |cell: &String| cell.replace('|', "\\|");
        let mut text = line(columns.iter().map(|column| safe(&column.title)).collect());
        let rule = |numeric: bool| if numeric { "---:" } else { "---" }.to_owned();
        text += &line(columns.iter().map(|column| rule(column.numeric)).collect());
        for row in 0..self.runs.len() {
            text += &line(columns.iter().map(|column| safe(&column.cells[row])).collect());
        }
        text
    }
}

/// A cell by what it looks like: nothing, a truth, a number, a word.
fn json_value(column: &str, cell: String) -> Value {
    if cell.is_empty() {
        return Value::Null;
    }
    if WORDS.contains(&column) {
        return Value::String(cell);
    }
    if let Ok(truth) = cell.parse::<bool>() {
        return Value::Bool(truth);
    }
    if let Ok(whole) = cell.parse::<i64>() {
        return json!(whole);
    }
    match cell.parse::<f64>() {
        Ok(number) if number.is_finite() => json!(number),
        _ => Value::String(cell), // JSON has no NaN; its name says more than null
    }
}
