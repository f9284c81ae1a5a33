//! Compares the results of lab experiments: the same products and copies in several runs, side by side.

use std::{collections::HashSet, path::Path, str::FromStr};

use indexmap::IndexMap;

use super::{
    ReportError,
    grid::{self, Column},
    run::Run,
};
use crate::{
    event::{ProductRow, Spread},
    files::csv_lines,
    spec::lab::Order,
    units,
};

/// The results of all lab runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// The rows of each `matmul.csv`, with the index of the run.
    pub rows: Vec<(usize, ProductRow)>,
    products: Table,
    copies: Table,
    /// Indices of the runs with tensor experiments.
    tours: Vec<usize>,
}

/// Maximum runs with a column each where most cells are empty.
const MOST_COLUMNS: usize = 4;

/// One figure for each measurement and run.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Indices of the runs.
    runs: Vec<usize>,
    /// Measurements in the order of first occurrence, with each run's figure.
    rows: IndexMap<Vec<String>, Vec<Option<f64>>>,
}

impl Table {
    /// Adds a run's figures.
    fn take(&mut self, run: usize, found: Vec<(Vec<String>, Option<f64>)>) {
        let before = self.runs.len();
        self.runs.push(run);
        for (key, figure) in found {
            let figures = self.rows.entry(key).or_default();
            figures.resize(before, None);
            figures.push(figure);
        }
        self.rows.values_mut().for_each(|figures| figures.resize(before + 1, None));
    }

    /// The columns, and how many of the first ones identify the rows. If many runs would leave most cells empty, each figure has a
    /// row instead, with the run's name.
    fn columns(&self, keys: &[&str], what: &str, name: &dyn Fn(usize) -> String) -> (Vec<Column>, usize) {
        let mut columns: Vec<Column> = Vec::new();
        for (place, title) in keys.iter().enumerate() {
            let cells = self.rows.keys().map(|key| key[place].clone());
            columns.push(Column::of_words(title, cells));
        }
        // Omit columns that are empty for all runs.
        columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
        let keys = columns.len();
        let (count, figures) = (self.rows.len() * self.runs.len(), self.rows.values().flatten());
        if self.runs.len() > MOST_COLUMNS && 2 * figures.flatten().count() < count {
            let known = self.rows.values().enumerate().flat_map(|(row, figures)| {
                let runs = self.runs.iter().zip(figures);
                runs.filter_map(move |(run, figure)| Some((row, *run, (*figure)?)))
            });
            let known: Vec<(usize, usize, f64)> = known.collect();
            let rows: Vec<usize> = known.iter().map(|(row, ..)| *row).collect();
            columns.iter_mut().for_each(|column| column.pick(&rows));
            columns.push(Column::of_words("run", known.iter().map(|(_, run, _)| name(*run))));
            columns.push(Column::of_numbers(what, known.iter().map(|(.., figure)| units::number(*figure))));
            return (columns, keys + 1);
        }
        for (place, run) in self.runs.iter().enumerate() {
            let word = |figure: Option<f64>| figure.map(units::number).unwrap_or_default();
            let cells = self.rows.values().map(|figures| word(figures[place]));
            columns.push(Column::of_numbers(&name(*run), cells));
        }
        (columns, keys)
    }
}

impl Findings {
    /// Reads the results of all lab runs; a run with unreadable files becomes a damaged one.
    pub(super) fn read(runs: &mut [Run], fault: &mut Option<ReportError>) -> Self {
        let mut findings = Self::default();
        for (place, run) in runs.iter_mut().enumerate() {
            let Some(folder) = run.folder.clone() else { continue };
            let (table, found) = match run.kind() {
                "matmul" => {
                    let rows = products(&folder.join("matmul.csv"));
                    let found = rows.map(|rows| {
                        let found = rows.iter().map(rate_of).collect();
                        findings.rows.extend(rows.into_iter().map(|row| (place, row)));
                        found
                    });
                    (&mut findings.products, found)
                }
                "transfer" => (&mut findings.copies, copies(&folder.join("transfer.csv"))),
                "tensors" => {
                    findings.tours.push(place);
                    continue;
                }
                _ => continue,
            };
            match found {
                Ok(found) if found.is_empty() => {}
                Ok(found) => table.take(place, found),
                Err(e) => run.report_damage(e, fault),
            }
        }
        findings
    }

    /// Whether something was measured.
    pub(super) fn has_figures(&self) -> bool {
        !self.products.rows.is_empty() || !self.copies.rows.is_empty()
    }

    /// Whether products of several sizes were measured, so that products per second say nothing.
    pub(super) fn has_several_products(&self) -> bool {
        let shapes: HashSet<&String> = self.products.rows.keys().filter_map(|key| key.last()).collect();
        shapes.len() > 1
    }

