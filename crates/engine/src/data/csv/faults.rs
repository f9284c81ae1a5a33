//! Errors in the cells of a file, grouped so that one bad column does not hide other errors.

use std::collections::BTreeMap;

use super::{
    columns::Columns,
    decimal::value,
    text::{MAX_PROBLEMS, Text},
};
use crate::{
    data::{file, labels},
    spec::Problem,
};

/// The hint for a missing cell in a row for a trained model.
const MISSING_HINT: &str =
    "fill it in, or leave its row out; a model trained with `data.csv.missing = \"mean\"` fills such cells";

const WEIGHT_HINT: &str = "a weight is a number of 0 or more: how much the row counts";

/// What is wrong with a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Missing,
    Text,
    Infinite,
    TooLarge,
    /// Below 0, which a weight cannot be.
    Negative,
}

/// Up to this many similar errors of a column are listed; if there are more, only the first and their number.
const LISTED: usize = 5;

/// A bad cell or line: the start of its record, and the text.
struct Sighting {
    record: usize,
    found: String,
}

/// An error to report: its record and column, by which reports are sorted, and a function that creates the
/// problem.
type Found<'a> = (usize, usize, Box<dyn FnOnce() -> Problem + 'a>);

#[derive(Default)]
struct Group {
    count: usize,
    first: Vec<Sighting>,
}

impl Group {
    fn add(&mut self, record: usize, found: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push(Sighting { record, found: found() });
        }
    }

    /// The errors to report. If there are too many, only the first, with a note on the others.
    fn reported(&self, what: &str) -> impl Iterator<Item = (&Sighting, Option<String>)> {
        let many = self.count > LISTED;
        let label = many.then(|| format!("the first of {} {what}", self.count));
        self.first.iter().take(if many { 1 } else { LISTED }).map(move |sighting| (sighting, label.clone()))
    }
}

/// The faults of one file.
pub(super) struct Faults<'a> {
    text: &'a Text,
    columns: &'a Columns,
    /// The mark before a number's decimals.
    decimal: char,
    cells: BTreeMap<(usize, Kind), Group>,
    uneven: Group,
}

impl<'a> Faults<'a> {
    pub(super) fn new(text: &'a Text, columns: &'a Columns, decimal: char) -> Self {
        Self { text, columns, decimal, cells: BTreeMap::new(), uneven: Group::default() }
    }

    /// Records that cell `column` of the record at byte `record` is wrong.
    pub(super) fn cell(&mut self, record: usize, column: usize, kind: Kind, cell: &str) {
        self.cells.entry((column, kind)).or_default().add(record, || file::printable(cell));
    }

    /// Records that the record at byte `record` does not have as many cells as the first record.
    pub(super) fn uneven(&mut self, record: usize, cells: usize) {
        self.uneven.add(record, || cells.to_string());
    }

