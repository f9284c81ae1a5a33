//! CSV files that fit in memory, as `record` writes them: complete lines, and a torn last line if the process was killed.

use std::{io::Read, path::Path};

use csv::{ErrorKind, StringRecord};

use super::ReportError;
use crate::host::open_regular;

/// A file's complete lines.
pub(super) struct CsvFile {
    /// The columns' names.
    pub(super) columns: StringRecord,
    /// The lines below.
    pub(super) rows: Vec<StringRecord>,
}

/// Reads a file to memory, without a torn last line.
pub(super) fn read(path: &Path) -> Result<CsvFile, ReportError> {
    let mut text = String::new();
    let read = open_regular(path).and_then(|(mut file, _)| file.read_to_string(&mut text));
    read.map_err(|e| ReportError::read(path, e))?;
    let whole = &text[..text.rfind('\n').map_or(0, |newline| newline + 1)];
    if let Some(file) = read_plain(whole) {
        return Ok(file);
    }
    let mut reader = csv::Reader::from_reader(whole.as_bytes());
    let columns = reader.headers().map_err(|e| malformed(path, &e))?.clone();
    let rows: Result<_, _> = reader.into_records().collect();
    Ok(CsvFile { columns, rows: rows.map_err(|e| malformed(path, &e))? })
}

/// A file without quotes, whose lines are equally long; to make a parser takes longer than to read the summary of a run.
fn read_plain(whole: &str) -> Option<CsvFile> {
    let lines = whole.lines().filter(|line| !line.is_empty());
    let mut rows: Vec<StringRecord> = lines.map(|line| line.split(',').collect()).collect();
    let is_plain = !whole.contains(['"', '\r']) && rows.windows(2).all(|two| two[0].len() == two[1].len());
    let columns = rows.drain(..1.min(rows.len())).next()?;
    is_plain.then_some(CsvFile { columns, rows })
}

/// The indices of these columns.
pub(super) fn find_columns<const N: usize>(
    columns: &StringRecord,
    names: [&str; N],
) -> Result<[usize; N], String> {
    let mut places = [0; N];
    for (place, name) in places.iter_mut().zip(names) {
        let found = columns.iter().position(|column| column == name);
        *place = found.ok_or_else(|| format!("there is no column `{name}`"))?;
    }
    Ok(places)
}

fn malformed(path: &Path, error: &csv::Error) -> ReportError {
    let line = error.position().map_or(0, csv::Position::line);
    let message = match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("expected {expected_len} cells, got {len}")
        }
        _ => error.to_string(),
    };
    ReportError::malformed(path, line, message)
}
