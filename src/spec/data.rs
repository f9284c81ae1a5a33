//! `[data]`: where the rows come from and how they are batched.

use std::path::PathBuf;

use serde::Serialize;

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
    /// Moved in blocks of batches while the device computes.
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
