//! Converts rows of a Parquet file to lines of a CSV file, so that everything after that is the same for both
//! formats.
//!
//! Numbers are written in the shortest form that reads back to the same bits, booleans as 0 and 1, nulls
//! and NaN as empty cells.

use std::{
    fmt::Write,
    fs::File,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
};

use parquet::{
    basic::{Compression, ConvertedType, LogicalType, Type as Physical},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::DataType,
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    schema::types::Type,
};

use super::text::Text;
use crate::{
    data::file,
    host,
    spec::{Location, Problem},
};

/// Rows per part.
const PART_ROWS: usize = 1 << 13;

/// A file that is read part by part.
pub(super) struct ParquetRows {
    path: PathBuf,
    file: SerializedFileReader<File>,
    fields: Vec<Field>,
    /// The index of the next row group.
    group: usize,
    /// Rows of the current group that have not been read yet.
    left: usize,
    /// Readers of the current group's columns, by field; `None` for fields that are not read.
    readers: Vec<Option<ColumnReader>>,
    rows_before: usize,
    /// Whether the header line has been returned as text.
    has_begun: bool,
}

/// A top-level column of the schema.
struct Field {
    name: String,
    /// Its column index in a row group; `None` if it is not read.
    column: Option<usize>,
    is_nullable: bool,
    is_unsigned: bool,
}

/// The cells of a column in some rows.
#[derive(Default)]
struct Cells {
    text: String,
    ends: Vec<usize>,
}

/// Why cells cannot be read.
enum Fault {
    Damaged(String),
    /// The text in this row is not UTF-8.
    NotText(usize),
}

impl Fault {
    /// The problem for `column`, if the fault occurred after `rows_before` rows.
    fn problem(self, path: &Path, column: &str, rows_before: usize) -> Problem {
        match self {
            Self::Damaged(message) => damaged(path, &message),
            Self::NotText(row) => {
                let place = Location::Row { path: path.to_owned(), row: rows_before + row };
                let message = format!("the text in column `{}` is not UTF-8", file::printable(column));
                Problem::new(place, message)
            }
        }
    }
}

/// Turns a panic into a fault: the crate `parquet` panics on some damaged files.
fn guarded<T>(read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let caught = panic::catch_unwind(AssertUnwindSafe(read));
    caught.unwrap_or_else(|_| Err(Fault::Damaged("its parts contradict each other".to_owned())))
}

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Reads the wanted columns of the file that `key` names; all other cells are empty.
pub(super) fn read(
    path: &Path,
    key: &str,
    is_wanted: impl Fn(&str, Option<&str>) -> bool,
) -> Result<Text, Problem> {
    let (file, _) = file::open(path, key)?;
    let mut rows = ParquetRows::new(path, file, is_wanted)?;
    let mut body = rows.header()?;
    while let Some(part) = rows.next_lines()? {
        body.push_str(&part);
    }
    Ok(Text::from_rows(path, body, 0))
}

impl ParquetRows {
    /// Reads the schema. `is_wanted` is given a column's name and, if a table cannot have its type, that
    /// type.
    ///
    /// # Errors
    /// If a wanted column has a type that a table cannot have.
    pub(super) fn new(
        path: &Path,
        file: File,
        is_wanted: impl Fn(&str, Option<&str>) -> bool,
    ) -> Result<Self, Problem> {
        let file = guarded(|| Ok(SerializedFileReader::new(file)?));
        let file = file.map_err(|fault| fault.problem(path, "", 0))?;
        let schema = file.metadata().file_metadata().schema_descr();
        let roots: Vec<usize> =
            (0..schema.num_columns()).map(|column| schema.get_column_root_idx(column)).collect();
        let mut fields = Vec::new();
        for (place, field) in schema.root_schema().get_fields().iter().enumerate() {
            let mut column = roots.iter().position(|root| *root == place);
            let other = other_type(field);
            match other.as_deref() {
                other if !is_wanted(field.name().trim(), other) => column = None,
                Some(other) => return Err(refused(path, field.name(), other)),
                None => {}
            }
            let info = field.get_basic_info();
            fields.push(Field {
                name: field.name().to_owned(),
                column,
                is_nullable: field.is_optional(),
                is_unsigned: is_unsigned(info.logical_type_ref(), info.converted_type()),
            });
        }
        let rows = Self {
            path: path.to_owned(),
            file,
            fields,
            group: 0,
            left: 0,
            readers: Vec::new(),
            rows_before: 0,
            has_begun: false,
        };
        rows.check_compression()?;
        Ok(rows)
    }

