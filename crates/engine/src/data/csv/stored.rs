//! The fitted preprocessing of a table, as it is stored in the model's file. Nothing else is needed for new
//! rows.

use serde::{Deserialize, Serialize};

use crate::data::scale::Scale;

/// How the columns of the training file were preprocessed.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::data) struct StoredCsv {
    pub source: String,
    /// Numeric columns, then categorical ones, each in the order of the model's features.
    pub features: Vec<StoredColumn>,
    /// Written as a table for a single target, as a list for several.
    #[serde(with = "one_or_more")]
    pub target: Vec<StoredTarget>,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnKind {
    /// Numbers: one feature, and another one for the indicator of missing cells, if it has that.
    Numeric,
    /// Words: a feature for each category.
    Categorical,
}

/// How a column of features was preprocessed.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredColumn {
    /// The name in the file's header, or the column's index.
    pub name: String,
    /// Numbers or words.
    pub kind: ColumnKind,
    /// The value for missing cells, the mean of the training rows; `None` if the column has no such cells, unless new rows may have
    /// some and no `scale` has the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<f64>,
    /// Whether the training file has no missing cells here though there is a `fill`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete: bool,
    /// Whether it has an indicator of missing cells: another feature, after all numbers. `Some(false)`: one that is always 0, since
    /// none of the column's missing cells was in a training row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indicator: Option<bool>,
    /// `None` if numbers are not scaled.
    #[serde(flatten)]
    pub scale: Option<Scale>,
    /// Sorted; a final `null` stands for missing cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<Option<String>>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::data) struct StoredTarget {
    pub name: String,
    #[serde(flatten)]
    pub scale: Option<Scale>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<StoredClasses>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(in crate::data) enum StoredClasses {
    /// Classes 0, 1, ..., k - 1.
    Count(usize),
    /// Sorted names.
    Names(Vec<String>),
}

impl StoredColumn {
    /// Whether the training file has no missing cells here.
    pub fn is_complete(&self) -> bool {
        self.complete || self.fill.is_none()
    }

    /// The value that replaces a missing number.
    pub fn fill(&self) -> f64 {
        self.fill.unwrap_or_else(|| self.scale.map_or(0.0, |scale| scale.mean))
    }
}

mod one_or_more {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::StoredTarget;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(StoredTarget),
        More(Vec<StoredTarget>),
    }

    pub(super) fn serialize<S: Serializer>(targets: &[StoredTarget], to: S) -> Result<S::Ok, S::Error> {
        if let [target] = targets { target.serialize(to) } else { targets.serialize(to) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<StoredTarget>, D::Error> {
        OneOrMore::deserialize(from).map(|read| match read {
            OneOrMore::One(target) => vec![target],
            OneOrMore::More(targets) => targets,
        })
    }
}
