//! `csv`: a table of text, one row per line.
//!
//! - Cells are trimmed. A cell is *missing* where it is empty or `NA`, `NaN` or `null` in any case.
//! - Numeric features come first, in the order of the spec or the file; then each categorical column, one-hot. Only numeric
//!   features are standardized.
//! - A missing target is an error, or its row is dropped; it is never filled.
//! - Classes are whole numbers 0 to k - 1, all of which occur, or words, sorted.
//! - Categories and classes are those of the training file; a validation file may not bring new ones.

mod columns;
mod faults;
mod fit;
mod table;
mod target;
mod text;

use serde_json::json;

use self::{columns::Columns, fit::FeatureFit, table::Table, target::TargetFit, text::Text};
use super::{
    Dataset, Part, Task,
    split::{self, Split},
};
use crate::spec::{Csv, Problem};

pub(super) fn open(spec: &Csv, task: Task, seed: u64) -> Result<Dataset, Vec<Problem>> {
    let one = |problem: Problem| vec![problem];
    let delimiter = check(spec, task)?;
    let text = Text::read(&spec.path, "data.csv.path", delimiter).map_err(one)?;
    let columns = Columns::resolve(spec, &text)?;
    let validation = match &spec.validation_path {
        None => None,
        Some(path) => {
            let text = Text::read(path, "data.csv.validation_path", delimiter).map_err(one)?;
            let columns = columns.in_validation(spec, &text)?;
            Some((text, columns))
        }
    };
    let table = Table::read(spec, &text, &columns, task)?;
    let split = match &validation {
        Some(_) => Split::none(table.rows),
        None => {
            let fraction = spec.validation_fraction.unwrap_or(split::DEFAULT_FRACTION);
            Split::by_fraction(seed, table.rows, fraction, "data.csv.validation_fraction").map_err(one)?
        }
    };
    let features = FeatureFit::new(spec, &text, &columns, &table, &split)?;
    let target = TargetFit::new(spec, &text, &columns, &table.target, &split)?;
    let (train_x, rest_x) = split.apply(features.apply(&text, &columns, &table)?, features.width());
    let (train_y, rest_y) = split.apply(target.apply(&text, &columns, &table.target)?, 1);

    let mut notes: Vec<String> = dropped(&table, "").into_iter().chain(features.notes(&columns)).collect();
    let preprocessing = json!({
        "source": "csv",
        "features": features.preprocessing(&columns),
        "target": target.preprocessing(&columns.names[columns.target]),
    });
    let validation = match validation {
        None if split.validation_rows() == 0 => None,
        None => Some(Part::in_memory(split.validation_rows(), rest_x, rest_y)),
        Some((text, columns)) => {
            let table = Table::read(spec, &text, &columns, task)?;
            notes.extend(dropped(&table, " to validate on"));
            let x = features.apply(&text, &columns, &table)?;
            Some(Part::in_memory(table.rows, x, target.apply(&text, &columns, &table.target)?))
        }
    };
    Ok(Dataset {
        train: Part::in_memory(split.train_rows(), train_x, train_y),
        validation,
        features: features.width(),
        targets: 1,
        classes: target.class_count(),
        preprocessing,
        truth: None,
        notes,
        files: Vec::new(),
    })
}

/// Checks that need no file; returns the delimiter.
fn check(spec: &Csv, task: Task) -> Result<u8, Vec<Problem>> {
    let mut problems = Vec::new();
    if spec.standardize_target && task == Task::Classification {
        let message = "`standardize_target` is for numbers, and `cross_entropy` learns classes";
        problems.push(Problem::at_key("data.csv.standardize_target", message).hint("leave it out"));
    }
    let delimiter =
        u8::try_from(spec.delimiter).ok().filter(|byte| byte.is_ascii() && !b"\"\r\n".contains(byte));
    if delimiter.is_none() {
        let message = format!(
            "`{}` cannot separate cells: expected one ASCII character",
            spec.delimiter.escape_debug()
        );
        problems.push(Problem::at_key("data.csv.delimiter", message).hint("`,`, `;`, `|` or a tab, `\\t`"));
    }
    delimiter.filter(|_| problems.is_empty()).ok_or(problems)
}

fn dropped(table: &Table, which: &str) -> Option<String> {
    let rows = if table.dropped == 1 { "row" } else { "rows" };
    (table.dropped > 0).then(|| format!("dropped {} {rows}{which} with missing cells", table.dropped))
}
