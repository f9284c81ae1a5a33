//! Sources of rows: read (or opened, if streamed), split and standardized. Errors name the bad rows, up to
//! about twenty.
//!
//! Features are `[rows, features]` row-major f32; targets are `[rows, targets]` f32, where a class is its
//! index from 0.

mod array_file;
mod arrays;
mod checks;
mod classes;
mod csv;
mod digest;
mod division;
mod draws;
mod file;
mod fingerprint;
mod idx;
mod input;
mod labels;
mod memory;
mod new_rows;
mod npy;
mod npy_header;
mod order;
mod parsed;
mod raw;
mod row_weights;
mod rows;
mod scale;
mod split;
mod summary;
mod synthetic;
mod weights;

use std::{path::Path, sync::Arc};

use self::division::Division;
use crate::{
    plan::{DatasetInfo, TargetSpread},
    spec::{self, Problem, Source},
};

pub use crate::device::{FileChange, Reads, RowReader, Store};
pub use arrays::ArrayScale;
pub use csv::{
    ColumnKind, ColumnProfile, CsvProfile, Marks, RowOptions, RowOrder, StoredColumn, telling_columns,
};
pub use digest::digest_of_files;
pub use fingerprint::FileFingerprint;
pub use input::Input;
pub use new_rows::{NewRows, Preprocessing, TrainedData};
pub use order::epoch_order;
pub use parsed::ParsedTables;
pub use scale::Scale;
pub use weights::{Tensor, Weights, read_metadata, read_weights, read_weights_of_run};

/// The task, determined by the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Targets are numbers.
    Regression,
    /// Targets are classes.
    Classification,
}

/// Which rows are held out from training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// The rows to validate on.
    Validation,
    /// The rows that `data.split.test` sets apart.
    Test,
}

/// A dataset, read and preprocessed.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Rows to train on; at least one.
    pub train: Part,
    /// Rows to validate on, or for a test the rows held out for that; `None` if there are none.
    pub validation: Option<Part>,
    /// Numbers in the file, from 0, of the rows that do not train: with [`open`], the validation rows, the test rows, and the rows
    /// after a fold in the order of rows. Ascending; empty if the validation rows have a file of their own.
    pub apart: Arc<[Vec<u32>; 3]>,
    /// The group of each row of `validation`, numbered from 0; `None` where rows have no groups.
    pub groups: Option<Vec<u32>>,
    /// Features per row.
    pub features: usize,
    /// Elements per target (1 for a class).
    pub targets: usize,
    /// Whether each target is followed by the row's weight: that of its column, times that of its class.
    pub weighted: bool,
    /// The standardization of each numeric target; empty for classes.
    pub target_scales: Vec<Scale>,
    /// Number of classes; `None` for a regression.
    pub classes: Option<usize>,
    /// Statistics of the training rows; `None` for classes.
    pub target_spread: Option<TargetSpread>,
    /// The fitted preprocessing of columns (standardization, categories, class names). It is stored with the
    /// run and in the model's metadata, to preprocess new rows. `Null` if there is none.
    pub preprocessing: serde_json::Value,
    /// The true weights and bias of synthetic data.
    pub truth: Option<(Vec<f64>, f64)>,
    /// Sentences for the log: rows dropped, categories found, ...
    pub notes: Vec<String>,
    /// Warnings about the data.
    pub warnings: Arc<Vec<String>>,
    /// One for trials that measure `average_precision`.
    pub warning_of_average_precision: Option<String>,
    /// Fingerprints of its files at the time they were read.
    pub files: Vec<FileFingerprint>,
    /// Equal for equal data; see `digest.rs`.
    pub digest: String,
    /// Whether the digest is of samples of a large file.
    pub is_sampled: bool,
    /// Whether features that are in their file are read into memory when a trial begins.
    pub is_read_at_start: bool,
}

/// The rows of one split.
#[derive(Clone, Debug)]
pub struct Part {
    /// The number of rows.
    pub rows: usize,
    /// `[rows, features]`.
    pub features: Store,
    /// `[rows, targets]`, each row with its weight if it has one; always in memory.
    pub targets: Arc<Vec<f32>>,
}

/// Rows for a trained model, preprocessed like its training rows.
#[derive(Clone, Debug, Default)]
pub struct RowBlock {
    /// The number of rows.
    pub rows: usize,
    /// `[rows, features]`.
    pub features: Vec<f32>,
    /// `[rows, targets]`, each row with its weight if it has one; empty if targets are not read.
    pub targets: Vec<f32>,
    /// `[rows, kept]`: the cells of the columns of [`RowOptions::keep`]; of labelled rows those of the column of groups, if the table
    /// has it.
    pub kept: Vec<String>,
}

