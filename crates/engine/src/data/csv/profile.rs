//! Guesses what a file holds, before there is a spec for it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use super::{
    decimal::{Marks, has_decimal_comma, value},
    missing::MissingCells,
    new_rows::RowOptions,
    outliers::Outliers,
    parquet,
    row_order::{Ordered, RowOrder, reads_as_date},
    separator::{SEPARATORS, separated},
    text::{Text, unclosed},
};
use crate::{data::file, spec::Problem};

/// Words that stand for missing values in many tables, besides texts of punctuation such as `?`.
const MARKERS: [&str; 8] =
    ["none", "nil", "missing", "unknown", "undefined", "n.a.", "#n/a", "not available"];

/// Records that are looked at together, column by column: what is known of one column stays in the processor's caches.
const BLOCK: usize = 64;

/// Distinct values are counted up to this number.
const MOST_DISTINCT: usize = 1000;

/// Whole numbers above it may be rounded.
const LAST_WHOLE: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// The columns of a CSV or Parquet file.
#[derive(Debug)]
pub struct CsvProfile {
    /// Whether it is a Parquet file.
    pub is_parquet: bool,
    /// The separator of cells.
    pub delimiter: char,
    /// The mark before the decimals of numbers.
    pub decimal: char,
    /// Whether the first line names the columns; otherwise they are named `0`, `1` and so on.
    pub header: bool,
    /// Number of rows, without the header.
    pub rows: usize,
    /// Number of rows whose cells are all equal to those of an earlier row.
    pub repeated: usize,
    /// In the order of the file.
    pub columns: Vec<ColumnProfile>,
}

/// The cells of a column.
#[derive(Debug, Default)]
pub struct ColumnProfile {
    /// The name in the header, trimmed.
    pub name: String,
    /// The rows, counted from 0, whose cell is empty or a word for a missing value; in any order.
    pub missing: Vec<u32>,
    /// Number of cells that are finite numbers within the range of f32.
    pub numbers: usize,
    /// Whether all numbers are integers.
    pub is_whole: bool,
    /// Whether the numbers count the rows: each is one more than the previous one.
    pub counts_rows: bool,
    /// Whether all numbers are integers, and at least nine of ten rows have one of their own; repeated rows count once.
    pub is_nearly_unique: bool,
    /// Whether all numbers are dates such as 20240604.
    pub are_dates: bool,
    /// The order of its cells from the first row to the last, if all are dates or all are numbers.
    pub order: Option<RowOrder>,
    /// Whether these are times by their look: dates, or seconds or milliseconds since 1970.
    pub are_times: bool,
    /// The mark before the decimals of its numbers.
    pub decimal: char,
    /// A sentence on numbers far from all others.
    pub outliers: Option<String>,
    /// The first cell that is neither missing nor a number.
    pub text: Option<String>,
    /// The location of that cell: ` in line 7`; empty where it is not known.
    pub text_place: String,
    /// The byte at which its record starts.
    text_start: usize,
    /// Whether all such cells are equal.
    pub is_one_text: bool,
    /// The first such cell that is no marker.
    word: Option<String>,
    /// Those of them that often stand for missing values, such as `?`, and the rows that have each.
    markers: BTreeMap<String, Vec<u32>>,
    /// Those of them that were taken for missing values.
    pub taken: Vec<String>,
    /// Distinct values other than missing ones, up to a thousand, and the rows that have each.
    distinct: HashMap<String, u64>,
    /// Number of all distinct values other than missing ones; 0 if it is not known, among many decimals.
    pub different: usize,
    /// The bits or hashes of its distinct values, as long as all its numbers are integers.
    values: HashSet<u64>,
    last: f64,
    ordered: Ordered,
    /// Numbers with decimals after a point, and after a comma.
    marks: [usize; 2],
    /// All its numbers, until the table was read.
    all: Vec<f64>,
}

