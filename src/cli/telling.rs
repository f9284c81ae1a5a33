//! Features of a table to draft a spec for that alone tell the target.

use std::path::Path;

use super::column_use::{Use, doubt};
use crate::{
    data::{ColumnProfile, CsvProfile, Task, telling_columns},
    spec::{Csv, MISSING_VALUES, Missing},
};

/// Each with the sentence on it; features that may identify rows or groups are left out.
pub(super) fn telling(
    data: &Path,
    profile: &CsvProfile,
    targets: &[&ColumnProfile],
    uses: &[(&ColumnProfile, Use)],
    is_class: bool,
) -> Vec<(String, String)> {
    let named = |wanted: Use| {
        let own = uses
            .iter()
            .filter(|(column, purpose)| *purpose == wanted && doubt(column, purpose, profile.rows).is_none());
        own.map(|(column, _)| column.name.clone()).collect()
    };
    let taken = profile.columns.iter().flat_map(|column| column.taken.iter().cloned());
    let spec = Csv {
        path: data.to_owned(),
        target: targets.iter().map(|target| target.name.clone()).collect(),
        features: Some(named(Use::Number)),
        categorical: named(Use::Category),
        ignore: Vec::new(),
        group: None,
        weight: None,
        missing: Missing::Mean,
        missing_values: Some(MISSING_VALUES.into_iter().map(str::to_owned).chain(taken).collect()),
        missing_indicators: false,
        standardize: false,
        standardize_target: false,
        delimiter: profile.delimiter,
        decimal: profile.decimal,
        header: profile.header,
        validation_path: None,
        validation_fraction: None,
    };
    let task = if is_class { Task::Classification } else { Task::Regression };
    // What cannot be read is the run's to say.
    telling_columns(&spec, task).unwrap_or_default()
}
