//! Compiled kernels on disk, so that only the first run on a machine waits for the compiler.
//!
//! An entry is named by a hash of everything its code depends on, begins with a checksum, and is written under another
//! name and then renamed. An entry that is damaged counts as missing. One that another user may have written is refused:
//! its code would run here.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::host::{Durability, cache_folder, reason, write_atomically};

const SUM: usize = 32;

/// The rights to write that others may not have.
const OTHERS: u32 = 0o022;

/// Machine code, and how it came.
pub struct Entry {
    pub code: Vec<u8>,
    /// Why the next run compiles it once more, as far as that is known.
    pub trouble: Option<String>,
}

/// `None` where no folder can be named.
pub fn folder() -> Option<PathBuf> {
    Some(cache_folder()?.join("kernels"))
}

/// The entry of `parts` in `folder`, or what `make` returns, which is stored.
pub fn get(
    folder: Option<&Path>,
    parts: &[&[u8]],
    make: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<Entry, String> {
    let Some(folder) = folder else { return Ok(Entry { code: make()?, trouble: None }) };
    let path = folder.join(format!("{}.cubin", key(parts)));
    let refused = match read(folder, &path) {
        Ok(Some(code)) => return Ok(Entry { code, trouble: None }),
        Ok(None) => None,
        Err(refused) => Some(refused),
    };
    let code = make()?;
    let fault = |e: io::Error| format!("cannot write to `{}`: {}", folder.display(), reason(&e));
    let written = write(folder, &path, &code).map_err(fault);
    // What was refused may have been replaced.
    let trouble = written.err().or_else(|| refused.filter(|_| read(folder, &path).is_err()));
    Ok(Entry { code, trouble })
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

/// The code of an entry; `None` where there is no whole one.
///
/// # Errors
/// Why it is not trusted.
fn read(folder: &Path, path: &Path) -> Result<Option<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    for path in [folder, path] {
        // What was opened is judged and read, whatever has that name by then.
        let Ok(mut file) = File::open(path) else { return Ok(None) };
        if !is_trusted(&file) {
            return Err(format!("`{}` is not used: other users may write to it", path.display()));
        }
        if path != folder && file.read_to_end(&mut bytes).is_err() {
            return Ok(None);
        }
    }
    let whole = bytes.split_at_checked(SUM).filter(|(sum, code)| Sha256::digest(code)[..] == **sum);
    Ok(whole.map(|(_, code)| code.to_vec()))
}

/// Whether only this user and root may write there.
fn is_trusted(file: &File) -> bool {
    let Ok(own) = fs::metadata("/proc/self") else { return false };
    file.metadata().is_ok_and(|data| [own.uid(), 0].contains(&data.uid()) && data.mode() & OTHERS == 0)
}

/// Files and folders that are made here are nobody else's to write to; those that are there stay as they are.
fn write(folder: &Path, path: &Path, code: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o777 & !OTHERS).create(folder)?;
    write_atomically(path, Durability::Process, |file| {
        let made = file.get_ref();
        made.set_permissions(Permissions::from_mode(made.metadata()?.mode() & !OTHERS))?;
        file.write_all(&Sha256::digest(code))?;
        file.write_all(code)
    })
}
