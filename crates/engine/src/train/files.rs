//! Files of rows that change while a run reads them.
//!
//! Checked whenever progress is reported, and at the end. If a file was modified in place, the run has read a
//! mixture of old and new contents, so it fails. If a file was replaced, the run still reads the old one and
//! goes on.

use super::train_loop::{Halt, TrainLoop};
use crate::{
    data::FileChange,
    event::{Event, Level, Status},
    units,
};

impl TrainLoop<'_> {
    /// Fails if a file was modified in place.
    pub(super) fn check_files(&mut self) -> Result<(), Halt> {
        match self.dataset.change() {
            Some(FileChange::Written(what)) => Err(Halt::Changed(self.written(&what))),
            Some(FileChange::Replaced(_)) | None => {
                self.inputs.unchanged_at = self.at.step;
                Ok(())
            }
        }
    }

    /// The last check. A modified file is the reason given for `unread` rows, and turns a finished run into a
    /// failed one; any other end stays as it is.
    pub(super) fn check_inputs(&mut self, status: &mut Status, reason: &mut Option<String>, unread: bool) {
        let warning = match self.dataset.change() {
            None => return,
            Some(FileChange::Replaced(what)) => {
                format!("{what}: all rows of this run are of the earlier file")
            }
            Some(FileChange::Written(what)) => {
                let what = self.written(&what);
                if unread || matches!(status, Status::Finished) {
                    (*status, *reason) = (Status::Failed, Some(what));
                    return;
                }
                what
            }
        };
        self.outbox.events.push(Event::Notice(Level::Warning, warning));
    }

    fn written(&self, what: &str) -> String {
        let since = match self.inputs.unchanged_at {
            0 => "rows may be of either content from the first step on".to_owned(),
            step => format!("rows may be of either content after step {}", units::count(step)),
        };
        format!("{what}: {since}; run again once nothing writes to it, or on a copy")
    }
}
