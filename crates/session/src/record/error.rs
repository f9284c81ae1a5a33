//! Errors of recording: messages name the path, the system's reason and a remedy.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::host::reason;

/// The path shown if printing fails.
pub(super) const STANDARD_OUTPUT: &str = "standard output";

/// Why something could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot make the folder `{}`: {}", path.display(), reason(source))]
    MakeFolder { path: PathBuf, source: io::Error },
    /// A file cannot be created, written or renamed.
    #[error("cannot write `{}`: {}", path.display(), reason(source))]
    Write { path: PathBuf, source: io::Error },
    /// A file of the record cannot be read back.
    #[error("cannot read `{}`: {}", path.display(), reason(source))]
    Read { path: PathBuf, source: io::Error },
    /// A file cannot be locked: its file system has no locks.
    #[error("cannot lock `{}`: {}", path.display(), reason(source))]
    Lock { path: PathBuf, source: io::Error },
    /// A file's content cannot be expressed in its format.
    #[error("cannot write `{}`: {message}", path.display())]
    Encode { path: PathBuf, message: String },
    /// A file of an earlier part of the run was changed since.
    #[error("cannot go on with `{}`: {message}", path.display())]
    Unusable { path: PathBuf, message: &'static str },
    #[error("cannot start the thread that writes the run folder: {}", reason(.0))]
    Start(#[source] io::Error),
    #[error("the thread that writes the run folder ended before the run did")]
    Gone,
}

impl RecordError {
    pub fn make_folder(path: &Path, source: io::Error) -> Self {
        Self::MakeFolder { path: path.to_owned(), source }
    }

    pub fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }

    /// Whether other runs in folders beside this one would fail likewise.
    pub fn is_of_all_folders(&self) -> bool {
        match self {
            // The folder around it may be gone.
            Self::MakeFolder { source, .. } => source.kind() != io::ErrorKind::NotFound,
            Self::Write { source, .. } | Self::Read { source, .. } => is_of_disk(source),
            Self::Lock { .. } | Self::Start(_) | Self::Gone => true,
            Self::Encode { .. } | Self::Unusable { .. } => false,
        }
    }

    pub fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub fn unusable(path: &Path, message: &'static str) -> Self {
        Self::Unusable { path: path.to_owned(), message }
    }

    pub fn encode(path: &Path, message: impl ToString) -> Self {
        Self::Encode { path: path.to_owned(), message: message.to_string() }
    }

    pub fn hint(&self) -> Option<&'static str> {
        if matches!(self, Self::Lock { .. }) {
            return Some("choose a folder whose file system has locks with `--runs-dir DIR`");
        }
        if let Self::MakeFolder { source, .. } | Self::Write { source, .. } | Self::Read { source, .. } = self
            && matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
        {
            return Some("a process may open more files after `ulimit -n 4096`; `--jobs 1` needs the fewest");
        }
        let (Self::MakeFolder { path, source } | Self::Write { path, source }) = self else { return None };
        if path == Path::new(STANDARD_OUTPUT) {
            return None;
        }
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Some("make that folder writable; `--runs-dir DIR` names another for a new run")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Some("free some space, or choose another disk with `--runs-dir DIR`")
            }
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => Some(
                "a file stands where a folder is needed: move it, or choose another folder with `--runs-dir DIR`",
            ),
            _ => None,
        }
    }
}

/// Whether the disk takes nothing, since it is full, read-only or broken, or files are as large or as many as they may be.
fn is_of_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem | FileTooLarge)
        || matches!(error.raw_os_error(), Some(libc::EIO | libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_named_with_their_way_out() {
        let full = |path: &str| RecordError::write(Path::new(path), io::Error::from_raw_os_error(28));
        let error = full("runs/a/metrics.csv");
        assert_eq!(error.to_string(), "cannot write `runs/a/metrics.csv`: no space left on device");
        assert_eq!(error.hint(), Some("free some space, or choose another disk with `--runs-dir DIR`"));
        // A file of one run that somebody else owns says nothing of the next run.
        let closed = RecordError::write(Path::new("a/b"), io::Error::from_raw_os_error(13));
        let broken = RecordError::read(Path::new("a/b"), io::Error::from_raw_os_error(5));
        let is_of_all = [full("a/b"), closed, broken].map(|error| error.is_of_all_folders());
        assert_eq!(is_of_all, [true, false, true]);
        // The user chose where standard output goes, so there is no hint.
        assert_eq!(full(STANDARD_OUTPUT).hint(), None);
        let error = RecordError::read(Path::new("a/b"), io::Error::from_raw_os_error(libc::EMFILE));
        assert!(error.hint().unwrap().contains("`ulimit -n 4096`"));
        let error = RecordError::make_folder(Path::new("/proc/x"), io::Error::from_raw_os_error(13));
        assert_eq!(error.to_string(), "cannot make the folder `/proc/x`: permission denied");
        assert_eq!(
            error.hint(),
            Some("make that folder writable; `--runs-dir DIR` names another for a new run")
        );
        let error = RecordError::make_folder(Path::new("a/b"), io::Error::from_raw_os_error(20));
        assert!(error.hint().unwrap().starts_with("a file stands where a folder is needed"));
    }
}
