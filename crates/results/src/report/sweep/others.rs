//! Runs in a sweep's folder that are none of its trials: someone copied them there.

use std::{collections::HashSet, path::Path};

use crate::report::{
    ReportError,
    run::{DAMAGED, Run},
};

/// Tells trials from runs of other sweeps, by the sweep that each recorded.
pub struct Others {
    /// The names of this sweep: that of its folder, and those under which the trials of its table ran, before it was renamed.
    names: HashSet<String>,
    /// Whether trials of the table told theirs.
    has_trials: bool,
}

impl Others {
    /// For the sweep in `folder`, with the trials of its table.
    pub fn new(folder: &Path, listed: &[Run]) -> Self {
        let own = [Some(folder.to_owned()), folder.canonicalize().ok()].into_iter().flatten();
        let own = own.filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
        let recorded: Vec<&str> = listed.iter().filter_map(|run| run.fact("sweep")).collect();
        let has_trials = !recorded.is_empty();
        Self { names: own.chain(recorded.into_iter().map(str::to_owned)).collect(), has_trials }
    }

    /// Marks those of other sweeps, and of none, as damaged, so that no figure of theirs counts.
    pub fn report(&self, runs: &mut [Run], fault: &mut Option<ReportError>) {
        let is_own = |run: &Run| run.fact("sweep").is_some_and(|sweep| self.names.contains(sweep));
        // A sweep that was killed early and renamed has no trial of its present name.
        let is_renamed = !self.has_trials && !runs.iter().any(is_own);
        for run in runs.iter_mut().filter(|run| run.status != DAMAGED && run.environment.is_some()) {
            let of = match run.fact("sweep") {
                Some(sweep) if !is_renamed && !self.names.contains(sweep) => {
                    format!("of the sweep `{sweep}`")
                }
                None if run.fact("trial").is_none() => "of no sweep".to_owned(),
                _ => continue,
            };
            let words = format!("`{}` is no trial of this sweep, but {of}: move it elsewhere", run.path);
            // Its number is that of another trial, or none.
            run.trial = None;
            run.report_damage(ReportError::Damaged(words), fault);
        }
    }
}
