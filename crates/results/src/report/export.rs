//! A comparison as data: one row per run, with axes as columns.

use serde_json::{Value, json};

use super::{
    ReportError, columns,
    comparison::Comparison,
    grid::{Column, Columns, turned},
    grouping::distinct,
    key::WORDS,
    logged::{Logged, best_column},
    metric::Metric,
    order::Question,
    parallel, parquet,
    ranking::{Candidate, Ranking},
    run::Run,
};
use crate::{
    files::curve::CurveDifference,
    record::{Lines, summary_columns},
};

/// The formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Every figure as written in the run's files; an empty cell means unknown.
    Csv,
    /// An array of objects; `null` means unknown.
    Json,
    /// The same table as on the screen, in GitHub's Markdown.
    Md,
    /// The same, for LaTeX.
    Latex,
}

impl Comparison {
    /// The comparison in a format for other programs: a row for each run that the question shows, in a text format with its times;
    /// there of a single run a row for each figure.
    pub fn export(&self, question: &Question, format: Format) -> Result<String, ReportError> {
        let mut columns = match format {
            Format::Csv | Format::Json => self.data_for(question)?,
            Format::Md | Format::Latex if self.runs.len() == 1 => columns::with_best(self),
            Format::Md | Format::Latex => columns::columns(self),
        };
        let shown = self.shown_runs(question)?;
        columns.iter_mut().for_each(|column| column.pick(&shown));
        if let (Format::Md | Format::Latex, [run]) = (format, &self.runs[..]) {
            // A page is too narrow for one run's figures side by side, and its number says nothing.
            columns[0].cells = vec![run.axis("name").unwrap_or(&run.path).to_owned()];
            columns = turned(&columns);
        }
        Ok(written(&columns, format))
    }

    /// A Parquet file of the runs, or of the settings if the question has keys.
    ///
    /// # Errors
    /// The question names a column that no run has, or the program was built without Parquet.
    pub fn export_parquet(&self, question: &Question) -> Result<Vec<u8>, ReportError> {
        let columns = match question.by.is_empty() {
            true => {
                let shown = self.shown_runs(question)?;
                let mut columns = self.data_for(question)?;
                columns.iter_mut().for_each(|column| column.pick(&shown));
                columns
            }
            false => self.groups(&self.rankings(question)?, question)?,
        };
        parquet::table(&columns)
    }

    /// The settings of a question, over the seeds or folded over everything except its keys. In data formats there is a row per
    /// setting; in text formats a table as on the screen, per task, without figures beside the metric.
    ///
    /// # Errors
    /// The question names a column that no run has, or no run can be ranked.
    pub fn export_settings(
        &self,
        question: &Question,
        is_pivot: bool,
        format: Format,
    ) -> Result<String, ReportError> {
        let rankings = if is_pivot { self.pivoted(question)? } else { self.rankings(question)? };
        if matches!(format, Format::Csv | Format::Json) {
            return Ok(written(&self.groups(&rankings, question)?, format));
        }
        let table = |ranking: &Ranking| {
            let columns = match is_pivot {
                true => ranking.pivot(),
                false => {
                    let shown = self.shown_settings(ranking, question)?;
                    let mut columns = self.screen_columns(ranking, &shown, question).0;
                    // A paper knows settings by their values.
                    columns.retain(|own| format != Format::Latex || !["#", "input"].contains(&&*own.title));
                    columns
                }
            };
            Ok(written(&columns, format))
        };
        let ranked = rankings.iter().filter(|ranking| !ranking.settings.is_empty());
        let tables: Vec<String> = ranked.map(table).collect::<Result<_, ReportError>>()?;
        match &tables[..] {
            [] => Err(ReportError::query("no run that finished can be ranked", None)),
            tables => Ok(tables.join("\n")),
        }
    }

    /// Whether a run can be ranked, and a line on the runs of each ranking that cannot.
    pub fn ranked(&self, question: &Question) -> Result<(bool, Vec<String>), ReportError> {
        let rankings = self.rankings(question)?;
        let lines = rankings.iter().map(|ranking| self.left_out(ranking).trim().to_owned());
        let lines = lines.filter(|line| !line.is_empty()).collect();
        Ok((rankings.iter().any(|ranking| !ranking.settings.is_empty()), lines))
    }