    /// Refuses compression formats that would need a C library.
    fn check_compression(&self) -> Result<(), Problem> {
        let groups = self.file.metadata().row_groups();
        for (field, group) in self.fields.iter().flat_map(|field| groups.iter().map(move |g| (field, g))) {
            let Some(chunk) = field.column.and_then(|column| group.columns().get(column)) else { continue };
            let name = match chunk.compression() {
                Compression::ZSTD(_) => "zstd",
                Compression::BROTLI(_) => "brotli",
                Compression::LZO => "LZO",
                _ => continue,
            };
            let column = file::printable(&field.name);
            let message = format!("column `{column}` is compressed by {name}, which is not unpacked here");
            return Err(file::problem(&self.path, message)
                .hint("write the file anew with `compression=\"snappy\"`, or \"gzip\", \"lz4\" or none"));
        }
        Ok(())
    }

    /// The header line with the names.
    pub(super) fn header(&self) -> Result<String, Problem> {
        self.lines(1, |_, column| &self.fields[column].name)
    }

    /// The next rows as lines; `None` at the end.
    fn next_lines(&mut self) -> Result<Option<String>, Problem> {
        // No column is read. A wrong name has been reported already.
        if self.fields.iter().all(|field| field.column.is_none()) {
            return Ok(None);
        }
        host::check_interrupted().map_err(|error| file::unreadable(&self.path, &error))?;
        while self.left == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(None);
            }
            let opened = guarded(|| self.open_group());
            opened.map_err(|fault| fault.problem(&self.path, "", 0))?;
        }
        let count = self.left.min(PART_ROWS);
        let mut columns = Vec::with_capacity(self.fields.len());
        for (field, reader) in self.fields.iter().zip(&mut self.readers) {
            columns.push(match reader {
                None => Cells { text: String::new(), ends: vec![0; count] },
                Some(reader) => guarded(|| read_cells(reader, field, count))
                    .map_err(|fault| fault.problem(&self.path, &field.name, self.rows_before))?,
            });
        }
        let lines = self.lines(count, |row, column| columns[column].get(row))?;
        self.left -= count;
        self.rows_before += count;
        Ok(Some(lines))
    }

    fn open_group(&mut self) -> Result<(), Fault> {
        let group = self.file.get_row_group(self.group)?;
        let reader = |field: &Field| field.column.map(|column| group.get_column_reader(column)).transpose();
        self.readers = self.fields.iter().map(reader).collect::<Result<_, _>>()?;
        let rows = group.metadata().num_rows();
        // A run of as many nulls as a damaged number says takes no bytes, but minutes.
        let mut chunks =
            self.fields.iter().filter_map(|field| field.column).map(|column| group.metadata().column(column));
        if let Some(chunk) = chunks.find(|chunk| chunk.num_values() != rows) {
            let values = chunk.num_values();
            return Err(Fault::Damaged(format!("a group of {rows} rows has a column of {values} values")));
        }
        self.left = usize::try_from(rows).map_err(|_| Fault::Damaged(format!("a group of {rows} rows")))?;
        self.group += 1;
        Ok(())
    }

    /// The next rows as text; the first part begins with the header line, and may have no more. `None` at the end.
    pub(super) fn next_part(&mut self) -> Result<Option<Text>, Problem> {
        let before = self.rows_before;
        if self.has_begun {
            let lines = self.next_lines()?;
            return Ok(lines.map(|lines| Text::from_rows(&self.path, lines, before)));
        }
        self.has_begun = true;
        let text = self.header()? + &self.next_lines()?.unwrap_or_default();
        Ok(Some(Text::from_rows(&self.path, text, before)))
    }

    /// Formats cells as lines of a CSV file.
    fn lines<'a>(&self, rows: usize, cell: impl Fn(usize, usize) -> &'a str) -> Result<String, Problem> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut write = |row| -> csv::Result<()> {
            (0..self.fields.len()).try_for_each(|column| writer.write_field(cell(row, column)))?;
            writer.write_record(None::<&[u8]>)
        };
        let written = (0..rows).try_for_each(&mut write).map_err(|error| error.to_string());
        let bytes = written.and_then(|()| writer.into_inner().map_err(|error| error.to_string()));
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(|error| error.to_string()));
        text.map_err(|message| damaged(&self.path, &message))
    }
}

impl Cells {
    fn get(&self, row: usize) -> &str {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[row]]
    }
}

fn damaged(path: &Path, message: &str) -> Problem {
    file::problem(path, format!("cannot be read as a Parquet file: {message}"))
        .hint("the file is of another format, is damaged, or was cut while it was copied")
}

fn refused(path: &Path, name: &str, other: &str) -> Problem {
    let message = format!(
        "column `{}` is of the type {other}: expected numbers, text or truth values",
        file::printable(name)
    );
    file::problem(path, message).hint("leave it out with `data.csv.ignore`, or write it as numbers or text")
}

