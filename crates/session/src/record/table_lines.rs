//! Reads a table line by line, however long it is.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
};

/// The lines of a table's trials, one after the other.
pub(super) struct TableLines {
    file: BufReader<File>,
    line: Vec<u8>,
}

impl TableLines {
    /// Skips the head.
    pub fn new(mut file: File) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let mut lines = Self { file: BufReader::new(file), line: Vec::new() };
        lines.next()?;
        Ok(lines)
    }

    /// The next line, with its end; `None` after the last one. A cell in quotes may have ends of lines.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        loop {
            let read = self.file.read_until(b'\n', &mut self.line)?;
            let quotes = self.line.iter().filter(|byte| **byte == b'"').count();
            if read == 0 || quotes.is_multiple_of(2) {
                return Ok(Some(&*self.line).filter(|line| line.ends_with(b"\n")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_outside_quotes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.csv");
        let text = "trial,reason\n0,\"two\nlines, \"\"quoted\"\"\"\n1,\n2,cut sho";
        std::fs::write(&path, text).unwrap();
        let mut lines = TableLines::new(File::open(path).unwrap()).unwrap();
        for line in ["0,\"two\nlines, \"\"quoted\"\"\"\n", "1,\n"] {
            assert_eq!(lines.next().unwrap(), Some(line.as_bytes()));
        }
        assert_eq!(lines.next().unwrap(), None);
    }
}
