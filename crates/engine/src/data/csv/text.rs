//! The text of a CSV file and the locations of its cells.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;

use super::foreign;
use crate::{
    data::file,
    host::Interruptible,
    spec::{Location, Problem},
};

/// A file's text, without its byte order mark.
pub(super) struct Text {
    pub(super) path: PathBuf,
    body: String,
    delimiter: u8,
    /// Lines of the file before this text.
    lines_before: u64,
    /// Rows of the file before this text; `None` unless the file has no lines (Parquet).
    rows_before: Option<usize>,
}

/// The first line of a file in which it names the separator.
fn excel_line(body: &str) -> Option<&str> {
    let line = body.lines().next()?;
    (line.len() == "sep=,".len() && line.starts_with("sep=")).then_some(line)
}

/// Maximum problems reported per file: each needs its line counted from the start of the file.
pub(super) const MAX_PROBLEMS: usize = 20;

/// Lines longer than this are not shown.
const LONGEST_SHOWN: usize = 2000;

/// The problem of a quoted cell that is still open at the end of the file.
pub(super) fn unclosed(place: Location) -> Problem {
    Problem::new(place, "a quoted cell is never closed")
        .hint("close it with `\"`; within quotes a quote is written `\"\"`")
}

impl Text {
    /// Reads the file that `key` names, gzipped or not.
    pub(super) fn read(path: &Path, key: &str, delimiter: char) -> Result<Self, Problem> {
        let mut bytes = file::read(path, key)?;
        if bytes.starts_with(&file::GZIP) {
            let mut unpacked = Vec::new();
            Interruptible::new(MultiGzDecoder::new(&bytes[..]))
                .read_to_end(&mut unpacked)
                .map_err(|error| file::unreadable(path, &error))?;
            bytes = unpacked;
        }
        Self::from_part(path, bytes, delimiter, 0)
    }

