//! Reads a file of any length in parts, each of which ends with a complete record.

use std::{
    io::{self, Read},
    path::PathBuf,
};

use super::text::Text;
use crate::{
    data::{file, raw},
    spec::Problem,
    units,
};

/// Bytes of a part, unless one record is longer.
const PART_BYTES: usize = 1 << 16;

/// The most bytes of a record. Anything longer has no line ends, or a quote that is never closed.
const LONGEST: usize = 1 << 26;

/// Reads a text in parts.
pub(super) struct Parts {
    path: PathBuf,
    delimiter: char,
    reader: Box<dyn Read>,
    /// Bytes that were read but not returned yet.
    rest: Vec<u8>,
    lines: u64,
    is_at_end: bool,
}

impl Parts {
    pub(super) fn new(path: PathBuf, reader: Box<dyn Read>, delimiter: char) -> Self {
        Self { path, delimiter, reader, rest: Vec::new(), lines: 0, is_at_end: false }
    }

    /// The next part; `None` at the end.
    pub(super) fn next_part(&mut self) -> Result<Option<Text>, Problem> {
        let mut wanted = PART_BYTES;
        loop {
            self.read(wanted).map_err(|e| file::unreadable(&self.path, &e))?;
            let end = if self.is_at_end { self.rest.len() } else { self.last_record() };
            if end > 0 {
                let rest = self.rest.split_off(end);
                let part = std::mem::replace(&mut self.rest, rest);
                let text = Text::from_part(&self.path, part, self.delimiter, self.lines)?;
                self.lines += text.lines();
                return Ok(Some(text));
            }
            if self.is_at_end {
                return Ok(None);
            }
            if self.rest.len() >= LONGEST {
                let message = format!(
                    "its record at line {} is longer than {}",
                    self.lines + 1,
                    units::bytes(LONGEST as u64)
                );
                let hint =
                    "a CSV file has a record on each line; where quotes hold line ends, each must be closed";
                return Err(file::problem(&self.path, &message).hint(hint));
            }
            wanted = 2 * self.rest.len();
        }
    }

    /// Reads until `rest` has `wanted` bytes, or the file ends.
    fn read(&mut self, wanted: usize) -> io::Result<()> {
        let begin = self.rest.len();
        if self.is_at_end || begin >= wanted {
            return Ok(());
        }
        self.rest.resize(wanted, 0);
        let count = raw::fill(&mut *self.reader, &mut self.rest[begin..])?;
        self.rest.truncate(begin + count);
        self.is_at_end = begin + count < wanted;
        Ok(())
    }

    /// Where the last record in `rest` begins (it may be empty); 0 if there is no other record.
    fn last_record(&self) -> usize {
        if !self.rest.contains(&b'"') {
            return self.rest.iter().rposition(|byte| b"\r\n".contains(byte)).map_or(0, |end| end + 1);
        }
        // A line end within quotes does not end a record.
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(self.delimiter as u8)
            .has_headers(false)
            .flexible(true)
            .from_reader(&self.rest[..]);
        let (mut record, mut last) = (csv::ByteRecord::new(), 0);
        while reader.read_byte_record(&mut record).unwrap_or(false) {
            last = record.position().map_or(0, csv::Position::byte) as usize;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Location;

    #[test]
    fn a_record_without_an_end_is_refused() {
        let endless = |byte| Box::new(io::Cursor::new(*b"1,2\n").chain(io::repeat(byte)));
        for byte in [0, b'"'] {
            let mut parts = Parts::new("x.csv".into(), endless(byte), ',');
            let found = std::iter::repeat_with(|| parts.next_part()).take(3).find_map(Result::err);
            let message = found.map(|problem| problem.message).unwrap_or_default();
            assert!(message.contains("its record at line 2 is longer than 64 MiB"), "{message}");
        }
    }

    #[test]
    fn parts_end_with_records() {
        let quoted: Vec<String> = (0..10_000).map(|i| format!("{i},\"a\n\"\"{i}\",x\r\n")).collect();
        let plain = (0..20_000).map(|i| format!("{i},abc\n")).collect();
        for (lines, per_record) in [(quoted, 2), (plain, 1)] {
            let reader = Box::new(io::Cursor::new(lines.concat().into_bytes()));
            let mut parts = Parts::new("x.csv".into(), reader, ',');
            let (mut records, mut count) = (0, 0);
            while let Some(text) = parts.next_part().expect("a part") {
                let (mut record, mut first) = (csv::StringRecord::new(), records);
                let mut reader = text.reader();
                while reader.read_record(&mut record).expect("a record") {
                    assert_eq!(&record[0], records.to_string());
                    records += 1;
                }
                first = first * per_record + 1;
                assert!(matches!(text.cell(0, 1), Location::File { line: Some(line), .. } if line == first));
                count += 1;
            }
            assert_eq!((records, count > 2), (lines.len() as u64, true));
        }
    }
}
