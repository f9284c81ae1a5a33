//! Tables as they are read, before their rows are divided: data sets of several seeds, folds and fractions are made from one.

use std::sync::Arc;

use super::{Dataset, FileFingerprint, Task, csv::Tables, division::Division, read_files};
use crate::spec::{Csv, Location, Problem, Source};

/// The most tables that are kept.
const MOST: usize = 16;

/// Keeps tables for data sets that are opened later.
#[derive(Default)]
pub struct ParsedTables {
    /// All together have no more bytes than this.
    most_bytes: u64,
    /// The one used last is the last, each with the number of data sets that were made from it.
    kept: Vec<(Arc<Parsed>, usize)>,
}

/// A table, and what it was read from.
struct Parsed {
    key: Key,
    tables: Tables,
    files: Vec<FileFingerprint>,
    digest: String,
}

/// What determines how a table is read.
#[derive(PartialEq)]
struct Key {
    csv: Csv,
    is_parquet: bool,
    task: Task,
}

impl ParsedTables {
    /// Keeps tables from now on, of `most_bytes` in all.
    pub fn begin(&mut self, most_bytes: u64) {
        self.most_bytes = most_bytes;
    }

    /// Keeps no other table than those from which several data sets were made so far.
    pub fn settle(&mut self) {
        self.most_bytes = 0;
        self.kept.retain(|(_, uses)| *uses > 1);
    }

    /// Bytes of the tables in memory.
    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|(parsed, _)| parsed.tables.bytes()).sum()
    }

    /// Makes a data set of `csv`, which has the settings of a text file or of a Parquet file.
    pub(super) fn open(
        &mut self,
        (source, csv): (&Source, &Csv),
        task: Task,
        division: &Division,
    ) -> Result<Dataset, Vec<Problem>> {
        let key = Key::new(source, csv, task);
        let parsed = match self.find(&key) {
            Some(parsed) => parsed,
            None => {
                let mut parsed = Parsed::read(source, key)?;
                parsed.tables.shrink();
                self.keep(Arc::new(parsed))
            }
        };
        // Without its text a table cannot tell in which lines problems are.
        parsed.dataset(csv, division).or_else(|_| {
            let own = |problems| parsed.key.own(problems);
            Parsed::read(source, Key::new(source, csv, task))?.dataset(csv, division).map_err(own)
        })
    }

    /// The table of a key, unless its files have changed.
    fn find(&mut self, key: &Key) -> Option<Arc<Parsed>> {
        let place = self.kept.iter().position(|(parsed, _)| parsed.key == *key)?;
        let (parsed, uses) = self.kept.remove(place);
        let is_same = |file: &FileFingerprint| FileFingerprint::from_path(file.path()).as_ref() == Some(file);
        if !parsed.files.iter().all(is_same) {
            return None;
        }
        self.kept.push((Arc::clone(&parsed), uses + 1));
        Some(parsed)
    }

    fn keep(&mut self, parsed: Arc<Parsed>) -> Arc<Parsed> {
        let bytes = parsed.tables.bytes();
        if bytes <= self.most_bytes {
            while self.kept.len() >= MOST || self.bytes() + bytes > self.most_bytes {
                self.kept.remove(0);
            }
            self.kept.push((Arc::clone(&parsed), 1));
        }
        parsed
    }
}

impl Parsed {
    fn read(source: &Source, key: Key) -> Result<Self, Vec<Problem>> {
        let read = || match key.is_parquet {
            true => Tables::read_parquet(&key.csv, key.task),
            false => Tables::read(&key.csv, key.task),
        };
        let read = || read().map_err(|problems| key.own(problems));
        let (tables, read) = read_files(source, read, |_| None)?;
        Ok(Self { tables, files: read.files, digest: read.digest, key })
    }

    fn dataset(&self, csv: &Csv, division: &Division) -> Result<Dataset, Vec<Problem>> {
        let dataset = self.tables.dataset(csv, division)?;
        Ok(Dataset { files: self.files.clone(), digest: self.digest.clone(), ..dataset })
    }
}

impl Key {
    fn new(source: &Source, csv: &Csv, task: Task) -> Self {
        // Divided and fitted is what was read.
        let csv = Csv {
            missing_indicators: false,
            standardize: false,
            standardize_target: false,
            validation_fraction: None,
            ..csv.clone()
        };
        Self { csv, is_parquet: matches!(source, Source::Parquet(_)), task }
    }

    /// Names the keys of `data.parquet` in problems where the table is of that.
    fn own(&self, problems: Vec<Problem>) -> Vec<Problem> {
        if !self.is_parquet {
            return problems;
        }
        let own = |text: String| text.replace("data.csv", "data.parquet");
        let renamed = |problem: Problem| Problem {
            message: own(problem.message),
            place: match problem.place {
                Location::Key(key) => Location::Key(own(key)),
                place => place,
            },
            hint: problem.hint.map(own),
            ..problem
        };
        problems.into_iter().map(renamed).collect()
    }
}
