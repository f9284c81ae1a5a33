//! `idx` and `npy`: one array of features and one of labels, and their split into training and validation
//! rows.

use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Dataset, Part, Store, Task,
    array_file::{ArrayFile, ReadHeader},
    division::Division,
    file, memory,
    raw::Fault,
    rows::{Array, Rows},
    scale::Scale,
    split::{RowUse, Split},
};
use crate::{
    spec::{Placement, Problem},
    units,
};

/// A feature whose standard deviation has fewer steps than these, each from one f32 to the next, is too coarse.
const STEPS: f64 = 16.0;

/// A file of the spec and its key.
pub(super) type Named<'a> = (&'static str, &'a Path);

/// What the spec says about features and labels in files.
pub(super) struct Arrays<'a> {
    pub(super) read_header: ReadHeader,
    /// Features and labels.
    pub(super) train: [Named<'a>; 2],
    pub(super) validation: Option<[Named<'a>; 2]>,
    /// Which rows stay together.
    pub(super) groups: Option<Named<'a>>,
    /// Checks beyond the headers.
    pub(super) check: fn(&Pair<'_>, Task) -> Result<(), Problem>,
    /// Placement and memory limit in bytes; `None` for formats that may be gzipped, which are always read
    /// into memory.
    pub(super) placement: Option<(Placement, u64)>,
    /// Every feature is divided by this.
    pub(super) scale: Option<f64>,
    /// The spec's key that asks for standardized features.
    pub(super) standardize: Option<&'static str>,
}

/// How the elements of an array are scaled.
#[derive(Debug)]
pub enum ArrayScale {
    /// Not at all.
    None,
    /// All are divided by this number.
    Divide(f32),
    /// Each column is standardized.
    Standardize(Vec<Scale>),
}

impl ArrayScale {
    pub(super) fn apply(&self, values: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Divide(scale) => values.iter_mut().for_each(|x| *x /= scale),
            Self::Standardize(scales) => {
                for row in values.chunks_exact_mut(scales.len()) {
                    row.iter_mut().zip(scales).for_each(|(x, scale)| *x = scale.apply((*x).into()));
                }
            }
        }
    }
}

/// What is stored in the model's file about standardized arrays.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredArray {
    source: String,
    /// One for each feature.
    pub(super) features: Vec<Scale>,
}

/// Features and their labels, with the same number of rows.
pub(super) struct Pair<'a> {
    pub(super) features: ArrayFile<'a>,
    pub(super) labels: ArrayFile<'a>,
}

