//! Compiled kernels on disk, so that only the first run on a machine waits for the compiler.
//!
//! An entry is named by a hash of everything its code depends on, begins with a checksum, and is written under another
//! name and then renamed. A damaged entry counts as missing; a folder that cannot be written is ignored.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::host::{Durability, write_atomically};

/// Overrides the user's cache folder.
pub const FOLDER_VARIABLE: &str = "RUNNER_CACHE_DIR";

const SUM: usize = 32;

/// `None` where no folder can be named.
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    pub fn of_user() -> Self {
        let set = |variable: &str| env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
        let folder = set(FOLDER_VARIABLE).or_else(|| {
            let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
            Some(base.join("runner"))
        });
        Self { folder: folder.map(|folder| folder.join("kernels")) }
    }

    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The entry of `parts`, or what `make` returns, which is stored; and whether it was there.
    pub fn get(
        &self,
        parts: &[&[u8]],
        make: impl FnOnce() -> Result<Vec<u8>, String>,
    ) -> Result<(Vec<u8>, bool), String> {
        let path = self.folder.as_ref().map(|folder| folder.join(format!("{}.cubin", key(parts))));
        if let Some(code) = path.as_ref().and_then(|path| read(path)) {
            return Ok((code, true));
        }
        let code = make()?;
        if let Some(path) = &path {
            // On failure the next run compiles again.
            let _ = write(path, &code);
        }
        Ok((code, false))
    }
}

/// Each part with its length before it, so that no two lists of parts read alike.
fn key(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let (sum, code) = bytes.split_at_checked(SUM)?;
    (Sha256::digest(code)[..] == *sum).then(|| code.to_vec())
}

fn write(path: &Path, code: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    write_atomically(path, Durability::Process, |file| {
        file.write_all(&Sha256::digest(code))?;
        file.write_all(code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(cache: &Cache, parts: &[&[u8]], code: &[u8]) -> (Vec<u8>, bool) {
        cache.get(parts, || Ok(code.to_vec())).expect("made")
    }

    #[test]
    fn an_entry_is_made_once_and_anew_when_damaged() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache { folder: Some(folder.path().join("a/b")) };
        assert_eq!(get(&cache, &[b"k", b"1"], b"code"), (b"code".to_vec(), false));
        assert_eq!(get(&cache, &[b"k", b"1"], b"other"), (b"code".to_vec(), true));
        assert_eq!(get(&cache, &[b"k1", b""], b"other"), (b"other".to_vec(), false));
        let entries: Vec<_> =
            fs::read_dir(folder.path().join("a/b")).expect("there").flatten().map(|e| e.path()).collect();
        assert_eq!(entries.len(), 2, "no temporary file is left: {entries:?}");
        for entry in entries {
            let mut bytes = fs::read(&entry).expect("there");
            *bytes.last_mut().expect("some") ^= 1;
            fs::write(&entry, &bytes).expect("written");
        }
        assert_eq!(get(&cache, &[b"k", b"1"], b"new"), (b"new".to_vec(), false));
        assert_eq!(get(&cache, &[b"k", b"1"], b"newer"), (b"new".to_vec(), true));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_done_without() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let cache = Cache { folder: Some(file.path().join("below")) };
        assert_eq!(get(&cache, &[b"k"], b"code"), (b"code".to_vec(), false));
        assert_eq!(get(&cache, &[b"k"], b"again"), (b"again".to_vec(), false));
        assert_eq!(cache.get(&[b"k"], || Err("no".into())), Err("no".into()));
    }
}