    pub(super) fn groups(
        &self,
        rankings: &[Ranking],
        question: &Question,
    ) -> Result<Vec<Column>, ReportError> {
        let shown = rankings.iter().map(|ranking| self.shown_settings(ranking, question));
        let settings = shown.collect::<Result<Vec<_>, ReportError>>()?.concat();
        let mut columns = Columns::new(&settings);
        for (place, key) in rankings.first().map_or(&[][..], |ranking| &ranking.keys).iter().enumerate() {
            let written = |setting: &Candidate| self.runs[setting.places[0]].table(key).map(str::to_owned);
            columns.words(key, |setting| written(setting).unwrap_or_else(|| setting.values[place].clone()));
        }
        let ends = |interval: Option<[f64; 2]>| interval.map_or([None; 2], |ends| ends.map(Some));
        let text = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        columns.numbers("runs", |setting| setting.places.len().to_string());
        columns.numbers("n", |setting| setting.samples.len().to_string());
        columns.numbers("value", |setting| setting.value.to_string());
        let interval = |setting: &&Candidate| if setting.is_in_order() { "range" } else { "95 %" };
        columns.words("interval", |setting| setting.interval.map_or("", |_| interval(setting)).to_owned());
        columns.numbers("low", |setting| text(ends(setting.interval)[0]));
        columns.numbers("high", |setting| text(ends(setting.interval)[1]));
        let difference = |setting: &&Candidate| setting.difference.map(|difference| difference.mean);
        let interval = |setting: &&Candidate| ends(setting.difference.and_then(|d| d.interval));
        columns.numbers("difference", |setting| text(difference(setting)));
        columns.numbers("difference_low", |setting| text(interval(setting)[0]));
        columns.numbers("difference_high", |setting| text(interval(setting)[1]));
        columns.numbers("p_value", |setting| text(setting.p));
        Ok(columns.all())
    }

    /// One column per figure of a run, and that of the question's metric.
    fn data_for(&self, question: &Question) -> Result<Vec<Column>, ReportError> {
        let mut columns = self.data();
        if let Some(name) = &question.metric {
            let metric = Metric::new(name, &self.runs)?;
            let title = metric.column();
            if !columns.iter().any(|column| column.title == title) {
                let value = |run| metric.value(run).map(|value| value.to_string()).unwrap_or_default();
                columns.push(Column::of_numbers(&title, self.runs.iter().map(value)));
            }
        }
        Ok(columns)
    }

    /// One column per figure of a run.
    pub(super) fn data(&self) -> Vec<Column> {
        let mut columns = Columns::new(&self.runs);
        columns.words("path", |run| run.path.clone());
        for axis in &self.axes {
            columns.words(axis, |run| run.written(axis).unwrap_or_default().to_owned());
        }
        if !self.axes.iter().any(|axis| axis == "seed") {
            columns.words("seed", |run| run.axis("seed").unwrap_or_default().to_owned());
        }
        columns.words("reason", |run| run.reason.clone());
        for figure in
            summary_columns().into_iter().filter(|c| *c != "reason" && !self.axes.iter().any(|a| a == c))
        {
            columns.words(figure, |run| match figure {
                "status" => run.status.clone(),
                _ => run.figure(figure).unwrap_or_default().to_owned(),
            });
        }
        let ratios = self.runs.iter().zip(self.ratios());
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
        let best = parallel::map(&self.runs, Run::best_validation);
        for name in distinct(best.iter().flat_map(Logged::keys)) {
            let cells = best.iter().map(|own| own.get(name).cloned().unwrap_or_default());
            columns.extend([Column::of_numbers(&best_column(name), cells)]);
        }
        columns.all()
    }

    /// Steps per second relative to the base run; shown beside rows per second if batch sizes differ.
    fn steps_ratio(&self, run: &Run, base: usize) -> Option<String> {
        let base = self.runs.get(base)?.number("steps_per_s")?;
        Some((run.number("steps_per_s")? / base).to_string())
    }
}

pub(super) fn written(columns: &[Column], format: Format) -> String {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    match format {
        Format::Csv => csv(columns, rows),
        Format::Json => json_lines(columns, rows),
        Format::Md => markdown(columns, rows),
        Format::Latex => latex(columns, rows),
    }
}

