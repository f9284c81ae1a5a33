//! The fitted preprocessing of a table, as the model's file keeps it. It is all that new rows need.

use serde::{Deserialize, Serialize};

/// What was done to the columns of the training file.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::data) struct StoredCsv {
    pub(super) source: String,
    /// Numeric columns, then categorical ones, each in the order of the model's features.
    pub(super) features: Vec<StoredColumn>,
    pub(super) target: StoredTarget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ColumnKind {
    Numeric,
    Categorical,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredColumn {
    pub(super) name: String,
    pub(super) kind: ColumnKind,
    /// The value of missing cells, where that is not the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fill: Option<f64>,
    #[serde(flatten)]
    pub(super) scale: Option<StoredScale>,
    /// Sorted; a last `null` stands for missing cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) categories: Option<Vec<Option<String>>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredTarget {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) scale: Option<StoredScale>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) classes: Option<StoredClasses>,
}

/// A standardization.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredScale {
    pub(super) mean: f64,
    pub(super) std: f64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum StoredClasses {
    /// 0, 1, ..., k - 1.
    Count(usize),
    /// Sorted.
    Names(Vec<String>),
}
