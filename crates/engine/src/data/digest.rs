//! A digest of the rows of a run: equal for two runs on the same data, whatever the files are called.
//!
//! XXH3 (64 bits) over the contents of the files, unpacked if they are gzipped. A text is digested as it would be without a byte
//! order mark and with LF at the end of every line, since spreadsheets and editors change these and no cell. Preprocessing and
//! splitting are not included, since they follow from spec and seed. Synthetic rows are digested as they were drawn. A large array
//! that may stay in its file is digested by samples and its length.

use std::{
    hash::Hasher,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use flate2::read::MultiGzDecoder;
use twox_hash::XxHash3_64;

use super::{Dataset, Part, file, raw};
use crate::{
    device::Store,
    host,
    spec::{Problem, Source},
};

/// Arrays with more bytes are sampled.
const WHOLE_BYTES: u64 = 64 << 20;

/// Number of blocks read from a larger array: the first, the last, and others at equal distances in between.
const SAMPLES: u64 = 64;

const BLOCK_BYTES: usize = 64 << 10;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The digest of a source that was read, in hex, and whether it is of samples. `rows` are those of a source without files.
pub(super) fn digest(source: &Source, rows: Option<&Dataset>) -> Result<(String, bool), Problem> {
    let mut hash = XxHash3_64::new();
    if let (Some(_), Some(rows)) = (source.synthetic(), rows) {
        [Some(&rows.train), rows.validation.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|part| add_rows(&mut hash, part));
    }
    let form = Form::from_source(source);
    let mut is_sampled = false;
    for path in source.files() {
        let sampled = add_file(&mut hash, path, form).map_err(|error| file::unreadable(path, &error))?;
        is_sampled |= sampled;
    }
    Ok((in_hex(&hash), is_sampled))
}

/// The digest of a run on these files alone, for a source like `source`; `None` if one cannot be read.
pub fn digest_of_files<'a>(source: &Source, files: impl IntoIterator<Item = &'a Path>) -> Option<String> {
    let mut hash = XxHash3_64::new();
    let form = Form::from_source(source);
    files.into_iter().try_for_each(|path| add_file(&mut hash, path, form).map(drop)).ok()?;
    Some(in_hex(&hash))
}

impl Dataset {
    /// The digest of which rows of its source validate, are for a test, or come later; `None` if all of them train.
    pub fn split_digest(&self) -> Option<String> {
        let mut hash = XxHash3_64::new();
        for part in &*self.apart {
            hash.write(&(part.len() as u64).to_le_bytes());
            part.iter().for_each(|row| hash.write(&row.to_le_bytes()));
        }
        self.apart.iter().any(|part| !part.is_empty()).then(|| in_hex(&hash))
    }
}

fn in_hex(hash: &XxHash3_64) -> String {
    format!("{:016x}", hash.finish())
}

/// How a source's files are digested.
#[derive(Clone, Copy)]
enum Form {
    /// Without what differs between texts of the same lines.
    Text,
    /// All bytes.
    Bytes,
    /// All bytes, or samples of a file with more than this. An array has the same digest whether it is loaded or streamed.
    Samples(u64),
}

impl Form {
    fn from_source(source: &Source) -> Self {
        match source {
            Source::Npy(_) => Self::Samples(WHOLE_BYTES),
            Source::Csv(_) => Self::Text,
            _ => Self::Bytes,
        }
    }
}

/// A file's contents on their way into the hash.
struct Contents<'a> {
    hash: &'a mut XxHash3_64,
    is_text: bool,
    /// Bytes taken so far, and of them those that were hashed.
    taken: u64,
    length: u64,
    /// A CR at the end of the last block: LF may follow.
    has_return: bool,
    last: u8,
    lines: Vec<u8>,
}

impl<'a> Contents<'a> {
    fn new(hash: &'a mut XxHash3_64, form: Form) -> Self {
        let is_text = matches!(form, Form::Text);
        Self { hash, is_text, taken: 0, length: 0, has_return: false, last: b'\n', lines: Vec::new() }
    }

    /// The first block has the whole byte order mark, if there is one.
    fn add(&mut self, block: &[u8]) {
        let is_first = self.taken == 0;
        self.taken += block.len() as u64;
        if !self.is_text {
            return self.write(block);
        }
        let block = block.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first).unwrap_or(block);
        if !self.has_return && !block.contains(&b'\r') {
            return self.write(block);
        }
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        for &byte in block {
            if std::mem::take(&mut self.has_return) && byte != b'\n' {
                lines.push(b'\r');
            }
            self.has_return = byte == b'\r';
            if !self.has_return {
                lines.push(byte);
            }
        }
        self.write(&lines);
        self.lines = lines;
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash.write(bytes);
        self.length += bytes.len() as u64;
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// Adds the length.
    fn finish(mut self) {
        if self.is_text {
            if self.has_return {
                self.write(b"\r");
            }
            if self.last != b'\n' {
                self.write(b"\n");
            }
        }
        self.hash.write(&self.length.to_le_bytes());
    }
}

fn add_rows(hash: &mut XxHash3_64, part: &Part) {
    hash.write(&(part.rows as u64).to_le_bytes());
    if let Store::Memory(features) = &part.features {
        hash.write(bytemuck::cast_slice(features));
    }
    hash.write(bytemuck::cast_slice(&part.targets));
}