impl CsvProfile {
    /// Reads the whole file, gzipped or not; marks that are not named are found.
    ///
    /// # Errors
    /// If it cannot be read, is not a table, or has no rows; or if marks are named and it is a Parquet file.
    pub fn read(path: &Path, marks: Marks) -> Result<Self, Problem> {
        // There is no spec yet, so a relative path is not relative to the spec's folder.
        let missing = |problem: Problem| match path.exists() {
            true => problem,
            false => problem.hint("a relative path is taken from the current folder"),
        };
        if file::is_parquet(&file::open(path, "data.parquet.path").map_err(missing)?.0) {
            RowOptions { marks, ..Default::default() }.refuse_marks("a Parquet file")?;
            return Self::of_text(
                &parquet::read(path, "data.parquet.path", |_, other| other.is_none())?,
                '.',
            );
        }
        let text = Text::read(path, "data.csv.path", SEPARATORS[0])?;
        let text = match marks.delimiter {
            Some(named) => text.separated_by(named),
            None => separated(text),
        };
        let profile = Self::of_text(&text, marks.decimal.unwrap_or('.'))?;
        let count = |place: usize| profile.columns.iter().map(|column| column.marks[place]).sum::<usize>();
        let is_comma = marks.decimal.is_none() && count(1) > count(0);
        if is_comma { Self::of_text(&text, ',') } else { Ok(profile) }
    }

    fn of_text(text: &Text, decimal: char) -> Result<Self, Problem> {
        let first = text.first_record().ok_or_else(|| file::problem(&text.path, "an empty file"))?;
        let missing = MissingCells::usual(decimal);
        // Names are not numbers. One of them may be missing, as for an index column.
        let is_name =
            |cell: &String| ['.', ','].iter().all(|mark| value(cell, *mark).is_none()) && !missing.has(cell);
        let unnamed = first.iter().filter(|cell| cell.is_empty()).count();
        let is_line_of_names = first.iter().all(|cell| cell.is_empty() || is_name(cell))
            && unnamed <= 1
            && unnamed < first.len();
        let is_parquet = text.is_parquet();
        let header = is_line_of_names || is_parquet;
        let mut known = HashSet::new();
        let twice = first.iter().position(|name| !known.insert(name)).filter(|_| header);
        if let Some(place) = twice {
            let message = format!("two columns are called `{}`", file::printable(&first[place]));
            return Err(Problem::new(text.cell(0, place), message).hint("name them apart"));
        }
        let names = first.iter().enumerate().map(|(place, cell)| match header {
            true => cell.clone(),
            false => place.to_string(),
        });
        let mut columns: Vec<ColumnProfile> = names
            .map(|name| ColumnProfile {
                name,
                decimal,
                is_whole: true,
                counts_rows: true,
                is_one_text: true,
                are_dates: true,
                ..Default::default()
            })
            .collect();
        let [rows, different] = take_all(text, header, &mut columns, &missing)?;
        if rows == 0 {
            return Err(file::problem(&text.path, "a header and no rows"));
        }
        columns.iter_mut().for_each(|column| column.finish([rows, different]));
        find_outliers(&mut columns, (text, header, &missing));
        find_texts(&mut columns, text);
        let repeated = rows - different;
        Ok(Self { is_parquet, delimiter: text.delimiter(), decimal, header, rows, repeated, columns })
    }
}

/// Takes all cells of the table; returns the number of its rows, and of different ones.
fn take_all(
    text: &Text,
    header: bool,
    columns: &mut [ColumnProfile],
    missing: &MissingCells,
) -> Result<[usize; 2], Problem> {
    let (mut seen, mut rows) = (HashSet::new(), 0);
    let mut records = text.reader().into_records().skip(usize::from(header));
    loop {
        let block: Result<Vec<_>, _> = records.by_ref().take(BLOCK).collect();
        let block = block.map_err(|e| file::problem(&text.path, format!("cannot be read: {e}")))?;
        if block.is_empty() {
            return Ok([rows, seen.len()]);
        }
        if let Some(record) = block.iter().find(|record| record.len() != columns.len()) {
            return Err(uneven(text, record, columns.len()));
        }
        for (place, column) in columns.iter_mut().enumerate() {
            for (record, row) in block.iter().zip(rows..) {
                let row = u32::try_from(row).unwrap_or(u32::MAX);
                column.take(record[place].trim(), (row, start_of(record)), missing);
            }
        }
        seen.extend(block.iter().map(|record| hash_of(record.iter().map(str::trim))));
        rows += block.len();
    }
}

