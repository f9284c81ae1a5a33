//! `summary.csv`: the run in numbers, one row. Until the run ends its status is `running`, and what its end brings is empty.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Instant,
};

use super::{
    RecordError, Sink,
    lines::Lines,
    row_file::{Column, RowFile},
};
use crate::{
    event::{Event, Header, Outcome, Progress, Status},
    host::{lock, peak_resident_bytes},
};

/// The inputs of the row.
struct Row<'a> {
    /// The run folder's own name.
    run: &'a str,
    header: &'a Header,
    outcome: &'a Outcome,
    wall_s: f64,
    peak_rss_bytes: Option<u64>,
}

fn columns<'a>() -> [Column<Row<'a>>; 33] {
    [
        ("run", |cells, row| cells.text(row.run)),
        ("name", |cells, row| cells.text(&row.header.name)),
        ("status", |cells, row| cells.text(row.outcome.status.name())),
        ("devices_requested", |cells, row| cells.text(&row.header.devices_requested)),
        ("devices_used", |cells, row| cells.text(&row.header.devices_used.join(";"))),
        ("virtual", |cells, row| cells.bool(row.header.virtual_devices)),
        ("scaling", |cells, row| cells.text(&row.header.scaling)),
        ("precision", |cells, row| cells.text(&row.header.precision)),
        ("engine", |cells, row| cells.text(&row.header.engine)),
        ("epochs", |cells, row| cells.option(row.outcome.epochs, Lines::u64)),
        ("steps", |cells, row| cells.u64(row.outcome.steps)),
        ("final_train_loss", |cells, row| cells.option(row.outcome.final_train_loss, Lines::f32)),
        ("final_validation_loss", |cells, row| cells.option(row.outcome.final_validation_loss, Lines::f64)),
        ("final_validation_accuracy", |cells, row| {
            cells.option(row.outcome.final_validation_accuracy, Lines::f64)
        }),
        ("wall_s", |cells, row| cells.seconds(row.wall_s)),
        ("train_s", |cells, row| cells.seconds(row.outcome.train_s)),
        ("steps_per_s", |cells, row| cells.option(row.steps_per_s(), Lines::f64)),
        ("samples_per_s", |cells, row| cells.option(row.per_second(row.outcome.samples), Lines::f64)),
        ("logging_s", |cells, row| cells.seconds(row.outcome.logging_s)),
        ("logging_share", |cells, row| cells.option(logging_share(row.outcome), Lines::f64)),
        ("syncs", |cells, row| {
            cells.u64(row.outcome.transfers.iter().filter(|t| t.kind == "sync").map(|t| t.count).sum())
        }),
        ("bytes_h2d", |cells, row| cells.u64(bytes_moved(row.outcome, "h2d"))),
        ("bytes_d2h", |cells, row| cells.u64(bytes_moved(row.outcome, "d2h"))),
        ("peak_device_bytes", |cells, row| cells.u64(row.outcome.peak_device_bytes)),
        ("peak_rss_bytes", |cells, row| cells.option(row.peak_rss_bytes, Lines::u64)),
        ("best_value", |cells, row| cells.option(row.outcome.best.map(|b| b.value), Lines::f64)),
        ("best_epoch", |cells, row| cells.option(row.outcome.best.map(|b| b.epoch), Lines::u64)),
        ("best_step", |cells, row| cells.option(row.outcome.best.map(|b| b.step), Lines::u64)),
        ("data_digest", |cells, row| cells.text(&row.header.data_digest)),
        ("epoch_train_loss", |cells, row| cells.option(row.outcome.epoch_train_loss, Lines::f64)),
        ("peak_planned_bytes", |cells, row| cells.option(row.header.peak_planned_bytes, Lines::u64)),
        ("energy_j", |cells, row| cells.option(row.outcome.energy_j, Lines::f64)),
        ("reason", |cells, row| cells.text(row.outcome.reason.as_deref().unwrap_or_default())),
    ]
}

impl Row<'_> {
    /// Unknown for a training whose rows were lost.
    fn steps_per_s(&self) -> Option<f64> {
        let is_known = self.outcome.samples.is_some() || self.header.lab.is_some();
        self.per_second(is_known.then_some(self.outcome.steps))
    }

    fn per_second(&self, count: Option<u64>) -> Option<f64> {
        per_second(count?, self.outcome.train_s)
    }
}

/// The columns of `summary.csv`.
pub fn summary_columns() -> [&'static str; 33] {
    columns().map(|(name, _)| name)
}

/// The status of a run that has not ended; also of one that was killed, which `run.lock` tells apart.
pub const RUNNING: &str = "running";

/// The columns that are known when a run begins.
const KNOWN: [&str; 10] = [
    "run",
    "name",
    "devices_requested",
    "devices_used",
    "virtual",
    "scaling",
    "precision",
    "engine",
    "data_digest",
    "peak_planned_bytes",
];

/// The sink of `summary.csv`.
pub(super) struct SummaryCsv {
    file: RowFile,
    /// Bytes of the line with the columns' names.
    head: u64,
    run: String,
    begun: Instant,
    header: Option<Box<Header>>,
    /// What is known of a run that has not ended.
    progress: Option<Progress>,
    last_step: u64,
    has_row: bool,
}

