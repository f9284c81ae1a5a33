//! The lines at the end of `sweep.toml` by which its trials are known again, and the overrides that gave it more of them. Lines
//! are only added: processes that share the sweep hold locks on the file.

use std::{fs::OpenOptions, io::Write};

use crate::{
    host::read_text,
    record::{RecordError, RunDir, SWEEP_FILE},
};

const TRIALS: &str = "# Its trials";
const WITH: &str = " with ";

/// What `sweep.toml` says of its trials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownTrials {
    /// The overrides that gave the sweep more trials: each time all that hold from then on.
    pub overrides: Vec<Vec<String>>,
    /// The tail of a folder's name that all of them together give.
    pub(super) tail: Option<String>,
}

impl KnownTrials {
    /// Reads them; a line that was cut short says nothing.
    pub fn read(sweep: &RunDir) -> Self {
        let text = read_text(&sweep.file(SWEEP_FILE)).unwrap_or_default();
        let mut known = Self::default();
        for (middle, tail) in text.lines().filter_map(|line| line.strip_prefix(TRIALS)?.rsplit_once(": ")) {
            let is_whole = tail.strip_prefix("sweep-").is_some_and(|hash| hash.len() == 8);
            let overrides = middle.strip_prefix(WITH).map(serde_json::from_str);
            match overrides {
                None if is_whole && middle.is_empty() => {}
                Some(Ok(overrides)) if is_whole => known.overrides.push(overrides),
                _ => continue,
            }
            known.tail = Some(tail.to_owned());
        }
        known
    }
}

/// Overrides that give a sweep more trials than it is known to have.
#[derive(Clone, Debug)]
pub struct Extension {
    /// All that hold.
    pub overrides: Vec<String>,
    /// What it had when they were read.
    pub after: KnownTrials,
    /// The hash of the trials that its spec and the overrides of `after` give.
    pub earlier: String,
}

impl Extension {
    /// Adds the line, in one piece.
    pub(super) fn write(&self, sweep: &RunDir, tail: &str) -> Result<(), RecordError> {
        let path = sweep.file(SWEEP_FILE);
        let overrides = serde_json::json!(self.overrides);
        // A line that was cut short ends here.
        let line = format!("\n{TRIALS}{WITH}{overrides}: {tail}\n");
        let opened = OpenOptions::new().append(true).open(&path);
        opened.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|e| RecordError::write(&path, e))
    }
}

/// The last line of a new `sweep.toml`.
pub(super) fn trials_line(tail: &str) -> String {
    format!("{TRIALS}: {tail}")
}
