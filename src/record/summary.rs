//! `summary.csv`: the run in numbers, one row.

use std::{fs, path::Path, time::Instant};

use super::{RecordError, Sink, lines::Lines, row_file::RowFile};
use crate::event::{Event, Header, Outcome};

/// The columns of `summary.csv`.
pub const SUMMARY_COLUMNS: [&str; 25] = [
    "run",
    "name",
    "status",
    "devices_requested",
    "devices_used",
    "virtual",
    "scaling",
    "precision",
    "engine",
    "epochs",
    "steps",
    "final_train_loss",
    "final_validation_loss",
    "final_validation_accuracy",
    "wall_s",
    "train_s",
    "steps_per_s",
    "samples_per_s",
    "logging_s",
    "logging_share",
    "syncs",
    "bytes_h2d",
    "bytes_d2h",
    "peak_device_bytes",
    "peak_rss_bytes",
];

/// The sink of `summary.csv`: its header at the start, its row at the end.
pub struct SummaryCsv {
    file: RowFile,
    run: String,
    begun: Instant,
    header: Option<Box<Header>>,
}

impl SummaryCsv {
    /// Creates the file with its header. `run` is the run folder's own name; `wall_s` is counted from `begun`.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn create(path: &Path, run: &str, begun: Instant) -> Result<Self, RecordError> {
        let file = RowFile::with_columns(path, SUMMARY_COLUMNS)?;
        Ok(Self { file, run: run.to_owned(), begun, header: None })
    }
}

impl Sink for SummaryCsv {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Started(header) => self.header = Some(header.clone()),
            Event::Finished(outcome) => {
                let Some(header) = &self.header else { return Ok(()) };
                let wall_s = self.begun.elapsed().as_secs_f64();
                write_row(&mut self.file.lines, &self.run, header, outcome, wall_s, peak_rss_bytes());
                self.file.end_line()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.file.flush()
    }
}

fn write_row(
    lines: &mut Lines,
    run: &str,
    header: &Header,
    outcome: &Outcome,
    wall_s: f64,
    peak_rss_bytes: Option<u64>,
) {
    lines.text(run).text(&header.name).text(outcome.status.name());
    lines.text(&header.devices_requested).text(&header.devices_used.join(";")).bool(header.virtual_devices);
    lines.text(&header.scaling).text(&header.precision).text(&header.engine);
    lines.option(outcome.epochs, Lines::u64).u64(outcome.steps);
    lines.option(outcome.final_train_loss, Lines::f32);
    lines.option(outcome.final_validation_loss, Lines::f64);
    lines.option(outcome.final_validation_accuracy, Lines::f64);
    lines.seconds(wall_s).seconds(outcome.train_s);
    lines.option(per_second(outcome.steps, outcome.train_s), Lines::f64);
    let samples_per_s = outcome.samples.and_then(|samples| per_second(samples, outcome.train_s));
    lines.option(samples_per_s, Lines::f64);
    lines.seconds(outcome.logging_s).option(logging_share(outcome), Lines::f64);
    lines.u64(outcome.transfers.iter().filter(|t| t.kind == "sync").map(|t| t.count).sum());
    lines.u64(bytes_moved(outcome, "h2d")).u64(bytes_moved(outcome, "d2h"));
    lines.u64(outcome.peak_device_bytes).option(peak_rss_bytes, Lines::u64);
}

/// A rate, known once time has passed.
pub(super) fn per_second(count: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| count as f64 / seconds)
}

/// Part of the training loop that went into the log.
pub(super) fn logging_share(outcome: &Outcome) -> Option<f64> {
    (outcome.loop_s > 0.0).then(|| outcome.logging_s / outcome.loop_s)
}

/// Copies to where the data already was moved nothing, and count for nothing here.
fn bytes_moved(outcome: &Outcome, kind: &str) -> u64 {
    outcome.transfers.iter().filter(|t| t.kind == kind).filter_map(|t| t.bytes).sum()
}

/// The most memory this process has had at once, where the system tells.
pub(super) fn peak_rss_bytes() -> Option<u64> {
    peak_rss_in(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_rss_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn the_whole_row() {
        let mut lines = Lines::new();
        write_row(
            &mut lines,
            "20270115T080000Z-0123abcd",
            &sample::header(),
            &sample::outcome(),
            0.5,
            Some(4096),
        );
        lines.end();
        let text = std::str::from_utf8(lines.bytes()).unwrap();
        assert_eq!(text.trim_end().split(',').count(), SUMMARY_COLUMNS.len());
        insta::assert_snapshot!(text, @r"
        20270115T080000Z-0123abcd,linreg,finished,1,cpu,false,strong,f32,serial,2,6,1.5,0.1,0.95,0.5,0.4,15.0,400.0,0.005,0.01,2,4000,72,1572864,4096
        ");
    }

    #[test]
    fn a_run_that_never_stepped_has_no_rates() {
        let outcome = Outcome { steps: 0, train_s: 0.0, loop_s: 0.0, ..sample::outcome() };
        assert_eq!(per_second(outcome.steps, outcome.train_s), None);
        assert_eq!(logging_share(&outcome), None);
    }

    #[test]
    fn peak_memory_is_read_from_the_status() {
        assert_eq!(peak_rss_in("Name:\tx\nVmHWM:\t    1536 kB\n"), Some(1536 * 1024));
        assert_eq!(peak_rss_in("Name:\tx\n"), None);
    }
}
