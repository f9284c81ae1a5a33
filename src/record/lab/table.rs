//! What was found as a person reads it: a table of products or copies, or the steps of a tour one by one.

use std::fmt;

use crate::{
    event::{CopyRow, Event, ProductRow, StepRow, StepStatus, Together},
    record::{messages, text_table},
    spec::lab::Order,
    units,
};

/// Stands below figures of virtual devices.
pub const VIRTUAL: &str =
    "virtual devices share the host's processor and memory: their times say nothing of GPUs";

/// A column: its heading, and the cell of a row.
type Column<R> = (&'static str, fn(&R) -> String);

const PRODUCTS: [Column<ProductRow>; 8] =
    [
        ("device", |row| row.device.clone()),
        ("product", |row| row.shape.map(|axis| axis.to_string()).join(" x ")),
        ("count", |row| units::count(row.count)),
        ("each", |row| units::seconds(row.mean_s())),
        ("FLOP/s", |row| row.gflop_per_s().map(|rate| units::rate(rate * 1e9)).unwrap_or_default()),
        ("log", |row| if row.log_s > 0.0 { units::seconds(row.log_s) } else { String::new() }),
        ("of the time", |row| {
            if row.log_s > 0.0 { units::percent(row.log_s / row.total_s) } else { String::new() }
        }),
        ("norms, summed", |row| row.norm_sum.map(units::number).unwrap_or_default()),
    ];

const COPIES: [Column<CopyRow>; 8] = [
    ("from", |row| row.from.clone()),
    ("to", |row| row.to.clone()),
    ("memory", |row| row.memory.unwrap_or_default().to_owned()),
    ("size", |row| units::bytes(row.bytes)),
    ("count", |row| units::count(row.count)),
    ("median", |row| units::seconds(row.p50_s)),
    ("min to max", |row| format!("{} to {}", units::seconds(row.min_s), units::seconds(row.max_s))),
    ("B/s, median", |row| row.gb_per_s().map(|rate| units::rate(rate * 1e9)).unwrap_or_default()),
];

/// Rows that share a header.
#[derive(Default)]
pub struct LabTable {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Columns on the left that are words.
    words: usize,
    notes: Vec<String>,
}

impl LabTable {
    /// Takes an event that makes a row or a note.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Product(row) => self.push(&PRODUCTS, 1, row),
            Event::Copy(row) => self.push(&COPIES, 3, row),
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

    fn push<R>(&mut self, columns: &[Column<R>], words: usize, row: &R) {
        (self.header, self.words) = (columns.iter().map(|(title, _)| *title).collect(), words);
        self.rows.push(columns.iter().map(|(_, cell)| cell(row)).collect());
    }
}

/// Its lines and an empty one; nothing where there are no rows.
impl fmt::Display for LabTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        f.write_str(&text_table::text(&self.header, &self.rows, |place| place >= self.words))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))?;
        writeln!(f)
    }
}

/// A step of a tour, and what it gave.
pub(in crate::record) fn step_in_words(row: &StepRow) -> String {
    let mut text = format!("{}. {}\n", row.step, row.expression);
    text.extend(
        row.parameters.iter().map(|(name, shape, device)| format!("   {name} {shape:?} on {device}\n")),
    );
    let ended = match (row.status, &row.message) {
        (StepStatus::Same, _) => Some("it is there already: the same tensor, nothing is moved".to_owned()),
        (StepStatus::Raised, Some(message)) => Some(format!("raises, as declared: {message}")),
        (StepStatus::Skipped, Some(message)) => Some(format!("skipped: {message}")),
        (StepStatus::Failed, Some(message)) => Some(format!("failed: {message}")),
        _ => (row.copied_bytes > 0).then(|| format!("{} copied", units::bytes(row.copied_bytes))),
    };
    text.extend(ended.map(|words| format!("   {words}\n")));
    text.extend(row.shown.iter().map(|shown| format!("{shown}\n")));
    text
}
