//! `csv`: a text table with one row per line, gzipped or not. `parquet`: such a table stored by columns.
//!
//! - Cells are trimmed. A cell is *missing* if it is empty or one of `missing_values`, in upper or lower
//!   case.
//! - Numeric features come first, in the order of the spec or the file; then the indicators of their missing cells, as far as there
//!   are any; then each categorical column, one-hot. Only numeric features are standardized.
//! - A missing target is an error, or its row is dropped, also where features are filled; it is never filled.
//! - A column of groups only says which rows stay together in a split, one of weights how much each row counts. A row without its
//!   group or weight is treated like one without a target.
//! - Classes are the sorted distinct integers or words of the target column.
//! - Categories and classes are those of the training file; a validation file may not contain new ones.

mod columns;
mod decimal;
mod faults;
mod fit;
mod foreign;
mod missing;
mod new_rows;
mod outliers;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "parquet_absent.rs"]
mod parquet;
mod parts;
mod profile;
mod row_order;
mod separator;
mod stored;
mod table;
mod target;
mod telling;
mod text;

use std::{path::Path, sync::Arc};

use self::{
    columns::Columns,
    fit::FeatureFit,
    stored::StoredCsv,
    table::{Table, Target},
    target::TargetFit,
    text::Text,
};
use super::{
    Dataset, Part, Task,
    division::Division,
    split::{RowUse, Split},
};
use crate::{
    spec::{Csv, Missing, Problem},
    units,
};
pub use decimal::Marks;
pub use new_rows::RowOptions;
pub(super) use new_rows::{CsvModel, CsvRows};
pub use profile::{ColumnProfile, CsvProfile};
pub use row_order::RowOrder;
pub use stored::{ColumnKind, StoredColumn};
pub use telling::telling_columns;

/// Characters of the names of columns that are left out, in a note.
const NAMES_WIDTH: usize = 60;

/// Whether a column is read; what else a file has may be of any type.
fn reads(spec: &Csv, name: &str) -> bool {
    let is_in = |names: &[String]| names.iter().any(|own| own == name);
    match &spec.features {
        None => !is_in(&spec.ignore),
        Some(features) => {
            is_in(features)
                || is_in(&spec.categorical)
                || is_in(&spec.target)
                || is_in(spec.group.as_slice())
                || is_in(spec.weight.as_slice())
        }
    }
}

/// The rows of a file, and those of a file to validate on, before any of them is divided and anything is fitted to those that train.
pub(super) struct Tables {
    rows: Table,
    validation: Option<Table>,
    /// Sentences on columns that alone tell the target, and on numbers far from all others in the other columns.
    warnings: Vec<String>,
}

impl Tables {
    /// Reads a text file.
    pub(super) fn read(spec: &Csv, task: Task) -> Result<Self, Vec<Problem>> {
        Self::read_by(spec, task, |path, key| Text::read(path, key, spec.delimiter))
    }

    /// Reads a Parquet file. Its cells are treated like those of a text file.
    pub(super) fn read_parquet(spec: &Csv, task: Task) -> Result<Self, Vec<Problem>> {
        Self::read_by(spec, task, |path, key| parquet::read(path, key, |name, _| reads(spec, name)))
    }

    fn read_by(
        spec: &Csv,
        task: Task,
        read: impl Fn(&Path, &str) -> Result<Text, Problem>,
    ) -> Result<Self, Vec<Problem>> {
        let text = Arc::new(read(&spec.path, "data.csv.path")?);
        let columns = Arc::new(Columns::resolve(spec, &text)?);
        let validation = match &spec.validation_path {
            None => None,
            Some(path) => {
                let text = read(path, "data.csv.validation_path")?;
                let columns = columns.in_other(spec, &text)?;
                Some((Arc::new(text), Arc::new(columns)))
            }
        };
        let rows = Table::read(spec, &text, &columns, task)?;
        let validation = match &validation {
            None => None,
            Some((text, columns)) => Some(Table::read(spec, text, columns, task)?),
        };
        let told = telling::find(&rows);
        let far = outliers::warnings(spec, &rows, &|column| told.iter().any(|own| own.column == column));
        let warnings = telling::warnings(&rows, &told).into_iter().chain(far).collect();
        Ok(Self { rows, validation, warnings })
    }

    /// See [`Table::shrink`].
    pub(super) fn shrink(&mut self) {
        self.rows.shrink();
        self.validation.iter_mut().for_each(Table::shrink);
    }

