//! Measured figures on disk: one small file per thing that was measured, in the user's cache folder, named by all that the
//! figures depend on.
//!
//! A file is written whole and renamed. One that is damaged, or of another machine or version, counts as absent.

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

/// This program's version: another one computes otherwise, and a build for debugging is several times slower.
pub const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " debug")
} else {
    env!("CARGO_PKG_VERSION")
};

/// What figures depend on.
pub trait Key: Serialize + DeserializeOwned + PartialEq + Clone {
    /// What is measured.
    type Figures: Serialize + DeserializeOwned;
    /// The first word of the file's name.
    const KIND: &str;
}

/// What is kept of something measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Cached<F> {
    /// The figures.
    pub figures: F,
    /// When that was: RFC 3339, UTC.
    pub measured: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<K, F> {
    measured: String,
    /// SHA-256 of key and figures: a file that was cut or changed is not used.
    checksum: String,
    key: K,
    rates: F,
}

/// The name of the file of a key.
pub fn file_name<K: Key>(key: &K) -> String {
    format!("{}-{}.toml", K::KIND, hex16(&toml::to_string(key).unwrap_or_default()))
}

/// What was measured under a key, if anything.
pub fn read<K: Key>(folder: &Path, key: &K) -> Option<Cached<K::Figures>> {
    let text = fs::read_to_string(folder.join(file_name(key))).ok()?;
    let file: File<K, K::Figures> = toml::from_str(&text).ok()?;
    let is_whole = file.key == *key && file.checksum == checksum(key, &file.rates);
    (is_whole && are_sane(&file.rates)).then_some(Cached { figures: file.rates, measured: file.measured })
}

/// Keeps figures; returns the file.
///
/// # Errors
/// Where the folder cannot be written.
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
