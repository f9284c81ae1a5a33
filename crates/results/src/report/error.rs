//! Errors of comparisons.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{files::FileError, host::reason};

/// Why runs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// With a suggestion of a folder with a similar name.
    #[error("`{path}` does not exist")]
    NotFound { path: String, near: Option<String> },
    #[error("nothing matches `{0}`")]
    NoMatch(String),
    #[error("`{pattern}` is not a pattern: {message}")]
    Pattern { pattern: String, message: String },
    #[error(
        "`{0}` holds no run (`spec.toml` with `summary.csv` or `metrics.csv`) and no sweep (`sweep.toml` with `sweep.csv`)"
    )]
    NoRun(String),
    /// With suggestions of similar names, and the list of all.
    #[error("no run has a column `{word}`")]
    NoColumn { word: String, hint: String },
    #[error("{message}")]
    Query { message: String, hint: Option<String> },
    #[error("no value of `{metric}` in {}", crate::units::counted(*runs as u64, "run"))]
    NoValues { metric: String, runs: usize, hint: Option<String> },
    #[error("`{path}` holds {count} runs")]
    Several { path: String, count: usize },
    #[error("`{path}` is a sweep, and holds a run for each trial")]
    Sweep { path: String, hint: String },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot write `{}`: {}", path.display(), reason(source))]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot write Parquet: {0}")]
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    Parquet(String),
    /// What is wrong with a file, which it names.
    #[error("{0}")]
    Damaged(String),
}

impl ReportError {
    /// A problem with a command's options.
    pub fn query(message: impl Into<String>, hint: Option<&str>) -> Self {
        Self::Query { message: message.into(), hint: hint.map(str::to_owned) }
    }

    pub fn read(path: &Path, source: io::Error) -> Self {
        FileError::read(path, source).into()
    }

    pub(super) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }

    pub(super) fn malformed(path: &Path, line: u64, message: impl Into<String>) -> Self {
        FileError::malformed(path, line, message).into()
    }

    /// A hint, if there is one.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::NotFound { near: Some(near), .. } | Self::NoValues { hint: Some(near), .. } => Some(near),
            Self::NotFound { path, .. } if path == "latest" => {
                Some("the newest run or sweep is `$(runner latest)`")
            }
            Self::NotFound { near: None, .. } | Self::NoMatch(_) | Self::NoRun(_) => Some(
                "name a run folder (`runs/NAME/TIME-HASH`), a sweep folder, `runs/NAME` for all in it, or a glob in quotes",
            ),
            Self::NoValues { hint: None, .. } => Some(
                "`--metric` takes a column of `metrics.csv`, such as `loss` or `validation.loss`; `logging.metrics` adds columns",
            ),
            Self::Query { hint, .. } => hint.as_deref(),
            Self::NoColumn { hint, .. } | Self::Sweep { hint, .. } => Some(hint),
            Self::Several { .. } => Some("name the folder of one"),
            Self::Pattern { .. }
            | Self::Parquet(_)
            | Self::File(_)
            | Self::Write { .. }
            | Self::Damaged(_) => None,
        }
    }
}
