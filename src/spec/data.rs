//! `[data]`: where the rows come from and how they are batched.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::json;

use super::{
    reader::{Choice, Fields, Item, Range, Rule, Word},
    tree::Value,
};

/// The table `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Data {
    /// Rows per optimizer step.
    pub batch_size: usize,
    /// Whether each epoch has its own order of rows, drawn from (seed, epoch).
    pub shuffle: bool,
    /// Whether the rows stay on the device or are streamed to it.
    pub placement: Placement,
    /// Exactly one source of rows.
    #[serde(flatten)]
    pub source: Source,
}

/// Where the rows live while training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Resident where they fit.
    Auto,
    /// On the device from the start.
    Resident,
    /// Brought to the device in chunks while it computes. Those of an `npy` source stay in their file, from which the CPU
    /// fetches each.
    Streamed,
}

/// A source of rows; the variant is the name of the sub-table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `y = X w + b + noise`, the textbook's.
    SyntheticRegression(SyntheticRegression),
    /// A table of text.
    Csv(Csv),
    /// MNIST's format.
    Idx(Idx),
    /// NumPy arrays.
    Npy(Npy),
}

/// Features from N(0, 1), targets `X w + b` and N(0, noise²).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SyntheticRegression {
    /// The true weights, one per feature.
    pub weights: Vec<f64>,
    /// The true bias.
    pub bias: f64,
    /// Standard deviation of the noise.
    pub noise: f64,
    /// Rows to train on.
    pub train_rows: usize,
    /// Rows to validate on; 0 for none.
    pub validation_rows: usize,
}

/// A CSV file with one row per line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Csv {
    /// The file, absolute once resolved.
    pub path: PathBuf,
    /// The column to predict.
    pub target: String,
    /// Numeric feature columns, in this order; absent: all other numeric columns in file order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<String>>,
    /// Text columns, one-hot encoded after the numeric ones, categories sorted.
    pub categorical: Vec<String>,
    /// Columns to leave out.
    pub ignore: Vec<String>,
    /// What an empty cell means.
    pub missing: Missing,
    /// Features to zero mean and unit deviation, fitted on the training rows.
    pub standardize: bool,
    /// The same for a numeric target.
    pub standardize_target: bool,
    /// The cell separator, one ASCII character.
    pub delimiter: char,
    /// Whether the first line names the columns; without, they are named "0", "1", ...
    pub header: bool,
    /// A second file of the same columns to validate on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_path: Option<PathBuf>,
    /// Or the part of the rows, taken by the seed; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_fraction: Option<f64>,
}

/// What an empty cell means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// An error that names line and column.
    Error,
    /// The column's mean over the training rows; its own category for text.
    Mean,
    /// The row is left out.
    Drop,
}

/// Images and labels in MNIST's IDX format, gzipped or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Idx {
    /// The images (or any array of two or more dimensions, rows first).
    pub images: PathBuf,
    /// One label per row.
    pub labels: PathBuf,
    /// Images to validate on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_images: Option<PathBuf>,
    /// Their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_labels: Option<PathBuf>,
    /// Or the part of the rows, taken by the seed; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_fraction: Option<f64>,
    /// Every feature is divided by this.
    pub scale: f64,
}

/// NumPy's `.npy` arrays.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Npy {
    /// `[rows, ...]` of f32, f64 or u8.
    pub features: PathBuf,
    /// `[rows]` or `[rows, targets]`; integers for classes.
    pub labels: PathBuf,
    /// Features to validate on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_features: Option<PathBuf>,
    /// Their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_labels: Option<PathBuf>,
    /// Or the part of the rows, taken by the seed; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_fraction: Option<f64>,
}