/// Sets the sentences on numbers far from all others, once all of the table was read.
fn find_outliers(columns: &mut [ColumnProfile], table: (&Text, bool, &MissingCells)) {
    let numbers = columns.iter_mut().map(|column| std::mem::take(&mut column.all));
    let found = numbers.map(|numbers| Outliers::find(numbers.into_iter())).enumerate();
    let found: Vec<_> = found.filter_map(|(place, found)| Some((place, found?))).collect();
    let name = |place: usize| format!("`{}`", file::printable(&columns[place].name));
    let words = Outliers::in_words(&found, table, name);
    for ((place, _), words) in found.iter().zip(words) {
        columns[*place].outliers = Some(words);
    }
}

/// Sets the locations of the first texts, once all of the table was read. Columns of text have theirs in one row.
fn find_texts(columns: &mut [ColumnProfile], text: &Text) {
    let mut places = HashMap::new();
    for column in columns.iter_mut().filter(|column| column.text.is_some()) {
        let start = column.text_start;
        column.text_place.clone_from(places.entry(start).or_insert_with(|| text.line(start).in_words()));
    }
}

/// The problem of a record that has not as many cells as the first line.
fn uneven(text: &Text, record: &csv::StringRecord, expected: usize) -> Problem {
    let start = start_of(record);
    match text.unclosed_quote(start) {
        Some(place) => unclosed(place),
        None => {
            let cells = if expected == 1 { "1 cell" } else { &format!("{expected} cells") };
            let message = format!("expected {cells}, as in the first line, found {}", record.len());
            let problem = Problem::new(text.line(start), message);
            let hint = match text.marked_lines() {
                1 => "line 1 begins with `#`: if it is a comment, remove it".to_owned(),
                count => format!("lines 1 to {count} begin with `#`: if they are comments, remove them"),
            };
            match expected {
                1 if text.marked_lines() > 0 => problem.hint(hint),
                1 => problem.hint("`--delimiter CHARACTER` names what separates cells"),
                _ => problem,
            }
        }
    }
}

/// The byte at which a record starts.
fn start_of(record: &csv::StringRecord) -> usize {
    record.position().map_or(0, |position| position.byte()) as usize
}

fn hash_of<'a>(cells: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    cells.into_iter().for_each(|cell| cell.hash(&mut hasher));
    hasher.finish()
}

impl ColumnProfile {
    /// Whether its texts are dates, as the first one is.
    pub fn has_dates(&self) -> bool {
        self.text.as_deref().is_some_and(reads_as_date)
    }

    fn take(&mut self, cell: &str, (row, start): (u32, usize), missing: &MissingCells) {
        if missing.has(cell) {
            self.missing.push(row);
            return;
        }
        if let Some(count) = self.distinct.get_mut(cell) {
            *count += 1;
        } else if self.distinct.len() < MOST_DISTINCT {
            self.distinct.insert(cell.to_owned(), 1);
        }
        let number = missing.number(cell);
        self.ordered.take(cell, number.ok());
        match number {
            Ok(value) => {
                self.marks[0] += usize::from(cell.contains('.'));
                self.is_whole &= value.fract() == 0.0;
                self.are_dates &= is_date(cell);
                let follows = self.numbers == 0 || (value == self.last + 1.0 && value < LAST_WHOLE);
                self.counts_rows &= self.is_whole && follows;
                self.numbers += 1;
                self.last = value;
                self.all.push(value);
                if self.is_whole {
                    // Texts tell numbers apart that are the same once they are rounded.
                    let is_exact = value.abs() < LAST_WHOLE;
                    self.values.insert(if is_exact { value.to_bits() } else { hash_of([cell]) });
                } else {
                    self.values = HashSet::new();
                }
            }
            Err(_) => {
                self.marks[1] += usize::from(has_decimal_comma(cell));
                if self.is_whole {
                    self.values.insert(hash_of([cell]));
                }
                let first = self.text.get_or_insert_with(|| {
                    self.text_start = start;
                    cell.to_owned()
                });
                self.is_one_text &= first == cell;
                if !is_marker(cell) {
                    self.word.get_or_insert_with(|| cell.to_owned());
                } else if self.markers.len() < MOST_DISTINCT {
                    self.markers.entry(cell.to_owned()).or_default().push(row);
                }
            }
        }
    }

