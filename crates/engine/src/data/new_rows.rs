//! Rows for a trained model: read in blocks, and preprocessed like its training rows.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use super::{
    Input, Part, RowBlock, Scale, StoredColumn, Task,
    array_file::ArrayFile,
    arrays::{ArrayScale, StoredArray, same_rows},
    csv::{CsvModel, CsvRows, RowOptions},
    file, idx, npy_header,
};
use crate::{
    host,
    spec::{Layer, Location, Problem, Source, Spec},
};

/// The most elements in a block of an array's rows.
pub(super) const BLOCK: usize = 1 << 20;

/// What a model stores about the data that it was trained on.
pub struct TrainedData {
    kind: Kind,
    task: Task,
    /// Elements per target.
    targets: usize,
    classes: usize,
}

/// How rows are preprocessed before they go into the model.
pub enum Preprocessing<'a> {
    /// A table; its numeric columns come first, and their indicators of missing cells follow them.
    Table {
        /// In the order of the features.
        columns: &'a [StoredColumn],
        /// Whether missing numbers are filled.
        fills: bool,
        /// Texts that stand for missing cells, in either case, and those of them that are numbers.
        missing: (Vec<String>, Vec<f64>),
    },
    /// An array.
    Array(&'a ArrayScale),
}

enum Kind {
    Csv(Box<CsvModel>),
    Array { width: Option<usize>, scale: ArrayScale, is_idx: bool },
}

impl TrainedData {
    /// From a resolved spec and the preprocessing stored in the model's file, for a model of `outputs` outputs.
    ///
    /// # Errors
    /// A sentence on why the preprocessing is unknown.
    pub fn new(spec: &Spec, stored: Option<&str>, outputs: usize) -> Result<Self, String> {
        let task = if spec.model.loss.classifies() { Task::Classification } else { Task::Regression };
        let width = spec.model.layers.iter().find_map(|layer| match layer {
            Layer::Linear(linear) => linear.in_features,
            _ => None,
        });
        let kind = match &spec.data.source {
            Source::Csv(_) | Source::Parquet(_) => {
                let (_, csv) = spec.data.source.table().ok_or("it has no columns")?;
                let stored = stored.ok_or("it has no preprocessing of the training rows")?;
                let stored = serde_json::from_str(stored).map_err(|e| format!("its preprocessing: {e}"))?;
                let model = CsvModel::new(&csv, task, stored);
                let classes = model.class_names().map(|names| names.len());
                if classes.is_some() != (task == Task::Classification) || classes.is_some_and(|n| n > outputs)
                {
                    return Err("its preprocessing does not fit the model".to_owned());
                }
                Kind::Csv(Box::new(model))
            }
            Source::Idx(idx) => {
                Kind::Array { width, scale: ArrayScale::Divide(idx.scale as f32), is_idx: true }
            }
            Source::Npy(npy) if npy.standardize => {
                let stored = stored.ok_or("it has no preprocessing of the training rows")?;
                let stored: StoredArray =
                    serde_json::from_str(stored).map_err(|e| format!("its preprocessing: {e}"))?;
                let scales = stored.features;
                if scales.is_empty() || width.is_some_and(|width| width != scales.len()) {
                    return Err("its preprocessing does not fit the model".to_owned());
                }
                Kind::Array {
                    width: Some(scales.len()),
                    scale: ArrayScale::Standardize(scales),
                    is_idx: false,
                }
            }
            Source::Npy(_) | Source::SyntheticRegression(_) | Source::SyntheticClassification(_) => {
                Kind::Array { width, scale: ArrayScale::None, is_idx: false }
            }
        };
        let targets = if task == Task::Classification { 1 } else { outputs };
        Ok(Self { kind, task, targets, classes: outputs })
    }

    /// Features per row, if known before any rows are read.
    pub fn features(&self) -> Option<usize> {
        match &self.kind {
            Kind::Csv(model) => Some(model.width()),
            Kind::Array { width, .. } => *width,
        }
    }

    /// Elements per target: 1 for a class.
    pub fn targets(&self) -> usize {
        self.targets
    }

    /// The column of rows' weights.
    pub fn weight(&self) -> Option<&str> {
        if let Kind::Csv(model) = &self.kind { model.weight() } else { None }
    }

    /// Elements per target, with the row's weight if rows have weights.
    pub fn target_width(&self) -> usize {
        self.targets + usize::from(self.weight().is_some())
    }

    /// Names of the classes by index; `None` for a regression.
    pub fn class_names(&self) -> Option<Vec<String>> {
        let numbered = || (0..self.classes).map(|class| class.to_string()).collect();
        (self.task == Task::Classification).then(|| match &self.kind {
            Kind::Csv(model) => {
                let mut names = model.class_names().unwrap_or_default();
                // The model may have more outputs than there are classes.
                names.extend((names.len()..self.classes).map(|class| format!("unnamed_{class}")));
                names
            }
            Kind::Array { .. } => numbered(),
        })
    }