    /// A part of a file, which begins after `lines_before` lines.
    pub(super) fn from_part(
        path: &Path,
        bytes: Vec<u8>,
        delimiter: char,
        lines_before: u64,
    ) -> Result<Self, Problem> {
        if let Some(problem) = foreign::refusal(path, &bytes).filter(|_| lines_before == 0) {
            return Err(problem);
        }
        let body = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let byte = error.as_bytes()[valid.len()];
            let line_start = valid.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
            let place = Location::File {
                path: path.into(),
                line: Some(lines_before + line_number(valid)),
                column: Some(String::from_utf8_lossy(&valid[line_start..]).chars().count() as u64 + 1),
                text: None,
            };
            Problem::new(place, format!("not UTF-8: byte `{byte:02x}`")).hint("save the file as UTF-8")
        })?;
        let body = match body.strip_prefix('\u{feff}') {
            Some(rest) if lines_before == 0 => rest.to_owned(),
            _ => body,
        };
        // Lines that end as they did on a Macintosh: so that they are counted as others are.
        let body = if body.contains('\n') { body } else { body.replace('\r', "\n") };
        if let Some(line) = excel_line(&body).filter(|_| lines_before == 0) {
            let place = Location::File {
                path: path.into(),
                line: Some(1),
                column: None,
                text: Some(line.to_owned()),
            };
            let message = format!("`{line}` names the separator for Excel, and no columns");
            return Err(Problem::new(place, message).hint("remove this line"));
        }
        // The spec allows only an ASCII separator, so the cast is exact.
        Ok(Self { path: path.into(), body, delimiter: delimiter as u8, lines_before, rows_before: None })
    }

    /// Rows of a file without lines (Parquet), after `rows_before` others. The first part begins with a line
    /// of names.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(super) fn from_rows(path: &Path, body: String, rows_before: usize) -> Self {
        let rows_before = Some(rows_before);
        Self { path: path.into(), body, delimiter: b',', lines_before: 0, rows_before }
    }

    /// How many lines at its begin look like comments.
    pub(super) fn marked_lines(&self) -> usize {
        self.body.lines().take_while(|line| line.starts_with('#')).count()
    }

    /// The same file without its contents.
    pub(super) fn without_body(&self) -> Self {
        Self { path: self.path.clone(), body: String::new(), ..*self }
    }

    /// The same text, read with another separator.
    pub(super) fn separated_by(self, delimiter: char) -> Self {
        Self { delimiter: delimiter as u8, ..self }
    }

    /// A reader that starts at the first line; records may have different numbers of cells.
    pub(super) fn reader(&self) -> csv::Reader<Interruptible<&[u8]>> {
        self.reader_from(0)
    }

    fn reader_from(&self, byte: usize) -> csv::Reader<Interruptible<&[u8]>> {
        csv::ReaderBuilder::new()
            .delimiter(self.delimiter)
            .has_headers(false)
            .flexible(true)
            .from_reader(Interruptible::new(self.body.as_bytes().get(byte..).unwrap_or_default()))
    }

    /// Cell `column` of the record at byte `record`, as the file has it; `None` without a body.
    pub(super) fn written(&self, record: usize, column: usize) -> Option<String> {
        let mut cells = csv::StringRecord::new();
        let found = self.reader_from(record).read_record(&mut cells).unwrap_or(false);
        cells.get(column).filter(|_| found).map(|cell| cell.trim().to_owned())
    }

    /// The cells of the first record, trimmed; `None` if the file is empty.
    pub(super) fn first_record(&self) -> Option<Vec<String>> {
        let mut record = csv::StringRecord::new();
        let found = self.reader().read_record(&mut record).unwrap_or(false);
        found.then(|| record.iter().map(|cell| cell.trim().to_owned()).collect())
    }

    /// The first cell of each of these columns that fits, trimmed, and the byte of its record, from one pass over the records after
    /// `skipped` ones; `fits` gets the place among `columns`.
    pub(super) fn first_cells(
        &self,
        columns: &[usize],
        skipped: usize,
        fits: impl Fn(usize, &str) -> bool,
    ) -> Vec<Option<(String, usize)>> {
        let mut found = vec![None; columns.len()];
        let mut open: Vec<usize> = (0..columns.len()).collect();
        for record in self.reader().into_records().map_while(Result::ok).skip(skipped) {
            if open.is_empty() {
                break;
            }
            let start = record.position().map_or(0, |position| position.byte()) as usize;
            open.retain(|&place| {
                let cell = record.get(columns[place]).map(str::trim).filter(|cell| fits(place, cell));
                found[place] = cell.map(|cell| (cell.to_owned(), start));
                cell.is_none()
            });
        }
        found
    }

    /// Whether the last line lacks a line end.
    pub(super) fn is_cut(&self) -> bool {
        !self.body.ends_with(['\n', '\r'])
    }

    /// The number of line ends in the text.
    pub(super) fn lines(&self) -> u64 {
        line_number(self.body.as_bytes()) - 1
    }

    /// The separator of cells.
    pub(super) fn delimiter(&self) -> char {
        self.delimiter.into()
    }

    /// The location of cell `column` of the record at byte `record`.
    pub(super) fn cell(&self, record: usize, column: usize) -> Location {
        let mut scan = Scan::at(self, record);
        while scan.column < column && scan.next_cell() {}
        self.place(scan.byte)
    }

    /// The location of an unclosed quoted cell in the record at byte `record`.
    pub(super) fn unclosed_quote(&self, record: usize) -> Option<Location> {
        let mut scan = Scan::at(self, record);
        loop {
            let start = scan.byte;
            if !scan.next_cell() {
                return scan.unclosed.then(|| self.place(start));
            }
        }
    }

    /// The line of the record at byte `record`.
    pub(super) fn line(&self, record: usize) -> Location {
        match self.place(Scan::at(self, record).byte) {
            Location::File { path, line, text, .. } => Location::File { path, line, column: None, text },
            other => other,
        }
    }

    /// Whether the text comes from a Parquet file.
    pub(super) fn is_parquet(&self) -> bool {
        self.rows_before.is_some()
    }

    fn place(&self, byte: usize) -> Location {
        if let Some(before) = self.rows_before {
            let starts = self.reader().into_records().map_while(Result::ok);
            let starts = starts.filter_map(|record| record.position().map(|at| at.byte() as usize));
            let records = starts.take_while(|start| *start <= byte).count();
            // In the first part the names are a record as well.
            let names = usize::from(before == 0) + 1;
            return match records.checked_sub(names) {
                Some(row) => Location::Row { path: self.path.clone(), row: before + row },
                None => file::place(&self.path),
            };
        }
        let before = &self.body[..byte.min(self.body.len())];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.body[start..].split(['\n', '\r']).next().unwrap_or_default();
        Location::File {
            path: self.path.clone(),
            line: Some(self.lines_before + line_number(before.as_bytes())),
            column: Some(before[start..].chars().count() as u64 + 1),
            text: (line.len() <= LONGEST_SHOWN).then(|| line.to_owned()),
        }
    }
}