    /// All problems in file order. `last` is the start of the last record, `rows` the number of well-formed
    /// rows.
    pub(super) fn finish(&self, last: usize, rows: usize) -> Vec<Problem> {
        // Only reported errors become problems.
        let mut found: Vec<Found<'_>> = Vec::new();
        let mut total = 0;
        let unclosed = self.text.unclosed_quote(last);
        for (&(column, kind), group) in &self.cells {
            total += group.count;
            let missing = self.cells.get(&(column, Kind::Missing)).map_or(0, |group| group.count);
            let numbers = rows - (missing + if kind == Kind::Text { group.count } else { 0 }).min(rows);
            // If most cells are text, the declared type of the column is wrong, not its cells.
            let is_text = kind == Kind::Text && group.count > numbers;
            let what = format!("such cells in column `{}`", self.columns.name(column));
            let reported = group.reported(&what).take(if is_text { 1 } else { LISTED });
            for (sighting, label) in reported {
                let make = move || Problem { label, ..self.cell_problem(column, kind, sighting, is_text) };
                found.push((sighting.record, column, Box::new(make)));
            }
        }
        total += self.uneven.count;
        for (sighting, label) in self.uneven.reported("such lines") {
            if sighting.record == last && unclosed.is_some() {
                continue;
            }
            let make = move || Problem { label, ..self.uneven_problem(sighting, last) };
            found.push((sighting.record, 0, Box::new(make)));
        }
        found.extend(
            unclosed.map(|place| -> Found<'_> { (last, 0, Box::new(move || super::text::unclosed(place))) }),
        );
        found.sort_by_key(|(record, column, _)| (*record, *column));
        let is_cut = found.len() > MAX_PROBLEMS;
        let mut problems: Vec<Problem> =
            found.into_iter().take(MAX_PROBLEMS).map(|(.., make)| make()).collect();
        if is_cut {
            let message = format!("{total} cells and lines are wrong; these were the first");
            problems.push(file::problem(&self.text.path, message));
        }
        problems
    }

    fn cell_problem(&self, column: usize, kind: Kind, sighting: &Sighting, is_text: bool) -> Problem {
        let Sighting { record, found } = sighting;
        let name = self.columns.name(column);
        let is_target = self.columns.targets.contains(&column);
        let is_weight = self.columns.weight == Some(column);
        let is_trained = self.columns.is_trained;
        let whose = self.columns.described(column);
        let at = |message: String| Problem::new(self.text.cell(*record, column), message);
        match kind {
            Kind::Missing if is_trained && is_target => at(format!("missing cell in {whose}"))
                .hint("`evaluate` compares with the target: leave such rows out"),
            Kind::Missing if is_trained && is_weight => at(format!("missing cell in {whose}"))
                .hint("`evaluate` counts each row by its weight: leave such rows out"),
            Kind::Missing if is_weight || self.columns.group == Some(column) => {
                let what = if is_weight { "weight" } else { "group" };
                at(format!("missing cell in {whose}")).hint(format!(
                    "`data.csv.missing = \"mean\"` and `\"drop\"` leave such rows out; a {what} is never filled"
                ))
            }
            Kind::Missing if is_trained => at(format!("missing cell in {whose}")).hint(MISSING_HINT),
            Kind::Missing if is_target => at(format!("missing cell in {whose}")).hint(
                "`data.csv.missing = \"mean\"` and `\"drop\"` leave such rows out; a target is never filled",
            ),
            Kind::Missing => at(format!("missing cell in {whose}"))
                .hint("`data.csv.missing = \"mean\"` fills such cells, `\"drop\"` leaves their rows out"),
            Kind::Infinite => at(format!("`{found}` in {whose} is not a finite number")),
            Kind::TooLarge => at(format!("`{found}` in {whose} is too large for f32")),
            Kind::Negative => at(format!("`{found}` in {whose} is negative")).hint(WEIGHT_HINT),
            Kind::Text => {
                let out = format!("add `{name}` to `data.csv.categorical` (one-hot) or to `data.csv.ignore`");
                let hint = if let Some(hint) = self.mark_hint(found) {
                    hint.into()
                } else if is_weight {
                    WEIGHT_HINT.into()
                } else if is_trained {
                    "the model was trained on numbers here: correct the cell".into()
                } else if is_target {
                    "for classes use `loss = \"cross_entropy\"`".into()
                } else if is_text {
                    out
                } else {
                    "correct the cell; if it stands for a missing value, name it in `data.csv.missing_values`"
                        .into()
                };
                at(format!("`{found}` in {whose} is not a number")).hint(hint)
            }
        }
    }

    /// The way out for a number with another mark than that of the file's decimals.
    fn mark_hint(&self, found: &str) -> Option<&'static str> {
        if self.decimal == ',' {
            // A date such as 31.12.2024 is no number.
            let has_one = found.contains(',') || found.matches('.').count() == 1;
            let is_number = has_one && value(&found.replace('.', ""), ',').is_some();
            return is_number.then_some(match self.columns.is_trained {
                true if !found.contains(',') => {
                    "write decimals with a comma, thousands without a mark; or `--decimal .` if all decimals come after points"
                }
                true => "write decimals with a comma, thousands without a mark",
                false => "write decimals with a comma, as `decimal` says, thousands without a mark",
            });
        }
        value(found, ',')?;
        Some(match self.columns.is_trained {
            _ if self.text.is_parquet() => "write decimals with a point, thousands without a mark",
            true => {
                "write decimals with a point, thousands without a mark; or `--decimal ,` if all decimals come after commas"
            }
            false => {
                "write decimals with a point, thousands without a mark; or `data.csv.decimal = \",\"` if all decimals come after commas"
            }
        })
    }

    fn uneven_problem(&self, sighting: &Sighting, last: usize) -> Problem {
        let Sighting { record, found } = sighting;
        let expected = self.columns.names.len();
        let cells = if found == "1" { "cell" } else { "cells" };
        let message = format!("{found} {cells} in this line: expected {expected}, as in the first");
        let problem = Problem::new(self.text.line(*record), message);
        if *record == last && self.text.is_cut() {
            problem.hint("the file ends within this line: it may have been cut while it was copied")
        } else if found.parse().is_ok_and(|found: usize| found > expected) {
            problem.hint(format!("a cell that holds a `{}` must be quoted", self.text.delimiter()))
        } else {
            problem
        }
    }
}

/// The problem of a target that is a number but not a class.
pub(super) fn no_class(text: &Text, columns: &Columns, record: usize) -> Problem {
    let target = columns.targets.first().copied().unwrap_or_default();
    let found = text.written(record, target).unwrap_or_default();
    let whose = columns.described(target);
    let message = format!("`{}` in {whose} is not a class", file::printable(&found));
    Problem::new(text.cell(record, target), message)
        .hint(format!("classes are integers or words; {}", labels::NUMBERS_HINT))
}
