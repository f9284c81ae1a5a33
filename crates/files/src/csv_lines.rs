//! Reads the complete lines of a CSV file of any length, block by block; the file may still be growing.

use std::{
    cell::Cell,
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom},
    path::Path,
    str::{self, FromStr},
};

use csv::{ByteRecord, Reader, ReaderBuilder, StringRecord};

use crate::{FileError, host::open_regular, units};

/// Takes the cells of a line; returns a message if it is malformed.
pub type Take<'a> = dyn FnMut(&ByteRecord) -> Result<(), String> + 'a;

/// Bytes read at a time.
pub const BLOCK: usize = 1 << 20;

/// A longer line means damage: a hole in the file, or binary data.
const LONGEST: usize = 16 << 20;

thread_local! {
    /// Kept from text to text: to make one takes longer than to read a short text.
    static READER: Cell<Option<Reader<Cursor<Vec<u8>>>>> = const { Cell::new(None) };
}

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Number of bytes remembered at the end of reading, to check later that the file is still the same.
const TAIL_BYTES: usize = 64;

/// Why a line or the file cannot be read.
#[derive(Debug)]
pub enum Fault {
    Read(io::Error),
    Line(u64, String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl Fault {
    pub fn in_file(self, path: &Path) -> FileError {
        match self {
            Self::Read(source) => FileError::read(path, source),
            Self::Line(line, message) => FileError::malformed(path, line, message),
        }
    }

    /// The same fault, with line numbers counted from `lines` lines further up.
    pub fn after(self, lines: u64) -> Self {
        match self {
            Self::Line(line, message) => Self::Line(line + lines, message),
            read @ Self::Read(_) => read,
        }
    }
}

/// The position up to which a file was read.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// Number of bytes in complete lines.
    pub end: u64,
    before_end: Vec<u8>,
    pub lines: u64,
}

impl Position {
    /// Reads the column names from the first line that is not empty. A run killed at its start may have left
    /// none.
    pub fn head(file: &mut File) -> Result<(StringRecord, Self), Fault> {
        let (mut position, mut columns) = (Self::default(), StringRecord::new());
        let (mut file, mut line) = (BufReader::new(file), Vec::new());
        while columns.is_empty() {
            line.clear();
            Read::by_ref(&mut file).take(LONGEST as u64 + 1).read_until(b'\n', &mut line)?;
            position.check_length(&line)?;
            if line.pop() != Some(b'\n') {
                break;
            }
            let text = line.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(&line);
            take_lines(text, &mut position.lines, 0, &mut |cells| {
                columns = StringRecord::from_byte_record_lossy(cells.clone());
                Ok(())
            })?;
            let newline = line.len();
            line.push(b'\n');
            position.go_behind(&line, newline);
        }
        Ok((columns, position))
    }

    /// Checks that the beginning of an incomplete line is not too long.
    fn check_length(&self, line: &[u8]) -> Result<(), Fault> {
        if line.len() <= LONGEST {
            return Ok(());
        }
        Err(Fault::Line(self.lines + 1, format!("it is longer than {}", units::bytes(LONGEST as u64))))
    }

    /// Takes the cells of the complete lines from here up to `until` that contain a word.
    pub fn read(
        &mut self,
        file: &mut File,
        until: u64,
        [block, width]: [usize; 2],
        word: &str,
        take: &mut Take<'_>,
    ) -> Result<(), Fault> {
        file.seek(SeekFrom::Start(self.end))?;
        let mut text = Vec::new();
        let mut left = until.saturating_sub(self.end);
        while left > 0 && width > 0 {
            let length = Read::by_ref(file).take(left.min(block as u64)).read_to_end(&mut text)? as u64;
            if length == 0 {
                break;
            }
            left -= length;
            // At the end of the file, a quote that does not close is damage, which the reader of cells finds.
            let newline = match left {
                0 => memchr::memrchr(b'\n', &text),
                _ => last_line_end(&text),
            };
            if let Some(newline) = newline {
                take_lines_with(word, &text[..newline], &mut self.lines, width, take)?;
                self.go_behind(&text, newline);
                text.drain(..=newline);
            }
            self.check_length(&text)?;
        }
        Ok(())
    }

