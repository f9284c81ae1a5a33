//! Rows of a table for a trained model, read in parts: columns are found by name and preprocessed as fitted
//! in training.

use std::{fs::File, io::Read, path::PathBuf, sync::Arc};

use super::{
    columns::{Columns, empty},
    decimal::{Marks, value},
    fit::FeatureFit,
    missing::MissingCells,
    parquet::ParquetRows,
    parts::Parts,
    stored::{ColumnKind, StoredColumn, StoredCsv},
    table::{Table, no_rows},
    target::TargetFit,
    text::Text,
};
use crate::{
    data::{Preprocessing, RowBlock, Scale, Task, file},
    spec::{Csv, Location, Missing, Problem},
};

/// How new rows are read.
#[derive(Clone, Debug, Default)]
pub struct RowOptions {
    /// Whether rows with a category that the training file lacks are taken, with all inputs of the column 0;
    /// otherwise they are errors.
    pub takes_unknown: bool,
    /// The names of a table's columns whose cells are kept beside the rows.
    pub keep: Vec<String>,
    /// The marks of a CSV file.
    pub marks: Marks,
}

impl RowOptions {
    /// Refuses what only a table has.
    pub(in crate::data) fn refuse_for_array(&self) -> Result<(), Problem> {
        let refused = |message: &str, hint: &str| Err(Problem::new(Location::Nowhere, message).hint(hint));
        if !self.keep.is_empty() {
            return refused("an array has no columns to keep", "leave out `--keep`");
        }
        self.refuse_marks("an array")
    }

    pub(super) fn refuse_marks(&self, what: &str) -> Result<(), Problem> {
        let Marks { delimiter, decimal } = self.marks;
        let named = [("--delimiter", delimiter), ("--decimal", decimal)];
        match named.into_iter().find(|(_, mark)| mark.is_some()) {
            Some((option, _)) => {
                let message = format!("{what} has no marks between cells or before decimals");
                Err(Problem::new(Location::Nowhere, message).hint(format!("leave out `{option}`")))
            }
            None => Ok(()),
        }
    }
}

/// The preprocessing of a model that was trained on a table.
pub(in crate::data) struct CsvModel {
    spec: Csv,
    task: Task,
    features: FeatureFit,
    target: TargetFit,
    stored: StoredCsv,
}

impl CsvModel {
    pub(in crate::data) fn new(spec: &Csv, task: Task, stored: StoredCsv) -> Self {
        let features = FeatureFit::from_stored(&stored.features);
        let target = TargetFit::from_stored(&stored.target);
        Self { spec: spec.clone(), task, features, target, stored }
    }

    /// Features per row.
    pub(in crate::data) fn width(&self) -> usize {
        self.features.width()
    }

    pub(in crate::data) fn class_names(&self) -> Option<Vec<String>> {
        self.target.class_names()
    }

    /// The standardization of each numeric target.
    pub(in crate::data) fn target_scales(&self) -> &[Scale] {
        self.target.scales()
    }

    /// The column of the rows' weights.
    pub(in crate::data) fn weight(&self) -> Option<&str> {
        self.spec.weight.as_deref()
    }

    /// Names of the target columns.
    pub(in crate::data) fn targets(&self) -> Vec<&str> {
        self.stored.target.iter().map(|target| target.name.as_str()).collect()
    }

    fn numeric(&self) -> impl Iterator<Item = &StoredColumn> {
        self.stored.features.iter().filter(|column| column.kind == ColumnKind::Numeric)
    }

    fn categorical(&self) -> impl Iterator<Item = &StoredColumn> {
        self.stored.features.iter().filter(|column| column.kind == ColumnKind::Categorical)
    }

    /// How its columns are preprocessed.
    pub(in crate::data) fn preprocessing(&self) -> Preprocessing<'_> {
        let MissingCells { words, numbers, .. } = MissingCells::new(&self.spec);
        let fills = self.spec.missing == Missing::Mean;
        Preprocessing::Table { columns: &self.stored.features, fills, missing: (words, numbers) }
    }
}

