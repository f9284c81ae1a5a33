//! Targets of array sources: numbers, or classes `0, 1, ..., k - 1`.

use std::collections::BTreeSet;

use super::{Task, raw};
use crate::spec::{Location, Problem};

/// The hint for most label errors.
pub(super) const NUMBERS_HINT: &str = "for numbers instead of classes use `loss = \"mse\"`";

/// The number k of classes; each of 0, 1, ..., k - 1 must occur.
///
/// A gap is an error: labels that start at 1, or years, would silently create outputs that are never trained.
///
/// # Errors
/// A description of what was found instead.
pub(super) fn count(labels: impl Iterator<Item = i64>) -> Result<usize, String> {
    let distinct: BTreeSet<i64> = labels.collect();
    let (Some(&first), Some(&last)) = (distinct.first(), distinct.last()) else {
        return Err("there are no labels".into());
    };
    if first == 0 && last as u64 + 1 == distinct.len() as u64 {
        return Ok(distinct.len());
    }
    let found = match distinct.len() {
        1..=10 => {
            let listed: Vec<String> = distinct.iter().map(i64::to_string).collect();
            format!("found {}", listed.join(", "))
        }
        count => format!("found {count} different labels from {first} to {last}"),
    };
    Err(format!("classes are numbered 0, 1, 2, ... without a gap: {found}"))
}

/// `value` as a label, if it is an integer that f32 represents exactly.
pub(super) fn whole(value: f64) -> Option<i64> {
    // f32 represents all integers up to 2^24 exactly.
    (value.fract() == 0.0 && value.abs() <= 16_777_216.0).then_some(value as i64)
}

/// Checks the labels of one array, in file order; returns the number of classes for a classification. For
/// validation labels, `known` is the training file's number of classes, and labels must be below it.
pub(super) fn check(
    labels: &[f64],
    width: usize,
    task: Task,
    known: Option<usize>,
    place: &Location,
) -> Result<Option<usize>, Problem> {
    let row = |index: usize| index / width.max(1);
    let problem = |message: String| Problem::new(place.clone(), message);
    if let Some(bad) = labels.iter().position(|label| !(*label as f32).is_finite()) {
        let what = raw::not_finite(labels[bad]);
        return Err(problem(format!("the label of row {} (counted from 0) {what}", row(bad))));
    }
    if task == Task::Regression {
        return Ok(None);
    }
    if let Some(bad) = labels.iter().position(|label| whole(*label).is_none_or(|label| label < 0)) {
        let message = format!("the label of row {} (counted from 0) is {}", row(bad), labels[bad]);
        return Err(problem(format!("{message}: expected a class: 0, 1, 2 and so on")).hint(NUMBERS_HINT));
    }
    match known {
        None => match count(labels.iter().map(|label| *label as i64)) {
            Ok(classes) => Ok(Some(classes)),
            Err(message) => Err(problem(message).hint(format!("renumber them; {NUMBERS_HINT}"))),
        },
        Some(classes) => match labels.iter().position(|label| *label >= classes as f64) {
            None => Ok(Some(classes)),
            Some(bad) => Err(problem(format!(
                "the label of row {} (counted from 0) is {}, and the training labels end at {}",
                row(bad),
                labels[bad],
                classes - 1
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_classes() {
        assert_eq!(count([2, 0, 1, 2].into_iter()), Ok(3));
        let message = |labels: &[i64]| count(labels.iter().copied()).expect_err("no classes");
        assert_eq!(message(&[]), "there are no labels");
        assert_eq!(message(&[1, 3, 2]), "classes are numbered 0, 1, 2, ... without a gap: found 1, 2, 3");
        assert_eq!(
            message(&(1990..2010).collect::<Vec<_>>()),
            "classes are numbered 0, 1, 2, ... without a gap: found 20 different labels from 1990 to 2009"
        );
        assert_eq!(
            message(&[0, i64::MAX]),
            "classes are numbered 0, 1, 2, ... without a gap: found 0, 9223372036854775807"
        );
    }

    #[test]
    fn checks_labels() {
        let checked = |labels: &[f64], known| {
            check(labels, 1, Task::Classification, known, &Location::Nowhere)
                .map_err(|problem| problem.message)
        };
        let error = |message: &str| Err(message.to_owned());
        assert_eq!(checked(&[0.0, 1.0], None), Ok(Some(2)));
        assert_eq!(checked(&[1.0, 1.0], Some(3)), Ok(Some(3)));
        assert_eq!(
            checked(&[0.0, 0.5], None),
            error("the label of row 1 (counted from 0) is 0.5: expected a class: 0, 1, 2 and so on")
        );
        assert_eq!(
            checked(&[-1.0], None),
            error("the label of row 0 (counted from 0) is -1: expected a class: 0, 1, 2 and so on")
        );
        assert_eq!(
            checked(&[0.0, 3.0], Some(3)),
            error("the label of row 1 (counted from 0) is 3, and the training labels end at 2")
        );
        assert_eq!(
            checked(&[f64::NAN], None),
            error("the label of row 0 (counted from 0) is NaN: expected a finite number")
        );
        assert_eq!(
            checked(&[0.0, -1e300], None),
            error(
                "the label of row 1 (counted from 0) is -1e300: f32, in which rows are kept, holds numbers up to 3.4e38"
            )
        );
        let numbers = check(&[-1.5, 2.5], 1, Task::Regression, None, &Location::Nowhere);
        assert_eq!(numbers, Ok(None));
    }
}