    /// A table for each kind of measurement: its title, its columns, and how many columns identify the rows.
    /// A run is called as `name` does.
    pub(super) fn tables(&self, name: &dyn Fn(usize) -> String) -> Vec<(&'static str, Vec<Column>, usize)> {
        let of_copies: &[&str] = &["from", "to", "memory of the host", "size"];
        let kinds = [
            ("products, GFLOP/s", "GFLOP/s", &self.products, &["device", "order", "product"][..]),
            ("copies, GB/s", "GB/s", &self.copies, of_copies),
        ];
        let measured = kinds.into_iter().filter(|(_, _, table, _)| !table.rows.is_empty());
        measured
            .map(|(title, what, table, keys)| {
                let (columns, keys) = table.columns(keys, what, name);
                (title, columns, keys)
            })
            .collect()
    }

    /// The same as text, with runs called as `names` does, for a terminal of `width` columns.
    pub(super) fn text(&self, names: &dyn Fn(&[usize]) -> String, width: u16) -> String {
        let mut text = String::new();
        for (title, columns, keys) in self.tables(&|place| names(&[place])) {
            text += &format!("\n{title}\n\n{}", grid::table(&columns, keys, width));
        }
        if !self.tours.is_empty() {
            let runs = names(&self.tours);
            text += &format!(
                "\ntensors\n  {runs}: tensor experiments measure nothing, so their times are not compared; their steps are in tensors.csv\n"
            );
        }
        text
    }
}

/// For each row of a file, what was measured and its figure; empty if there is no such file.
type Found = Vec<(Vec<String>, Option<f64>)>;

/// Reads some columns of a lab file, and one that earlier builds did not write; nothing if there is no file.
fn read<T, const N: usize>(
    path: &Path,
    columns: [&str; N],
    newer: &str,
    row: impl Fn([&str; N], &str) -> Result<T, String>,
) -> Result<Vec<T>, ReportError> {
    let mut rows = Vec::new();
    if path.exists() {
        csv_lines::for_each_row_and(path, columns, newer, |cells, newer| {
            rows.push(row(cells, newer)?);
            Ok(())
        })?;
    }
    Ok(rows)
}

fn products(path: &Path) -> Result<Vec<ProductRow>, ReportError> {
    let columns = [
        "device", "order", "m", "k", "n", "count", "total_s", "log_s", "norm_sum", "p50_s", "min_s", "max_s",
    ];
    read(path, columns, "threads", |cells, threads| {
        let [device, order, m, k, n, count, total, log, norm_sum, p50, min, max] = cells;
        let named = [Order::Sequential, Order::Concurrent].into_iter().find(|own| own.name() == order);
        Ok(ProductRow {
            device: device.to_owned(),
            order: named.ok_or_else(|| format!("`{order}` is no order of devices"))?,
            shape: [number(m)?, number(k)?, number(n)?],
            count: number(count)?,
            total_s: number(total)?,
            log_s: number(log)?,
            norm_sum: figure(norm_sum)?,
            spread: Spread { p50_s: number(p50)?, min_s: number(min)?, max_s: number(max)? },
            // The file does not have it.
            in_a_row: 1,
            threads: figure(threads)?,
        })
    })
}

/// The rate of the median product.
fn rate_of(row: &ProductRow) -> (Vec<String>, Option<f64>) {
    let [m, k, n] = row.shape;
    let key = vec![row.device.clone(), order_in_words(row.order), format!("[{m}, {k}] x [{k}, {n}]")];
    (key, row.median_flop_per_s().map(|rate| rate / 1e9))
}

/// Nothing for devices that work one after the other, as they usually do.
pub(super) fn order_in_words(order: Order) -> String {
    if order == Order::Sequential { String::new() } else { order.to_string() }
}

fn copies(path: &Path) -> Result<Found, ReportError> {
    read(path, ["from", "to", "memory", "bytes", "gb_per_s"], "", |[from, to, memory, bytes, rate], _| {
        let size = units::bytes(number(bytes)?);
        Ok((vec![from.to_owned(), to.to_owned(), memory.to_owned(), size], figure(rate)?))
    })
}

fn number<T: FromStr>(cell: &str) -> Result<T, String> {
    cell.parse().map_err(|_| format!("`{cell}` is not a number"))
}

/// `None` for an empty cell.
fn figure<T: FromStr>(cell: &str) -> Result<Option<T>, String> {
    Some(cell).filter(|cell| !cell.is_empty()).map(number).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each run measured another product: a column per run would be wider than a page, and almost empty.
    #[test]
    fn figures_of_many_runs_have_a_row_each() {
        let titles = |runs: usize| {
            let mut table = Table::default();
            (0..runs).for_each(|run| table.take(run, vec![(vec![format!("product {run}")], Some(2.0))]));
            let (columns, keys) = table.columns(&["product"], "GFLOP/s", &|run| format!("run {run}"));
            let cells = columns.iter().map(|column| column.cells[1].clone()).collect::<Vec<_>>();
            (columns.iter().map(|column| column.title.clone()).collect::<Vec<_>>(), cells.join("|"), keys)
        };
        let (wide, cells, keys) = titles(4);
        assert_eq!((wide.len(), cells.as_str(), keys), (5, "product 1||2.000||", 1));
        let (long, cells, keys) = titles(5);
        assert_eq!((long.join("|"), keys), ("product|run|GFLOP/s".to_owned(), 2));
        assert_eq!(cells, "product 1|run 1|2.000");
    }
}
