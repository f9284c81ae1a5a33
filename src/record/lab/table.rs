//! What was found as a person reads it: a table of products or copies, or the steps of a tour one by one.

use std::fmt::{self, Write};

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    event::{Event, ProductRow, StepRow, StepStatus, Together},
    record::messages,
    spec::lab::Order,
    units,
};

/// Stands below figures of virtual devices.
pub const VIRTUAL: &str =
    "virtual devices share the host's processor and memory: their times say nothing of GPUs";

/// Rows that share a header.
#[derive(Default)]
pub struct LabTable {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns on the left that are words.
    words: usize,
    notes: Vec<String>,
}

impl LabTable {
    /// Takes an event that makes a row or a note.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Product(row) => {
                self.head(
                    1,
                    &["device", "product", "count", "each", "FLOP/s", "log", "of the time", "norms, summed"],
                );
                let log = if row.log_s > 0.0 { units::seconds(row.log_s) } else { String::new() };
                let share =
                    if row.log_s > 0.0 { units::percent(row.log_s / row.total_s) } else { String::new() };
                self.rows.push(vec![
                    row.device.clone(),
                    shape_in_words(row),
                    units::count(row.count),
                    units::seconds(row.mean_s()),
                    row.gflop_per_s().map(|rate| units::rate(rate * 1e9)).unwrap_or_default(),
                    log,
                    share,
                    row.norm_sum.map(units::number).unwrap_or_default(),
                ]);
            }
            Event::Copy(row) => {
                self.head(3, &["from", "to", "memory", "size", "count", "mean", "median", "B/s"]);
                self.rows.push(vec![
                    row.from.clone(),
                    row.to.clone(),
                    row.memory.unwrap_or_default().to_owned(),
                    units::bytes(row.bytes),
                    units::count(row.count),
                    units::seconds(row.mean_s),
                    units::seconds(row.p50_s),
                    row.gb_per_s().map(|rate| units::rate(rate * 1e9)).unwrap_or_default(),
                ]);
            }
            Event::Together(Together { devices, order, shape: [m, k, n], wall_s }) if devices.len() > 1 => {
                let how = match order {
                    Order::Sequential => "one after the other",
                    Order::Concurrent => "at once",
                };
                let names = devices.join(", ");
                let seconds = units::seconds(*wall_s);
                self.notes.push(format!("{m} x {k} x {n} on {names}, {how}: {seconds}"));
            }
            _ => {}
        }
    }

    /// Adds below the rows what makes their figures say less than they seem to.
    pub fn note_doubts(&mut self, any_virtual: bool, build: &str) {
        if !self.rows.is_empty() {
            self.notes.extend(any_virtual.then(|| VIRTUAL.to_owned()));
            self.notes.extend(messages::of_build(build).map(|words| format!("build {words}")));
        }
    }

    fn head(&mut self, words: usize, columns: &[&str]) {
        if self.columns.is_empty() {
            (self.columns, self.words) = (columns.iter().map(|c| (*c).to_owned()).collect(), words);
        }
    }
}

/// Its lines and an empty one; nothing where there are no rows.
impl fmt::Display for LabTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(&self.columns);
        table.add_rows(&self.rows);
        for (place, column) in table.column_iter_mut().enumerate() {
            column.set_padding((if place == 0 { 2 } else { 0 }, 2));
            if place >= self.words {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if self.rows.iter().all(|row| row.get(place).is_none_or(String::is_empty)) {
                column.set_constraint(comfy_table::ColumnConstraint::Hidden);
            }
        }
        table.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))?;
        writeln!(f)
    }
}

/// `100 x 100 x 100`: m, k and n of `[m, k]` times `[k, n]`.
fn shape_in_words(row: &ProductRow) -> String {
    let [m, k, n] = row.shape;
    format!("{m} x {k} x {n}")
}

/// A step of a tour, and what it gave.
pub(in crate::record) fn step_in_words(row: &StepRow) -> String {
    let mut text = format!("{}. {}\n", row.step, row.expression);
    for (name, shape, device) in &row.parameters {
        let _ = writeln!(text, "   {name} {shape:?} on {device}");
    }
    match (row.status, &row.message) {
        (StepStatus::Same, _) => text.push_str("   it is there already: the same tensor, nothing is moved\n"),
        (StepStatus::Raised, Some(message)) => {
            let _ = writeln!(text, "   raises, as declared: {message}");
        }
        (StepStatus::Skipped, Some(message)) => {
            let _ = writeln!(text, "   skipped: {message}");
        }
        (StepStatus::Failed, Some(message)) => {
            let _ = writeln!(text, "   failed: {message}");
        }
        _ if row.copied_bytes > 0 => {
            let _ = writeln!(text, "   {} copied", units::bytes(row.copied_bytes));
        }
        _ => {}
    }
    if let Some(shown) = &row.shown {
        let _ = writeln!(text, "{shown}");
    }
    text
}
