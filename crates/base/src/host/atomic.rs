//! Files that exist either completely or not at all: they are written under a temporary name in the same
//! folder, then renamed.

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

/// What a finished write must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A kill of the process.
    Process,
    /// Also a power loss: waits for the disk (fsync).
    Power,
}

/// Writes a file atomically; `write` writes its content.
///
/// # Errors
/// The file cannot be written. Nothing is left behind then, and an existing file of that name is unchanged.
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
        let _ = fs::remove_file(temporary); // it may not have been created
    })?;
    match durability {
        Durability::Process => Ok(()),
        // The new name is an entry of the folder, which must be synced too.
        Durability::Power => sync_path(parent(path)),
    }
}

/// Waits until a file's content, or a folder's entries, are on the disk.
///
/// # Errors
/// The system's error.
pub fn sync_path(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates the temporary file. An existing link or file of that name belongs to someone else, in a shared
/// folder perhaps an attacker: it is replaced, never written through.
fn create_new(path: &Path) -> io::Result<File> {
    let create = || OpenOptions::new().write(true).create_new(true).open(path);
    match create() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(path).and_then(|()| create()),
        result => result,
    }
}

/// `.model.safetensors.1234-5678-0.tmp`: hidden, in the same folder, unique to this process and call. A
/// process on another host may have the same process number, so the name also has a time.
fn temporary_name(path: &Path) -> PathBuf {
    static PROCESS: LazyLock<String> = LazyLock::new(|| {
        let time = UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos());
        format!("{}-{time}", std::process::id())
    });
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}-{call}.tmp", *PROCESS))
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