/// Reads and splits the source of `[data]`. Features of an `npy` source stay in their file with `placement =
/// "streamed"`, or with `"auto"` if they exceed `memory_limit` bytes; everything else is read into memory.
///
/// # Errors
/// Up to about twenty problems, with file, line and column if known.
pub fn open(data: &spec::Data, task: Task, seed: u64, memory_limit: u64) -> Result<Dataset, Vec<Problem>> {
    open_among(&mut ParsedTables::default(), data, task, seed, memory_limit)
}

/// Like [`open`], but of a table that is among `tables` nothing is read again.
///
/// # Errors
/// As for [`open`].
pub fn open_among(
    tables: &mut ParsedTables,
    data: &spec::Data,
    task: Task,
    seed: u64,
    memory_limit: u64,
) -> Result<Dataset, Vec<Problem>> {
    open_with(tables, data, task, &Division::new(data, seed, Held::Validation), (seed, memory_limit))
}

/// What planning needs of rows that [`open`] would make, without making them; `None` if the source has files.
///
/// # Errors
/// Too many rows.
pub fn outline(data: &spec::Data, is_weighted: bool) -> Option<Result<Dataset, Problem>> {
    let dataset = Dataset { weighted: is_weighted, ..synthetic::outline(&data.source)? };
    Some(checks::check_shape(&dataset).map(|()| dataset))
}

/// Whether the rows, or which of them validate, follow the run's seed.
pub fn follow_seed(data: &spec::Data) -> bool {
    let has_own_seed = data.split.as_ref().is_some_and(|split| split.seed.is_some() || !split.shuffle);
    let is_drawn = data.folds.is_some() || data.validation_fraction().is_some_and(|(_, part)| part > 0.0);
    data.source.synthetic().is_some() || (is_drawn && !has_own_seed)
}

/// Like [`open_among`], but `validation` has the rows that `data.split.test` sets apart.
///
/// # Errors
/// As for [`open`].
pub fn open_test(
    tables: &mut ParsedTables,
    data: &spec::Data,
    task: Task,
    seed: u64,
) -> Result<Dataset, Vec<Problem>> {
    open_with(tables, data, task, &Division::new(data, seed, Held::Test), (seed, u64::MAX))
}

fn open_with(
    tables: &mut ParsedTables,
    data: &spec::Data,
    task: Task,
    division: &Division,
    (seed, memory_limit): (u64, u64),
) -> Result<Dataset, Vec<Problem>> {
    let from_files = |read: &dyn Fn() -> Result<Dataset, Vec<Problem>>| {
        let (dataset, FileFacts { files, digest, is_sampled }) =
            read_files(&data.source, read, |rows| Some(rows))?;
        Ok(Dataset { files, digest, is_sampled, ..dataset })
    };
    let mut dataset = match &data.source {
        Source::SyntheticRegression(source) => {
            from_files(&|| synthetic::regression(source, seed).map_err(Vec::from))
        }
        Source::SyntheticClassification(source) => {
            from_files(&|| synthetic::classification(source, seed).map_err(Vec::from))
        }
        Source::Csv(source) => tables.open((&data.source, source), task, division),
        Source::Parquet(source) => tables.open((&data.source, &source.as_csv()), task, division),
        Source::Idx(source) => from_files(&|| idx::open(source, task, division).map_err(Vec::from)),
        Source::Npy(source) => {
            from_files(&|| npy::open(source, task, division, data.placement, memory_limit).map_err(Vec::from))
        }
    }?;
    dataset.target_spread =
        if dataset.classes.is_none() { TargetSpread::new(dataset.targets_of(&dataset.train)) } else { None };
    checks::check(&dataset)?;
    let mut warnings = std::mem::take(&mut dataset.warnings);
    let all = Arc::make_mut(&mut warnings);
    if dataset.validation.as_ref().is_some_and(|part| dataset.train.equals(part)) {
        all.push("the rows to validate on are those to train on".to_owned());
    }
    all.extend(classes::warnings(&dataset, division.may_stratify()));
    dataset.warnings = warnings;
    dataset.warning_of_average_precision = classes::warning_of_average_precision(&dataset);
    Ok(dataset)
}

/// What is known of files that were read.
struct FileFacts {
    files: Vec<FileFingerprint>,
    digest: String,
    is_sampled: bool,
}

/// What `read` makes of a source's files. `rows` gives the data set, if that is what it makes.
fn read_files<T>(
    source: &Source,
    read: impl FnOnce() -> Result<T, Vec<Problem>>,
    rows: fn(&T) -> Option<&Dataset>,
) -> Result<(T, FileFacts), Vec<Problem>> {
    let before = fingerprint::Before::reading(&source.files());
    let read = read();
    let digest = read.as_ref().map(|read| digest::digest(source, rows(read)));
    // If a file changed while it was read, report that before any other problem.
    let files = before.after().map_err(|path| busy(&path))?;
    let (digest, is_sampled) = digest.unwrap_or_else(|_| Ok((String::new(), false)))?;
    Ok((read?, FileFacts { files, digest, is_sampled }))
}