fn line_number(before: &[u8]) -> u64 {
    before.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1
}

/// Scans the cells of one record as written, with quotes, to find their locations; a parsed record has none.
struct Scan<'a> {
    bytes: &'a [u8],
    delimiter: u8,
    /// Start of the next cell.
    byte: usize,
    column: usize,
    /// Whether the last scanned cell was quoted and reached the end of the file.
    unclosed: bool,
}

impl<'a> Scan<'a> {
    /// The given position may be that of line ends before the record, which the parser skips.
    fn at(text: &'a Text, record: usize) -> Self {
        let bytes = text.body.as_bytes();
        let skipped =
            bytes[record.min(bytes.len())..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
        let byte = record.min(bytes.len()) + skipped;
        Self { bytes, delimiter: text.delimiter, byte, column: 0, unclosed: false }
    }

    /// Goes to the start of the next cell; false at the end of the record.
    fn next_cell(&mut self) -> bool {
        let mut at = self.byte;
        if self.bytes.get(at) == Some(&b'"') {
            at += 1;
            loop {
                match (self.bytes.get(at), self.bytes.get(at + 1)) {
                    (None, _) => {
                        self.unclosed = true;
                        return false;
                    }
                    (Some(b'"'), Some(b'"')) => at += 2,
                    (Some(b'"'), _) => break,
                    _ => at += 1,
                }
            }
            at += 1;
        }
        while let Some(&byte) = self.bytes.get(at) {
            if byte == self.delimiter {
                self.byte = at + 1;
                self.column += 1;
                return true;
            }
            if byte == b'\n' || byte == b'\r' {
                return false;
            }
            at += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &str) -> Text {
        Text { path: "x.csv".into(), body: body.into(), delimiter: b',', lines_before: 0, rows_before: None }
    }

    /// Every cell of every record with its line, column and written form.
    fn cells(body: &str) -> Vec<(String, u64, u64)> {
        let text = text(body);
        let mut reader = text.reader();
        let mut record = csv::StringRecord::new();
        let mut cells = Vec::new();
        while reader.read_record(&mut record).expect("a record") {
            let start = record.position().expect("a position").byte() as usize;
            for (column, cell) in record.iter().enumerate() {
                let Location::File { line: Some(line), column: Some(column), .. } = text.cell(start, column)
                else {
                    panic!("no place");
                };
                cells.push((cell.to_owned(), line, column));
            }
        }
        cells
    }

    #[test]
    fn finds_cells() {
        let expected = |cells: &[(&str, u64, u64)]| -> Vec<(String, u64, u64)> {
            cells.iter().map(|&(cell, line, column)| (cell.to_owned(), line, column)).collect()
        };
        assert_eq!(
            cells("a,b\n1,\"x,\"\"y\"\nü,é\n"),
            expected(&[("a", 1, 1), ("b", 1, 3), ("1", 2, 1), ("x,\"y", 2, 3), ("ü", 3, 1), ("é", 3, 3)])
        );
        assert_eq!(
            cells("a,b\r\n\r\n1,2\r\n"),
            expected(&[("a", 1, 1), ("b", 1, 3), ("1", 3, 1), ("2", 3, 3)])
        );
        assert_eq!(
            cells("\"a\nb\",c\n1,2"),
            expected(&[("a\nb", 1, 1), ("c", 2, 4), ("1", 3, 1), ("2", 3, 3)])
        );
    }

    #[test]
    fn finds_a_quote_that_nothing_closes() {
        let text = text("a,b\n1,\"2\n3,4\n");
        let place = Location::File {
            path: "x.csv".into(),
            line: Some(2),
            column: Some(3),
            text: Some("1,\"2".into()),
        };
        assert_eq!(text.unclosed_quote(4), Some(place));
        assert_eq!(text.unclosed_quote(0), None);
    }
}
