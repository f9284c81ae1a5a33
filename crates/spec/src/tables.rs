//! `[data.csv]` and `[data.parquet]`: tables of named columns.

use std::{collections::HashMap, path::PathBuf};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{
    reader::{Fields, Item, Read, Rule, below_one, some, table, words},
    tree::{Node, Value},
};

/// Declares both kinds of tables, and copies the keys that they share. A text file has its own keys between these; what a comment
/// says of one kind alone follows in brackets.
macro_rules! tables_of_columns {
    (
        shared {$(
            $(#[doc = $doc:literal])+ $([$text:literal or $columns:literal])?
            $field:ident: $type:ty $([$($serde:tt)+])? $(= $default:expr)? $(=> $read:expr)?,
        )+}
        text {$($(#[doc = $text_doc:literal])+ $own:ident: $own_type:ty = $own_default:expr $(=> $own_read:expr)?,)+}
        shared {$($(#[doc = $last_doc:literal])+ $last:ident: $last_type:ty = $last_default:expr $(=> $last_read:expr)?,)+}
    ) => {
        table! {
            /// A CSV file with one row per line.
            pub struct Csv {
                $($(#[doc = $doc])+ $(#[doc = $text])? pub $field: $type $([$($serde)+])? $(= $default)? $(=> $read)?,)+
                $($(#[doc = $text_doc])+ pub $own: $own_type = $own_default $(=> $own_read)?,)+
                $($(#[doc = $last_doc])+ pub $last: $last_type = $last_default $(=> $last_read)?,)+
            }
            check check
        }

        table! {
            /// A Parquet file of flat columns, in a build with `--features parquet`.
            pub struct Parquet {
                $($(#[doc = $doc])+ $(#[doc = $columns])? pub $field: $type $([$($serde)+])? $(= $default)? $(=> $read)?,)+
                $($(#[doc = $last_doc])+ pub $last: $last_type = $last_default $(=> $last_read)?,)+
            }
            check check
        }

        impl Parquet {
            /// The same settings as for a CSV file: cells are processed alike, however they are stored.
            pub fn as_csv(&self) -> Csv {
                Csv {
                    $($field: self.$field.clone(),)+
                    $($own: $own_default,)+
                    $($last: self.$last.clone(),)+
                }
            }
        }
    };
}

tables_of_columns! {
    shared {
        /// The file.
        path: PathBuf,
        /// The column to predict; of numbers there may be a list of several.
        target: Vec<String> [serialize_with = "one_or_more"] => targets,
        /// Numeric feature columns in order (all others in file order)
        ["." or "; of truth values, too, as 0 and 1."]
        features: Option<Vec<String>> = None => some(columns),
        /// Text columns, one-hot encoded after the others, categories sorted.
        categorical: Vec<String> = Vec::new() => columns,
        /// Columns to leave out.
        ignore: Vec<String> = Vec::new() => columns,
        /// A column that is no feature: rows with the same cell in it, such as those of a patient, stay in one part of a split or fold.
        group: Option<String> = None,
        /// A column that is no feature: how much each row counts in losses and in metrics of numbers, 0 or more.
        weight: Option<String> = None,
        /// What to do with missing cells: empty ones, and those of `missing_values`.
        missing: Missing = Missing::Error,
        /// Texts of missing cells, ASCII letters in either case (`["NA", "n/a", "NaN", "null"]`);
        [" an empty cell always is missing." or " nulls and NaN always are missing."]
        missing_values: Option<Vec<String>> = None => some(columns),
        /// Whether each numeric feature with missing cells has an indicator, another feature that is 1 where the cell is missing, else 0;
        /// for `missing = "mean"`.
        missing_indicators: bool = false,
        /// Whether features are scaled to mean 0 and standard deviation 1, fitted on the training rows.
        standardize: bool = true,
        /// Whether a numeric target is, too.
        standardize_target: bool = false,
    }
    text {
        /// The cell separator, one ASCII character.
        delimiter: char = ',' => delimiter,
        /// The mark before the decimals of a number: `.`, or `,` as in many European files; numbers have no mark of thousands.
        decimal: char = '.' => decimal,
        /// Whether the first line names the columns; else they are named `0`, `1` and so on.
        header: bool = true,
    }
    shared {
        /// A second file of the same columns to validate on.
        validation_path: Option<PathBuf> = None,
        /// Fraction of the rows held out for validation, chosen by the seed; 0 for none (0.2 without a validation file).
        validation_fraction: Option<f64> = None => some(below_one),
    }
}

words! {
    /// What to do with missing cells.
    pub enum Missing {
        /// An error that names line and column.
        Error = "error",
        /// The column's mean over the training rows; for text a category of its own; a row without a target is left out.
        Mean = "mean",
        /// The row is left out.
        Drop = "drop",
    }
}

impl Csv {
    fn check(&mut self, t: &mut Fields<'_>) {
        check_validation(t, &["validation_path"], &mut self.validation_fraction);
        t.rule(Rule::Exclude("validation_path", "group"));
        self.check_columns(t);
    }

    /// No column may have two roles.
    fn check_columns(&self, t: &mut Fields<'_>) {
        let features = self.features.as_deref().unwrap_or_default();
        if self.features.is_some() && features.is_empty() && self.categorical.is_empty() {
            t.refuse(
                "features",
                &["categorical"],
                "there must be at least one column",
                "leave it out for all numeric columns",
            );
        }
        let lists = [("features", features), ("categorical", &self.categorical), ("ignore", &self.ignore)];
        let mut uses = HashMap::new();
        for (i, column) in self.target.iter().enumerate() {
            if uses.insert(column.as_str(), "target").is_some() {
                let message = format!("the column `{column}` is named twice");
                t.refuse_item("target", i, message, "name each target once");
            }
        }
        for (key, column) in [("group", &self.group), ("weight", &self.weight)] {
            if let Some(column) = column
                && let Some(earlier) = uses.insert(column, key)
            {
                let message = format!("the column `{column}` is already in `{earlier}`");
                t.refuse(key, &[earlier], message, "a column has one use: name it once");
            }
        }
        for (list, columns) in lists {
            for (i, column) in columns.iter().enumerate() {
                if let Some(earlier) = uses.insert(column, list) {
                    let message = format!("the column `{column}` is already in `{earlier}`");
                    t.refuse_item(list, i, message, "a column has one use: name it once");
                }
            }
        }
        if self.missing_indicators && self.missing != Missing::Mean {
            t.refuse(
                "missing_indicators",
                &["missing"],
                format!("indicators are of cells that are filled in, but `missing` is `{}`", self.missing),
                "`missing = \"mean\"` fills them in; else leave `missing_indicators` out",
            );
        }
        for (i, text) in self.missing_values.iter().flatten().enumerate() {
            if text.is_empty() {
                t.refuse_item(
                    "missing_values",
                    i,
                    "an empty text",
                    "leave it out: empty cells are always missing",
                );
            } else if text.trim() != text {
                let message = format!("no cell is `{text}`: spaces around a cell do not count");
                t.refuse_item("missing_values", i, message, &format!("write `{}`", text.trim()));
            }
        }
    }
}

impl Parquet {
    fn check(&mut self, t: &mut Fields<'_>) {
        check_validation(t, &["validation_path"], &mut self.validation_fraction);
        t.rule(Rule::Exclude("validation_path", "group"));
        self.as_csv().check_columns(t);
    }
}

/// The default of `missing_values`.
pub const MISSING_VALUES: [&str; 4] = ["NA", "n/a", "NaN", "null"];

/// The default fraction of validation rows.
pub(super) const DEFAULT_FRACTION: f64 = 0.2;

/// Validation rows come from files or from a fraction, never both; by default a fifth of the rows.
pub(super) fn check_validation(t: &mut Fields<'_>, files: &[&'static str], fraction: &mut Option<f64>) {
    files.iter().for_each(|file| t.rule(Rule::Exclude(file, "validation_fraction")));
    if let [features, labels] = *files {
        t.rule(Rule::Together(features, labels));
    }
    *fraction = if files.iter().any(|f| t.has(f)) { None } else { fraction.or(Some(DEFAULT_FRACTION)) };
}

/// A column's name, or a non-empty list of names.
fn targets(v: Item<'_>) -> Vec<String> {
    let text = json!({ "type": "string" });
    let schema = json!({ "oneOf": [text, { "type": "array", "items": text, "minItems": 1 }] });
    v.custom(
        "a column's name, or a list of names",
        schema,
        vec!["stand_in".to_owned()],
        |value| match value {
            Value::String(name) => Some(vec![name.clone()]),
            Value::Array(names) if !names.is_empty() => {
                let name = |node: &Node| node.value.as_str().map(str::to_owned);
                names.iter().map(name).collect()
            }
            _ => None,
        },
    )
}

fn one_or_more<S: Serializer>(names: &[String], to: S) -> Result<S::Ok, S::Error> {
    if let [name] = names { name.serialize(to) } else { names.serialize(to) }
}

fn columns(v: Item<'_>) -> Vec<String> {
    v.list(0..=100_000, String::read)
}

fn delimiter(v: Item<'_>) -> char {
    let schema = json!({ "type": "string", "minLength": 1, "maxLength": 1 });
    v.custom("one ASCII character that separates cells, such as `;`", schema, ',', |v| {
        let s = v.as_str()?;
        separator(s)
    })
}

/// The character that a text names, if it may separate the cells of a CSV file.
pub fn separator(text: &str) -> Option<char> {
    let fits =
        |c: &char| c.is_ascii() && !c.is_ascii_alphanumeric() && !matches!(c, '"' | '\n' | '\r' | '\0');
    text.chars().next().filter(fits).filter(|_| text.len() == 1)
}

fn decimal(v: Item<'_>) -> char {
    v.custom("`.` or `,`", json!({ "enum": [".", ","] }), '.', |v| match v.as_str()? {
        "." => Some('.'),
        "," => Some(','),
        _ => None,
    })
}
