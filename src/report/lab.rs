//! Compares the results of lab experiments: equal products and copies of several runs side by side.

use std::path::Path;

use super::{
    ReportError, csv_file,
    grid::{self, Column},
    run::Run,
};
use crate::units;

/// Figures of all runs of the lab.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    products: Table,
    copies: Table,
    /// Numbers of the runs of tensor experiments.
    tours: Vec<usize>,
}

/// One figure per measurement and run.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Numbers of the runs.
    runs: Vec<usize>,
    /// Measurements in the order of first occurrence, with each run's figure.
    rows: Vec<(Vec<String>, Vec<Option<f64>>)>,
}

impl Table {
    /// Adds a run's figures.
    fn take(&mut self, run: usize, found: Vec<(Vec<String>, Option<f64>)>) {
        let before = self.runs.len();
        self.runs.push(run);
        for (key, figure) in found {
            let at = self.rows.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                self.rows.push((key, vec![None; before]));
                self.rows.len() - 1
            });
            let figures = &mut self.rows[at].1;
            figures.resize(before, None);
            figures.push(figure);
        }
        self.rows.iter_mut().for_each(|(_, figures)| figures.resize(before + 1, None));
    }

    fn draw(&self, keys: &[&str], (thing, first): (&str, usize), width: u16) -> String {
        let mut columns: Vec<Column> = Vec::new();
        for (place, title) in keys.iter().enumerate() {
            let cells = self.rows.iter().map(|(key, _)| key[place].clone()).collect();
            columns.push(Column { title: (*title).to_owned(), numeric: false, cells });
        }
        // Omits what all runs lack.
        columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
        let keys = columns.len();
        for (place, run) in self.runs.iter().enumerate() {
            let word = |figure: Option<f64>| figure.map(units::number).unwrap_or_default();
            let cells = self.rows.iter().map(|(_, figures)| word(figures[place]));
            columns.push(Column::of_numbers(&format!("{thing} {}", run - 1 + first), cells));
        }
        grid::table(&columns, keys, width)
    }
}

impl Findings {
    /// Reads the results of all lab runs; a run with unreadable files is marked as damaged.
    pub(super) fn read(runs: &mut [Run], fault: &mut Option<ReportError>) -> Self {
        let mut findings = Self::default();
        for (place, run) in runs.iter_mut().enumerate() {
            let Some(folder) = run.folder.clone() else { continue };
            let number = place + 1;
            let (table, found) = match run.kind() {
                "matmul" => (&mut findings.products, products(&folder.join("matmul.csv"))),
                "transfer" => (&mut findings.copies, copies(&folder.join("transfer.csv"))),
                "tensors" => {
                    findings.tours.push(number);
                    continue;
                }
                _ => continue,
            };
            match found {
                Ok(found) if found.is_empty() => {}
                Ok(found) => table.take(number, found),
                Err(e) => run.report_damage(e, fault),
            }
        }
        findings
    }

    /// Whether something was measured.
    pub(super) fn has_figures(&self) -> bool {
        !self.products.rows.is_empty() || !self.copies.rows.is_empty()
    }

    /// A table per kind of measurement, for a terminal of `width` columns. Runs are called `thing`, and counted from `first`.
    pub(super) fn text(&self, thing: &str, first: usize, width: u16) -> String {
        let mut text = String::new();
        if !self.products.rows.is_empty() {
            text += "\nproducts, GFLOP/s\n\n";
            text += &self.products.draw(&["device", "order", "product"], (thing, first), width);
        }
        if !self.copies.rows.is_empty() {
            text += "\ncopies, GB/s\n\n";
            text += &self.copies.draw(&["from", "to", "memory of the host", "size"], (thing, first), width);
        }
        if !self.tours.is_empty() {
            let runs = units::numbers(&self.tours);
            let word = if self.tours.len() == 1 { "run" } else { "runs" };
            text += &format!(
                "\ntensors\n  {word} {runs}: a tour measures nothing, so that its times are not held against others; what its steps did is in tensors.csv\n"
            );
        }
        text
    }
}

/// A lab file's rows by some of its columns; empty if there is no such file.
fn rows<const N: usize>(path: &Path, columns: [&str; N]) -> Result<Vec<[String; N]>, ReportError> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let file = csv_file::read(path)?;
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        let missing = || ReportError::malformed(path, 1, format!("there is no column `{column}`"));
        *place = file.columns.iter().position(|known| known == column).ok_or_else(missing)?;
    }
    let cells = |row: &csv::StringRecord| places.map(|place| row.get(place).unwrap_or_default().to_owned());
    Ok(file.rows.iter().map(cells).collect())
}

fn number(path: &Path, line: usize, cell: &str) -> Result<f64, ReportError> {
    let wrong = |_| ReportError::malformed(path, line as u64 + 2, format!("`{cell}` is no number"));
    cell.parse().map_err(wrong)
}

/// A figure; `None` for an empty cell.
fn figure(path: &Path, line: usize, cell: &str) -> Result<Option<f64>, ReportError> {
    if cell.is_empty() { Ok(None) } else { number(path, line, cell).map(Some) }
}

type Found = Vec<(Vec<String>, Option<f64>)>;

fn products(path: &Path) -> Result<Found, ReportError> {
    let mut found = Vec::new();
    let columns = ["device", "order", "m", "k", "n", "gflop_per_s"];
    for (line, row) in rows(path, columns)?.into_iter().enumerate() {
        let [device, order, m, k, n, rate] = row;
        let order = if order == "sequential" { String::new() } else { order };
        let key = vec![device, order, format!("[{m}, {k}] x [{k}, {n}]")];
        found.push((key, figure(path, line, &rate)?));
    }
    Ok(found)
}

fn copies(path: &Path) -> Result<Found, ReportError> {
    let mut found = Vec::new();
    for (line, row) in rows(path, ["from", "to", "memory", "bytes", "gb_per_s"])?.into_iter().enumerate() {
        let [from, to, memory, bytes, rate] = row;
        let size = units::bytes(number(path, line, &bytes)? as u64);
        found.push((vec![from, to, memory, size], figure(path, line, &rate)?));
    }
    Ok(found)
}
