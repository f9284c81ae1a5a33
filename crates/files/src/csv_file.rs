//! Small CSV files as written by `record`: complete lines, with an incomplete last line if the process was
//! killed.

use std::{path::Path, str};

use csv::StringRecord;

use crate::{FileError, csv_lines, texts::Texts};

/// A file's complete lines.
pub struct CsvFile {
    /// The columns' names.
    pub columns: StringRecord,
    /// The lines below the header.
    pub rows: Vec<Texts>,
}

/// Reads a file into memory, without an incomplete last line.
pub fn read(path: &Path) -> Result<CsvFile, FileError> {
    let (mut columns, mut rows) = (StringRecord::new(), Vec::new());
    let header = |names: &StringRecord| {
        columns.clone_from(names);
        Ok(())
    };
    csv_lines::scan(path, header, |(), cells| {
        let row: Result<Texts, _> = cells.iter().map(str::from_utf8).collect();
        rows.push(row.map_err(|_| "expected UTF-8 text")?);
        Ok(())
    })?;
    Ok(CsvFile { columns, rows })
}