    /// The standardization of each numeric target; empty for classes.
    pub fn target_scales(&self) -> Vec<Scale> {
        match &self.kind {
            Kind::Csv(model) => model.target_scales().to_vec(),
            Kind::Array { .. } if self.task == Task::Classification => Vec::new(),
            Kind::Array { .. } => vec![Scale::IDENTITY; self.targets],
        }
    }

    /// Names of the targets, if there are several: column names, or numbers from 0.
    pub fn target_names(&self) -> Vec<String> {
        match &self.kind {
            _ if self.targets < 2 => Vec::new(),
            Kind::Csv(model) => model.targets().into_iter().map(str::to_owned).collect(),
            Kind::Array { .. } => (0..self.targets).map(|target| target.to_string()).collect(),
        }
    }

    /// The name of a target's column. Targets of arrays have names only if there are several.
    pub fn target_name(&self, target: usize) -> Option<String> {
        match &self.kind {
            Kind::Csv(model) => model.targets().get(target).map(|name| (*name).to_owned()),
            Kind::Array { .. } => self.target_names().into_iter().nth(target),
        }
    }

    /// The standardized features, by their index, with names for messages.
    pub fn standardized(&self) -> Vec<(usize, String, Scale)> {
        match self.preprocessing() {
            Preprocessing::Table { columns, .. } => {
                let scaled = columns.iter().enumerate().filter_map(|(i, column)| {
                    Some((i, format!("`{}`", file::printable(&column.name)), column.scale?))
                });
                scaled.collect()
            }
            Preprocessing::Array(ArrayScale::Standardize(scales)) => {
                scales.iter().enumerate().map(|(i, scale)| (i, format!("feature {i}"), *scale)).collect()
            }
            Preprocessing::Array(_) => Vec::new(),
        }
    }

    /// How rows are preprocessed before they go into the model.
    pub fn preprocessing(&self) -> Preprocessing<'_> {
        match &self.kind {
            Kind::Csv(model) => model.preprocessing(),
            Kind::Array { scale, .. } => Preprocessing::Array(scale),
        }
    }

    /// Opens rows to predict.
    ///
    /// # Errors
    /// What is wrong with the file as a whole; for a table that is only found with the first block.
    pub fn rows<'a>(&'a self, input: &'a Input, options: &RowOptions) -> Result<NewRows<'a>, Vec<Problem>> {
        self.open(input, (false, options), None)
    }

    /// Opens rows together with their targets; for arrays the targets are in the file `labels`.
    ///
    /// # Errors
    /// As for [`rows`](Self::rows).
    pub fn labelled_rows<'a>(
        &'a self,
        input: &'a Input,
        labels: Option<&'a Path>,
        options: &RowOptions,
    ) -> Result<NewRows<'a>, Vec<Problem>> {
        let wrong =
            |message: &str, hint: &str| Err(Problem::new(Location::Nowhere, message).hint(hint).into());
        match (&self.kind, labels) {
            (Kind::Csv(_), Some(_)) => {
                wrong("a table has its labels in a column of its own", "leave out `--labels`")
            }
            (Kind::Array { .. }, None) => wrong(
                "the labels are missing",
                "the model was trained on arrays: name the file of their labels with `--labels FILE`",
            ),
            _ => self.open(input, (true, options), labels),
        }
    }

    fn open<'a>(
        &'a self,
        input: &'a Input,
        how: (bool, &RowOptions),
        labels: Option<&'a Path>,
    ) -> Result<NewRows<'a>, Vec<Problem>> {
        let (width, scale, is_idx) = match &self.kind {
            Kind::Csv(model) => {
                let (path, reader): (_, Box<dyn Read>) = match input {
                    Input::File(path) if path.extension().is_some_and(|end| end == "npy") => {
                        let message = "an array, and the model was trained on a table";
                        let problem = file::problem(path, message);
                        return Err(problem
                            .hint("name a CSV file with the columns of the training file")
                            .into());
                    }
                    Input::StandardInput => (host::STANDARD_INPUT.into(), Box::new(io::stdin())),
                    Input::Memory(path, bytes) => (path.clone(), Box::new(io::Cursor::new(bytes.clone()))),
                    Input::File(path) => {
                        let opened = open(path)?;
                        if file::is_parquet(&opened) {
                            let rows = CsvRows::from_parquet(model, path.clone(), opened, how)?;
                            return Ok(NewRows(Rows::Csv(model, Box::new(rows))));
                        }
                        (path.clone(), Box::new(opened))
                    }
                };
                let reader = file::unpacked(reader).map_err(|e| unreadable(&path, &e))?;
                let rows = CsvRows::new(model, path, reader, how);
                return Ok(NewRows(Rows::Csv(model, Box::new(rows))));
            }
            Kind::Array { width, scale, is_idx } => {
                how.1.refuse_for_array()?;
                (*width, scale, *is_idx)
            }
        };
        let path = input.path();
        let header = |start: &[u8]| if is_npy(is_idx, start) { npy_header::read } else { idx::read_header };
        let array = match input {
            Input::File(path) => self.array(path, is_idx)?,
            Input::Memory(path, bytes) => ArrayFile::from_stream(path, Some(bytes.clone()), header)?,
            Input::StandardInput => ArrayFile::from_stream(Path::new(host::STANDARD_INPUT), None, header)?,
        };
        if let Some(expected) = width.filter(|expected| *expected != array.width) {
            let message = format!("rows of {} features: the model was trained on {expected}", array.width);
            let problem = file::problem(path, message);
            let hint = format!("the array must have the shape (rows, {expected})");
            return Err(problem.hint(hint).into());
        }
        let labels =
            labels.map(|labels| self.labels(labels, is_idx, &array)).transpose()?.unwrap_or_default();
        Ok(NewRows(Rows::Array { array, scale, labels, targets: self.targets }))
    }

    fn labels(&self, path: &Path, is_idx: bool, features: &ArrayFile<'_>) -> Result<Vec<f32>, Problem> {
        let labels = self.array(path, is_idx)?;
        same_rows(features, &labels, "labels")?;
        if labels.width != self.targets {
            let (found, expected) = (labels.width, self.targets);
            let message = format!("rows of {found} targets: the model was trained on {expected}");
            return Err(file::problem(path, message));
        }
        Ok(labels.labels(self.task, Some(self.classes))?.0)
    }

    /// Opens an array. For a model trained on IDX images, it may be in either format.
    fn array<'a>(&self, path: &'a Path, is_idx: bool) -> Result<ArrayFile<'a>, Problem> {
        let mut start = [0; 6];
        let opened = host::open_regular(path);
        let read = opened.and_then(|(file, _)| file.read_at(&mut start, 0));
        read.map_err(|e| unreadable(path, &e))?;
        let is_npy = is_npy(is_idx, &start);
        ArrayFile::open(path, "", if is_npy { npy_header::read } else { idx::read_header }, !is_npy)
    }
}

