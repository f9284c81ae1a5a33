//! Files that are there complete or not at all: written under a temporary name in the same folder, then renamed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::UNIX_EPOCH,
};

use super::signals::remove_on_signals;

/// What a finished write must outlive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A kill of the process.
    Process,
    /// A loss of power, too: waits for the disk (fsync).
    Power,
}

/// Writes a file atomically; `write` makes its content.
///
/// # Errors
/// Where it cannot be written; nothing is left then, and an older file of that name is as it was.
pub fn write_atomically(
    path: &Path,
    durability: Durability,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    write_by(&temporary_name(path), path, durability, write)
}

/// As [`write_atomically`], of a command that signals end at once: they remove what it has begun.
///
/// # Errors
/// Likewise.
pub fn write_until_signal(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary_name(path);
    remove_on_signals(&temporary);
    write_by(&temporary, path, Durability::Process, write)
}

fn write_by(
    temporary: &Path,
    path: &Path,
    durability: Durability,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let written = create_new(temporary).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if durability == Durability::Power { file.sync_all() } else { Ok(()) }
    });
    written.and_then(|()| fs::rename(temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(temporary); // it may never have been made
    })?;
    match durability {
        Durability::Process => Ok(()),
        // The new name stands in the folder, which has to reach the disk, too.
        Durability::Power => sync_path(parent(path)),
    }
}

/// Waits until a file, or the names in a folder, are on the disk.
///
/// # Errors
/// The system's.
pub fn sync_path(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A link or file of that name is another's, in a shared folder even an enemy's: it is replaced, never written through.
fn create_new(path: &Path) -> io::Result<File> {
    let create = || OpenOptions::new().write(true).create_new(true).open(path);
    match create() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(path).and_then(|()| create()),
        result => result,
    }
}

/// `.model.safetensors.1234-5678-0.tmp`: hidden, in the same folder, this process's and this call's own. A process on another
/// host may have the same number: a time tells it apart.
fn temporary_name(path: &Path) -> PathBuf {
    static TIME: LazyLock<u32> =
        LazyLock::new(|| UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos()));
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}-{}-{call}.tmp", std::process::id(), *TIME))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        write_atomically(&path, Durability::Power, |file| file.write_all(b"old")).unwrap();
        let error = write_atomically(&path, Durability::Power, |file| {
            file.write_all(b"half")?;
            file.flush()?;
            Err(io::Error::from_raw_os_error(28))
        });
        assert_eq!(error.unwrap_err().raw_os_error(), Some(28));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        write_atomically(&path, Durability::Process, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_link_under_the_temporary_name_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [link, victim] = ["link", "victim"].map(|name| folder.path().join(name));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        create_new(&link).unwrap().write_all(b"other").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&link).unwrap(), "other");
    }
}
