//! Checks that apply to the rows of every source.

use std::iter;

use super::{Dataset, Part};
use crate::spec::Problem;

/// Checks that apply to all sources.
pub(super) fn check(dataset: &Dataset) -> Result<(), Problem> {
    check_shape(dataset)?;
    let weightless = |(_, part): &(&str, &Part)| dataset.weight_of(part) == 0.0;
    match parts(dataset).find(weightless) {
        Some((purpose, _)) => {
            Err(Problem::at_key("data", format!("the weights of all rows to {purpose} are 0")))
        }
        None => Ok(()),
    }
}

/// What can be checked without the rows.
pub(super) fn check_shape(dataset: &Dataset) -> Result<(), Problem> {
    let problem = |message: String| Err(Problem::at_key("data", message));
    for (purpose, Part { rows, .. }) in parts(dataset) {
        if *rows == 0 {
            return problem(format!("there is no row to {purpose}"));
        }
        if u32::try_from(*rows).is_err() {
            return problem(format!("{rows} rows to {purpose}: expected at most {}", u32::MAX));
        }
    }
    if dataset.features == 0 {
        return problem("there is no feature to learn from".into());
    }
    match dataset.classes {
        Some(classes) if classes < 2 => {
            problem("all labels are the same class: expected two classes or more".into())
        }
        _ => Ok(()),
    }
}

/// The rows to train and to validate on, with what they are for.
fn parts(dataset: &Dataset) -> impl Iterator<Item = (&'static str, &Part)> {
    let validation = dataset.validation.iter().map(|part| ("validate on", part));
    iter::once(("train on", &dataset.train)).chain(validation)
}
