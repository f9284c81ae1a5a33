//! Small CSV files as written by `record`: complete lines, with an incomplete last line if the process was
//! killed.

use std::{
    io::{self, Read},
    path::Path,
};

use csv::{ErrorKind, StringRecord};

use super::{ReportError, texts::Texts};
use crate::{host::open_regular, units};

/// Maximum bytes; a larger file is refused.
const LARGEST: u64 = 1 << 30;

/// A file's complete lines.
pub(super) struct CsvFile {
    /// The columns' names.
    pub(super) columns: StringRecord,
    /// The lines below the header.
    pub(super) rows: Vec<Texts>,
}

/// Reads a file into memory, without an incomplete last line.
pub(super) fn read(path: &Path) -> Result<CsvFile, ReportError> {
    let mut text = String::new();
    let read = open_regular(path).and_then(|(file, length)| match length {
        ..=LARGEST => {
            // With some extra room the end of the file is found without reallocating.
            text.reserve(length as usize + 64);
            file.take(LARGEST).read_to_string(&mut text)
        }
        _ => Err(io::Error::other(format!("it is larger than {}", units::bytes(LARGEST)))),
    });
    read.map_err(|e| ReportError::read(path, e))?;
    let whole = &text[..text.rfind('\n').map_or(0, |newline| newline + 1)];
    let mut reader = csv::Reader::from_reader(whole.as_bytes());
    let columns = reader.headers().map_err(|e| malformed(path, &e))?.clone();
    let mut rows = Vec::new();
    for row in reader.records() {
        rows.push(row.map_err(|e| malformed(path, &e))?.iter().collect());
    }
    Ok(CsvFile { columns, rows })
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