fn busy(path: &Path) -> Problem {
    Problem::at_key("data", format!("`{}` changed while it was read", path.display()))
        .hint("start again once nothing writes to it")
}

impl Part {
    /// Whether both hold the same rows in memory.
    fn equals(&self, other: &Self) -> bool {
        let (Store::Memory(own), Store::Memory(features)) = (&self.features, &other.features) else {
            return false;
        };
        own == features && self.targets == other.targets
    }
}

impl Dataset {
    /// A dataset of numeric targets, without any further information.
    fn new(train: Part, validation: Option<Part>, features: usize, targets: usize) -> Self {
        Self {
            train,
            validation,
            apart: Arc::default(),
            groups: None,
            features,
            targets,
            weighted: false,
            target_scales: vec![Scale::IDENTITY; targets],
            classes: None,
            target_spread: None,
            preprocessing: serde_json::Value::Null,
            truth: None,
            notes: Vec::new(),
            warnings: Arc::default(),
            warning_of_average_precision: None,
            files: Vec::new(),
            digest: String::new(),
            is_sampled: false,
            is_read_at_start: false,
        }
    }

    /// The preprocessing as it is stored in the metadata of a model's file.
    pub fn stored_preprocessing(&self) -> Option<String> {
        (!self.preprocessing.is_null()).then(|| self.preprocessing.to_string())
    }

    /// The facts that planning needs.
    pub fn facts(&self) -> DatasetInfo {
        DatasetInfo {
            train_rows: self.train.rows,
            validation_rows: self.validation.as_ref().map_or(0, |v| v.rows),
            features: self.features,
            targets: self.targets,
            weighted: self.weighted,
            classes: self.classes,
            target_spread: self.target_spread,
            digest: u64::from_str_radix(&self.digest, 16).unwrap_or_default(),
            file_row_bytes: match &self.train.features {
                Store::File(rows) if !self.is_read_at_start => Some(rows.row_bytes()),
                Store::File(_) | Store::Memory(_) => None,
            },
        }
    }

    /// Elements of a target and its weight.
    pub fn target_width(&self) -> usize {
        self.facts().target_width()
    }

    /// The elements of a part's targets, without weights.
    pub fn targets_of<'a>(&self, part: &'a Part) -> impl Iterator<Item = f32> + Clone + 'a {
        let (targets, width) = (self.targets, self.target_width());
        part.targets.chunks_exact(width).flat_map(move |row| row[..targets].iter().copied())
    }

    /// Bytes of the features as f32.
    pub fn feature_bytes(&self) -> u64 {
        let facts = self.facts();
        let rows = facts.train_rows as u64 + facts.validation_rows as u64;
        rows.saturating_mul(facts.features as u64).saturating_mul(4)
    }

    /// How the files of streamed rows have changed; a change that invalidates rows takes precedence.
    pub fn change(&self) -> Option<FileChange> {
        let of = |part: &Part| match &part.features {
            Store::File(rows) => rows.change(),
            Store::Memory(_) => None,
        };
        let changes = || [Some(&self.train), self.validation.as_ref()].into_iter().flatten().filter_map(of);
        changes().find(|change| matches!(change, FileChange::Written(_))).or_else(|| changes().next())
    }
}

impl Part {
    /// Whether its features are in memory.
    pub fn in_memory(&self) -> bool {
        matches!(self.features, Store::Memory(_))
    }

    /// A block of rows from `next` on; advances `next`. `None` at the end, or if the rows stay in their file.
    fn block_from(&self, next: &mut usize) -> Option<RowBlock> {
        let Store::Memory(features) = &self.features else { return None };
        let [width, targets] = [features.len(), self.targets.len()].map(|all| all / self.rows.max(1));
        let rows = (new_rows::BLOCK / width.max(1)).max(1).min(self.rows - *next);
        let of = |values: &[f32], width: usize| values[*next * width..(*next + rows) * width].to_vec();
        let (features, targets) = (of(features, width), of(&self.targets, targets));
        let block = RowBlock { rows, features, targets, kept: Vec::new() };
        *next += rows;
        (rows > 0).then_some(block)
    }

    fn of_memory(rows: usize, features: Vec<f32>, targets: Vec<f32>) -> Self {
        Self { rows, features: Store::Memory(Arc::new(features)), targets: Arc::new(targets) }
    }
}
