//! A digest of the rows of a run: equal for two runs on the same data, whatever the files are called.
//!
//! XXH3 (64 bits) over the contents of the files, unpacked if they are gzipped. Preprocessing and splitting
//! are not included, since they follow from spec and seed. Synthetic rows are digested as they were drawn. Of
//! a large array that may stay in its file, only samples and the length are digested.

use std::{
    fs::File,
    hash::Hasher,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use flate2::read::MultiGzDecoder;
use twox_hash::XxHash3_64;

use super::{Dataset, Part, file};
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

/// The digest of the rows of a source that was read, in hex, and whether it is of samples.
pub(super) fn digest(source: &Source, dataset: &Dataset) -> Result<(String, bool), Problem> {
    let mut hash = XxHash3_64::new();
    if matches!(source, Source::SyntheticRegression(_)) {
        [Some(&dataset.train), dataset.validation.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|part| add_rows(&mut hash, part));
    }
    let whole = whole_bytes(source);
    let mut is_sampled = false;
    for path in source.files() {
        let sampled = add_file(&mut hash, path, whole).map_err(|error| file::unreadable(path, &error))?;
        is_sampled |= sampled;
    }
    Ok((in_hex(&hash), is_sampled))
}

/// The digest of a run on these files alone, for a source like `source`; `None` if one cannot be read.
pub fn digest_of_files<'a>(source: &Source, files: impl IntoIterator<Item = &'a Path>) -> Option<String> {
    let mut hash = XxHash3_64::new();
    let whole = whole_bytes(source);
    files.into_iter().try_for_each(|path| add_file(&mut hash, path, whole).map(drop)).ok()?;
    Some(in_hex(&hash))
}

fn in_hex(hash: &XxHash3_64) -> String {
    format!("{:016x}", hash.finish())
}

/// Longer files are sampled. An array has the same digest whether it is loaded or streamed.
fn whole_bytes(source: &Source) -> u64 {
    if matches!(source, Source::Npy(_)) { WHOLE_BYTES } else { u64::MAX }
}

fn add_rows(hash: &mut XxHash3_64, part: &Part) {
    hash.write(&(part.rows as u64).to_le_bytes());
    if let Store::Memory(features) = &part.features {
        hash.write(bytemuck::cast_slice(features));
    }
    hash.write(bytemuck::cast_slice(&part.targets));
}

/// Adds a file's bytes, or samples of them if it is longer than `whole`, then its length; returns whether it was sampled.
fn add_file(hash: &mut XxHash3_64, path: &Path, whole: u64) -> io::Result<bool> {
    let (file, length) = host::open_regular(path)?;
    if file::is_gzip(&file)? {
        return add_unpacked(hash, file).map(|()| false);
    }
    let mut block = vec![0; BLOCK_BYTES.min(usize::try_from(length).unwrap_or(BLOCK_BYTES))];
    if length <= whole {
        let mut at = 0;
        while at < length {
            let count = block.len().min((length - at) as usize);
            add_block(hash, &file, at, &mut block[..count])?;
            at += count as u64;
        }
    } else {
        let last = length - block.len() as u64;
        let place = |sample: u64| (u128::from(last) * u128::from(sample) / u128::from(SAMPLES - 1)) as u64;
        (0..SAMPLES).try_for_each(|sample| add_block(hash, &file, place(sample), &mut block))?;
    }
    hash.write(&length.to_le_bytes());
    Ok(length > whole)
}

/// Adds the unpacked contents of a gzipped file.
fn add_unpacked(hash: &mut XxHash3_64, file: File) -> io::Result<()> {
    let mut reader = MultiGzDecoder::new(BufReader::new(file));
    let mut block = vec![0; BLOCK_BYTES];
    let mut length = 0;
    loop {
        host::check_interrupted()?;
        let count = reader.read(&mut block)?;
        if count == 0 {
            break;
        }
        hash.write(&block[..count]);
        length += count as u64;
    }
    hash.write(&length.to_le_bytes());
    Ok(())
}

fn add_block(hash: &mut XxHash3_64, file: &File, at: u64, block: &mut [u8]) -> io::Result<()> {
    host::check_interrupted()?;
    file.read_exact_at(block, at)?;
    hash.write(block);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
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
            add_file(&mut hash, &path, u64::MAX).map(|_| hash.finish())
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
    fn whole_files_count_by_their_bytes_and_large_ones_by_samples() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let digest = |bytes: &[u8], later_s: u64, whole: u64| {
            fs::write(&path, bytes).expect("a file");
            let file = File::options().write(true).open(&path).expect("a file");
            file.set_modified(time + Duration::from_secs(later_s)).expect("a time");
            let mut hash = XxHash3_64::new();
            let is_sampled = add_file(&mut hash, &path, whole).expect("a digest");
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