    /// Once all of the table was read: the number of its rows, and of different ones.
    fn finish(&mut self, [all, rows]: [usize; 2]) {
        self.are_dates &= self.numbers > 0;
        (self.order, self.are_times) = self.ordered.found(all);
        let different = self.values.len();
        self.values = HashSet::new();
        self.is_nearly_unique = self.numbers > 0 && different * 10 >= rows * 9;
        self.different = if self.has_many() { different } else { self.distinct.len() };
    }

    /// Texts of its cells that often stand for missing values, such as `?`.
    pub fn markers(&self) -> impl Iterator<Item = &str> {
        self.markers.keys().map(String::as_str)
    }

    /// Texts such as `?` in a column that has only numbers besides, of `rows` cells.
    pub fn markers_among_numbers(&self, rows: usize) -> impl Iterator<Item = &str> {
        let marked: usize = self.markers.values().map(Vec::len).sum();
        let are_all = self.numbers > 0 && self.missing.len() + self.numbers + marked == rows;
        self.markers().filter(move |_| are_all)
    }

    /// Counts cells with one of these texts as missing.
    pub fn take_for_missing(&mut self, texts: &BTreeSet<String>) {
        let is_one = |cell: &String| texts.iter().any(|text| text.eq_ignore_ascii_case(cell));
        self.taken.extend(self.markers.keys().filter(|cell| is_one(cell)).cloned());
        if self.taken.is_empty() {
            return;
        }
        self.missing.extend(self.taken.iter().filter_map(|cell| self.markers.get(cell)).flatten());
        self.distinct.retain(|cell, _| !is_one(cell));
        let usual = MissingCells::usual(self.decimal);
        let mut others: BTreeSet<&String> =
            self.distinct.keys().filter(|cell| usual.number(cell).is_err()).collect();
        // Of many distinct values, not all were counted.
        others.extend(self.markers.keys().filter(|cell| !is_one(cell)).chain(&self.word));
        (self.is_one_text, self.text) = (others.len() < 2, others.first().map(|cell| (*cell).clone()));
        self.text_place = String::new();
    }

    /// The distinct values that were counted, other than missing ones, and the rows that have each; in any order.
    pub fn values(&self) -> impl Iterator<Item = (&str, u64)> {
        self.distinct.iter().map(|(value, count)| (value.as_str(), *count))
    }

    /// Number of distinct values other than missing ones; a thousand means a thousand or more.
    pub fn distinct(&self) -> usize {
        self.distinct.len()
    }

    /// Whether there may be more distinct values than were counted.
    pub fn has_many(&self) -> bool {
        self.distinct.len() >= MOST_DISTINCT
    }

    /// Whether every cell that is not missing is a number.
    pub fn is_numeric(&self) -> bool {
        self.text.is_none() && self.numbers > 0
    }
}

/// Whether a cell is a date of the years 1900 to 2099 in eight digits.
fn is_date(cell: &str) -> bool {
    let part = |from: usize, to: usize| cell.get(from..to).and_then(|digits| digits.parse::<u32>().ok());
    cell.len() == 8
        && cell.bytes().all(|byte| byte.is_ascii_digit())
        && part(0, 4).is_some_and(|year| (1900..2100).contains(&year))
        && part(4, 6).is_some_and(|month| (1..=12).contains(&month))
        && part(6, 8).is_some_and(|day| (1..=31).contains(&day))
}

fn is_marker(cell: &str) -> bool {
    cell.bytes().all(|byte| byte.is_ascii_punctuation())
        || MARKERS.iter().any(|word| cell.eq_ignore_ascii_case(word))
}
