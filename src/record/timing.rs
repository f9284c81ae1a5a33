//! `timing.csv`: where the time went, per device, clock and phase.

use std::path::Path;

use super::{RecordError, Sink, lines::Lines, row_file::RowFile};
use crate::event::{Event, PhaseTime};

const COLUMNS: [&str; 13] = [
    "device", "clock", "phase", "count", "total_s", "mean_s", "std_s", "min_s", "p50_s", "p95_s", "p99_s",
    "max_s", "share",
];

/// The sink of `timing.csv`: its header at the start, its rows at the end.
pub struct TimingCsv {
    file: RowFile,
}

impl TimingCsv {
    /// Creates the file with its header.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        Ok(Self { file: RowFile::with_columns(path, COLUMNS)? })
    }

    fn row(&mut self, time: &PhaseTime) -> Result<(), RecordError> {
        let lines = &mut self.file.lines;
        lines.text(&time.device).text(time.clock).text(time.phase).u64(time.count);
        lines.seconds(time.total_s).seconds(time.mean_s).option(time.std_s, Lines::seconds);
        lines.seconds(time.min_s).seconds(time.p50_s).seconds(time.p95_s).seconds(time.p99_s);
        lines.seconds(time.max_s).f64(time.share);
        self.file.end_line()
    }
}

impl Sink for TimingCsv {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Finished(outcome) => outcome.timing.iter().try_for_each(|time| self.row(time)),
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
    fn the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timing.csv");
        let mut sink = TimingCsv::create(&path).unwrap();
        for event in sample::events() {
            sink.event(&event).unwrap();
        }
        sink.flush().unwrap();
        insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap(), @r"
        device,clock,phase,count,total_s,mean_s,std_s,min_s,p50_s,p95_s,p99_s,max_s,share
        cpu,host,step,6,0.375,0.0625,0.001,0.000000001,0.25,0.25,0.25,0.25,0.75
        cpu,host,log,2,0.005,0.0025,0.001,0.000000001,0.25,0.25,0.25,0.25,0.01
        cpu,host,total,1,0.5,0.5,,0.000000001,0.25,0.25,0.25,0.25,1.0
        ");
    }
}
