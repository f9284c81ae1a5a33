//! CSV files as `record` leaves them, be it by a process that was killed: whole lines, and perhaps a torn last one.

use std::{fs, path::Path};

use csv::{ErrorKind, StringRecord};

use super::ReportError;

/// A file's whole lines.
pub(super) struct CsvFile {
    /// The columns' names.
    pub(super) columns: StringRecord,
    /// The lines below.
    pub(super) rows: Vec<StringRecord>,
}

/// Reads a small file whole. A torn last line is left out: what it would have said is not known.
pub(super) fn read(path: &Path) -> Result<CsvFile, ReportError> {
    let mut rows = Vec::new();
    let (columns, _) = for_each_row(path, |_, row| {
        rows.push(row.clone());
        Ok(())
    })?;
    Ok(CsvFile { columns, rows })
}

/// Hands every whole line below the header to `take`, with the columns' names; returns those, and whether a torn line
/// was left out. `take` tells what is wrong with a line, if anything.
pub(super) fn for_each_row(
    path: &Path,
    mut take: impl FnMut(&StringRecord, &StringRecord) -> Result<(), String>,
) -> Result<(StringRecord, bool), ReportError> {
    let bytes = fs::read(path).map_err(|e| ReportError::read(path, e))?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let mut reader = csv::Reader::from_reader(&bytes[..whole]);
    let columns = reader.headers().map_err(|e| malformed(path, &e))?.clone();
    let mut row = StringRecord::new();
    while reader.read_record(&mut row).map_err(|e| malformed(path, &e))? {
        let line = row.position().map_or(0, csv::Position::line);
        take(&columns, &row).map_err(|message| ReportError::malformed(path, line, message))?;
    }
    Ok((columns, whole < bytes.len()))
}

fn malformed(path: &Path, error: &csv::Error) -> ReportError {
    let line = error.position().map_or(0, csv::Position::line);
    let message = match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("expected {expected_len} cells, got {len}")
        }
        ErrorKind::Utf8 { .. } => "expected UTF-8 text".to_owned(),
        _ => error.to_string(),
    };
    ReportError::malformed(path, line, message)
}
