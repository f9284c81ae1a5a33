//! Reads the lines of a table's trials, however long the table is: only where each begins is in memory.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
};

/// The lines of a table, by the numbers of their trials. Whoever edits the file may sort its lines or remove some.
pub(super) struct TableLines {
    file: BufReader<File>,
    line: Vec<u8>,
    /// Where the line of each trial begins; of several, the last.
    begins: Vec<Option<u64>>,
    /// Where the next line would be read.
    at: u64,
}

impl TableLines {
    /// Finds the lines of this number of trials.
    pub fn new(mut file: File, trials: usize) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let begins = vec![None; trials];
        let mut lines = Self { file: BufReader::new(file), line: Vec::new(), begins, at: 0 };
        loop {
            let begin = lines.at;
            let Some(line) = lines.next()? else { return Ok(lines) };
            // The head has no number.
            if let Some(place) = number(line).and_then(|trial| lines.begins.get_mut(trial)) {
                *place = Some(begin);
            }
        }
    }

    /// The line of a trial, with its end; `None` if there is none.
    pub fn line_of(&mut self, trial: usize) -> io::Result<Option<&[u8]>> {
        let Some(begin) = self.begins.get(trial).copied().flatten() else { return Ok(None) };
        // Keeps what is buffered, as a seek from the start would not.
        self.file.seek_relative(begin.wrapping_sub(self.at).cast_signed())?;
        self.at = begin;
        self.next()
    }

    /// The next line; `None` after the last whole one. A cell in quotes may have ends of lines.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        loop {
            let read = self.file.read_until(b'\n', &mut self.line)?;
            self.at += read as u64;
            let quotes = self.line.iter().filter(|byte| **byte == b'"').count();
            if read == 0 || quotes.is_multiple_of(2) {
                return Ok(Some(&*self.line).filter(|line| line.ends_with(b"\n")));
            }
        }
    }
}

/// The number of the trial of a line.
fn number(line: &[u8]) -> Option<usize> {
    str::from_utf8(line.split(|byte| *byte == b',').next()?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_their_trials() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.csv");
        let two = "3,\"two\nlines, \"\"quoted\"\"\"\n";
        let text = format!("trial,reason\n{two}0,first\n9,of no trial\n0,again\n1,\n2,cut sho");
        std::fs::write(&path, text).unwrap();
        let mut lines = TableLines::new(File::open(path).unwrap(), 5).unwrap();
        let wanted = [Some("0,again\n"), Some("1,\n"), None, Some(two), None, None];
        for trial in [0, 1, 2, 3, 4, 5, 3, 0] {
            assert_eq!(lines.line_of(trial).unwrap(), wanted[trial].map(str::as_bytes), "{trial}");
        }
    }
}
