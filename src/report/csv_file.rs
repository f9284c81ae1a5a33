//! CSV files as `record` writes them: complete lines, and a torn last line if the process was killed.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use csv::{ErrorKind, StringRecord};

use super::ReportError;
use crate::host::{open_regular, read_text};

/// A file's complete lines.
pub(super) struct CsvFile {
    /// The columns' names.
    pub(super) columns: StringRecord,
    /// The lines below.
    pub(super) rows: Vec<StringRecord>,
}

/// Reads a small file to memory, without a torn last line.
pub(super) fn read(path: &Path) -> Result<CsvFile, ReportError> {
    if let Some(file) = read_plain(path) {
        return Ok(file);
    }
    let mut rows = Vec::new();
    let (columns, _) = scan(
        path,
        |_| Ok(()),
        |_, row| {
            rows.push(row.clone());
            Ok(())
        },
    )?;
    Ok(CsvFile { columns, rows })
}

/// A file without quotes, whose lines are equally long; to make a parser takes longer than to read the summary of a run.
fn read_plain(path: &Path) -> Option<CsvFile> {
    let text = read_text(path).ok()?;
    let whole = &text[..=text.rfind('\n')?];
    let lines = whole.lines().filter(|line| !line.is_empty());
    let mut rows: Vec<StringRecord> = lines.map(|line| line.split(',').collect()).collect();
    let is_plain = !whole.contains(['"', '\r']) && rows.windows(2).all(|two| two[0].len() == two[1].len());
    let columns = rows.drain(..1.min(rows.len())).next()?;
    is_plain.then_some(CsvFile { columns, rows })
}

/// Calls `take` with some cells of every complete line below the header; returns whether a torn line was left out. `take`
/// returns what is wrong with a line, if anything.
pub(super) fn for_each_row<const N: usize>(
    path: &Path,
    names: [&str; N],
    mut take: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<bool, ReportError> {
    let places = Cell::new([0; N]);
    let find = |columns: &StringRecord| {
        // A run that was killed at its start may have left an empty file.
        if !columns.is_empty() {
            places.set(find_columns(columns, names)?);
        }
        Ok(())
    };
    let (_, torn) =
        scan(path, find, |_, row| take(places.get().map(|place| row.get(place).unwrap_or_default())))?;
    Ok(torn)
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

/// Goes through the header and the complete lines, each with the columns' names; returns these, and whether a torn line was
/// left out.
pub(super) fn scan(
    path: &Path,
    header: impl FnOnce(&StringRecord) -> Result<(), String>,
    mut take: impl FnMut(&StringRecord, &StringRecord) -> Result<(), String>,
) -> Result<(StringRecord, bool), ReportError> {
    let unreadable = |e| ReportError::read(path, e);
    let mut file = open_regular(path).map_err(unreadable)?.0;
    let (whole, all) = whole_lines(&mut file).map_err(unreadable)?;
    let mut reader = csv::Reader::from_reader(file.take(whole));
    let columns = reader.headers().map_err(|e| malformed(path, &e))?.clone();
    header(&columns).map_err(|message| ReportError::malformed(path, 1, message))?;
    let mut row = StringRecord::new();
    while reader.read_record(&mut row).map_err(|e| malformed(path, &e))? {
        let line = row.position().map_or(0, csv::Position::line);
        take(&columns, &row).map_err(|message| ReportError::malformed(path, line, message))?;
    }
    Ok((columns, whole < all))
}

/// Bytes up to the end of the last complete line, and of the file; rewinds the file.
fn whole_lines(file: &mut File) -> io::Result<(u64, u64)> {
    const BLOCK: u64 = 4096;
    let all = file.seek(SeekFrom::End(0))?;
    let (mut end, mut whole) = (all, 0);
    let mut block = Vec::new();
    while end > 0 && whole == 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        Read::by_ref(file).take(end - start).read_to_end(&mut block)?;
        whole = block.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| start + at as u64 + 1);
        end = start;
    }
    file.rewind()?;
    Ok((whole, all))
}

fn malformed(path: &Path, error: &csv::Error) -> ReportError {
    if let ErrorKind::Io(source) = error.kind() {
        return ReportError::read(path, io::Error::from(source.kind()));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_left_out_however_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let long = "x".repeat(10_000);
        for (text, rows, torn) in [
            ("a,b\n1,2\n".to_owned(), 1, false),
            (format!("a,b\n1,2\n3,{long}"), 1, true),
            (format!("a,b\n1,{long}\n3,4\n"), 2, false),
        ] {
            std::fs::write(&path, text).unwrap();
            let mut count = 0;
            let take = |_: [&str; 1]| {
                count += 1;
                Ok(())
            };
            assert_eq!(for_each_row(&path, ["a"], take).unwrap(), torn);
            assert_eq!(count, rows);
        }
    }
}
