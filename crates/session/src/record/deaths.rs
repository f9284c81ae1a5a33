//! Counts processes that died in a trial since its newest checkpoint: one that needs more memory than there is kills every
//! process that runs it, while one that gets further was only interrupted.

use std::fs;

use super::{RecordError, RunDir, newest_step, run_dir::DEATHS as FILE};
use crate::host::read_text;

/// Counts one more process that died in a trial; returns the number since its newest checkpoint.
pub fn count_death(trial: &RunDir) -> Result<u32, RecordError> {
    let step = newest_step(trial.path());
    let text = read_text(&trial.file(FILE)).unwrap_or_default();
    let before = text.trim().split_once(' ').filter(|(at, _)| at.parse() == Ok(step));
    let count = before.and_then(|(_, count)| count.parse::<u32>().ok()).unwrap_or(0).saturating_add(1);
    trial.write(FILE, &format!("{step} {count}\n")).map(|()| count)
}

/// Whether a process has died in a trial.
pub fn has_deaths(trial: &RunDir) -> bool {
    trial.file(FILE).exists()
}

/// Resets the count, so that the trial may run again.
pub fn forget_deaths(trial: &RunDir) {
    let _ = fs::remove_file(trial.file(FILE)); // at worst a death too many is counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_are_counted_since_the_newest_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let trial = RunDir::existing(folder.path().to_owned());
        assert_eq!([0, 1].map(|_| count_death(&trial).unwrap()), [1, 2]);
        // A count from an earlier checkpoint.
        trial.write(FILE, "7 2\n").unwrap();
        assert_eq!(count_death(&trial).unwrap(), 1);
        forget_deaths(&trial);
        assert_eq!(count_death(&trial).unwrap(), 1);
    }
}