/// The name of a column's type if the cells of a table cannot have it.
fn other_type(field: &Type) -> Option<String> {
    use LogicalType::{Enum, Integer, Json, String as Utf8, Unknown};
    if !field.is_primitive() {
        let info = field.get_basic_info();
        let is_list = matches!(info.logical_type_ref(), Some(LogicalType::List))
            || info.converted_type() == ConvertedType::LIST;
        return Some(if is_list { "list" } else { "struct or map" }.to_owned());
    }
    let info = field.get_basic_info();
    let word = |debug: String| {
        Some(debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_lowercase())
    };
    match (info.logical_type_ref(), info.converted_type(), field.get_physical_type()) {
        _ if info.has_repetition() && info.repetition() == parquet::basic::Repetition::REPEATED => {
            Some("list".to_owned())
        }
        (_, _, Physical::INT96) => Some("timestamp".to_owned()),
        (Some(Utf8 | Enum | Json | Integer(_) | Unknown), ..) => None,
        (Some(other), ..) => word(format!("{other:?}")),
        (None, ConvertedType::DECIMAL, _) => Some("decimal".to_owned()),
        (None, ConvertedType::INTERVAL, _) => Some("interval".to_owned()),
        (None, other, _) if format!("{other:?}").starts_with(['D', 'T', 'B']) => word(format!("{other:?}")),
        (None, _, Physical::FIXED_LEN_BYTE_ARRAY) => Some("bytes of a fixed length".to_owned()),
        (None, ..) => None,
    }
}

fn is_unsigned(logical: Option<&LogicalType>, converted: ConvertedType) -> bool {
    use ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
    match logical {
        Some(LogicalType::Integer(kind)) => !kind.is_signed,
        _ => matches!(converted, UINT_8 | UINT_16 | UINT_32 | UINT_64),
    }
}

/// The next `count` cells of a column.
fn read_cells(reader: &mut ColumnReader, field: &Field, count: usize) -> Result<Cells, Fault> {
    let (nullable, unsigned) = (field.is_nullable, field.is_unsigned);
    match reader {
        ColumnReader::BoolColumnReader(reader) => {
            cells(reader, nullable, count, |text, value| write!(text, "{}", u8::from(*value)).is_ok())
        }
        ColumnReader::Int32ColumnReader(reader) if unsigned => {
            cells(reader, nullable, count, |text, value| write!(text, "{}", *value as u32).is_ok())
        }
        ColumnReader::Int32ColumnReader(reader) => {
            cells(reader, nullable, count, |text, value| write!(text, "{value}").is_ok())
        }
        ColumnReader::Int64ColumnReader(reader) if unsigned => {
            cells(reader, nullable, count, |text, value| write!(text, "{}", *value as u64).is_ok())
        }
        ColumnReader::Int64ColumnReader(reader) => {
            cells(reader, nullable, count, |text, value| write!(text, "{value}").is_ok())
        }
        ColumnReader::FloatColumnReader(reader) => {
            cells(reader, nullable, count, |text, value| value.is_nan() || write!(text, "{value:?}").is_ok())
        }
        ColumnReader::DoubleColumnReader(reader) => {
            cells(reader, nullable, count, |text, value| value.is_nan() || write!(text, "{value:?}").is_ok())
        }
        ColumnReader::ByteArrayColumnReader(reader) => cells(reader, nullable, count, |text, value| {
            std::str::from_utf8(value.data()).is_ok_and(|word| {
                text.push_str(word);
                true
            })
        }),
        ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
            Err(Fault::Damaged(format!("`{}` has another type than in its schema", field.name)))
        }
    }
}

/// Reads values and writes each with `put`, which returns false for a value that is not valid text.
fn cells<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    is_nullable: bool,
    count: usize,
    put: impl Fn(&mut String, &T::T) -> bool,
) -> Result<Cells, Fault> {
    let (mut levels, mut values, mut found) = (Vec::new(), Vec::new(), 0);
    let short = || Fault::Damaged("a column has fewer cells than there are rows".to_owned());
    while found < count {
        let levels = is_nullable.then_some(&mut levels);
        let (records, ..) = reader.read_records(count - found, levels, None, &mut values)?;
        if records == 0 {
            return Err(short());
        }
        found += records;
    }
    let (mut cells, mut values) = (Cells::default(), values.iter());
    for row in 0..count {
        if !is_nullable || levels.get(row).is_some_and(|level| *level > 0) {
            let value = values.next().ok_or_else(short)?;
            if !put(&mut cells.text, value) {
                return Err(Fault::NotText(row));
            }
        }
        cells.ends.push(cells.text.len());
    }
    Ok(cells)
}
