//! Tables as Parquet files: comparisons, and all rows of `metrics.csv`.

#[cfg(not(feature = "parquet"))]
mod absent;
#[cfg(feature = "parquet")]
mod file;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

#[cfg(not(feature = "parquet"))]
use self::absent::ParquetFile;
#[cfg(feature = "parquet")]
use self::file::ParquetFile;
use super::{
    ReportError,
    find::{find_one, run_folders},
    grid::Column,
    key::WORDS,
};
use crate::{
    files::csv_lines,
    host::{Durability, is_replaceable, open_regular, write_atomically},
};

/// Rows per group, which is held in memory.
const GROUP: usize = 1 << 16;

/// The type of a column's cells.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Truth,
    Whole,
    Number,
    Words,
}

/// The type that fits all non-empty cells.
fn kind(column: &Column) -> Kind {
    let all = |is: fn(&str) -> bool| column.cells.iter().all(|cell| cell.is_empty() || is(cell));
    let is_known = column.cells.iter().any(|cell| !cell.is_empty());
    match column {
        _ if WORDS.contains(&column.title.as_str()) => Kind::Words,
        _ if is_known && all(|cell| cell.parse::<bool>().is_ok()) => Kind::Truth,
        _ if is_known && all(|cell| cell.parse::<i64>().is_ok()) => Kind::Whole,
        _ if all(|cell| cell.parse::<f64>().is_ok()) => Kind::Number,
        _ => Kind::Words,
    }
}

/// A table as a Parquet file.
pub(super) fn table(columns: &[Column]) -> Result<Vec<u8>, ReportError> {
    let kinds: Vec<_> = columns.iter().map(|column| (column.title.clone(), kind(column))).collect();
    let mut bytes = Vec::new();
    let mut file = ParquetFile::new(&kinds, &mut bytes)?;
    file.write(columns.iter().map(|column| &column.cells))?;
    file.finish()?;
    Ok(bytes)
}

/// Writes all rows of a run's `metrics.csv`, or of those of a sweep's trials, whose folders are in a column
/// `path`.
///
/// # Errors
/// The path holds no run, a file cannot be read or written, or the program was built without Parquet.
pub fn write_metrics(path: &str, to: &Path) -> Result<(), ReportError> {
    let folders = run_folders(vec![find_one(path)?])?;
    let files: Vec<PathBuf> = folders.iter().map(|folder| folder.join("metrics.csv")).collect();
    let files: Vec<&PathBuf> = files.iter().filter(|file| file.exists()).collect();
    let mut columns = vec![("path".to_owned(), Kind::Words)];
    for file in &files {
        let (mut open, _) = open_regular(file).map_err(|e| ReportError::read(file, e))?;
        let (names, _) = csv_lines::Position::head(&mut open).map_err(|fault| fault.in_file(file))?;
        for name in names.iter().filter(|name| !name.is_empty()) {
            if columns.iter().all(|(known, _)| known != name) {
                let kind = match name {
                    "step" | "epoch" | "rows" => Kind::Whole,
                    "split" => Kind::Words,
                    _ => Kind::Number,
                };
                columns.push((name.to_owned(), kind));
            }
        }
    }
    // In a build without Parquet this fails, before the file is touched.
    ParquetFile::new(&columns, io::sink())?;
    if !is_replaceable(to, b"PAR1").map_err(|e| ReportError::write(to, e))? {
        let message = format!("`{}` is no Parquet file, and is not replaced", to.display());
        return Err(ReportError::query(message, Some("write to another file")));
    }
    // If the path is a link, it is kept and its target is replaced.
    let target = fs::canonicalize(to).unwrap_or_else(|_| to.to_owned());
    let written = write_atomically(&target, Durability::Process, |file| {
        let write = || {
            let mut out = ParquetFile::new(&columns, file)?;
            rows(&files, &columns, |cells| out.write(cells))?;
            out.finish()
        };
        write().map_err(|e: ReportError| io::Error::other(e))
    });
    written.map_err(|e| e.downcast::<ReportError>().unwrap_or_else(|e| ReportError::write(to, e)))
}