impl Data {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let batch_size = t.default("batch_size", "rows per optimizer step", 32, |v| v.size(1));
        let shuffle =
            t.default("shuffle", "whether each epoch has its own order of rows", true, |v| v.boolean());
        let placement = t.default("placement", "where the rows live while training", Placement::Auto, |v| {
            v.word(
                &[
                    Word { name: "auto", value: Placement::Auto, doc: "on the device where they fit" },
                    Word { name: "resident", value: Placement::Resident, doc: "on the device" },
                    Word { name: "streamed", value: Placement::Streamed, doc: "brought to the device in chunks; rows of `npy` stay in their file, where the CPU fetches them" },
                ],
                &[],
            )
        });
        let source = t.one_of(
            None,
            &[
                Choice {
                    name: "synthetic_regression",
                    doc: "y = X w + b + noise, features from N(0, 1)",
                    read: |v| Source::SyntheticRegression(v.table(SyntheticRegression::read)),
                },
                Choice { name: "csv", doc: "a table of text", read: |v| Source::Csv(v.table(Csv::read)) },
                Choice {
                    name: "idx",
                    doc: "images and labels in MNIST's format, gzipped or not",
                    read: |v| Source::Idx(v.table(Idx::read)),
                },
                Choice { name: "npy", doc: "NumPy's arrays", read: |v| Source::Npy(v.table(Npy::read)) },
            ],
        );
        Self { batch_size, shuffle, placement, source: source.unwrap_or_else(Source::stand_in) }
    }
}

impl Source {
    fn stand_in() -> Self {
        let (weights, bias, noise) = (vec![1.0], 0.0, 0.0);
        Self::SyntheticRegression(SyntheticRegression {
            weights,
            bias,
            noise,
            train_rows: 1,
            validation_rows: 1,
        })
    }

    /// Whether there are rows to validate on.
    pub fn has_validation(&self) -> bool {
        match self {
            Self::SyntheticRegression(s) => s.validation_rows > 0,
            _ => self.validation_fraction().is_none_or(|(_, fraction)| fraction != 0.0),
        }
    }

    /// The part of the rows that validates, with its key; `None` where those rows are given apart.
    pub fn validation_fraction(&self) -> Option<(&'static str, f64)> {
        let (key, fraction) = match self {
            Self::SyntheticRegression(_) => return None,
            Self::Csv(s) => ("data.csv.validation_fraction", s.validation_fraction),
            Self::Idx(s) => ("data.idx.validation_fraction", s.validation_fraction),
            Self::Npy(s) => ("data.npy.validation_fraction", s.validation_fraction),
        };
        Some((key, fraction?))
    }

    /// The files that rows are read from.
    pub fn files(&self) -> Vec<&Path> {
        let (needed, more) = match self {
            Self::SyntheticRegression(_) => return Vec::new(),
            Self::Csv(s) => ([Some(&s.path), None], [s.validation_path.as_ref(), None]),
            Self::Idx(s) => {
                let validation = [s.validation_images.as_ref(), s.validation_labels.as_ref()];
                ([Some(&s.images), Some(&s.labels)], validation)
            }
            Self::Npy(s) => {
                let validation = [s.validation_features.as_ref(), s.validation_labels.as_ref()];
                ([Some(&s.features), Some(&s.labels)], validation)
            }
        };
        needed.into_iter().chain(more).flatten().map(PathBuf::as_path).collect()
    }
}

impl SyntheticRegression {
    fn read(t: &mut Fields<'_>) -> Self {
        let weights = t.required("weights", "the true weights, one per feature", |v| {
            v.list(1..=1_000_000, |v| v.float(Range::Finite))
        });
        Self {
            weights,
            bias: t.default("bias", "the true bias", 0.0, |v| v.float(Range::Finite)),
            noise: t
                .default("noise", "standard deviation of the noise", 0.01, |v| v.float(Range::NonNegative)),
            train_rows: t.default("train_rows", "rows to train on", 1000, |v| v.size(1)),
            validation_rows: t
                .default("validation_rows", "rows to validate on; 0 for none", 1000, |v| v.size(0)),
        }
    }
}

/// The part of the rows to validate on: what was given, nothing beside validation files, else a fifth.
fn read_fraction(t: &mut Fields<'_>, files: &[&'static str]) -> Option<f64> {
    let doc = "part of the rows to validate on, taken by the seed; 0 for none (0.2 where no validation file is given)";
    let fraction = t.optional("validation_fraction", doc, |v| v.float(Range::BelowOne));
    for file in files {
        t.rule(Rule::Exclude(file, "validation_fraction"));
    }
    match files.iter().any(|f| t.has(f)) {
        true => None,
        false => Some(fraction.unwrap_or(0.2)),
    }
}

