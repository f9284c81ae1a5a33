//! A run folder of the lab: what is found, as it is found, in the kind's own CSV file.
//!
//! The log of norms is part of what is measured, so findings are written on the thread that tells them.

mod summary;
mod table;

use std::time::Instant;

pub use table::LabTable;
pub(crate) use table::step_in_words;

use super::{RecordError, RunDir, RunLog, Sink, TransfersCsv, lines::Lines, row_file::RowFile};
use crate::{
    device::Kind as Transferred,
    event::{Level, Transfer},
    lab::{CopyRow, Finding, LabOutcome, ProductRow, StepRow},
    spec::Kind,
};

const MATMUL: [&str; 11] =
    ["device", "order", "m", "k", "n", "count", "total_s", "mean_s", "gflop_per_s", "log_s", "norm_sum"];
const TRANSFER: [&str; 8] = ["from", "to", "memory", "bytes", "count", "mean_s", "p50_s", "gb_per_s"];
const TENSORS: [&str; 10] =
    ["step", "op", "name", "device", "shape", "dtype", "bytes", "copied_bytes", "status", "message"];
const NORMS: [&str; 6] = ["device", "m", "k", "n", "index", "norm"];

/// What is known of an experiment before it runs.
#[derive(Clone, Debug)]
pub struct LabFacts {
    /// The experiment's name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// What the spec asked for.
    pub devices_requested: String,
    /// Names of the devices that are used.
    pub devices_used: Vec<String>,
    /// Whether those are virtual.
    pub virtual_devices: bool,
    /// Whether norms reach the host, and so `norms.csv`.
    pub logs_norms: bool,
}

/// The files of one run. All of them are there, with their headers, before the work starts.
pub struct LabFiles {
    facts: LabFacts,
    run: String,
    begun: Instant,
    rows: RowFile,
    norms: Option<RowFile>,
    log: RunLog,
    transfers: TransfersCsv,
    summary: RowFile,
}

impl LabFiles {
    /// Creates them. `wall_s` is counted from `begun`.
    ///
    /// # Errors
    /// Where one cannot be written.
    pub fn create(run: &RunDir, facts: LabFacts, begun: Instant) -> Result<Self, RecordError> {
        let rows = match facts.kind {
            Kind::Matmul => RowFile::with_columns(&run.file("matmul.csv"), MATMUL)?,
            Kind::Transfer => RowFile::with_columns(&run.file("transfer.csv"), TRANSFER)?,
            Kind::Tensors | Kind::Train => RowFile::with_columns(&run.file("tensors.csv"), TENSORS)?,
        };
        let norms =
            facts.logs_norms.then(|| RowFile::with_columns(&run.file("norms.csv"), NORMS)).transpose()?;
        Ok(Self {
            run: run.name(),
            begun,
            rows,
            norms,
            log: RunLog::create(&run.file("run.log"))?,
            transfers: TransfersCsv::create(&run.file("transfers.csv"))?,
            summary: RowFile::with_columns(&run.file("summary.csv"), super::SUMMARY_COLUMNS)?,
            facts,
        })
    }

    /// Keeps what was found; it is in the file when this returns.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn take(&mut self, finding: &Finding) -> Result<(), RecordError> {
        match finding {
            Finding::Notice(level, text) => {
                self.log.note(*level, text)?;
                self.log.flush()
            }
            Finding::Norms { device, shape, last, values } => self.norms(device, *shape, *last, values),
            Finding::Product(row) => {
                product(&mut self.rows.lines, row);
                self.end_row()
            }
            Finding::Together { .. } => Ok(()),
            Finding::Copy(row) => {
                copy(&mut self.rows.lines, row);
                self.end_row()
            }
            Finding::Step(row) => {
                step(&mut self.rows.lines, row);
                self.end_row()?;
                let message = row.message.as_ref().map(|m| format!(": {m}")).unwrap_or_default();
                let text = format!("step {}, {}, {}{message}", row.step, row.expression, row.status.name());
                self.log.note(Level::Info, &text)?;
                self.log.flush()
            }
        }
    }

    /// Writes what is known at the end: the traffic and the summary.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn finish(mut self, outcome: &LabOutcome) -> Result<(), RecordError> {
        for (kind, purpose, route, line) in outcome.traffic.lines() {
            self.transfers.row(&Transfer {
                kind: kind.name(),
                purpose: purpose.name(),
                from: route.from,
                to: route.to,
                count: line.count,
                noop_count: line.noop_count,
                bytes: (kind != Transferred::Sync).then_some(line.bytes),
                total_s: line.seconds(),
            })?;
        }
        self.transfers.flush()?;
        summary::write_row(&mut self.summary.lines, &self.run, &self.facts, outcome, self.begun.elapsed());
        self.summary.end_line()?;
        self.summary.flush()?;
        let reason = outcome.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let seconds = crate::units::seconds(outcome.wall_s);
        self.log.end(outcome.status, &format!("{} after {seconds}{reason}", outcome.status.name()))
    }

    fn end_row(&mut self) -> Result<(), RecordError> {
        self.rows.end_line()?;
        self.rows.flush()
    }

    /// One line per norm; the last one's number is known.
    fn norms(
        &mut self,
        device: &str,
        shape: [usize; 3],
        last: u64,
        values: &[f32],
    ) -> Result<(), RecordError> {
        let Some(file) = &mut self.norms else { return Ok(()) };
        let before = last.saturating_sub(values.len() as u64);
        for (i, value) in values.iter().enumerate() {
            file.lines.text(device);
            shape.iter().for_each(|axis| {
                file.lines.u64(*axis as u64);
            });
            file.lines.u64(before + i as u64 + 1).f32(*value);
            file.end_line()?;
        }
        file.flush()
    }
}

fn product(lines: &mut Lines, row: &ProductRow) {
    lines.text(&row.device).text(row.order.name());
    row.shape.iter().for_each(|axis| {
        lines.u64(*axis as u64);
    });
    lines.u64(row.count).seconds(row.total_s).seconds(row.mean_s());
    lines.option(row.gflop_per_s(), Lines::f64).seconds(row.log_s).option(row.norm_sum, Lines::f64);
}

fn copy(lines: &mut Lines, row: &CopyRow) {
    lines.text(&row.from).text(&row.to).text(row.memory.unwrap_or_default());
    lines.u64(row.bytes).u64(row.count).seconds(row.mean_s).seconds(row.p50_s);
    lines.option(row.gb_per_s(), Lines::f64);
}

fn step(lines: &mut Lines, row: &StepRow) {
    let shape = row.shape.as_ref().map(|shape| format!("{shape:?}"));
    lines.u64(row.step as u64).text(row.op).text(row.name.as_deref().unwrap_or_default());
    lines.text(row.device.as_deref().unwrap_or_default()).text(&shape.unwrap_or_default());
    lines.text(row.dtype.unwrap_or_default()).option(row.bytes, Lines::u64).u64(row.copied_bytes);
    lines.text(row.status.name()).text(row.message.as_deref().unwrap_or_default());
}
