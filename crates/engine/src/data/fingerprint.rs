//! Detects whether a file has changed since it was opened.
//!
//! Compares length and modification time, not contents. Timestamps have a resolution of some milliseconds, so
//! two writes within one tick look like one. A write through a memory map changes the time when a page is
//! first touched. A comparison takes about a microsecond.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{device::FileChange, units};

/// A file's identity and state at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFingerprint {
    path: PathBuf,
    /// Device and inode: identifies the file under any name.
    file: (u64, u64),
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl FileFingerprint {
    /// The fingerprint of the file at `path` now; `None` if there is none.
    pub fn from_path(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::new(path, &metadata))
    }

    pub(super) fn new(path: &Path, metadata: &Metadata) -> Self {
        Self {
            path: path.into(),
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// When it was written last: seconds and nanoseconds since 1970.
    pub fn modified(&self) -> (i64, i64) {
        self.modified
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How an open file has changed, if its metadata are `now`. Only if the file itself is unchanged, checks
    /// whether its path now leads to another file.
    pub(super) fn change(&self, now: &Metadata) -> Option<FileChange> {
        let path = self.path.display();
        if self.bytes != now.len() {
            let bytes =
                |bytes: u64| format!("{} {}", units::count(bytes), if bytes == 1 { "byte" } else { "bytes" });
            let (then, now) = (bytes(self.bytes), bytes(now.len()));
            return Some(FileChange::Written(format!(
                "`{path}` had {then} when it was opened, and now has {now}"
            )));
        }
        if self.modified != (now.mtime(), now.mtime_nsec()) {
            return Some(FileChange::Written(format!("`{path}` was written to after it was opened")));
        }
        let what = match fs::metadata(&self.path) {
            Ok(other) if Self::new(&self.path, &other).file == self.file => return None,
            Ok(_) => format!("`{path}` was replaced by another file after it was opened"),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                format!("`{path}` was removed after it was opened")
            }
            Err(e) => format!("`{path}` can no longer be looked at ({e})"),
        };
        Some(FileChange::Replaced(what))
    }
}

/// Fingerprints taken before files are read.
pub(super) struct Before(Vec<FileFingerprint>);

impl Before {
    pub(super) fn reading(paths: &[&Path]) -> Self {
        Self(paths.iter().filter_map(|path| FileFingerprint::from_path(path)).collect())
    }

    /// The fingerprints if no file has changed, else the path of the first changed file.
    pub(super) fn after(self) -> Result<Vec<FileFingerprint>, PathBuf> {
        match self.0.iter().find(|stamp| FileFingerprint::from_path(&stamp.path).as_ref() != Some(*stamp)) {
            Some(changed) => Err(changed.path.clone()),
            None => Ok(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        time::{Duration, SystemTime},
    };

    use super::*;

    #[test]
    fn what_becomes_of_a_file_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let write = |path: &Path, text: &str| {
            fs::write(path, text).expect("a file");
            File::options().write(true).open(path).and_then(|file| file.set_modified(old)).expect("a time");
        };
        write(&path, "1234");
        let file = File::open(&path).expect("a file");
        let stamp = FileFingerprint::from_path(&path).expect("a file");
        let change = || stamp.change(&file.metadata().expect("a file"));
        let shown = path.display();
        assert_eq!(change(), None);
        write(&path, "1");
        assert_eq!(
            change(),
            Some(FileChange::Written(format!(
                "`{shown}` had 4 bytes when it was opened, and now has 1 byte"
            )))
        );
        fs::write(&path, "4321").expect("a file");
        assert_eq!(
            change(),
            Some(FileChange::Written(format!("`{shown}` was written to after it was opened")))
        );
        write(&path, "1234");
        assert_eq!(change(), None, "the same length and time: nothing else is compared");
        fs::rename(&path, folder.path().join("y")).expect("another name");
        assert_eq!(
            change(),
            Some(FileChange::Replaced(format!("`{shown}` was removed after it was opened")))
        );
        write(&path, "1234");
        assert_eq!(
            change(),
            Some(FileChange::Replaced(format!("`{shown}` was replaced by another file after it was opened")))
        );
    }

    #[test]
    fn what_cannot_be_looked_at_was_not_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("folder");
        fs::create_dir(&folder).expect("a folder");
        let path = folder.join("x");
        fs::write(&path, "1234").expect("a file");
        let file = File::open(&path).expect("a file");
        let stamp = FileFingerprint::from_path(&path).expect("a file");
        fs::rename(&folder, place.path().join("elsewhere")).expect("another name");
        fs::write(&folder, "no folder").expect("a file");
        assert_eq!(
            stamp.change(&file.metadata().expect("a file")),
            Some(FileChange::Replaced(format!(
                "`{}` can no longer be looked at (Not a directory (os error 20))",
                path.display()
            )))
        );
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        fs::write(&a, "1").expect("a file");
        fs::write(&b, "2").expect("a file");
        let missing = folder.path().join("c");
        let stamps = Before::reading(&[&a, &missing, &b]).after().expect("nothing changes");
        assert_eq!(stamps.iter().map(FileFingerprint::path).collect::<Vec<_>>(), [&a, &b]);
        let before = Before::reading(&[&a, &b]);
        fs::write(&b, "22").expect("a file");
        assert_eq!(before.after(), Err(b));
    }
}
