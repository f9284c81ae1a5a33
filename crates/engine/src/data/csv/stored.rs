//! The fitted preprocessing of a table, as the model's file keeps it. It is all that new rows need.

use serde::{Deserialize, Serialize};

use crate::data::scale::Scale;

/// What was done to the columns of the training file.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::data) struct StoredCsv {
    pub(super) source: String,
    /// Numeric columns, then categorical ones, each in the order of the model's features.
    pub(super) features: Vec<StoredColumn>,
    /// A table for one target, a list of them for several.
    #[serde(with = "one_or_more")]
    pub(super) target: Vec<StoredTarget>,
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
    pub(super) scale: Option<Scale>,
    /// Sorted; a last `null` stands for missing cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) categories: Option<Vec<Option<String>>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredTarget {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) scale: Option<Scale>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) classes: Option<StoredClasses>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum StoredClasses {
    /// 0, 1, ..., k - 1.
    Count(usize),
    /// Sorted.
    Names(Vec<String>),
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
