//! A comparison as data: one row per run, axes as columns.

use serde_json::{Map, Value, json};

use super::{columns, comparison::Comparison, curve::CurveDifference, run::Run};
use crate::record::summary_columns;

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
const WORDS: [&str; 10] = [
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

    /// Column names, and a row of cells per run.
    fn data(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let figures: Vec<&str> =
            summary_columns().into_iter().filter(|c| !self.axes.iter().any(|a| a == c)).collect();
        let mut names = vec!["path".to_owned()];
        names.extend(self.axes.iter().cloned());
        names.push("reason".to_owned());
        names.extend(figures.iter().map(|&column| column.to_owned()));
        names.extend(
            ["steps_per_s_ratio", "curve_parts_at_step", "curve_largest_relative"].map(str::to_owned),
        );
        let row = |(place, run): (usize, &Run)| {
            let mut cells = vec![run.path.clone()];
            cells.extend(self.axes.iter().map(|axis| run.axis(axis).unwrap_or_default().to_owned()));
            cells.push(run.reason.clone());
            cells.extend(figures.iter().map(|&column| match column {
                "status" => run.status.clone(),
                _ => run.figure(column).unwrap_or_default().to_owned(),
            }));
            cells.push(
                self.ratios[place].and_then(|ratio| self.steps_ratio(run, ratio.base)).unwrap_or_default(),
            );
            cells.extend(match self.curves[place] {
                Some(CurveDifference::Parts { parting, .. }) => {
                    [parting.step.to_string(), parting.largest.1.to_string()]
                }
                Some(CurveDifference::Same { .. }) => [String::new(), "0".to_owned()],
                Some(CurveDifference::NothingInCommon | CurveDifference::MeansAndSteps) | None => {
                    [String::new(), String::new()]
                }
            });
            cells
        };
        (names, self.runs.iter().enumerate().map(row).collect())
    }

    /// Steps per second over those of the base: beside rows per second where batches differ.
    fn steps_ratio(&self, run: &Run, base: usize) -> Option<String> {
        let base = self.runs.get(base)?.number("steps_per_s")?;
        Some((run.number("steps_per_s")? / base).to_string())
    }

    fn csv(&self) -> String {
        let (names, rows) = self.data();
        let mut lines = crate::record::Lines::new();
        for row in std::iter::once(&names).chain(&rows) {
            for cell in row {
                lines.text(cell);
            }
            lines.end();
        }
        String::from_utf8_lossy(lines.bytes()).into_owned()
    }

    fn json(&self) -> String {
        let (names, rows) = self.data();
        let object = |row: Vec<String>| {
            let cells = names.iter().zip(row).map(|(name, cell)| (name.clone(), json_value(name, cell)));
            Value::Object(cells.collect::<Map<_, _>>())
        };
        let array = Value::Array(rows.into_iter().map(object).collect());
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
