//! A build without the feature `parquet`.

use std::{fs::File, path::Path};

use super::text::Text;
use crate::{data::file, spec::Problem};

/// Cannot be constructed.
pub(super) enum ParquetRows {}

impl ParquetRows {
    pub(super) fn new(path: &Path, _: File, _: impl Fn(&str, Option<&str>) -> bool) -> Result<Self, Problem> {
        let problem = file::problem(path, "this build reads no Parquet files");
        Err(problem.hint("build it with `cargo build --release --features parquet`"))
    }

    pub(super) fn next_part(&mut self) -> Result<Option<Text>, Problem> {
        match *self {}
    }
}

/// Checks that the file that `key` names exists, and then refuses it.
pub(super) fn read(
    path: &Path,
    key: &str,
    is_wanted: impl Fn(&str, Option<&str>) -> bool,
) -> Result<Text, Problem> {
    let (file, _) = file::open(path, key)?;
    match ParquetRows::new(path, file, is_wanted)? {}
}
