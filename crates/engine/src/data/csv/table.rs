//! The rows of a file by column: parsed numbers and indexed words, before any fitting or filling.

use std::{collections::HashMap, path::Path, sync::Arc};

use super::{
    columns::Columns,
    faults::{Faults, Kind},
    missing::MissingCells,
    text::{MAX_PROBLEMS, Text},
};
use crate::{
    data::{Task, file},
    spec::{Csv, Missing, Problem},
    units,
};

/// The cells that are used, and where they come from.
pub(super) struct Table {
    pub(super) text: Arc<Text>,
    pub(super) columns: Arc<Columns>,
    pub(super) rows: usize,
    /// Rows left out because of a missing cell, by their numbers in the file: with `missing = "mean"`, those without a target,
    /// a group or a weight.
    pub(super) dropped: Vec<u32>,
    /// One per numeric feature; NaN where a cell is missing.
    pub(super) numeric: Vec<Vec<f64>>,
    /// One per categorical feature.
    pub(super) categorical: Vec<Words>,
    pub(super) target: Target,
    /// Which rows stay together; empty without a column of groups.
    pub(super) group: Words,
    /// How much each row counts, if the spec names a column of weights.
    pub(super) weights: Option<Vec<f64>>,
    /// `[rows, kept]`: the cells of columns that are kept.
    pub(super) kept: Vec<String>,
    /// How its cells are read.
    pub(super) missing: MissingCells,
}

/// The columns to predict.
pub(super) enum Target {
    /// `[rows, targets]`.
    Numbers(Vec<f64>),
    Classes(Words),
    /// The targets are not read.
    None,
}

/// A text column as indices into its distinct words.
#[derive(Default)]
pub(super) struct Words {
    /// One per row; [`Words::MISSING`] where the cell is missing.
    pub(super) codes: Vec<u32>,
    /// The distinct words in order of first occurrence.
    pub(super) distinct: Vec<Word>,
    /// The first record with a missing cell.
    pub(super) missing: Option<usize>,
    numbers: HashMap<String, u32>,
}

/// A word and the record in which it first occurs.
pub(super) struct Word {
    pub(super) text: String,
    pub(super) record: usize,
}

impl Words {
    pub(super) const MISSING: u32 = u32::MAX;

    fn push(&mut self, cell: &str, record: usize) {
        let code = match self.numbers.get(cell) {
            Some(&code) => code,
            None => {
                let code = self.distinct.len() as u32;
                self.numbers.insert(cell.to_owned(), code);
                self.distinct.push(Word { text: cell.to_owned(), record });
                code
            }
        };
        self.codes.push(code);
    }

    fn shrink(&mut self) {
        self.codes.shrink_to_fit();
        self.numbers = HashMap::new();
    }

    fn bytes(&self) -> usize {
        let words = self.distinct.iter().map(|word| size_of::<Word>() + word.text.len());
        size_of_val(&*self.codes) + words.sum::<usize>()
    }

    /// The result of `find` for each distinct word.
    ///
    /// # Errors
    /// The words of `column` that `find` does not know: none of them is a `what` of the training file.
    pub(super) fn find_all(
        &self,
        (text, columns, column): (&Text, &Columns, usize),
        what: &str,
        hint: impl Fn() -> String,
        find: impl Fn(&str) -> Option<usize>,
    ) -> Result<Vec<usize>, Vec<Problem>> {
        let whose = columns.described(column);
        let unknown = |word: &Word| {
            let cell = text.written(word.record, column).unwrap_or_else(|| word.text.clone());
            let message =
                format!("`{}` in {whose} is not a {what} of the training file", file::printable(&cell));
            Problem::new(text.cell(word.record, column), message).hint(hint())
        };
        let found: Option<Vec<usize>> = self.distinct.iter().map(|word| find(&word.text)).collect();
        found.ok_or_else(|| {
            let strangers = self.distinct.iter().filter(|word| find(&word.text).is_none());
            strangers.take(MAX_PROBLEMS).map(unknown).collect()
        })
    }
}

