//! A CSV file to which the processes of a sweep append lines, one process at a time.

use std::{
    fs::OpenOptions,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use super::RecordError;
use crate::host::{check_regular, open_regular};

/// The file, as far as it is known here.
pub struct JointLines {
    path: PathBuf,
    bytes: u64,
    lines: u64,
}

impl JointLines {
    /// Nothing of the file is known yet; it need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path, bytes: 0, lines: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of lines that are known.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The whole lines after those that are known, which are known from now on. A writer that was cut short leaves no end of
    /// its line.
    pub fn read(&mut self) -> String {
        let mut bytes = self.unread().unwrap_or_default();
        bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
        self.count(&bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn unread(&self) -> io::Result<Vec<u8>> {
        let (mut file, _) = open_regular(&self.path)?;
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn count(&mut self, lines: &[u8]) {
        self.bytes += lines.len() as u64;
        self.lines += lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
    }

    /// Appends whole lines to those that are known, in the place of a line that was cut short. No other process may append
    /// meanwhile, and what others have appended must be known.
    pub fn append(&mut self, text: &str) -> Result<(), RecordError> {
        self.write(text).map_err(|e| RecordError::write(&self.path, e))?;
        self.count(text.as_bytes());
        Ok(())
    }

    fn write(&self, text: &str) -> io::Result<()> {
        check_regular(&self.path)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        if file.metadata()?.len() < self.bytes {
            return Err(io::Error::other("it is shorter than it was: something else writes to it"));
        }
        let mut unknown = Vec::new();
        file.seek(SeekFrom::Start(self.bytes))?;
        file.read_to_end(&mut unknown)?;
        if unknown.contains(&b'\n') {
            return Err(io::Error::other("it holds lines that could not be read before"));
        }
        file.set_len(self.bytes)?;
        file.seek(SeekFrom::Start(self.bytes))?;
        file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are no text count as they are.
    #[test]
    fn lines_follow_lines_that_are_no_text() {
        let path = tempfile::tempdir().unwrap().keep().join("lines.csv");
        std::fs::write(&path, b"1,\xff\xfe\n2,a\n3").unwrap();
        let mut lines = JointLines::new(path.clone());
        assert_eq!(lines.read(), "1,\u{fffd}\u{fffd}\n2,a\n");
        lines.append("4,b\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1,\xff\xfe\n2,a\n4,b\n");
        assert_eq!((lines.lines(), lines.read()), (3, String::new()));
    }
}