impl Arrays<'_> {
    pub(super) fn open(&self, task: Task, division: &Division) -> Result<Dataset, Problem> {
        let train = self.pair(self.train, task)?;
        let validation = self.validation.map(|files| self.pair(files, task)).transpose()?;
        if let Some(pair) = &validation {
            same_width(&pair.features, &train.features, "features")?;
            same_width(&pair.labels, &train.labels, "targets")?;
        }
        let bytes = train.bytes() + validation.as_ref().map_or(0, Pair::bytes);
        let stay = self.stays_in_file(bytes)?;
        let size = memory::size(bytes);
        if let Some(key) = self.standardize.filter(|_| stay) {
            let message = format!("features ({size} as f32) that stay in their file cannot be standardized");
            let hint = "store them standardized; in Python: `(x - x.mean(0)) / x.std(0)`";
            return Err(Problem::at_key(key, message).hint(hint));
        }
        let notes = stay.then(|| format!("features ({size} as f32) are read from their file"));
        let (features, targets) = (train.features.width, train.labels.width);
        let (labels, classes) = train.labels.labels(task, None)?;
        let codes = (task == Task::Classification).then(|| labels.iter().map(|&class| class as u32));
        let groups = self.groups.map(|file| self.grouped(file, &train.features)).transpose()?;
        let split = Split::new(division, train.features.rows, codes, groups.as_deref())?;
        let (train_labels, rest_labels) = split.apply(labels, targets);
        let path = train.features.path;
        let (mut train, mut rest) = self.features(train.features, &split, stay)?;
        let scales = self.fitted(&train, features);
        let doubts = doubts(split.train_rows(), &scales);
        standardize(&mut train, &scales, path, split.rows_of(RowUse::Train))?;
        if let Some(rest) = &mut rest {
            standardize(rest, &scales, path, split.rows_of(RowUse::Held))?;
        }
        let part = |rows, features, targets| Part { rows, features, targets: Arc::new(targets) };
        let validation = match validation {
            None => rest.map(|rest| part(split.held_rows(), rest, rest_labels)),
            Some(Pair { features, labels }) => {
                let rows = features.rows;
                let (targets, _) = labels.labels(task, classes)?;
                let path = features.path;
                let (mut features, _) = self.features(features, &Split::none(rows), stay)?;
                standardize(&mut features, &scales, path, 0..rows)?;
                Some(part(rows, features, targets))
            }
        };
        let train = part(split.train_rows(), train, train_labels);
        let grouped =
            self.groups.and_then(|(_, path)| split.group_note(&path.file_name()?.to_string_lossy()));
        let notes = split.notes().chain(grouped).chain(notes).collect();
        let preprocessing = match self.standardize {
            Some(_) => serde_json::to_value(StoredArray { source: "npy".to_owned(), features: scales }),
            None => Ok(serde_json::Value::Null),
        };
        let preprocessing = preprocessing.unwrap_or_default();
        Ok(Dataset {
            classes,
            notes,
            apart: split.apart(0..=u32::MAX),
            groups: split.held_groups(),
            preprocessing,
            warnings: Arc::new(doubts),
            ..Dataset::new(train, validation, features, targets)
        })
    }

    /// The standardization of each feature; empty if features are not standardized.
    fn fitted(&self, train: &Store, width: usize) -> Vec<Scale> {
        match train {
            Store::Memory(values) if self.standardize.is_some() => Scale::standard_columns(values, width),
            _ => Vec::new(),
        }
    }

    /// The group of each row, numbered from 0.
    fn grouped(&self, (key, path): Named<'_>, features: &ArrayFile<'_>) -> Result<Vec<u32>, Problem> {
        let file = ArrayFile::open(path, key, self.read_header, self.placement.is_none())?;
        same_rows(features, &file, "groups")?;
        file.groups()
    }

    /// Opens features and labels, which must have the same number of rows.
    fn pair<'a>(&self, files: [Named<'a>; 2], task: Task) -> Result<Pair<'a>, Problem> {
        let open =
            |(key, path): Named<'a>| ArrayFile::open(path, key, self.read_header, self.placement.is_none());
        let pair = Pair { features: open(files[0])?, labels: open(files[1])? };
        (self.check)(&pair, task)?;
        same_rows(&pair.features, &pair.labels, "labels")?;
        Ok(pair)
    }

    /// Whether features of `bytes` bytes stay in their file.
    fn stays_in_file(&self, bytes: u128) -> Result<bool, Problem> {
        let Some((placement, limit)) = self.placement else { return Ok(false) };
        let fits = bytes <= u128::from(limit);
        if placement == Placement::Resident && !fits {
            let message = format!(
                "`placement = \"resident\"`: the features need {} as f32, and memory has room for {}",
                memory::size(bytes),
                memory::size(limit.into())
            );
            let hint = "`data.placement = \"auto\"` reads from the file what memory does not hold";
            return Err(Problem::at_key("data.placement", message).hint(hint));
        }
        Ok(placement == Placement::Streamed || !fits)
    }

    /// The features of the training rows and of the validation rows, if any.
    fn features(
        &self,
        features: ArrayFile<'_>,
        split: &Split,
        stay: bool,
    ) -> Result<(Store, Option<Store>), Problem> {
        let has_held = split.held_rows() > 0;
        let (path, declared) = (features.path, features.declared());
        if !stay {
            let read = match self.scale {
                Some(scale) => {
                    features.values(split, |block| block.iter_mut().for_each(|x| *x /= scale as f32))
                }
                None => features.values(split, |_| {}),
            };
            let (train, validation) = read.map_err(|fault| {
                let streams = matches!(fault, Fault::Memory(_)) && self.placement.is_some();
                let problem = file::fault(path, declared, fault);
                let hint = "`data.placement = \"streamed\"` leaves the rows in their file";
                if streams { problem.hint(hint) } else { problem }
            })?;
            let store = |values| Store::Memory(Arc::new(values));
            return Ok((store(train), has_held.then(|| store(validation))));
        }
        let (layout, width, offset) = (features.header.layout, features.width, features.header.offset);
        let (file, stamp) = features.into_file()?;
        let array = Arc::new(Array { file, path: path.into(), layout, width, offset, stamp });
        let is_divided = split.train_rows() < split.rows();
        let store = |part: RowUse| {
            // There are at most u32::MAX rows, which was checked with the shape.
            let chosen =
                is_divided.then(|| split.rows_of(part).map(|row| row as u32).collect::<Arc<[u32]>>());
            let rows = if part == RowUse::Held { split.held_rows() } else { split.train_rows() };
            Store::File(Arc::new(Rows::new(array.clone(), rows as u32, chosen)))
        };
        Ok((store(RowUse::Train), has_held.then(|| store(RowUse::Held))))
    }
}

