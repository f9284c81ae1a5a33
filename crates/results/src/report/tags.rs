//! The tags of runs and sweeps.

use std::{fs, io, path::Path};

use crate::{files::FileError, host::read_text};

/// The file with the tags of a run or sweep, one per line.
pub const TAGS: &str = "tags";

/// The words of a folder's tags; none without the file.
///
/// # Errors
/// Something of that name cannot be read, so that nobody knows the tags.
pub fn tags(folder: &Path) -> Result<Vec<String>, FileError> {
    let path = folder.join(TAGS);
    let is_missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    match read_text(&path) {
        Ok(text) => Ok(text.split_whitespace().map(str::to_owned).collect()),
        // A link to a file that is gone is there itself.
        Err(e) if is_missing(&e) && fs::symlink_metadata(&path).is_err_and(|e| is_missing(&e)) => {
            Ok(Vec::new())
        }
        Err(e) => Err(FileError::read(&path, e)),
    }
}

/// The words, or why they cannot be read.
pub(super) fn words_or_fault(folder: &Path) -> (Vec<String>, Option<String>) {
    tags(folder).map_or_else(|e| (Vec::new(), Some(e.to_string())), |words| (words, None))
}