    /// Bytes of the cells in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.rows.bytes() + self.validation.as_ref().map_or(0, Table::bytes)
    }

    /// Divides the rows, fits the preprocessing to those that train, and applies it. Of `spec`, only what reading does not depend on
    /// may differ from that of [`Tables::read`].
    pub(super) fn dataset(&self, spec: &Csv, division: &Division) -> Result<Dataset, Vec<Problem>> {
        let Self { rows: table, validation, warnings: known } = self;
        let columns = &*table.columns;
        let codes = match &table.target {
            Target::Classes(words) => Some(words.codes.iter().copied()),
            _ => None,
        };
        let groups = columns.group.map(|column| (columns.name(column), &table.group.codes[..]));
        let split = Split::new(division, table.rows, codes, groups.as_ref().map(|(_, codes)| *codes))?;
        let features = FeatureFit::new(spec, table, &split)?;
        let target = TargetFit::new(spec, table, &split)?;
        let (train_x, rest_x) = split.apply(features.apply(table, None)?, features.width());
        let targets = spec.target.len();
        let weighted = columns.weight.is_some();
        let mut weight_scale = None;
        let all_y = target.apply(table, &mut weight_scale)?;
        let (train_y, rest_y) = split.apply(all_y, targets + usize::from(weighted));

        let grouped = groups.and_then(|(name, _)| split.group_note(&name));
        let notes = left_out(columns).into_iter().chain(split.notes()).chain(grouped);
        let notes = notes.chain(dropped(spec, table, "")).chain(weights(table, &split));
        let mut notes: Vec<String> = notes.chain(features.notes(columns)).collect();
        let mut warnings = Vec::from_iter(constant(columns, &train_x, features.width()));
        warnings.extend(known.iter().cloned());
        warnings.extend(features.untrained(table, &split));
        warnings.extend((spec.missing_indicators && features.indicators() == 0).then(|| {
            "`missing_indicators` changes nothing: no numeric feature has a missing cell".to_owned()
        }));
        let preprocessing = serde_json::to_value(StoredCsv {
            source: "csv".to_owned(),
            features: features.stored(spec, columns),
            target: target.stored(&spec.target),
        });
        let validation = match validation {
            None if split.held_rows() == 0 => None,
            None => Some(Part::of_memory(split.held_rows(), rest_x, rest_y)),
            Some(table) => {
                notes.extend(dropped(spec, table, " to validate on"));
                let y = target.apply(table, &mut weight_scale)?;
                Some(Part::of_memory(table.rows, features.apply(table, None)?, y))
            }
        };
        let train = Part::of_memory(split.train_rows(), train_x, train_y);
        let classes = target.class_count();
        Ok(Dataset {
            classes,
            target_scales: target.scales().to_vec(),
            preprocessing: preprocessing.unwrap_or_default(),
            notes,
            warnings: warnings.into(),
            apart: split.apart(table.numbers()),
            groups: split.held_groups(),
            weighted,
            ..Dataset::new(train, validation, features.width(), targets)
        })
    }
}

/// Names the numeric columns whose value is the same in all training rows. They are the first features of a row.
fn constant(columns: &Columns, rows: &[f32], width: usize) -> Option<String> {
    let is_constant = |c: usize| rows.iter().skip(c).step_by(width).all(|value| *value == rows[c]);
    let found = columns.numeric.iter().enumerate().filter(|(c, _)| rows.len() > width && is_constant(*c));
    let names: Vec<String> = found.map(|(_, &column)| format!("`{}`", columns.name(column))).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    (!names.is_empty()).then(|| format!("{} {verb} alike in all training rows", fitting(&names)))
}

/// Names the columns of the training file that are not read, as many as fit on a line.
fn left_out(columns: &Columns) -> Option<String> {
    let names: Vec<String> = columns.unused(&[]).iter().map(|name| format!("`{name}`")).collect();
    let [left, all] = [names.len(), columns.names.len()].map(|count| units::count(count as u64));
    (!names.is_empty()).then(|| format!("left out {left} of {all} columns: {}", fitting(&names)))
}

/// As many words as fit on a line, but at least one, and the number of the others.
fn fitting(words: &[String]) -> String {
    let mut room = NAMES_WIDTH;
    let fits = |word: &&String| {
        let (before, width) = (room, word.chars().count() + ", ".len());
        room = room.saturating_sub(width);
        before == NAMES_WIDTH || before >= width
    };
    let shown: Vec<&str> = words.iter().take_while(fits).map(String::as_str).collect();
    shown.join(", ") + &units::and_more(words.len() - shown.len())
}

fn dropped(spec: &Csv, table: &Table, which: &str) -> Option<String> {
    let count = table.dropped.len();
    let rows = if count == 1 { "row" } else { "rows" };
    let why = match spec.missing {
        Missing::Mean => format!("without {}", never_filled(spec)),
        _ => "with missing cells".to_owned(),
    };
    (count > 0).then(|| format!("dropped {count} {rows}{which} {why}"))
}

/// What a row must have where other cells are filled.
fn never_filled(spec: &Csv) -> &'static str {
    match (&spec.group, &spec.weight) {
        (None, None) => "a target",
        (Some(_), None) => "a target or a group",
        (None, Some(_)) => "a target or a weight",
        (Some(_), Some(_)) => "a target, a group or a weight",
    }
}

/// How unequal the weights of the training rows are: that many rows of equal weights have means of the same variance (Kish,
/// Survey Sampling, 1965).
fn weights(table: &Table, split: &Split) -> Option<String> {
    let name = table.columns.name(table.columns.weight?);
    let all = table.weights.as_ref()?;
    let of = split.rows_of(RowUse::Train).map(|row| all[row]);
    let (sum, squares) =
        of.fold((0.0, 0.0), |(sum, squares), weight| (sum + weight, squares + weight * weight));
    let rows = units::counted(split.train_rows() as u64, "row");
    let equal = units::number(sum * sum / squares);
    let others = match table.target {
        Target::Classes(_) => "; accuracy and other metrics of classes count rows equally",
        _ => "",
    };
    Some(format!(
        "`{name}` weighs the rows: the {rows} to train on count like {equal} of equal weight{others}"
    ))
}
