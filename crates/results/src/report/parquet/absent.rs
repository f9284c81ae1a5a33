//! Stand-in for builds without the feature `parquet`.

use std::marker::PhantomData;

use super::Kind;
use crate::report::ReportError;

/// Its constructor always fails.
pub(in crate::report) struct ParquetFile<W>(PhantomData<W>);

impl<W> ParquetFile<W> {
    pub(in crate::report) fn new(_: &[(String, Kind)], _: W) -> Result<Self, ReportError> {
        let hint = "build it with `cargo build --release --features parquet`";
        Err(ReportError::query("this build writes no Parquet files", Some(hint)))
    }

    pub(in crate::report) fn write<'a>(
        &mut self,
        _: impl IntoIterator<Item = &'a Vec<String>>,
    ) -> Result<(), ReportError> {
        Ok(())
    }

    pub(in crate::report) fn finish(self) -> Result<(), ReportError> {
        Ok(())
    }
}
