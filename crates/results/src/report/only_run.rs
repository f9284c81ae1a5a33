//! The only run of a path, for commands that take one.

use std::path::{Path, PathBuf};

use super::{
    ReportError,
    comparison::Comparison,
    find::{Found, find_one},
    order::Question,
    sweep,
};

/// The folder of the only run of a path.
///
/// # Errors
/// There is none, there are several, or it is a sweep; the hint names its best trial.
pub fn find_run(path: &str) -> Result<PathBuf, ReportError> {
    match find_one(path)? {
        Found::Run(folder) => Ok(folder),
        Found::Sweep(folder) => {
            let best = best_trial(&folder).map(|best| format!(", such as `{best}`, the best"));
            let hint = format!(
                "name the folder of one trial{}; `runner compare A B` holds two sweeps against each other",
                best.unwrap_or_default()
            );
            Err(ReportError::Sweep { path: folder.display().to_string(), hint })
        }
    }
}

fn best_trial(sweep: &Path) -> Option<String> {
    let comparison = Comparison::from_runs(sweep::read(sweep, &mut None).ok()?);
    let rankings = comparison.rankings(&Question::default()).ok()?;
    let best = rankings.first()?.settings.first()?.places.first()?;
    Some(comparison.runs[*best].path.clone())
}