impl Csv {
    fn read(t: &mut Fields<'_>) -> Self {
        let columns = |v: Item<'_>| v.list(0..=100_000, |v| v.string());
        let csv = Self {
            path: t.required("path", "the file", |v| v.path()),
            target: t.required("target", "the column to predict", |v| v.string()),
            features: t.optional(
                "features",
                "numeric feature columns in order (all others in file order)",
                columns,
            ),
            categorical: t.default(
                "categorical",
                "text columns, one-hot encoded after the others",
                vec![],
                columns,
            ),
            ignore: t.default("ignore", "columns to leave out", vec![], columns),
            missing: t.default("missing", "what an empty cell means", Missing::Error, |v| {
                v.word(
                    &[
                        Word {
                            name: "error",
                            value: Missing::Error,
                            doc: "an error that names line and column",
                        },
                        Word {
                            name: "mean",
                            value: Missing::Mean,
                            doc: "the column's mean over the training rows",
                        },
                        Word { name: "drop", value: Missing::Drop, doc: "the row is left out" },
                    ],
                    &[],
                )
            }),
            standardize: t.default(
                "standardize",
                "features to zero mean and unit deviation, fitted on the training rows",
                true,
                |v| v.boolean(),
            ),
            standardize_target: t.default(
                "standardize_target",
                "the same for a target of numbers",
                false,
                |v| v.boolean(),
            ),
            delimiter: t.default("delimiter", "the cell separator, one ASCII character", ',', read_delimiter),
            header: t.default(
                "header",
                "whether the first line names the columns, else \"0\", \"1\", ...",
                true,
                |v| v.boolean(),
            ),
            validation_path: t.optional(
                "validation_path",
                "a second file of the same columns to validate on",
                |v| v.path(),
            ),
            validation_fraction: read_fraction(t, &["validation_path"]),
        };
        csv.check_columns(t);
        csv
    }

    /// A column has one use.
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
        let mut uses = HashMap::from([(self.target.as_str(), "target")]);
        for (list, columns) in lists {
            for (i, column) in columns.iter().enumerate() {
                if let Some(earlier) = uses.insert(column, list) {
                    let message = format!("the column `{column}` is already in `{earlier}`");
                    t.refuse_item(list, i, message, "a column has one use: name it once");
                }
            }
        }
    }
}

fn read_delimiter(v: Item<'_>) -> char {
    let schema = json!({ "type": "string", "minLength": 1, "maxLength": 1 });
    let fits =
        |c: &char| c.is_ascii() && !c.is_ascii_alphanumeric() && !matches!(c, '"' | '\n' | '\r' | '\0');
    v.custom("one ASCII character that separates cells, such as `;`", schema, ',', |v| match v {
        Value::String(s) => s.chars().next().filter(fits).filter(|_| s.len() == 1),
        _ => None,
    })
}

impl Idx {
    fn read(t: &mut Fields<'_>) -> Self {
        let idx = Self {
            images: t.required("images", "the images, or any array of rows", |v| v.path()),
            labels: t.required("labels", "one label per row", |v| v.path()),
            validation_images: t.optional("validation_images", "images to validate on", |v| v.path()),
            validation_labels: t.optional("validation_labels", "their labels", |v| v.path()),
            validation_fraction: read_fraction(t, &["validation_images", "validation_labels"]),
            scale: t
                .default("scale", "every feature is divided by this", 255.0, |v| v.float(Range::Positive)),
        };
        t.rule(Rule::Together("validation_images", "validation_labels"));
        idx
    }
}

impl Npy {
    fn read(t: &mut Fields<'_>) -> Self {
        let npy = Self {
            features: t.required("features", "an array [rows, ...] of f32, f64 or u8", |v| v.path()),
            labels: t
                .required("labels", "an array [rows] or [rows, targets]; integers for classes", |v| v.path()),
            validation_features: t.optional("validation_features", "features to validate on", |v| v.path()),
            validation_labels: t.optional("validation_labels", "their labels", |v| v.path()),
            validation_fraction: read_fraction(t, &["validation_features", "validation_labels"]),
        };
        t.rule(Rule::Together("validation_features", "validation_labels"));
        npy
    }
}
