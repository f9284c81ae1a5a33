//! Errors of comparisons.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::host::reason;

/// Why runs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The path does not exist.
    #[error("`{0}` does not exist")]
    NotFound(String),
    /// A pattern that matches nothing.
    #[error("nothing matches `{0}`")]
    NoMatch(String),
    /// An invalid pattern.
    #[error("`{pattern}` is not a pattern: {message}")]
    Pattern {
        /// As typed.
        pattern: String,
        /// Why.
        message: String,
    },
    /// The path is not a run or sweep.
    #[error(
        "`{0}` is no run: it holds neither `summary.csv` nor `sweep.csv`, and neither does any folder in it"
    )]
    NoRun(String),
    /// A file that cannot be read.
    #[error("cannot read `{}`: {}", path.display(), reason(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A malformed file.
    #[error("`{}` is malformed at line {line}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong there.
        message: String,
    },
}

impl ReportError {
    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub(super) fn malformed(path: &Path, line: u64, message: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), line, message: message.into() }
    }

    /// A hint, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound(_) | Self::NoMatch(_) | Self::NoRun(_) => Some(
                "name a run folder (`runs/NAME/TIME-HASH`), a sweep folder, `runs/NAME` for all in it, or a glob in quotes",
            ),
            Self::Pattern { .. } | Self::Read { .. } | Self::Malformed { .. } => None,
        }
    }
}