/// Whether an array that begins with `start` is read as npy: a model of IDX images accepts either format.
fn is_npy(is_idx: bool, start: &[u8]) -> bool {
    !is_idx || start.starts_with(b"\x93NUMPY")
}

fn open(path: &Path) -> Result<File, Problem> {
    File::open(path).map_err(|e| unreadable(path, &e))
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let message = format!("cannot read `{}`: {}", path.display(), host::reason(error));
    Problem::new(Location::Nowhere, message)
}

/// Rows for a trained model, in the order of the input.
pub struct NewRows<'a>(Rows<'a>);

enum Rows<'a> {
    /// Rows that a run held out, and the index of the next one.
    Held(Part, usize),
    Csv(&'a CsvModel, Box<CsvRows>),
    Array {
        array: ArrayFile<'a>,
        scale: &'a ArrayScale,
        labels: Vec<f32>,
        targets: usize,
    },
}

impl NewRows<'_> {
    /// Rows in memory that are already preprocessed for the model.
    pub fn from_part(part: Part) -> Self {
        Self(Rows::Held(part, 0))
    }

    /// The names of columns with categories that the training file lacks, and the number of rows so far that have them.
    pub fn unknown_categories(&self) -> Vec<(String, usize)> {
        if let Rows::Csv(model, rows) = &self.0 { rows.unknown(model) } else { Vec::new() }
    }

    /// The names of columns that lack numbers which the training file never lacks, and the number of rows so far that do.
    pub fn newly_missing(&self) -> Vec<(String, usize)> {
        if let Rows::Csv(model, rows) = &self.0 { rows.newly_missing(model) } else { Vec::new() }
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// What is wrong with the rows.
    pub fn next_block(&mut self) -> Result<Option<RowBlock>, Vec<Problem>> {
        let (array, scale, labels, targets) = match &mut self.0 {
            Rows::Csv(model, rows) => return rows.next_block(model),
            Rows::Array { array, scale, labels, targets } => (array, scale, labels, *targets),
            Rows::Held(part, next) => return Ok(part.block_from(next)),
        };
        let most = (BLOCK / array.width).max(1);
        let (first, features) = array.next_rows(most, |block| scale.apply(block))?;
        let rows = features.len() / array.width;
        let end = (first + rows) * targets;
        let targets = labels.get(first * targets..end).unwrap_or_default().to_vec();
        Ok((rows > 0).then_some(RowBlock { rows, features, targets, kept: Vec::new() }))
    }

    /// Names of the columns that are not used; known once the first rows have been read.
    pub fn unused(&self) -> &[String] {
        if let Rows::Csv(_, rows) = &self.0 { &rows.unused } else { &[] }
    }

    /// The column of groups of the training file, and whether the rows have it, too; known once the first rows have been read.
    pub fn group(&self) -> Option<(&str, bool)> {
        if let Rows::Csv(_, rows) = &self.0 { rows.group() } else { None }
    }

    /// The column of weights that the rows lack, so that each counts as 1; known once the first rows have been read.
    pub fn lacks_weights(&self) -> Option<&str> {
        if let Rows::Csv(_, rows) = &self.0 { rows.lacks_weights() } else { None }
    }

    /// Number of rows left out so far because of missing cells.
    pub fn dropped(&self) -> usize {
        if let Rows::Csv(_, rows) = &self.0 { rows.dropped } else { 0 }
    }
}