/// Adds a file's contents, then their length; returns whether they were sampled.
fn add_file(hash: &mut XxHash3_64, path: &Path, form: Form) -> io::Result<bool> {
    let (file, length) = host::open_regular(path)?;
    let mut contents = Contents::new(hash, form);
    if file::is_gzip(&file)? {
        return add_all(contents, MultiGzDecoder::new(BufReader::new(file))).map(|()| false);
    }
    let Form::Samples(whole) = form else { return add_all(contents, file).map(|()| false) };
    if length <= whole {
        return add_all(contents, file).map(|()| false);
    }
    let mut block = vec![0; BLOCK_BYTES.min(usize::try_from(length).unwrap_or(BLOCK_BYTES))];
    let last = length - block.len() as u64;
    for sample in 0..SAMPLES {
        host::check_interrupted()?;
        let place = (u128::from(last) * u128::from(sample) / u128::from(SAMPLES - 1)) as u64;
        file.read_exact_at(&mut block, place)?;
        contents.add(&block);
    }
    contents.length = length;
    contents.finish();
    Ok(true)
}

fn add_all(mut contents: Contents<'_>, mut reader: impl Read) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        host::check_interrupted()?;
        let count = raw::fill(&mut reader, &mut block)?;
        contents.add(&block[..count]);
        if count < block.len() {
            contents.finish();
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Write,
        time::{Duration, SystemTime},
    };

    use super::*;

    #[test]
    fn a_gzipped_file_counts_by_what_it_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let digest = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("a file");
            let mut hash = XxHash3_64::new();
            add_file(&mut hash, &path, Form::Bytes).map(|_| hash.finish())
        };
        let pack = |bytes: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).and_then(|()| gzip.finish()).expect("bytes")
        };
        let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let plain = digest(&bytes).expect("a digest");
        assert_eq!(digest(&pack(&bytes)).expect("a digest"), plain);
        // As written by `cat a.gz b.gz`.
        let (first, second) = bytes.split_at(70_000);
        assert_eq!(digest(&[pack(first), pack(second)].concat()).expect("a digest"), plain);
        assert_ne!(digest(&pack(first)).expect("a digest"), plain);
        assert_eq!(digest(&pack(&[])).expect("a digest"), digest(&[]).expect("a digest"));
        assert!(digest(&pack(&bytes)[..100]).is_err(), "cut short");
    }

    #[test]
    fn line_ends_and_a_mark_are_no_part_of_a_text() {
        let digest = |text: &[u8], form: Form, size: usize| {
            let mut hash = XxHash3_64::new();
            let mut contents = Contents::new(&mut hash, form);
            text.chunks(size).for_each(|block| contents.add(block));
            contents.finish();
            hash.finish()
        };
        let text = "a,b\n1,2\n\n3,\"x\ny\"\n";
        let plain = digest(text.as_bytes(), Form::Bytes, 100);
        let others = [text.replace('\n', "\r\n"), text.trim_end().to_owned(), format!("\u{feff}{text}")];
        for size in 3..9 {
            for other in &others {
                assert_eq!(digest(other.as_bytes(), Form::Text, size), plain, "{other:?}");
                assert_ne!(digest(other.as_bytes(), Form::Bytes, size), plain, "{other:?}");
            }
            assert_eq!(digest(text.as_bytes(), Form::Text, size), plain);
            for other in
                ["a,b\r1,2\n\n3,\"x\ny\"\n", "a,b\n1,2\n\n3,\"x\ny\"\n\r", "a,b\n1,2\n\n3,\"x\u{feff}\ny\"\n"]
            {
                assert_ne!(digest(other.as_bytes(), Form::Text, size), plain, "{other:?}");
            }
        }
        assert_eq!(digest(b"", Form::Text, 3), digest(b"", Form::Bytes, 3));
    }

    #[test]
    fn whole_files_count_by_their_bytes_and_large_ones_by_samples() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let digest = |bytes: &[u8], later_s: u64, whole: u64| {
            fs::write(&path, bytes).expect("a file");
            let file = File::options().write(true).open(&path).expect("a file");
            file.set_modified(time + Duration::from_secs(later_s)).expect("a time");
            let mut hash = XxHash3_64::new();
            let is_sampled = add_file(&mut hash, &path, Form::Samples(whole)).expect("a digest");
            assert_eq!(is_sampled, bytes.len() as u64 > whole);
            hash.finish()
        };
        let length = 80 * BLOCK_BYTES;
        let bytes = vec![7; length];
        let changed = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] = 8;
            bytes
        };
        let (all, some) = (u64::MAX, length as u64 - 1);
        assert_eq!(digest(&bytes, 0, all), digest(&bytes, 5, all));
        assert_ne!(digest(&bytes, 0, all), digest(&changed(length / 2 + 1), 0, all));
        assert_ne!(digest(&bytes, 0, all), digest(&bytes[1..], 0, all));
        assert_eq!(digest(&bytes, 0, some), digest(&bytes, 0, some));
        assert_eq!(digest(&bytes, 0, some), digest(&bytes, 5, some), "a copy");
        for at in [0, length - 1] {
            assert_ne!(digest(&bytes, 0, some), digest(&changed(at), 0, some), "{at}");
        }
    }
}