impl Table {
    /// Reads all rows of `text`.
    ///
    /// # Errors
    /// Everything that is wrong with its lines and cells; or that there are no rows.
    pub(super) fn read(
        spec: &Csv,
        text: &Arc<Text>,
        columns: &Arc<Columns>,
        task: Task,
    ) -> Result<Self, Vec<Problem>> {
        let (table, problems) = Self::read_part(spec, text, columns, task)?;
        if !problems.is_empty() {
            return Err(problems);
        }
        if table.rows > 0 {
            return Ok(table);
        }
        Err(no_rows(&text.path, spec, table.dropped.len()).into())
    }

    /// Reads the rows of `text`, which is a part of a file and may have none. Returns what is wrong with its lines and cells beside
    /// them, since more may be wrong with its words.
    pub(super) fn read_part(
        spec: &Csv,
        text: &Arc<Text>,
        columns: &Arc<Columns>,
        task: Task,
    ) -> Result<(Self, Vec<Problem>), Problem> {
        let mut table = Self {
            text: Arc::clone(text),
            columns: Arc::clone(columns),
            rows: 0,
            dropped: Vec::new(),
            numeric: columns.numeric.iter().map(|_| Vec::new()).collect(),
            categorical: columns.categorical.iter().map(|_| Words::default()).collect(),
            target: match task {
                _ if columns.targets.is_empty() => Target::None,
                Task::Regression => Target::Numbers(Vec::new()),
                Task::Classification => Target::Classes(Words::default()),
            },
            group: Words::default(),
            weights: spec.weight.as_ref().map(|_| Vec::new()),
            kept: Vec::new(),
            missing: MissingCells::new(spec),
        };
        let mut faults = Faults::new(text, columns, spec.decimal);
        let mut reader = text.reader();
        let mut record = csv::StringRecord::new();
        let mut records = 0_u64;
        let mut start = 0;
        let unreadable = |error| file::problem(&text.path, format!("cannot be read: {error}"));
        while reader.read_record(&mut record).map_err(unreadable)? {
            records += 1;
            if spec.header && records == 1 {
                continue;
            }
            start = record.position().map_or(0, |position| position.byte()) as usize;
            if record.len() != columns.names.len() {
                faults.uneven(start, record.len());
            } else if table.missing.drops(columns, |column| record.get(column).unwrap_or_default().trim()) {
                table.dropped.push((table.rows + table.dropped.len()) as u32);
            } else {
                table.push(&record, start, &mut faults);
            }
        }
        let problems = faults.finish(start, table.rows);
        Ok((table, problems))
    }

    /// Drops what only reading needs: the text, without which problems have no lines, and room for more rows.
    pub(super) fn shrink(&mut self) {
        self.text = Arc::new(self.text.without_body());
        self.numeric.iter_mut().chain(&mut self.weights).for_each(Vec::shrink_to_fit);
        let classes = match &mut self.target {
            Target::Numbers(values) => {
                values.shrink_to_fit();
                None
            }
            Target::Classes(words) => Some(words),
            Target::None => None,
        };
        self.categorical.iter_mut().chain([&mut self.group]).chain(classes).for_each(Words::shrink);
    }

    /// Bytes of its cells in memory.
    pub(super) fn bytes(&self) -> u64 {
        let numbers: usize = self.numeric.iter().chain(&self.weights).map(Vec::len).sum();
        let (targets, classes) = match &self.target {
            Target::Numbers(values) => (values.len(), 0),
            Target::Classes(words) => (0, words.bytes()),
            Target::None => (0, 0),
        };
        let words: usize = self.categorical.iter().chain([&self.group]).map(Words::bytes).sum();
        (size_of::<f64>() * (numbers + targets) + words + classes) as u64
    }

    /// `targets`, those of each row followed by its weight where rows have weights. Only ratios of weights matter: all are multiplied
    /// by a power of 2 for the sums to be in the range of f32. That is `scale`, the same for all tables whose rows are weighed against
    /// each other; the first one with a weight above 0 sets it, to bring the largest to between 1 and 2.
    pub(super) fn with_weights(&self, targets: Vec<f32>, scale: &mut Option<f64>) -> Vec<f32> {
        let Some(weights) = &self.weights else { return targets };
        let largest = weights.iter().copied().fold(0.0, f64::max);
        if largest > 0.0 {
            scale.get_or_insert_with(|| (-largest.log2().floor()).min(1000.0).exp2());
        }
        let scale = scale.unwrap_or(1.0);
        let rows = targets.chunks_exact(self.columns.targets.len()).zip(weights);
        rows.flat_map(|(row, weight)| row.iter().copied().chain([(weight * scale) as f32])).collect()
    }

