//! Opens the files named in a spec and reports errors with them.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use flate2::read::MultiGzDecoder;

use super::{memory, raw};
use crate::{
    host::{self, Interruptible},
    spec::{Location, Problem},
};

/// Opens `path`, the value of `key`; also returns its length in bytes.
pub(super) fn open(path: &Path, key: &str) -> Result<(File, u64), Problem> {
    host::open_regular(path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::IsADirectory => "name a file in it".to_owned(),
            io::ErrorKind::InvalidInput => {
                "write what it gives to a file and name that: data files are looked at again".to_owned()
            }
            io::ErrorKind::PermissionDenied => {
                "you may not read it: ask its owner, or `chmod +r` it".to_owned()
            }
            _ if path.iter().any(|part| part == "~") => {
                "`~` is the home folder in a shell alone: write the path of that folder".to_owned()
            }
            _ if path.is_absolute() => {
                format!(
                    "a relative path is taken from the folder of the spec; `{key}=PATH` names another file"
                )
            }
            _ => "a relative path is taken from the folder of the spec".to_owned(),
        };
        let message = format!("cannot read `{}`: {}", path.display(), host::reason(&error));
        Problem::at_key(key, message).hint(hint)
    })
}

/// The first bytes of a gzipped file.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The first bytes of a Parquet file.
pub(super) const PARQUET: [u8; 4] = *b"PAR1";

/// Whether a file is in the Parquet format. A pipe never is, since it cannot be read at a position. The name of a text's first
/// column may begin like it; the next byte of Parquet, the first of a header in Thrift's compact form, is in no text.
pub(super) fn is_parquet(file: &File) -> bool {
    let mut start = [0; PARQUET.len() + 1];
    let count = file.read_at(&mut start, 0).unwrap_or(0);
    count >= PARQUET.len()
        && start.starts_with(&PARQUET)
        && (start[4] < b' ' && !b"\t\r\n".contains(&start[4]))
}

/// Whether a file is gzipped.
pub(super) fn is_gzip(file: &File) -> io::Result<bool> {
    let mut start = [0; 2];
    Ok(file.read_at(&mut start, 0)? == 2 && start == GZIP)
}

/// Unpacks the data if it is gzipped.
pub(super) fn unpacked(mut reader: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    // A pipe may return a single byte at first.
    let mut start = [0; GZIP.len()];
    let count = raw::fill(&mut reader, &mut start)?;
    let whole = io::Cursor::new(start).take(count as u64).chain(reader);
    let reader = BufReader::with_capacity(1 << 16, whole);
    Ok(if start == GZIP { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) })
}

/// Reads all of `path`, the value of `key`.
pub(super) fn read(path: &Path, key: &str) -> Result<Vec<u8>, Problem> {
    open(path, key).and_then(|(file, length)| read_all(path, file, length))
}

/// Reads all of a file that belongs to a run, so that no key names another.
pub(super) fn read_of_run(path: &Path) -> Result<Vec<u8>, Problem> {
    let opened = host::open_regular(path).map_err(|error| {
        let message = format!("cannot read `{}`: {}", path.display(), host::reason(&error));
        Problem::new(Location::Nowhere, message).hint("bring the file of the run back, or train again")
    });
    opened.and_then(|(file, length)| read_all(path, file, length))
}

fn read_all(path: &Path, file: File, length: u64) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let room = usize::try_from(length).ok().and_then(|length| bytes.try_reserve_exact(length).ok());
    if room.is_none() {
        return Err(problem(path, format!("memory does not hold its {}", memory::size(length.into()))));
    }
    Interruptible::new(file).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    Ok(bytes)
}

/// A problem at an unknown position in the file `path`.
pub(super) fn problem(path: &Path, message: impl Into<String>) -> Problem {
    Problem::new(place(path), message)
}

/// The location of the file `path` as a whole.
pub(super) fn place(path: &Path) -> Location {
    Location::File { path: path.into(), line: None, column: None, text: None }
}

/// The problem of a file that could be opened but not read to its end.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Problem {
    problem(path, format!("cannot be read: {}", host::reason(error)))
}

/// A problem with the elements of an array file whose header declares `declared` bytes.
pub(super) fn fault(path: &Path, declared: u64, fault: raw::Fault) -> Problem {
    match fault {
        raw::Fault::Io(error) => unreadable(path, &error),
        raw::Fault::Short(found) => wrong_size(path, declared, &format!("only {found} are there")),
        raw::Fault::Long => wrong_size(path, declared, "more are there"),
        raw::Fault::NotFinite { row, column, value } => problem(
            path,
            format!("row {row}, feature {column} (both counted from 0) {}", raw::not_finite(value)),
        ),
        raw::Fault::Memory(bytes) => {
            problem(path, format!("memory does not hold its {} as f32", memory::size(bytes)))
        }
    }
}

/// The problem of a header that does not match the contents.
pub(super) fn wrong_size(path: &Path, declared: u64, found: &str) -> Problem {
    let message = format!("the header declares {declared} bytes of elements, and {found}");
    problem(path, message).hint("the file is damaged, or was cut while it was copied")
}

/// Text from a file, made fit for a message: shortened, without control characters.
pub(super) fn printable(text: &str) -> String {
    const LONGEST: usize = 60;
    let shown: String = text.chars().take(LONGEST).collect();
    let more = if text.chars().nth(LONGEST).is_some() { "..." } else { "" };
    format!("{}{more}", host::escape_line(&shown))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Returns a byte at a time, and is interrupted before each one.
    struct Slow(io::Cursor<Vec<u8>>, bool);

    impl Read for Slow {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { (&mut self.0).take(1).read(bytes) }
        }
    }

    #[test]
    fn gzip_is_recognised_however_it_comes() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"a,b\n").unwrap();
        let gzipped = gzip.finish().unwrap();
        for (bytes, expected) in
            [(gzipped, "a,b\n"), (b"a,b\n".to_vec(), "a,b\n"), (b"a".to_vec(), "a"), (Vec::new(), "")]
        {
            let mut text = String::new();
            let mut reader = unpacked(Slow(io::Cursor::new(bytes), false)).unwrap();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn text_fit_for_messages() {
        assert_eq!(printable("don't\n\u{1}\"ü\""), "don't\\n\\u{1}\"ü\"");
        assert_eq!(printable(&"ä".repeat(60)), "ä".repeat(60));
        assert_eq!(printable(&"ä".repeat(61)), format!("{}...", "ä".repeat(60)));
    }
}
