//! The columns that a drafted spec predicts.

use std::path::Path;

use crate::{
    data::ColumnProfile,
    host::escape_line,
    spec::{Location, Problem, longer, nearest},
};

/// How another target is named.
pub(super) const OTHER: &str = "`--target COLUMN` names another column";

pub(super) fn refusal(message: String) -> Problem {
    Problem::new(Location::Nowhere, message)
}

/// The problem of a table with a single column.
pub(super) fn of_one_column(data: &Path, only: &ColumnProfile, is_parquet: bool) -> Problem {
    let message = format!("`{}` has one column alone, `{}`", data.display(), escape_line(&only.name));
    let separated =
        "cells are found between `,`, `;`, `|` or tabs; `--delimiter CHARACTER` names another separator";
    refusal(message).hint(if is_parquet { "add a column to learn from" } else { separated })
}

/// The places of the target columns, by name, with commas between several names; the last column with a name if none is named.
pub(super) fn targets_of(
    data: &Path,
    columns: &[ColumnProfile],
    words: &[String],
) -> Result<Vec<usize>, Box<Problem>> {
    let find = |name: &str| columns.iter().position(|column| column.name == name);
    let mut found: Vec<usize> = Vec::new();
    for word in words {
        // A column's name may contain commas.
        let names =
            if find(word).is_some() { vec![&word[..]] } else { word.split(',').map(str::trim).collect() };
        for name in names {
            let target = find(name).ok_or_else(|| {
                let names = || columns.iter().map(|column| column.name.as_str());
                let listed = names().collect::<Vec<_>>().join("`, `");
                let near = nearest(name, names()).or_else(|| longer(name, names()));
                let near = near.map(|near| format!("did you mean `{near}`? "));
                let hint = format!("{}its columns are `{listed}`", near.unwrap_or_default());
                refusal(format!("`{}` has no column `{name}`", data.display())).hint(hint)
            })?;
            if !found.contains(&target) {
                found.push(target);
            }
        }
    }
    if words.is_empty() {
        found.extend(columns.iter().rposition(|column| !column.name.is_empty()));
    }
    Ok(found)
}