/// # Errors
/// The cell does not have that type.
fn check(kind: Kind, cell: &[u8], column: &str) -> Result<(), String> {
    let (is_it, what) = match kind {
        _ if cell.is_empty() => return Ok(()),
        Kind::Truth | Kind::Words => return Ok(()),
        Kind::Whole => (csv_lines::parsed::<i64>(cell).is_some(), "is not an integer"),
        Kind::Number => (csv_lines::parsed::<f64>(cell).is_some(), "is not a number"),
    };
    if is_it { Ok(()) } else { Err(csv_lines::wrong(cell, column, what)) }
}

/// Passes the rows of all files on, column by column, one group at a time.
fn rows(
    files: &[&PathBuf],
    columns: &[(String, Kind)],
    mut write: impl FnMut(&[Vec<String>]) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let mut cells: Vec<Vec<String>> = vec![Vec::new(); columns.len()];
    for file in files {
        let folder = file.parent().unwrap_or(file).display().to_string();
        let mut failed = Ok(());
        // The index of each column in this file.
        let header = |names: &csv::StringRecord| -> Result<Vec<Option<usize>>, String> {
            let place = |(wanted, _): &(String, Kind)| names.iter().position(|name| name == wanted);
            Ok(columns.iter().map(place).collect())
        };
        let take = |places: &Vec<Option<usize>>, row: &csv::ByteRecord| {
            cells[0].push(folder.clone());
            for (((name, kind), place), cells) in columns.iter().zip(places).zip(&mut cells).skip(1) {
                let cell = place.map_or(&b""[..], |place| &row[place]);
                check(*kind, cell, name)?;
                cells.push(String::from_utf8_lossy(cell).into_owned());
            }
            if cells[0].len() == GROUP {
                failed = write(&cells);
                cells.iter_mut().for_each(Vec::clear);
            }
            // On a write error, stop reading; `failed` is returned below.
            failed.as_ref().map_err(ToString::to_string).copied()
        };
        let scanned = csv_lines::scan(file, header, take);
        failed?;
        scanned?;
    }
    if cells[0].is_empty() { Ok(()) } else { write(&cells) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ends_at_a_wrong_cell_and_at_a_failed_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("metrics.csv");
        let columns = [("path", Kind::Words), ("step", Kind::Whole), ("loss", Kind::Number)];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind));
        fs::write(&file, "step,loss\n1,0.5\n2,\n3,x\n").unwrap();
        let error = rows(&[&file], &columns, |_| Ok(())).unwrap_err().to_string();
        assert!(error.ends_with("is malformed at line 4: `x` in column `loss` is not a number"), "{error}");

        fs::write(&file, "step,loss\n".to_owned() + &"1,0.5\n".repeat(2 * GROUP) + "torn").unwrap();
        let mut groups = 0;
        let full = |_: &[Vec<String>]| {
            groups += 1;
            Err(ReportError::Parquet("the disk is full".to_owned()))
        };
        let error = rows(&[&file], &columns, full).unwrap_err().to_string();
        assert_eq!((error.as_str(), groups), ("cannot write Parquet: the disk is full", 1));
    }

    /// A killed machine may leave a hole where the header was.
    #[test]
    fn a_header_of_any_length_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str| folder.path().join(name);
        fs::write(run("spec.toml"), "").unwrap();
        fs::File::create(run("metrics.csv")).unwrap().set_len(1 << 30).unwrap();
        let written = write_metrics(folder.path().to_str().unwrap(), &run("metrics.parquet"));
        let error = written.unwrap_err().to_string();
        assert!(error.ends_with("is malformed at line 1: it is longer than 16 MiB"), "{error}");
    }
}