/// Rows of one file. Rows to evaluate are left out if training leaves such rows out. With `missing = "drop"`, missing
/// cells of rows to predict are errors, since every row needs a prediction.
pub(in crate::data) struct CsvRows {
    path: PathBuf,
    next_part: Box<dyn FnMut() -> Result<Option<Text>, Problem>>,
    spec: Csv,
    with_targets: bool,
    /// `None` before the first part was read.
    columns: Option<Arc<Columns>>,
    /// Names of columns that are not used.
    pub(in crate::data) unused: Vec<String>,
    rows: usize,
    pub(in crate::data) dropped: usize,
    /// For each categorical column, the number of rows with a category that the training file lacks; `None` if such
    /// rows are errors.
    unknown: Option<Vec<usize>>,
    /// For each numeric column, the number of missing cells that were filled.
    filled: Vec<usize>,
    /// The names of the columns whose cells are kept.
    keep: Vec<String>,
    /// The column of groups, whose cells are kept if the file has it.
    group: Option<String>,
    /// What all weights of the file are multiplied by.
    weight_scale: Option<f64>,
}

impl CsvRows {
    pub(in crate::data) fn new(
        model: &CsvModel,
        path: PathBuf,
        reader: Box<dyn Read>,
        (with_targets, options): (bool, &RowOptions),
    ) -> Self {
        let Marks { delimiter, decimal } = options.marks;
        let mut parts = Parts::new(path.clone(), reader, delimiter.unwrap_or(model.spec.delimiter));
        let rows =
            Self::with_parts(model, path, (with_targets, options), Box::new(move || parts.next_part()));
        rows.with_decimal(decimal.unwrap_or(model.spec.decimal))
    }

    /// The rows of a Parquet file.
    pub(in crate::data) fn from_parquet(
        model: &CsvModel,
        path: PathBuf,
        file: File,
        (with_targets, options): (bool, &RowOptions),
    ) -> Result<Self, Problem> {
        options.refuse_marks("a Parquet file")?;
        let targets = if with_targets { model.targets() } else { Vec::new() };
        let features = model.stored.features.iter().map(|feature| &feature.name);
        let beside = model.spec.weight.iter().chain(&model.spec.group).filter(|_| with_targets);
        let others: Vec<&String> = features.chain(&options.keep).chain(beside).collect();
        let is_wanted =
            |name: &str, _: Option<&str>| targets.contains(&name) || others.iter().any(|own| *own == name);
        let mut parts = ParquetRows::new(&path, file, is_wanted)?;
        let rows =
            Self::with_parts(model, path, (with_targets, options), Box::new(move || parts.next_part()));
        // Its numbers are no texts, whatever the training file's mark is.
        Ok(rows.with_decimal('.'))
    }

    /// Reads decimals after another mark than that of the training file, also those that stand for missing values.
    fn with_decimal(mut self, mark: char) -> Self {
        let old = std::mem::replace(&mut self.spec.decimal, mark);
        let words = self.spec.missing_values.iter_mut().flatten();
        for word in words.filter(|word| value(word, old).is_some()) {
            *word = word.replace(old, &mark.to_string());
        }
        self
    }

    fn with_parts(
        model: &CsvModel,
        path: PathBuf,
        (with_targets, options): (bool, &RowOptions),
        next_part: Box<dyn FnMut() -> Result<Option<Text>, Problem>>,
    ) -> Self {
        // Groups are cells beside the rows, and weights matter where there are targets.
        let weight = model.spec.weight.clone().filter(|_| with_targets);
        let mut spec = Csv { group: None, weight, ..model.spec.clone() };
        spec.ignore.extend(model.spec.group.iter().chain(&model.spec.weight).cloned());
        if !with_targets && spec.missing == Missing::Drop {
            spec.missing = Missing::Error;
        }
        let unknown = options.takes_unknown.then(|| vec![0; model.categorical().count()]);
        let filled = vec![0; model.numeric().count()];
        let group = model.spec.group.clone().filter(|_| with_targets);
        let (unused, keep) = (Vec::new(), options.keep.clone());
        Self {
            path,
            next_part,
            spec,
            with_targets,
            columns: None,
            unused,
            rows: 0,
            dropped: 0,
            unknown,
            filled,
            keep,
            group,
            weight_scale: None,
        }
    }

