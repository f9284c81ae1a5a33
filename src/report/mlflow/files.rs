//! Folders and files of a store.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::report::{ReportError, find::folders_in};

/// A folder that is there.
pub struct Folder(PathBuf);

impl Folder {
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let created = fs::create_dir_all(path).and_then(|()| path.canonicalize());
        created.map(Self).map_err(|e| ReportError::write(path, e))
    }

    pub fn folder(&self, name: &str) -> Result<Self, ReportError> {
        Self::create(&self.0.join(name))
    }

    /// The folder in it whose `meta.yaml` has that name, in YAML of any style.
    pub fn folder_named(&self, name: &str) -> Result<Option<String>, ReportError> {
        let wanted = format!("name: {name}");
        let is_named = |folder: &PathBuf| {
            let meta = fs::read_to_string(folder.join("meta.yaml")).unwrap_or_default();
            let plain = |line: &str| line.trim().trim_end_matches(',').replace(['"', '\''], "");
            meta.lines().any(|line| plain(line) == wanted)
        };
        let folder = folders_in(&self.0)?.into_iter().find(is_named);
        Ok(folder.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned())))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    pub fn write(&self, name: &str, text: &str) -> Result<(), ReportError> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|e| ReportError::write(&path, e))
    }

    /// Copies the files of a run's folder, but not of the folders in it.
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

    /// Its address: `file:///...`, with `%` before what is no letter, digit or one of `/-_.~`.
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

/// SHA-256 in hexadecimal digits.
pub fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
