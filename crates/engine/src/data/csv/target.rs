//! The target columns: numbers, which are standardized on request, or a single column of classes.

use std::collections::BTreeSet;

use super::{
    faults::no_class,
    stored::{StoredClasses, StoredTarget},
    table::{Table, Target, Words},
};
use crate::{
    data::{
        labels, raw,
        scale::Scale,
        split::{RowUse, Split},
    },
    spec::{Csv, Problem},
};

/// Preprocessing of targets: fitted once, then applied to training and validation rows.
pub(super) enum TargetFit {
    /// A scale for each target.
    Numbers(Vec<Scale>),
    /// Labels were 0, 1, ..., k - 1.
    Numbered(usize),
    /// Labels were other integers, such as 1, 2, ..., k; sorted.
    Integers(Vec<i64>),
    /// Labels were words; sorted.
    Named(Vec<String>),
}

impl TargetFit {
    /// Standardization is fitted to the training rows; classes are those of the whole file.
    pub(super) fn new(spec: &Csv, table: &Table, split: &Split) -> Result<Self, Problem> {
        match &table.target {
            Target::Numbers(values) if spec.standardize_target => {
                let width = spec.target.len();
                let of = |target| split.rows_of(RowUse::Train).map(move |row| values[row * width + target]);
                Ok(Self::Numbers((0..width).map(|target| Scale::standard(of(target))).collect()))
            }
            Target::Classes(words) => Self::classes(table, words),
            Target::Numbers(_) | Target::None => Ok(Self::Numbers(vec![Scale::IDENTITY; spec.target.len()])),
        }
    }

    fn classes(Table { text, columns, .. }: &Table, words: &Words) -> Result<Self, Problem> {
        // `01` is a code and not the number 1.
        let number = |word: &str| word.parse().ok().filter(|_| !has_leading_zero(word));
        let numbers: Option<Vec<f64>> = words.distinct.iter().map(|word| number(&word.text)).collect();
        let Some(numbers) = numbers else {
            let sorted: BTreeSet<&str> = words.distinct.iter().map(|word| word.text.as_str()).collect();
            return Ok(Self::Named(sorted.into_iter().map(str::to_owned).collect()));
        };
        let mut integers = BTreeSet::new();
        for (word, number) in words.distinct.iter().zip(numbers) {
            match labels::whole(number) {
                Some(label) => integers.insert(label),
                None => return Err(no_class(text, columns, word.record)),
            };
        }
        let is_numbered = integers.iter().zip(0..).all(|(&label, class)| label == class);
        Ok(match is_numbered {
            true => Self::Numbered(integers.len()),
            false => Self::Integers(integers.into_iter().collect()),
        })
    }

    /// Number of classes, for a classification.
    pub(super) fn class_count(&self) -> Option<usize> {
        match self {
            Self::Numbers(_) => None,
            Self::Numbered(count) => Some(*count),
            Self::Integers(labels) => Some(labels.len()),
            Self::Named(names) => Some(names.len()),
        }
    }

    /// Targets of all rows, those of each followed by its weight where rows have weights, as [`Table::with_weights`] scales it.
    ///
    /// # Errors
    /// Classes that are not in the training file, and numbers that are not finite after scaling.
    pub(super) fn apply(
        &self,
        table: &Table,
        weight_scale: &mut Option<f64>,
    ) -> Result<Vec<f32>, Vec<Problem>> {
        let Table { text, columns, .. } = table;
        let words = match (self, &table.target) {
            (Self::Numbers(scales), Target::Numbers(values)) => {
                let scaled =
                    values.iter().zip(scales.iter().cycle()).map(|(&value, scale)| scale.apply(value));
                let scaled: Vec<f32> = scaled.collect();
                return match raw::first_not_finite(&scaled) {
                    Some(bad) => {
                        Err(table.too_large(columns.targets[bad % scales.len()], values[bad]).into())
                    }
                    None => Ok(table.with_weights(scaled, weight_scale)),
                };
            }
            (_, Target::Classes(words)) => words,
            (_, Target::Numbers(_) | Target::None) => return Ok(Vec::new()),
        };
        let place = (&**text, &**columns, columns.targets.first().copied().unwrap_or_default());
        let classes = words.find_all(place, "class", || self.known(), |word| self.class(word))?;
        let classes = words.codes.iter().map(|&code| classes[code as usize] as f32).collect();
        Ok(table.with_weights(classes, weight_scale))
    }

    fn class(&self, word: &str) -> Option<usize> {
        match self {
            Self::Numbers(_) => None,
            Self::Numbered(count) => {
                let label = labels::whole(word.parse().ok()?)?;
                usize::try_from(label).ok().filter(|label| label < count)
            }
            Self::Integers(labels) => labels.binary_search(&labels::whole(word.parse().ok()?)?).ok(),
            Self::Named(names) => names.binary_search_by(|name| name.as_str().cmp(word)).ok(),
        }
    }

    fn known(&self) -> String {
        match self {
            Self::Integers(labels) => super::fit::known(&names(labels)),
            Self::Named(names) => super::fit::known(names),
            _ => format!(
                "the training file's classes are 0 to {}",
                self.class_count().unwrap_or(1).saturating_sub(1)
            ),
        }
    }

    /// What is stored in the model's file.
    pub(super) fn stored(&self, names: &[String]) -> Vec<StoredTarget> {
        let classes = match self {
            Self::Numbers(_) => None,
            Self::Numbered(count) => Some(StoredClasses::Count(*count)),
            Self::Integers(_) | Self::Named(_) => self.class_names().map(StoredClasses::Names),
        };
        let scales = self.scales().iter().map(Scale::stored).chain(std::iter::repeat(None));
        let stored = |(name, scale): (&String, _)| StoredTarget {
            name: name.clone(),
            scale,
            classes: classes.clone(),
        };
        names.iter().zip(scales).map(stored).collect()
    }

    pub(super) fn from_stored(stored: &[StoredTarget]) -> Self {
        match stored.first().and_then(|target| target.classes.as_ref()) {
            None => {
                Self::Numbers(stored.iter().map(|target| target.scale.unwrap_or(Scale::IDENTITY)).collect())
            }
            Some(StoredClasses::Count(count)) => Self::Numbered(*count),
            Some(StoredClasses::Names(names)) => {
                let integer = |name: &String| name.parse().ok().filter(|_| !has_leading_zero(name));
                let integers: Option<Vec<i64>> = names.iter().map(integer).collect();
                integers.map_or_else(|| Self::Named(names.clone()), Self::Integers)
            }
        }
    }

    /// The classes by their index.
    pub(super) fn class_names(&self) -> Option<Vec<String>> {
        match self {
            Self::Numbers(_) => None,
            Self::Numbered(count) => Some((0..*count).map(|class| class.to_string()).collect()),
            Self::Integers(labels) => Some(names(labels)),
            Self::Named(names) => Some(names.clone()),
        }
    }

    /// How numeric targets were scaled; empty for classes.
    pub(super) fn scales(&self) -> &[Scale] {
        if let Self::Numbers(scales) = self { scales } else { &[] }
    }
}

/// Whether digits begin with a zero that a number has not.
fn has_leading_zero(word: &str) -> bool {
    let digits = word.trim_start_matches(['-', '+']).as_bytes();
    digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit()
}

fn names(labels: &[i64]) -> Vec<String> {
    labels.iter().map(i64::to_string).collect()
}