    /// The number of each row in the file, counted from 0 after the header.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..=u32::MAX).filter(|number| self.dropped.binary_search(number).is_err())
    }

    /// The problem for the cell of `column` with `value`, which after scaling is too large for f32.
    pub(super) fn too_large(&self, column: usize, value: f64) -> Problem {
        let message = |cell: &str| {
            let whose = self.columns.described(column);
            format!("`{}` in {whose} is too large for f32 once it is standardized", file::printable(cell))
        };
        let found = self.text.first_cells(&[column], 0, |_, cell| self.missing.value(cell) == Some(value));
        match found.into_iter().flatten().next() {
            Some((cell, record)) => Problem::new(self.text.cell(record, column), message(&cell)),
            None => file::problem(&self.text.path, message(&value.to_string())),
        }
    }

    fn push(&mut self, record: &csv::StringRecord, start: usize, faults: &mut Faults<'_>) {
        let (columns, missing) = (&*self.columns, &self.missing);
        self.rows += 1;
        let cell = |column: usize| record.get(column).unwrap_or_default().trim();
        self.kept.extend(columns.kept.iter().map(|&column| cell(column).to_owned()));
        for (values, &column) in self.numeric.iter_mut().zip(&columns.numeric) {
            let cell = cell(column);
            let parsed = missing.number(cell);
            if let Err(kind) = parsed
                && !(kind == Kind::Missing && missing.rule == Missing::Mean)
            {
                faults.cell(start, column, kind, cell);
            }
            values.push(parsed.unwrap_or(f64::NAN));
        }
        for (words, &column) in self.categorical.iter_mut().zip(&columns.categorical) {
            let cell = cell(column);
            if !missing.has(cell) {
                words.push(&missing.word(cell), start);
                continue;
            }
            words.codes.push(Words::MISSING);
            if missing.rule == Missing::Mean {
                words.missing.get_or_insert(start);
            } else {
                faults.cell(start, column, Kind::Missing, cell);
            }
        }
        if let Some(column) = columns.group {
            match cell(column) {
                cell if missing.has(cell) => faults.cell(start, column, Kind::Missing, cell),
                cell => self.group.push(cell, start),
            }
        }
        if let Some(weights) = &mut self.weights {
            let weight = columns.weight.map(|column| (column, missing.number(cell(column))));
            match weight {
                Some((column, Err(kind))) => faults.cell(start, column, kind, cell(column)),
                Some((column, Ok(..0.0))) => faults.cell(start, column, Kind::Negative, cell(column)),
                Some((_, Ok(weight))) => weights.push(weight),
                None => weights.push(1.0),
            }
        }
        for &target in &columns.targets {
            let cell = cell(target);
            // Targets are never filled: the model would learn made-up values.
            let pushed = match &mut self.target {
                Target::Numbers(values) => missing.number(cell).map(|value| values.push(value)),
                Target::None => Ok(()),
                Target::Classes(_) if missing.has(cell) => Err(Kind::Missing),
                Target::Classes(words) => {
                    words.push(&missing.word(cell), start);
                    Ok(())
                }
            };
            if let Err(kind) = pushed {
                faults.cell(start, target, kind, cell);
            }
        }
    }
}

/// The problem of a file without rows, or with nothing but rows that were dropped.
pub(super) fn no_rows(path: &Path, spec: &Csv, dropped: usize) -> Problem {
    if dropped == 0 {
        return file::problem(path, "a header and no rows");
    }
    let rows = units::count(dropped as u64);
    let of_rows = |one: &str, all: &str| match dropped {
        1 => format!("the only row {one}"),
        _ => format!("all {rows} rows {all}"),
    };
    if spec.missing == Missing::Mean {
        return file::problem(path, format!("{} {}", of_rows("lacks", "lack"), super::never_filled(spec)));
    }
    file::problem(path, of_rows("has missing cells", "have missing cells"))
        .hint("`data.csv.missing = \"mean\"` fills them, `data.csv.ignore` leaves columns out")
}
