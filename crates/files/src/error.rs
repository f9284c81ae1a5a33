//! Why a file cannot be read.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::host::reason;

/// Why a file of a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read `{}`: {}", path.display(), reason(source))]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is empty", .0.display())]
    Empty(PathBuf),
    /// The line is counted from 1.
    #[error("`{}` is malformed at line {line}: {message}", path.display())]
    Malformed { path: PathBuf, line: u64, message: String },
}

impl FileError {
    pub fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub fn malformed(path: &Path, line: u64, message: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), line, message: message.into() }
    }
}