    fn go_behind(&mut self, text: &[u8], newline: usize) {
        self.end += newline as u64 + 1;
        text[newline.saturating_sub(TAIL_BYTES)..=newline].clone_into(&mut self.before_end);
    }

    /// Whether the file still contains what was read last, at the same position.
    pub fn is_in(&self, file: &mut File, length: u64) -> io::Result<bool> {
        if length < self.end || self.end == 0 {
            return Ok(false);
        }
        let mut known = vec![0; self.before_end.len()];
        file.seek(SeekFrom::Start(self.end - known.len() as u64))?;
        file.read_exact(&mut known)?;
        Ok(known == self.before_end)
    }
}

/// Takes the rows of complete lines, without the last newline. Each must have `width` cells; 0 allows any number.
fn take_lines(text: &[u8], lines: &mut u64, width: usize, take: &mut Take<'_>) -> Result<(), Fault> {
    let new = || ReaderBuilder::new().has_headers(false).flexible(true).from_reader(Cursor::default());
    let mut reader = READER.take().unwrap_or_else(new);
    text.clone_into(reader.get_mut().get_mut());
    reader.seek_raw(SeekFrom::Start(0), csv::Position::new()).map_err(io::Error::from)?;
    let mut row = ByteRecord::new();
    while reader.read_byte_record(&mut row).map_err(io::Error::from)? {
        let taken = match row.len() {
            count if width > 0 && count != width => Err(format!("expected {width} cells, got {count}")),
            _ => take(&row),
        };
        taken.map_err(|message| {
            // Empty lines before the row have no cells.
            let begin = row.position().map_or(0, |position| position.byte() as usize);
            let empty = text[begin..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
            Fault::Line(*lines + newlines(&text[..begin + empty]) + 1, message)
        })?;
    }
    *lines += newlines(text) + 1;
    if text.len() <= BLOCK {
        READER.set(Some(reader));
    }
    Ok(())
}

/// Takes the rows of lines that contain a word, none of whose cells has a newline: the others need not be split into cells.
fn take_lines_with(
    word: &str,
    text: &[u8],
    lines: &mut u64,
    width: usize,
    take: &mut Take<'_>,
) -> Result<(), Fault> {
    if word.is_empty() {
        return take_lines(text, lines, width, take);
    }
    let (mut from, mut line) = (0, *lines);
    while let Some(at) = memchr::memmem::find(&text[from..], word.as_bytes()).map(|at| from + at) {
        let begin = memchr::memrchr(b'\n', &text[from..at]).map_or(from, |newline| from + newline + 1);
        let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |newline| at + newline);
        line += newlines(&text[from..begin]);
        take_lines(&text[begin..end], &mut line, width, take)?;
        from = text.len().min(end + 1);
    }
    *lines += newlines(text) + 1;
    Ok(())
}

fn newlines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

/// The last newline that is not within a quoted cell, of a text that begins with a line.
fn last_line_end(text: &[u8]) -> Option<usize> {
    let quotes = |text: &[u8]| memchr::memchr_iter(b'"', text).count();
    let (mut before, mut end) = (quotes(text), text.len());
    memchr::memrchr_iter(b'\n', text).find(|&newline| {
        before -= quotes(&text[newline..end]);
        end = newline;
        before.is_multiple_of(2)
    })
}

/// The indices of these columns.
pub fn find_columns<const N: usize>(columns: &StringRecord, names: [&str; N]) -> Result<[usize; N], String> {
    let mut places = [0; N];
    for (place, name) in places.iter_mut().zip(names) {
        let found = columns.iter().position(|column| column == name);
        *place = found.ok_or_else(|| format!("there is no column `{name}`"))?;
    }
    Ok(places)
}

/// Reads all complete lines below the header. `header` creates what `take` needs; the result tells whether an
/// incomplete last line was ignored. Both callbacks return a message if a line is malformed.
pub fn scan<T>(
    path: &Path,
    header: impl FnOnce(&StringRecord) -> Result<T, String>,
    take: impl FnMut(&T, &ByteRecord) -> Result<(), String>,
) -> Result<bool, FileError> {
    scan_with("", path, header, take)
}

/// The same for the lines that contain a word, in a file none of whose cells has a newline.
pub fn scan_with<T>(
    word: &str,
    path: &Path,
    header: impl FnOnce(&StringRecord) -> Result<T, String>,
    mut take: impl FnMut(&T, &ByteRecord) -> Result<(), String>,
) -> Result<bool, FileError> {
    let scan = || -> Result<bool, Fault> {
        let (mut file, length) = open_regular(path)?;
        let (columns, mut position) = Position::head(&mut file)?;
        if !columns.is_empty() {
            let known = header(&columns).map_err(|message| Fault::Line(position.lines, message))?;
            let sizes = [BLOCK, columns.len()];
            position.read(&mut file, length, sizes, word, &mut |cells| take(&known, cells))?;
        }
        Ok(position.end < length)
    };
    scan().map_err(|fault| fault.in_file(path))
}

/// Calls `take` with some cells of every complete line below the header; returns whether an incomplete last
/// line was ignored. `take` returns a message if a line is malformed.
pub fn for_each_row<const N: usize>(
    path: &Path,
    names: [&str; N],
    mut take: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<bool, FileError> {
    for_each_row_and(path, names, "", |cells, _| take(cells))
}

/// The same with the cell of one more column; empty in the files of earlier builds, which lack it.
pub fn for_each_row_and<const N: usize>(
    path: &Path,
    names: [&str; N],
    newer: &str,
    mut take: impl FnMut([&str; N], &str) -> Result<(), String>,
) -> Result<bool, FileError> {
    scan(
        path,
        |columns| Ok((find_columns(columns, names)?, columns.iter().position(|column| column == newer))),
        |(places, newer), cells| {
            let mut found = [""; N];
            for (found, &place) in found.iter_mut().zip(places) {
                *found = text(&cells[place])?;
            }
            take(found, newer.map_or(Ok(""), |place| text(&cells[place]))?)
        },
    )
}

fn text(cell: &[u8]) -> Result<&str, &'static str> {
    str::from_utf8(cell).map_err(|_| "expected UTF-8 text")
}

/// The message about a malformed cell.
pub fn wrong(cell: &[u8], column: &str, what: &str) -> String {
    format!("`{}` in column `{column}` {what}", String::from_utf8_lossy(cell))
}

/// Whether a row with this `split` belongs to a validation.
pub fn is_validation(split: &[u8]) -> Result<bool, String> {
    match split {
        b"train" => Ok(false),
        b"validation" => Ok(true),
        _ => Err(wrong(split, "split", "is neither `train` nor `validation`")),
    }
}

/// A cell as a number.
pub fn parsed<T: FromStr>(cell: &[u8]) -> Option<T> {
    str::from_utf8(cell).ok()?.parse().ok()
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
            (format!("a,b\n{},4\n", "x".repeat(2 * BLOCK)), 1, false),
            (format!("a,b\n{}", "1,\"2\n\n\n\n\n3\"\n".repeat(BLOCK / 5)), BLOCK / 5, false),
            ("\"a\",b\r\n\"1\",\"2, 3\"\r\n\r\n4,5\r\n".to_owned(), 2, false),
            ("a,".to_owned(), 0, true),
            (String::new(), 0, false),
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
        std::fs::write(&path, "a,b\nx,2\n\nbox,3\ny,4\n,x\n7\nx\n").unwrap();
        let mut found = Vec::new();
        let take = |(): &(), cells: &ByteRecord| {
            found.push(cells.iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join("|"));
            Ok(())
        };
        let error = scan_with("x", &path, |_| Ok(()), take).unwrap_err().to_string();
        assert!(error.ends_with("at line 8: expected 2 cells, got 1"), "{error}");
        assert_eq!(found, ["x|2", "box|3", "|x"]);
        for (text, words) in [
            ("a,b\n1,2\n3\n", "at line 3: expected 2 cells, got 1"),
            ("b,c\n1,2\n", "at line 1: there is no column `a`"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = for_each_row(&path, ["a"], |_| Ok(())).unwrap_err().to_string();
            assert!(error.ends_with(words), "{error}");
        }
    }
}