    /// The names of columns with such categories, and the number of rows that have them.
    pub(in crate::data) fn unknown(&self, model: &CsvModel) -> Vec<(String, usize)> {
        let counts = self.unknown.iter().flatten().copied();
        let all = model.categorical().map(|column| file::printable(&column.name)).zip(counts);
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// The names of columns with missing cells though the training file has none there, and the number of rows that have them.
    pub(in crate::data) fn newly_missing(&self, model: &CsvModel) -> Vec<(String, usize)> {
        let all = model.numeric().zip(self.filled.iter().copied());
        let found = all.filter(|(column, count)| column.is_complete() && *count > 0);
        found.map(|(column, count)| (file::printable(&column.name), count)).collect()
    }

    /// The column of groups, and whether the file has it. `None` before the first rows.
    pub(in crate::data) fn group(&self) -> Option<(&str, bool)> {
        let columns = self.columns.as_ref()?;
        let group = self.group.as_deref()?;
        Some((group, columns.kept.len() > self.keep.len()))
    }

    /// The column of weights that the file lacks, so that every row counts as 1. `None` before the first rows.
    pub(in crate::data) fn lacks_weights(&self) -> Option<&str> {
        self.columns.as_ref().filter(|columns| columns.weight.is_none())?;
        self.spec.weight.as_deref()
    }

    /// The next rows; `None` at the end.
    pub(in crate::data) fn next_block(&mut self, model: &CsvModel) -> Result<Option<RowBlock>, Vec<Problem>> {
        let Some(text) = (self.next_part)()? else {
            return match (&self.columns, self.rows) {
                (None, _) => Err(empty(&self.spec, &self.path).into()),
                // Nothing has no metrics, but predictions of no rows are none.
                (_, 0) if self.with_targets => Err(no_rows(&self.path, &self.spec, self.dropped).into()),
                _ => Ok(None),
            };
        };
        let columns = match self.columns.take() {
            Some(columns) => columns,
            None => {
                let targets = model.targets();
                let wanted = if self.with_targets { &targets[..] } else { &[] };
                let weight = self.spec.weight.as_deref();
                let trained = Columns::from_stored(&model.stored.features, wanted, weight);
                let mut columns = trained.in_other(&self.spec, &text)?;
                columns.keep(&self.keep, &text)?;
                columns.kept.extend(self.group.as_ref().and_then(|group| columns.place(group)));
                let known = self.spec.ignore.iter().chain(&self.keep).map(String::as_str).chain(targets);
                self.unused = columns.unused(&known.collect::<Vec<_>>());
                Arc::new(columns)
            }
        };
        let (mut table, mut problems) = Table::read_part(&self.spec, &Arc::new(text), &columns, model.task)?;
        for (count, values) in self.filled.iter_mut().zip(&table.numeric) {
            *count += values.iter().filter(|value| value.is_nan()).count();
        }
        let is_clean = problems.is_empty();
        let mut taken = |found: Result<Vec<f32>, Vec<Problem>>| {
            found.unwrap_or_else(|found| {
                problems.extend(found);
                Vec::new()
            })
        };
        let features = taken(model.features.apply(&table, self.unknown.as_deref_mut()));
        // Numbers beside bad ones are not looked at: they are not in their places.
        let has_targets = self.with_targets && (is_clean || model.task == Task::Classification);
        let targets =
            if has_targets { taken(model.target.apply(&table, &mut self.weight_scale)) } else { Vec::new() };
        if !problems.is_empty() {
            problems.sort_by_key(|problem| in_file(&problem.place));
            return Err(problems);
        }
        let mut kept = std::mem::take(&mut table.kept);
        let width = columns.kept.len();
        if width > self.keep.len() {
            // A missing cell names no group.
            let groups = kept.iter_mut().skip(width - 1).step_by(width);
            groups.filter(|cell| table.missing.has(cell)).for_each(String::clear);
        }
        let block = RowBlock { rows: table.rows, features, targets, kept };
        (self.rows, self.dropped) = (self.rows + table.rows, self.dropped + table.dropped.len());
        self.columns = Some(columns);
        // Only the first line of the file is a header.
        self.spec.header = false;
        Ok(Some(block))
    }
}

/// By what the problems of a file are in its order.
fn in_file(place: &Location) -> (u64, u64) {
    match place {
        Location::File { line: Some(line), column, .. } => (*line, column.unwrap_or(0)),
        Location::Row { row, .. } => (*row as u64, 0),
        // What sums up the others is last.
        _ => (u64::MAX, 0),
    }
}
