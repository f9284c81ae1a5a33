//! The table at the end of a sweep.

use std::{fmt::Write, path::Path};

use super::{ReportError, comparison::Comparison, grid, sweep};

/// The end of the sweep in `folder` for a terminal of `width` columns: its trials with axes, status and key figures,
/// the reasons of those that did not finish, and the folder.
///
/// # Errors
/// Where a file of the sweep is malformed.
pub fn sweep_end(folder: &Path, width: u16) -> Result<String, ReportError> {
    let comparison = Comparison::of(sweep::read(folder)?);
    let mut columns = grid::columns(&comparison);
    columns.retain(|column| !matches!(column.title.as_str(), "h2d" | "d2h" | "logging"));
    if let Some(first) = columns.first_mut() {
        // Numbered as the trials' folders are, from 0.
        first.title = "trial".to_owned();
        first.cells = (0..comparison.runs.len()).map(|trial| trial.to_string()).collect();
    }
    let mut text = grid::table(&columns, width);
    text.push('\n');
    for (trial, run) in comparison.runs.iter().enumerate().filter(|(_, run)| !run.reason.is_empty()) {
        let _ = writeln!(text, "  trial {trial} {}: {}", run.status, run.reason); // a String takes every write
    }
    let _ = writeln!(text, "  folder {}", folder.display());
    Ok(text)
}
