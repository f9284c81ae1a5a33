//! `transfers.csv`: every copy between memories and every wait of the host, counted.

use std::path::Path;

use super::{RecordError, Sink, lines::Lines, row_file::RowFile};
use crate::event::{Event, Transfer};

const COLUMNS: [&str; 9] =
    ["kind", "purpose", "from", "to", "count", "noop_count", "bytes", "total_s", "gb_per_s"];

/// The sink of `transfers.csv`: its header at the start, its rows at the end.
pub struct TransfersCsv {
    file: RowFile,
}

impl TransfersCsv {
    /// Creates the file with its header.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        Ok(Self { file: RowFile::with_columns(path, COLUMNS)? })
    }

    fn row(&mut self, transfer: &Transfer) -> Result<(), RecordError> {
        let lines = &mut self.file.lines;
        lines.text(transfer.kind).text(transfer.purpose).text(&transfer.from).text(&transfer.to);
        lines.u64(transfer.count).u64(transfer.noop_count).option(transfer.bytes, Lines::u64);
        lines.option(transfer.total_s, Lines::seconds).option(gb_per_s(transfer), Lines::f64);
        self.file.end_line()
    }
}

/// 10⁹ bytes per second; not known where nothing moved.
fn gb_per_s(transfer: &Transfer) -> Option<f64> {
    let bytes = transfer.bytes.filter(|&bytes| bytes > 0)?;
    let total_s = transfer.total_s.filter(|seconds| *seconds > 0.0)?;
    Some(bytes as f64 / total_s / 1e9)
}

impl Sink for TransfersCsv {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Finished(outcome) => outcome.transfers.iter().try_for_each(|transfer| self.row(transfer)),
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
        let path = folder.path().join("transfers.csv");
        let mut sink = TransfersCsv::create(&path).unwrap();
        for event in sample::events() {
            sink.event(&event).unwrap();
        }
        let queued = Transfer {
            kind: "all_reduce",
            purpose: "gradients",
            from: "gpu:0".into(),
            to: "gpu:0".into(),
            count: 48,
            noop_count: 0,
            bytes: Some(960),
            total_s: None,
        };
        sink.row(&queued).unwrap();
        sink.flush().unwrap();
        insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap(), @r"
        kind,purpose,from,to,count,noop_count,bytes,total_s,gb_per_s
        h2d,dataset,cpu,gpu:0,2,0,4000,0.000002,2.0
        h2d,parameters,cpu,cpu,0,3,0,0.0,
        d2h,log,gpu:0,cpu,2,0,72,0.000001,0.072
        sync,log,gpu:0,cpu,2,0,,0.001,
        all_reduce,gradients,gpu:0,gpu:0,48,0,960,,
        ");
    }
}
