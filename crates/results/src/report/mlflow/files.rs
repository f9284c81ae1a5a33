//! Folders and files of an MLflow file store.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::{
    host::{Durability, read_text, write_atomically},
    report::{
        ReportError,
        find::{folders_in, is_run, is_sweep},
    },
};

const META: &str = "meta.yaml";

/// Maximum length of a name that MLflow reads.
const LONGEST_KEY: usize = 250;

/// After this time nobody goes on with a file that was begun.
const REMNANT_AGE: Duration = Duration::from_secs(60);

/// A folder that exists.
pub struct Folder(PathBuf);

impl Folder {
    /// The folder of a store, created if it is missing.
    ///
    /// # Errors
    /// It lies in a run's folder, or contains something else.
    pub fn store(path: &Path) -> Result<Self, ReportError> {
        let hint = "name a new folder, or one that holds MLflow's experiments";
        let refused = |why| ReportError::query(format!("`{}` {why}", path.display()), Some(hint));
        let absolute = std::path::absolute(path).map_err(|e| ReportError::read(path, e))?;
        let real = absolute.ancestors().find_map(|folder| folder.canonicalize().ok()).unwrap_or_default();
        if real.ancestors().any(|folder| is_run(folder) || is_sweep(folder)) {
            return Err(refused("lies in the folder of a run"));
        }
        if path.is_dir() {
            let entries: Vec<_> =
                fs::read_dir(path).map_err(|e| ReportError::read(path, e))?.flatten().collect();
            // An export that was ended at its start leaves a folder with nothing but the beginning of a file.
            let is_empty = |entry: &fs::DirEntry| {
                fs::read_dir(entry.path()).is_ok_and(|inner| inner.flatten().all(|own| is_remnant(&own)))
            };
            let is_experiment = |own: &PathBuf| own.join(META).is_file();
            if !entries.iter().all(is_empty) && !folders_in(path)?.iter().any(is_experiment) {
                return Err(refused("holds something else than a store of MLflow"));
            }
        }
        Self::create(path)
    }

    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let created = fs::create_dir_all(path).and_then(|()| path.canonicalize());
        created.map(Self).map_err(|e| ReportError::write(path, e))
    }

    pub fn folder(&self, name: &str) -> Result<Self, ReportError> {
        Self::create(&self.0.join(name))
    }

    /// The subfolder whose `meta.yaml` has that name, in any YAML style.
    pub fn folder_named(&self, name: &str) -> Result<Option<String>, ReportError> {
        let wanted = format!("name: {name}");
        let is_named = |folder: &PathBuf| {
            let meta = read_text(&folder.join(META)).unwrap_or_default();
            let plain = |line: &str| line.trim().trim_end_matches(',').replace(['"', '\''], "");
            meta.lines().any(|line| plain(line) == wanted)
        };
        let folder = folders_in(&self.0)?.into_iter().find(is_named);
        Ok(folder.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned())))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    /// Writes `meta.yaml`, with which the folder is an experiment or a run.
    pub fn complete(&self, text: &str) -> Result<(), ReportError> {
        let path = self.0.join(META);
        // Another process may be writing a file that has just begun.
        let is_old = |own: &fs::DirEntry| {
            let modified = own.metadata().and_then(|facts| facts.modified());
            modified.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > REMNANT_AGE))
        };
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for remnant in entries.filter(|own| is_remnant(own) && is_old(own)) {
            let _ = fs::remove_file(remnant.path()); // it does no harm
        }
        let written = write_atomically(&path, Durability::Process, |file| file.write_all(text.as_bytes()));
        written.map_err(|e| ReportError::write(&path, e))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ReportError> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|e| ReportError::write(&path, e))
    }

    /// Writes a file per key, always in this folder itself whatever the key is.
    pub fn write_values(&self, values: &BTreeMap<String, String>) -> Result<(), ReportError> {
        let mut taken = BTreeSet::new();
        for (key, value) in values {
            let mut name = file_name(key);
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            self.write(&name, value)?;
        }
        Ok(())
    }

    /// Copies the files of a run's folder, but not its subfolders.
    pub fn copy_files(&self, from: &Path) -> Result<(), ReportError> {
        let entries: io::Result<Vec<_>> = fs::read_dir(from).and_then(Iterator::collect);
        for entry in entries.map_err(|e| ReportError::read(from, e))? {
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                let to = self.0.join(entry.file_name());
                fs::copy(entry.path(), &to).map_err(|e| ReportError::write(&to, e))?;
            }
        }
        Ok(())
    }

    /// Its address `file:///...`; bytes other than letters, digits and `/-_.~` are percent-encoded.
    pub fn address(&self) -> String {
        let mut address = "file://".to_owned();
        for byte in self.0.to_string_lossy().bytes() {
            match byte {
                b'/' | b'-' | b'_' | b'.' | b'~' => address.push(char::from(byte)),
                _ if byte.is_ascii_alphanumeric() => address.push(char::from(byte)),
                _ => address.push_str(&format!("%{byte:02X}")),
            }
        }
        address
    }
}

/// Whether a file is the beginning of a `meta.yaml`, of an export that was killed.
fn is_remnant(entry: &fs::DirEntry) -> bool {
    let (name, kind) = (entry.file_name(), entry.file_type());
    let name = name.to_string_lossy();
    kind.is_ok_and(|kind| kind.is_file()) && name.starts_with(&format!(".{META}.")) && name.ends_with(".tmp")
}

/// The file name for a key: MLflow accepts ASCII letters, digits, `_ . -` and space. Everything else becomes
/// `_`, as do the dots of a name that would refer to another folder.
fn file_name(key: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.- ".contains(c);
    let name: String = key.chars().take(LONGEST_KEY).map(|c| if allowed(c) { c } else { '_' }).collect();
    match &name[..] {
        "" | "." | ".." => "_".repeat(name.len().max(1)),
        _ => name,
    }
}

/// The SHA-256 of a text in hexadecimal.
pub fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_leaves_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(&place.path().join("params")).unwrap();
        let outside = place.path().join("outside").display().to_string();
        let keys = [&outside, "../x", "..", "", "a/b", "a_b", "ä\0\n"];
        folder.write_values(&keys.map(|key| (key.to_owned(), key.to_owned())).into()).unwrap();
        let names = |folder: &Path| -> BTreeSet<String> {
            let entries = fs::read_dir(folder).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let expected = ["_", ".._x", "__", "a_b", "a_b_", "___", &outside.replace('/', "_")];
        assert_eq!(names(&folder.0), expected.map(str::to_owned).into());
        assert_eq!(names(place.path()), ["params".to_owned()].into());
    }
}
