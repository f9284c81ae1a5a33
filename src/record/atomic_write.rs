//! Files that are there whole or not at all: written under a temporary name in the same folder, then renamed.

use std::{
    fs::{self, File},
    io::{self, BufWriter},
    path::{Path, PathBuf},
};

use super::RecordError;

/// What a finished write must outlive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A kill of the process.
    Process,
    /// A loss of power, too: waits for the disk (fsync).
    Power,
}

/// Writes a file whole; `write` makes its content.
///
/// # Errors
/// Where it cannot be written; nothing is left then, and an older file of that name is as it was.
pub fn write_atomically(
    path: &Path,
    durability: Durability,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), RecordError> {
    let temporary = temporary_name(path);
    let result = fill(&temporary, durability, write).and_then(|()| fs::rename(&temporary, path));
    result.map_err(|e| {
        let _ = fs::remove_file(&temporary); // it may never have been made
        RecordError::write(path, e)
    })?;
    match durability {
        Durability::Process => Ok(()),
        // The new name stands in the folder, which has to reach the disk, too.
        Durability::Power => sync_folder(path).map_err(|e| RecordError::write(path, e)),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn fill(
    path: &Path,
    durability: Durability,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write(&mut file)?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    if durability == Durability::Power {
        file.sync_all()?;
    }
    Ok(())
}

/// `.model.safetensors.1234.tmp`: hidden, in the same folder, this process's own.
fn temporary_name(path: &Path) -> PathBuf {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
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
        let expected = format!("cannot write `{}`: no space left on device", path.display());
        assert_eq!(error.unwrap_err().to_string(), expected);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        write_atomically(&path, Durability::Power, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
