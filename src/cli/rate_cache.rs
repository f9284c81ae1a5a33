//! Cache of measurements in the user's cache folder, with one small file per measurement. The file's name is
//! derived from everything that the figures depend on.
//!
//! A file is written atomically. One that is damaged, or belongs to another machine or version, counts as
//! absent.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{
    host::{Durability, write_atomically},
    plan::are_sane,
    record::RecordError,
};

/// This program's version: other versions compute differently, and a debug build is several times slower.
pub const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " debug")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Everything that measured figures depend on.
pub trait Key: Serialize + DeserializeOwned + PartialEq + Clone {
    type Figures: Serialize + DeserializeOwned;
    /// Prefix of the file's name.
    const KIND: &str;
}

/// A cached measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Cached<F> {
    pub figures: F,
    /// When it was measured: RFC 3339, UTC.
    pub measured: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<K, F> {
    measured: String,
    /// SHA-256 of key and figures, to detect a truncated or changed file.
    checksum: String,
    key: K,
    rates: F,
}

pub fn file_name<K: Key>(key: &K) -> String {
    format!("{}-{}.toml", K::KIND, hex16(&toml::to_string(key).unwrap_or_default()))
}

pub fn read<K: Key>(folder: &Path, key: &K) -> Option<Cached<K::Figures>> {
    let text = fs::read_to_string(folder.join(file_name(key))).ok()?;
    let file: File<K, K::Figures> = toml::from_str(&text).ok()?;
    let is_whole = file.key == *key && file.checksum == checksum(key, &file.rates);
    (is_whole && are_sane(&file.rates)).then_some(Cached { figures: file.rates, measured: file.measured })
}

/// Stores figures; returns the file's path.
pub fn write<K: Key>(
    folder: &Path,
    key: &K,
    figures: K::Figures,
    measured: &str,
) -> Result<PathBuf, RecordError> {
    let path = folder.join(file_name(key));
    fs::create_dir_all(folder)
        .map_err(|source| RecordError::MakeFolder { path: folder.to_owned(), source })?;
    let checksum = checksum(key, &figures);
    let file = File { measured: measured.to_owned(), checksum, key: key.clone(), rates: figures };
    let text = toml::to_string(&file)
        .map_err(|e| RecordError::Encode { path: path.clone(), message: e.to_string() })?;
    write_atomically(&path, Durability::Process, |out| out.write_all(text.as_bytes()))
        .map_err(|e| RecordError::write(&path, e))?;
    Ok(path)
}

fn checksum(key: &impl Serialize, figures: &impl Serialize) -> String {
    hex16(&(toml::to_string(key).unwrap_or_default() + &toml::to_string(figures).unwrap_or_default()))
}

fn hex16(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