impl SummaryCsv {
    /// `run` is the run folder's own name; `wall_s` is counted from `begun`.
    pub fn create(path: &Path, run: String, begun: Instant) -> Result<Self, RecordError> {
        let file = RowFile::with_columns(path, summary_columns())?;
        let head = file.written();
        Ok(Self { file, head, run, begun, header: None, progress: None, last_step: 0, has_row: false })
    }

    /// Writes the row of a run that begins.
    fn begins(&mut self, header: &Header) -> Result<(), RecordError> {
        let outcome = &Outcome::default();
        let row = &Row { run: &self.run, header, outcome, wall_s: 0.0, peak_rss_bytes: None };
        for (name, cell) in columns() {
            match name {
                "status" => self.file.lines.text(RUNNING),
                _ if KNOWN.contains(&name) => cell(&mut self.file.lines, row),
                _ => self.file.lines.text(""),
            };
        }
        self.file.end_line()
    }

    /// Whether a run has begun, and has no final row yet.
    pub fn is_open(&self) -> bool {
        self.header.is_some() && !self.has_row
    }

    /// Writes the row of a run that is ended at once: what was recorded of it.
    pub fn end_at_once(&mut self) -> Result<(), RecordError> {
        if !self.is_open() {
            return Ok(());
        }
        let progress = self.progress.unwrap_or_default();
        // Its time includes that before a resume.
        let earlier_s = (progress.elapsed_s - self.begun.elapsed().as_secs_f64()).max(0.0);
        let outcome = Outcome {
            status: Status::Interrupted,
            steps: self.last_step.max(progress.step),
            train_s: progress.train_s,
            loop_s: progress.elapsed_s,
            earlier_s,
            ..Outcome::default()
        };
        self.event(&Event::Finished(Box::new(outcome)))?;
        self.flush()
    }
}

impl Sink for SummaryCsv {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Started(header) => {
                self.begins(header)?;
                self.header = Some(header.clone());
            }
            Event::Progress(progress) => self.progress = Some(*progress),
            Event::Train(rows) => self.last_step = rows.first_step + rows.len().saturating_sub(1) as u64,
            Event::Finished(outcome) if !self.has_row => {
                let Some(header) = &self.header else { return Ok(()) };
                let wall_s = outcome.earlier_s + self.begun.elapsed().as_secs_f64();
                let peak_rss_bytes = peak_resident_bytes();
                // A kill between this and the next flush leaves no row, which also means that it has not ended.
                self.file.flush()?;
                self.file.cut(self.head)?;
                self.file
                    .row(&columns(), &Row { run: &self.run, header, outcome, wall_s, peak_rss_bytes })?;
                self.has_row = true;
                // A second signal may close the file at any moment.
                self.file.flush()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.file.flush()
    }
}

/// A summary that a second signal ends, whatever the recorder waits for.
impl Sink for Arc<Mutex<SummaryCsv>> {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        lock(self).event(event)
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        lock(self).flush()
    }
}

/// A rate; `None` if no time has passed.
pub(super) fn per_second(count: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| count as f64 / seconds)
}

/// The share of the training time spent on logging.
pub(super) fn logging_share(outcome: &Outcome) -> Option<f64> {
    (outcome.train_s > 0.0).then(|| outcome.logging_s / outcome.train_s)
}

/// Copies whose source and destination are the same moved nothing and are not counted.
fn bytes_moved(outcome: &Outcome, kind: &str) -> u64 {
    outcome.transfers.iter().filter(|t| t.kind == kind).filter_map(|t| t.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn the_whole_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.csv");
        let mut file = RowFile::create(&path, b"").unwrap();
        let (header, outcome) = (&sample::header(), &sample::outcome());
        let row = Row {
            run: "20270115T080000Z-0123abcd",
            header,
            outcome,
            wall_s: 0.5,
            peak_rss_bytes: Some(4096),
        };
        file.row(&columns(), &row).unwrap();
        file.flush().unwrap();
        insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap(), @r"
        20270115T080000Z-0123abcd,linreg,finished,1,cpu,false,strong,f32,serial,2,6,1.5,0.1,0.95,0.5,0.4,15.0,400.0,0.005,0.012499999999999999,2,4000,72,1572864,4096,0.05,1,3,0123456789abcdef,1.75,2097152,25.5,
        ");
    }

    #[test]
    fn the_row_of_a_run_that_is_under_way_gives_way_to_the_final_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.csv");
        let mut sink = SummaryCsv::create(&path, "a".to_owned(), Instant::now()).unwrap();
        let rows = || {
            let text = std::fs::read_to_string(&path).unwrap();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut seen = Vec::new();
        for event in sample::events() {
            sink.event(&event).unwrap();
            sink.flush().unwrap();
            seen.push(rows());
        }
        let known =
            "a,linreg,running,1,cpu,false,strong,f32,serial,,,,,,,,,,,,,,,,,,,,0123456789abcdef,,2097152,,";
        assert_eq!(seen[0], [known]);
        let last = seen.last().unwrap();
        assert!(
            last.len() == 1 && last[0].starts_with("a,linreg,finished,1,cpu,false,strong,f32,serial,2,6,"),
            "{last:?}"
        );
    }
}
