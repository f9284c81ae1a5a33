//! What is found on the machine itself, in the kind's own CSV file; norms in `norms.csv`.

mod table;

pub(super) use table::step_in_words;
pub use table::{LabTable, VIRTUAL};

use super::{RecordError, RunDir, Sink, lines::Lines, row_file::RowFile};
use crate::{
    event::{CopyRow, Event, Norms, ProductRow, StepRow},
    spec::Kind,
};

const MATMUL: [&str; 11] =
    ["device", "order", "m", "k", "n", "count", "total_s", "mean_s", "gflop_per_s", "log_s", "norm_sum"];
const TRANSFER: [&str; 8] = ["from", "to", "memory", "bytes", "count", "mean_s", "p50_s", "gb_per_s"];
const TENSORS: [&str; 10] =
    ["step", "op", "name", "device", "shape", "dtype", "bytes", "copied_bytes", "status", "message"];
const NORMS: [&str; 6] = ["device", "m", "k", "n", "index", "norm"];

/// The sink of these files.
pub struct LabCsv {
    rows: RowFile,
    norms: Option<RowFile>,
}

impl LabCsv {
    /// Creates the file of `kind`, and `norms.csv` where norms reach the host.
    ///
    /// # Errors
    /// Where one cannot be written.
    pub fn create(run: &RunDir, kind: Kind, logs_norms: bool) -> Result<Self, RecordError> {
        let columns: &[&str] = match kind {
            Kind::Matmul => &MATMUL,
            Kind::Transfer => &TRANSFER,
            Kind::Tensors | Kind::Train => &TENSORS,
        };
        let rows =
            RowFile::with_columns(&run.file(&format!("{}.csv", kind.name())), columns.iter().copied())?;
        let norms = logs_norms.then(|| RowFile::with_columns(&run.file("norms.csv"), NORMS)).transpose()?;
        Ok(Self { rows, norms })
    }

    /// One line per norm; the last one's number is known.
    fn norms(&mut self, norms: &Norms) -> Result<(), RecordError> {
        let Some(file) = &mut self.norms else { return Ok(()) };
        let before = norms.last.saturating_sub(norms.values.len() as u64);
        for (i, value) in norms.values.iter().enumerate() {
            file.lines.text(&norms.device);
            shape(&mut file.lines, norms.shape).u64(before + i as u64 + 1).f32(*value);
            file.end_line()?;
        }
        Ok(())
    }
}

impl Sink for LabCsv {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Norms(norms) => return self.norms(norms),
            Event::Product(row) => product(&mut self.rows.lines, row),
            Event::Copy(row) => copy(&mut self.rows.lines, row),
            Event::Step(row) => step(&mut self.rows.lines, row),
            _ => return Ok(()),
        }
        self.rows.end_line()
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.norms.as_mut().map_or(Ok(()), RowFile::flush)?;
        self.rows.flush()
    }
}

fn shape(lines: &mut Lines, [m, k, n]: [usize; 3]) -> &mut Lines {
    lines.u64(m as u64).u64(k as u64).u64(n as u64)
}

fn product(lines: &mut Lines, row: &ProductRow) {
    lines.text(&row.device).text(row.order.name());
    shape(lines, row.shape).u64(row.count).seconds(row.total_s).seconds(row.mean_s());
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