/// Warnings of features, by their places from 0, that are alike in all training rows, or whose differences are lost where f32 has few
/// numbers so far from 0.
fn doubts(rows: usize, scales: &[Scale]) -> Vec<String> {
    let is_rounded =
        |Scale { mean, std, .. }: &Scale| *std < STEPS * mean.abs() * f64::from(f32::EPSILON) / 2.0;
    let places = |is_it: &dyn Fn(&Scale) -> bool| -> Vec<usize> {
        let found = scales.iter().enumerate().filter(|(_, scale)| is_it(scale));
        if rows > 1 { found.map(|(place, _)| place).collect() } else { Vec::new() }
    };
    let alike = places(&|scale| scale.constant);
    let rounded = places(&|scale| !scale.constant && is_rounded(scale));
    let words = |places: &[usize], what: [&str; 2]| {
        let what = what[usize::from(places.len() != 1)];
        (!places.is_empty()).then(|| format!("{} {what}", units::numbered("feature", places)))
    };
    let of_alike = words(&alike, ["is alike in all training rows", "are alike in all training rows"]);
    let of_rounded = words(
        &rounded,
        [
            "is too far from 0 for f32 to tell its values apart: subtract the mean in the file",
            "are too far from 0 for f32 to tell their values apart: subtract the means in the file",
        ],
    );
    of_alike.into_iter().chain(of_rounded).collect()
}

/// Standardizes features in memory; `numbers` are the rows' numbers in the file. Does nothing without scales.
fn standardize(
    features: &mut Store,
    scales: &[Scale],
    path: &Path,
    mut numbers: impl Iterator<Item = usize>,
) -> Result<(), Problem> {
    let Store::Memory(values) = features else { return Ok(()) };
    if scales.is_empty() {
        return Ok(());
    }
    // Nothing else refers to these features yet, so nothing is copied.
    for row in Arc::make_mut(values).chunks_exact_mut(scales.len()) {
        let number = numbers.next().unwrap_or_default() as u64;
        for (column, (x, scale)) in row.iter_mut().zip(scales).enumerate() {
            let value = f64::from(*x);
            *x = scale.apply(value);
            if !x.is_finite() {
                let fault = Fault::NotFinite { row: number, column: column as u64, value };
                return Err(file::fault(path, 0, fault));
            }
        }
    }
    Ok(())
}

impl Pair<'_> {
    /// Bytes of the features as f32.
    fn bytes(&self) -> u128 {
        self.features.rows as u128 * self.features.width as u128 * 4
    }
}

/// Checks that there is a label, or a group, for each row.
pub(super) fn same_rows(features: &ArrayFile<'_>, labels: &ArrayFile<'_>, what: &str) -> Result<(), Problem> {
    if features.rows == labels.rows {
        return Ok(());
    }
    let message =
        format!("{} {what}, but `{}` has {} rows", labels.rows, features.path.display(), features.rows);
    Err(file::problem(labels.path, message).hint("both files need the same number of rows"))
}

/// Checks that validation rows are as wide as training rows.
fn same_width(validation: &ArrayFile<'_>, train: &ArrayFile<'_>, what: &str) -> Result<(), Problem> {
    if validation.width == train.width {
        return Ok(());
    }
    let (found, expected, other) = (validation.width, train.width, train.path.display());
    let message = format!("rows have {found} {what}, but those of `{other}` have {expected}");
    Err(file::problem(validation.path, message))
}
