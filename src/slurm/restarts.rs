//! Counts restarts of a task in which no trial made progress.

use std::{fs, path::Path};

use super::{FOLDER, SlurmError};
use crate::host::read_text;

/// A task ends after this number of restarts without progress.
pub const MOST_RESTARTS: u32 = 3;

/// Counts a restart of a task in the sweep's folder; returns the number of restarts since the last one with
/// progress, including this one.
///
/// # Errors
/// The count cannot be written: without it a task could restart forever.
pub fn restarts_without_progress(sweep: &Path, task: &str, has_progress: bool) -> Result<u32, SlurmError> {
    let path = sweep.join(FOLDER).join(format!("{task}.restarts"));
    if has_progress {
        let _ = fs::remove_file(&path); // usually there is no file
        return Ok(0);
    }
    let before: u32 = read_text(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let count = before.saturating_add(1);
    fs::write(&path, format!("{count}\n")).map_err(|source| SlurmError::Write { path, source })?;
    Ok(count)
}