fn csv(columns: &[Column], rows: usize) -> String {
    let mut lines = Lines::new();
    columns.iter().for_each(|column| _ = lines.text(&column.title));
    lines.end();
    for row in 0..rows {
        columns.iter().for_each(|column| _ = lines.text(&column.cells[row]));
        lines.end();
    }
    String::from_utf8_lossy(lines.bytes()).into_owned()
}

/// An object per row, by titles.
pub(super) fn objects(columns: &[Column]) -> Value {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    Value::Array((0..rows).map(|row| object(columns, row)).collect())
}

fn object(columns: &[Column], row: usize) -> Value {
    let cell = |column: &Column| (column.title.clone(), json_value(&column.title, column.cells[row].clone()));
    Value::Object(columns.iter().map(cell).collect())
}

/// The same as text. Of many rows, no more than one is in memory as an object.
fn json_lines(columns: &[Column], rows: usize) -> String {
    let mut text = "[".to_owned();
    for row in 0..rows {
        text += if row == 0 { "\n  " } else { ",\n  " };
        // A string has no line breaks: they are escaped.
        text += &format!("{:#}", object(columns, row)).replace('\n', "\n  ");
    }
    text + if rows == 0 { "]\n" } else { "\n]\n" }
}

fn markdown(columns: &[Column], rows: usize) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let safe = |cell: &String| cell.replace('|', "\\|");
    let mut text = line(columns.iter().map(|column| safe(&column.title)).collect());
    let rule = |numeric: bool| if numeric { "---:" } else { "---" }.to_owned();
    text += &line(columns.iter().map(|column| rule(column.numeric)).collect());
    for row in 0..rows {
        text += &line(columns.iter().map(|column| safe(&column.cells[row])).collect());
    }
    text
}

/// A `tabular` with the rules of the LaTeX package `booktabs`.
fn latex(columns: &[Column], rows: usize) -> String {
    // Parts end with what separates numbers.
    let safe = |cell: &String| cell.split_inclusive([' ', '[', ']', ',']).map(in_latex).collect::<String>();
    let line = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
    let sides: String = columns.iter().map(|column| if column.numeric { 'r' } else { 'l' }).collect();
    let head = line(columns.iter().map(|column| safe(&column.title)).collect());
    let body: String =
        (0..rows).map(|row| line(columns.iter().map(|column| safe(&column.cells[row])).collect())).collect();
    format!(
        "\\begin{{tabular}}{{{sides}}}\n\\toprule\n{head}\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )
}

/// A part of a cell: a number with its sign and its power of ten, or escaped text.
fn in_latex(part: &str) -> String {
    let number = part.trim_end_matches([' ', '[', ']', ',']);
    let rest = &part[number.len()..];
    if let (Some((digits, power)), Ok(_)) = (number.split_once('e'), number.parse::<f64>()) {
        return format!("${digits}\\times10^{{{power}}}${rest}");
    }
    let is_negative = number.parse::<f64>().is_ok() && number.starts_with('-');
    let (sign, text) = if is_negative { ("$-$", &part[1..]) } else { ("", part) };
    let escaped = |c: char| match c {
        '\\' => "\\textbackslash{}".to_owned(),
        '~' | '^' => format!("\\{c}{{}}"),
        '&' | '%' | '$' | '#' | '_' | '{' | '}' => format!("\\{c}"),
        // Other signs in the fonts of text.
        '<' | '>' | '|' => format!("${c}$"),
        c => c.to_string(),
    };
    text.chars().map(escaped).fold(sign.to_owned(), |text, c| text + &c)
}

/// Guesses a cell's JSON type from its text: null, boolean, number or string.
pub(super) fn json_value(column: &str, cell: String) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_none_of_latexs_hyphens() {
        let cells =
            ["-0.002 [-0.011, 0.006]", "2026-01-02", "a-1 & b", "-", "+4.28e-6 [-1e-7, 2e3]", "<0.001"];
        let text = latex(&[Column::of_words("difference", cells.map(str::to_owned))], 6);
        let rows: Vec<&str> = text.lines().skip(4).take(6).collect();
        let powers = r"$+4.28\times10^{-6}$ [$-1\times10^{-7}$, $2\times10^{3}$] \\";
        let expected = [r"$-$0.002 [$-$0.011, 0.006] \\", r"2026-01-02 \\", r"a-1 \& b \\", r"- \\", powers];
        assert_eq!(rows[..5], expected);
        assert_eq!(rows[5], r"$<$0.001 \\");
    }
}
