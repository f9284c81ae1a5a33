//! The only run of a path, for commands that take one.

use std::path::PathBuf;

use super::{
    ReportError,
    best::BestSetting,
    find::{Found, find_one},
};
use crate::units;

/// The folder of the only run of a path.
///
/// # Errors
/// There is none, there are several, or it is a sweep; the hint names its best trial.
pub fn find_run(path: &str) -> Result<PathBuf, ReportError> {
    match find_one(path)? {
        Found::Run(folder) => Ok(folder),
        Found::Sweep(folder) => {
            let best = BestSetting::of_sweep(&folder).ok().flatten();
            let best = best.map(|best| format!(", such as `{}`, the best", best.folder.display()));
            let hint = format!(
                "name the folder of one trial{}; `runner compare A B` holds two sweeps against each other",
                best.unwrap_or_default()
            );
            Err(ReportError::Sweep { path: folder.display().to_string(), hint })
        }
    }
}

/// The folder of the only run of a path, or of the best trial of the only sweep, with the words of its setting.
///
/// # Errors
/// There is none, there are several, or no trial of the sweep is the best.
pub fn find_best_run(path: &str) -> Result<(PathBuf, Option<String>), ReportError> {
    match find_one(path)? {
        Found::Run(folder) => Ok((folder, None)),
        Found::Sweep(folder) => match BestSetting::of_sweep(&folder)? {
            Some(best) => {
                let lost = match best.lost {
                    0 => String::new(),
                    lost => format!("; damaged or deleted: {}", units::counted(lost as u64, "trial")),
                };
                Ok((best.folder, Some(best.words + &lost)))
            }
            None => {
                let hint = "name the folder of one trial: none of them finished, or they have no order, since they are of \
                            different tasks or are judged by different metrics";
                Err(ReportError::Sweep { path: folder.display().to_string(), hint: hint.to_owned() })
            }
        },
    }
}
