//! Compiled kernels on disk, so that only the first run on a machine waits for the compiler; also which
//! algorithms were chosen for its products.
//!
//! An entry's name is a hash of everything its code depends on. It begins with a checksum, and is written
//! under another name and then renamed. A damaged entry counts as missing. An entry that another user could
//! have written is refused, because its code would run here.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::host::{Durability, cache_folder, reason, write_atomically};

const SUM: usize = 32;

/// The write permissions that other users must not have.
const OTHERS: u32 = 0o022;

/// Machine code, and whether it could be cached.
pub struct Entry {
    pub code: Vec<u8>,
    /// Why the next run has to compile it again, if so.
    pub trouble: Option<String>,
}

/// The folder of the cache; `None` if no location for it is known.
pub fn folder() -> Option<PathBuf> {
    Some(cache_folder()?.join("kernels"))
}

/// The entry for `parts` in `folder`; if there is none, the result of `make`, which is then stored.
pub fn get(
    folder: Option<&Path>,
    parts: &[&[u8]],
    make: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<Entry, String> {
    let Some(folder) = folder else { return Ok(Entry { code: make()?, trouble: None }) };
    let path = path(folder, parts, "cubin");
    let refused = match read(folder, &path) {
        Ok(Some(code)) => return Ok(Entry { code, trouble: None }),
        Ok(None) => None,
        Err(refused) => Some(refused),
    };
    let code = make()?;
    let fault = |e: io::Error| format!("cannot write to `{}`: {}", folder.display(), reason(&e));
    let written = write(folder, &path, &code).map_err(fault);
    // Writing may have replaced the refused entry by a good one.
    let trouble = written.err().or_else(|| refused.filter(|_| read(folder, &path).is_err()));
    Ok(Entry { code, trouble })
}

/// Where an entry lies that depends on `parts`. Hashes each part with its length first, so that different
/// lists of parts never give the same input.
pub fn path(folder: &Path, parts: &[&[u8]], extension: &str) -> PathBuf {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("{name}.{extension}"))
}

/// The contents of an entry; `None` if there is no intact one.
///
/// # Errors
/// Why the entry is not trusted.
pub fn read(folder: &Path, path: &Path) -> Result<Option<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    for path in [folder, path] {
        // Check and read the opened file itself: the path may refer to another file by then.
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

/// Whether only this user and root may write to it.
fn is_trusted(file: &File) -> bool {
    let Ok(own) = fs::metadata("/proc/self") else { return false };
    file.metadata().is_ok_and(|data| [own.uid(), 0].contains(&data.uid()) && data.mode() & OTHERS == 0)
}

/// Folders and files that are created here are not writable for other users; existing ones are not changed.
pub fn write(folder: &Path, path: &Path, contents: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o777 & !OTHERS).create(folder)?;
    write_atomically(path, Durability::Process, |file| {
        let made = file.get_ref();
        made.set_permissions(Permissions::from_mode(made.metadata()?.mode() & !OTHERS))?;
        file.write_all(&Sha256::digest(contents))?;
        file.write_all(contents)
    })
}
