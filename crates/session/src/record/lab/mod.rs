//! The lab's results in the kind's own CSV file, and norms in `norms.csv`.

mod table;

pub(super) use table::step_in_words;
pub use table::{LabTable, PRODUCTS, Shown, VIRTUAL, in_words};

use std::{path::Path, slice};

use super::{
    RecordError, RunDir, Sink,
    lines::Lines,
    row_file::{Column, RowFile},
    tables::EventCsv,
};
use crate::{
    event::{CopyRow, Event, Norms, ProductRow, StepRow},
    spec::Kind,
};

const MATMUL: [Column<ProductRow>; 15] = [
    ("device", |cells, row| cells.text(&row.device)),
    ("order", |cells, row| cells.text(row.order.name())),
    ("m", |cells, row| cells.u64(row.shape[0] as u64)),
    ("k", |cells, row| cells.u64(row.shape[1] as u64)),
    ("n", |cells, row| cells.u64(row.shape[2] as u64)),
    ("count", |cells, row| cells.u64(row.count)),
    ("total_s", |cells, row| cells.seconds(row.total_s)),
    ("mean_s", |cells, row| cells.seconds(row.mean_s())),
    ("gflop_per_s", |cells, row| cells.option(row.gflop_per_s(), Lines::f64)),
    ("log_s", |cells, row| cells.seconds(row.log_s)),
    ("norm_sum", |cells, row| cells.option(row.norm_sum, Lines::f64)),
    ("p50_s", |cells, row| cells.seconds(row.spread.p50_s)),
    ("min_s", |cells, row| cells.seconds(row.spread.min_s)),
    ("max_s", |cells, row| cells.seconds(row.spread.max_s)),
    ("threads", |cells, row| cells.option(row.threads, |cells, threads| cells.u64(threads as u64))),
];

const TRANSFER: [Column<CopyRow>; 10] = [
    ("from", |cells, row| cells.text(&row.from)),
    ("to", |cells, row| cells.text(&row.to)),
    ("memory", |cells, row| cells.text(row.memory.unwrap_or_default())),
    ("bytes", |cells, row| cells.u64(row.bytes)),
    ("count", |cells, row| cells.u64(row.count)),
    ("mean_s", |cells, row| cells.seconds(row.mean_s)),
    ("p50_s", |cells, row| cells.seconds(row.spread.p50_s)),
    ("gb_per_s", |cells, row| cells.option(row.gb_per_s(), Lines::f64)),
    ("min_s", |cells, row| cells.seconds(row.spread.min_s)),
    ("max_s", |cells, row| cells.seconds(row.spread.max_s)),
];

const TENSORS: [Column<StepRow>; 10] = [
    ("step", |cells, row| cells.u64(row.step as u64)),
    ("op", |cells, row| cells.text(row.op)),
    ("name", |cells, row| cells.text(row.name.as_deref().unwrap_or_default())),
    ("device", |cells, row| cells.text(row.device.as_deref().unwrap_or_default())),
    ("shape", |cells, row| {
        cells.option(row.shape.as_ref(), |cells, shape| cells.text(&format!("{shape:?}")))
    }),
    ("dtype", |cells, row| cells.text(row.dtype.unwrap_or_default())),
    ("bytes", |cells, row| cells.option(row.bytes, Lines::u64)),
    ("copied_bytes", |cells, row| cells.u64(row.copied_bytes)),
    ("status", |cells, row| cells.text(row.status.name())),
    ("message", |cells, row| cells.text(row.message.as_deref().unwrap_or_default())),
];

/// Opens the file of `kind`, and `norms.csv` if norms reach the host.
pub(super) fn sinks(run: &RunDir, kind: Kind, logs_norms: bool) -> Result<Vec<Box<dyn Sink>>, RecordError> {
    let path = run.file(&format!("{}.csv", kind.name()));
    let rows: Box<dyn Sink> = match kind {
        Kind::Matmul => Box::new(EventCsv::create(&path, &MATMUL, |event| match event {
            Event::Product(row) => slice::from_ref(row),
            _ => &[],
        })?),
        Kind::Transfer => Box::new(EventCsv::create(&path, &TRANSFER, |event| match event {
            Event::Copy(row) => slice::from_ref(row),
            _ => &[],
        })?),
        Kind::Tensors | Kind::Train => Box::new(EventCsv::create(&path, &TENSORS, |event| match event {
            Event::Step(row) => slice::from_ref(row),
            _ => &[],
        })?),
    };
    let mut sinks = vec![rows];
    if logs_norms {
        sinks.push(Box::new(NormsCsv::create(&run.file("norms.csv"))?));
    }
    Ok(sinks)
}

/// The sink of `norms.csv`: a line per norm.
struct NormsCsv(RowFile);

impl NormsCsv {
    fn create(path: &Path) -> Result<Self, RecordError> {
        Ok(Self(RowFile::with_columns(path, ["device", "m", "k", "n", "index", "norm"])?))
    }
}

impl Sink for NormsCsv {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        let Event::Norms(Norms { device, shape, last, values }) = event else { return Ok(()) };
        let first = (last + 1).saturating_sub(values.len() as u64);
        for (index, value) in (first..).zip(values) {
            let [m, k, n] = shape.map(|axis| axis as u64);
            self.0.lines.text(device).u64(m).u64(k).u64(n).u64(index).f32(*value);
            self.0.end_line()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.0.flush()
    }
}
