//! A file that only grows, by complete lines.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{RecordError, last_lines::find_in_last_lines, lines::Lines};
use crate::host::{check_regular, read_regular};

/// Lines are buffered up to this size, so that many tiny blocks cost one system call.
const BURST_BYTES: usize = 64 * 1024;

/// A column of a CSV file: its name, and a function that writes the cell of a row.
pub(super) type Column<R> = (&'static str, for<'a> fn(&'a mut Lines, &R) -> &'a mut Lines);

/// An append-only file of lines. Every write ends with a complete line and there is no other buffer, so a
/// killed process leaves only complete lines.
pub struct RowFile {
    path: PathBuf,
    file: File,
    /// Bytes of complete lines in the file.
    length: u64,
    /// Buffered lines.
    pub lines: Lines,
}

impl RowFile {
    /// Creates the file, which must not exist, and writes its first lines at once, so that an unwritable disk
    /// is noticed before any work is done.
    pub fn create(path: &Path, head: &[u8]) -> Result<Self, RecordError> {
        let mut rows = Self::open(path, OpenOptions::new().append(true).create_new(true))?;
        rows.append(head)?;
        Ok(rows)
    }

    /// A file that keeps nothing.
    pub fn discard() -> Result<Self, RecordError> {
        Self::open(Path::new("/dev/null"), OpenOptions::new().append(true))
    }

    /// Bytes of all lines so far, with those that are buffered.
    pub fn written(&self) -> u64 {
        self.length + self.lines.bytes().len() as u64
    }

    /// Opens a file, creating it if it is missing, and cuts off the incomplete line that a power loss may have left.
    pub fn reopen(path: &Path) -> Result<Self, RecordError> {
        check_regular(path).map_err(|e| RecordError::read(path, e))?;
        let mut rows = Self::open(path, OpenOptions::new().append(true).create(true))?;
        let text = read_regular(path).map_err(|e| RecordError::read(path, e))?;
        rows.cut(text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end as u64 + 1))?;
        Ok(rows)
    }

    /// Opens an existing file and cuts it to `length` bytes.
    pub fn open_at(path: &Path, length: u64) -> Result<Self, RecordError> {
        check_regular(path).map_err(|e| RecordError::read(path, e))?;
        let mut rows = Self::open(path, OpenOptions::new().append(true))?;
        rows.cut(length)?;
        Ok(rows)
    }

    fn open(path: &Path, options: &OpenOptions) -> Result<Self, RecordError> {
        let file = options.open(path).map_err(|e| RecordError::write(path, e))?;
        Ok(Self { path: path.to_owned(), file, length: 0, lines: Lines::new() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts the file to `length` bytes.
    pub fn cut(&mut self, length: u64) -> Result<(), RecordError> {
        self.length = length;
        self.file.set_len(length).map_err(|e| RecordError::write(&self.path, e))
    }

    /// Like [`create`](Self::create), with a header line of column names.
    pub fn with_columns<'a>(
        path: &Path,
        columns: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, RecordError> {
        let mut head = Lines::new();
        head.texts(columns).end();
        Self::create(path, head.bytes())
    }

    /// Appends a row with these columns.
    pub fn row<R>(&mut self, columns: &[Column<R>], row: &R) -> Result<(), RecordError> {
        for (_, cell) in columns {
            cell(&mut self.lines, row);
        }
        self.end_line()
    }

    /// Ends the current line; writes the buffer once it is large.
    pub fn end_line(&mut self) -> Result<(), RecordError> {
        self.lines.end();
        self.flush_burst()
    }

    /// Writes the buffer once it is large.
    pub fn flush_burst(&mut self) -> Result<(), RecordError> {
        if self.lines.bytes().len() >= BURST_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the buffered lines.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        if self.lines.bytes().is_empty() {
            return Ok(());
        }
        let mut lines = std::mem::take(&mut self.lines);
        let written = self.append(lines.bytes()).and_then(|()| self.check_unchanged());
        lines.clear();
        self.lines = lines;
        written
    }

    fn append(&mut self, whole_lines: &[u8]) -> Result<(), RecordError> {
        let mut written = 0;
        while written < whole_lines.len() {
            match self.file.write(&whole_lines[written..]) {
                Ok(0) => {
                    return Err(self.cut_torn_line(&whole_lines[..written], io::ErrorKind::WriteZero.into()));
                }
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.cut_torn_line(&whole_lines[..written], e)),
            }
        }
        self.length += whole_lines.len() as u64;
        Ok(())
    }

    /// The system accepts writes to a file that was removed, and after lines that something else has cut.
    fn check_unchanged(&self) -> Result<(), RecordError> {
        let error = match self.file.metadata() {
            Ok(metadata) if metadata.nlink() == 0 && self.path.exists() => {
                io::Error::other("it was replaced by another file meanwhile")
            }
            Ok(metadata) if metadata.nlink() == 0 => io::Error::from_raw_os_error(libc::ENOENT),
            Ok(metadata) if metadata.is_file() && metadata.len() != self.length => {
                io::Error::other("its length is not what was written: something else writes to it")
            }
            _ => return Ok(()),
        };
        Err(RecordError::write(&self.path, error))
    }

    /// The last line in the file.
    pub fn last_line(&self) -> Option<String> {
        let file = File::open(&self.path).ok()?;
        find_in_last_lines(&file, self.length, |lines| lines.lines().next_back().map(str::to_owned)).ok()?
    }

    /// A full disk may accept part of a line: truncates the file to complete lines.
    fn cut_torn_line(&mut self, written: &[u8], error: io::Error) -> RecordError {
        let whole = written.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.length += whole as u64;
        if written.len() > whole {
            let _ = self.file.set_len(self.length); // report the write's own error
        }
        RecordError::write(&self.path, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_appear_whole_at_flush_or_in_bursts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let read = || std::fs::read_to_string(&path).unwrap();
        let columns: [Column<u64>; 2] = [("a", |cells, row| cells.u64(*row)), ("b", |cells, _| cells.u64(2))];
        let mut rows = RowFile::with_columns(&path, columns.map(|(name, _)| name)).unwrap();
        assert_eq!(read(), "a,b\n");
        rows.row(&columns, &1).unwrap();
        assert_eq!(read(), "a,b\n");
        rows.flush().unwrap();
        rows.flush().unwrap();
        assert_eq!(read(), "a,b\n1,2\n");
        for _ in 0..BURST_BYTES {
            rows.row(&columns, &1).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 + 4 * BURST_BYTES as u64);
        // An existing file is never overwritten.
        let error = RowFile::create(&path, b"a\n").err().unwrap();
        assert_eq!(error.to_string(), format!("cannot write `{}`: file exists", path.display()));
    }

    #[test]
    fn a_full_disk_is_told_and_a_torn_line_is_cut() {
        let full = OpenOptions::new().append(true).open("/dev/full");
        if let Ok(file) = full {
            let mut rows = RowFile { path: "full.csv".into(), file, length: 0, lines: Lines::new() };
            rows.lines.u64(1);
            rows.end_line().unwrap();
            assert_eq!(
                rows.flush().unwrap_err().to_string(),
                "cannot write `full.csv`: no space left on device"
            );
        }

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let mut rows = RowFile::create(&path, b"a,b\n").unwrap();
        let taken = b"1,2\n3,";
        rows.file.write_all(taken).unwrap();
        rows.cut_torn_line(taken, io::ErrorKind::StorageFull.into());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a,b\n1,2\n");
        let wide = format!("7,{}", "0.125,".repeat(1000));
        rows.file.write_all(wide.as_bytes()).unwrap();
        rows.length += wide.len() as u64;
        assert_eq!(rows.last_line(), Some(wide));
    }

    #[test]
    fn a_file_that_something_else_writes_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let mut rows = RowFile::create(&path, b"a\n").unwrap();
        let mut told = |change: &dyn Fn()| {
            change();
            rows.lines.u64(1);
            rows.end_line().unwrap();
            rows.flush().unwrap_err().to_string()
        };
        let of = |what: &str| format!("cannot write `{}`: {what}", path.display());
        let cut = told(&|| OpenOptions::new().write(true).open(&path).unwrap().set_len(1).unwrap());
        assert_eq!(cut, of("its length is not what was written: something else writes to it"));
        let replaced = told(&|| {
            std::fs::write(folder.path().join("other"), "").unwrap();
            std::fs::rename(folder.path().join("other"), &path).unwrap();
        });
        assert_eq!(replaced, of("it was replaced by another file meanwhile"));
        assert_eq!(told(&|| std::fs::remove_file(&path).unwrap()), of("no such file or directory"));
    }
}
