//! Compiled kernels on disk, so that only the first run on a machine waits for the compiler.
//!
//! An entry is named by a hash of everything its code depends on, begins with a checksum, and is written under another
//! name and then renamed. An entry that is damaged, or that another user may write, counts as missing; a folder that cannot
//! be written is ignored.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::host::{Durability, cache_folder, write_atomically};

const SUM: usize = 32;

/// `None` where no folder can be named.
pub fn folder() -> Option<PathBuf> {
    Some(cache_folder()?.join("kernels"))
}

/// The entry of `parts` in `folder`, or what `make` returns, which is stored; and whether it was there.
pub fn get(
    folder: Option<&Path>,
    parts: &[&[u8]],
    make: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<(Vec<u8>, bool), String> {
    let path = folder.map(|folder| folder.join(format!("{}.cubin", key(parts))));
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
    // Code that another user could have written is not run on a GPU.
    let open = |path: &Path| File::open(path).ok().filter(is_trusted);
    let (_, mut file) = (open(path.parent()?)?, open(path)?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let (sum, code) = bytes.split_at_checked(SUM)?;
    (Sha256::digest(code)[..] == *sum).then(|| code.to_vec())
}

/// Whether only this user and root may write there.
fn is_trusted(file: &File) -> bool {
    let Ok(own) = fs::metadata("/proc/self") else { return false };
    file.metadata().is_ok_and(|data| [own.uid(), 0].contains(&data.uid()) && data.mode() & 0o022 == 0)
}

/// Takes the right to write from others, without which an entry is not read; other rights stay.
fn narrow(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.mode();
    if mode & 0o022 == 0 { Ok(()) } else { file.set_permissions(Permissions::from_mode(mode & !0o022)) }
}

fn write(path: &Path, code: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    narrow(&File::open(folder)?)?;
    write_atomically(path, Durability::Process, |file| {
        narrow(file.get_ref())?;
        file.write_all(&Sha256::digest(code))?;
        file.write_all(code)
    })
}
