//! `rows.csv`: which rows of the source file are not for training, and what for.

use std::{io::Write, path::Path};

use super::RecordError;
use crate::host::{Durability, write_atomically};

/// What rows that are set apart are for.
const PARTS: [&str; 3] = ["validation", "test", "later"];

/// Writes the row numbers of the parts; writes no file if all are empty.
pub(super) fn write_held_rows(path: &Path, apart: &[Vec<u32>; 3]) -> Result<(), RecordError> {
    if apart.iter().all(Vec::is_empty) {
        return Ok(());
    }
    write_atomically(path, Durability::Process, |file| {
        writeln!(file, "split,row")?;
        let parts = PARTS.into_iter().zip(apart);
        let mut lines = parts.flat_map(|(split, rows)| rows.iter().map(move |row| (split, row)));
        lines.try_for_each(|(split, row)| writeln!(file, "{split},{row}"))
    })
    .map_err(|e| RecordError::write(path, e))
}
