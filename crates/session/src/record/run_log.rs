//! `run.log`: what happened, one line per event with its UTC time.

use std::path::{Path, PathBuf};

use super::{
    RecordError, Sink,
    environment::{now, rfc3339},
    messages,
    row_file::RowFile,
};
use crate::event::{Event, Header, Level};

/// The sink of `run.log`.
pub(super) struct RunLog {
    file: RowFile,
    folder: PathBuf,
    header: Option<Box<Header>>,
    clock: fn() -> String,
}

impl RunLog {
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        Ok(Self::new(path, RowFile::create(path, b"")?))
    }

    /// Continues the log of an earlier part of the run.
    pub fn resume(path: &Path) -> Result<Self, RecordError> {
        Ok(Self::new(path, RowFile::reopen(path)?))
    }

    fn new(path: &Path, file: RowFile) -> Self {
        let folder = path.parent().unwrap_or(path).to_owned();
        Self { file, folder, header: None, clock: || rfc3339(now()) }
    }

    fn line(&mut self, level: &str, message: &str) -> Result<(), RecordError> {
        self.file.lines.line(&[&(self.clock)(), " ", level, " ", message]);
        self.file.flush_burst()
    }
}

const INFO: &str = "INFO ";
const WARNING: &str = "WARN ";
const ERROR: &str = "ERROR";

impl Sink for RunLog {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Started(header) => {
                self.line(INFO, &messages::started(&header.name, header))?;
                self.header = Some(header.clone());
                let build = messages::of_build(header.build);
                build.map_or(Ok(()), |words| self.line(WARNING, &format!("build {words}")))
            }
            Event::Validation(row) => self.line(INFO, &messages::validation(row)),
            Event::Notice(Level::Info, message) => self.line(INFO, message),
            Event::Notice(Level::Warning, message) => self.line(WARNING, message),
            Event::Notice(Level::Error, message) => self.line(ERROR, message),
            Event::Finished(outcome) => {
                let level = if messages::is_fault(outcome.status) { ERROR } else { INFO };
                self.line(level, &messages::ended(outcome))?;
                let header = self.header.take();
                let details = header.map(|header| messages::details(&header, outcome)).unwrap_or_default();
                details.iter().try_for_each(|line| self.line(INFO, line))?;
                let no_model = messages::no_model(outcome, &self.folder);
                no_model.map_or(Ok(()), |words| self.line(WARNING, &format!("no model was written{words}")))
            }
            Event::Step(row) => {
                let message = row.message.as_ref().map(|m| format!(": {m}")).unwrap_or_default();
                let (step, status) = (row.step, row.status.name());
                self.line(INFO, &format!("step {step}, {}, {status}{message}", row.expression))
            }
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn the_whole_story() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.log");
        let mut sink =
            RunLog { clock: || "2027-01-15T08:00:00.000Z".to_owned(), ..RunLog::create(&path).unwrap() };
        for event in sample::events() {
            sink.event(&event).unwrap();
        }
        sink.flush().unwrap();
        insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap(), @r"
        2027-01-15T08:00:00.000Z INFO  linreg: 2 epochs of 80 rows, 6 steps, on cpu (asked for 1 GPU), engine serial, f32
        2027-01-15T08:00:00.000Z WARN  `gpu:0` is not there: training on the CPU
        2027-01-15T08:00:00.000Z INFO  epoch 1, step 3: validation loss 0.1235, accuracy 90.0 %
        2027-01-15T08:00:00.000Z INFO  two lines
        2027-01-15T08:00:00.000Z INFO  epoch 2, step 6: validation loss 0.1000, accuracy 95.0 %
        2027-01-15T08:00:00.000Z INFO  finished after 6 steps in 2 epochs, 400 ms
        2027-01-15T08:00:00.000Z INFO  logging took 1.25 % of the training time
        2027-01-15T08:00:00.000Z INFO  profiler overhead: 0.08 % of the time: 10,000 readings of the clock at 41 ns
        2027-01-15T08:00:00.000Z INFO  training time: log 64.0 %, unexplained 25.0 %, call overhead 11.0 %; a step takes 0.76 µs, 4.0x its estimate by measured rates (0.19 µs)
        2027-01-15T08:00:00.000Z INFO  to wait 2 times for the log instead of 6, set `logging.policy=buffered`
        ");
    }
}
