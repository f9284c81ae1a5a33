//! `timing.csv`: where the time went, per device, clock and phase. `transfers.csv`: counts of every copy
//! between memories and every wait of the host. Both get their header at the start and their rows at the end.

use std::path::Path;

use super::{
    RecordError, Sink,
    lines::Lines,
    row_file::{Column, RowFile},
};
use crate::event::{Event, PhaseTime, Transfer};

const TIMING: [Column<PhaseTime>; 14] = [
    ("device", |cells, time| cells.text(&time.device)),
    ("clock", |cells, time| cells.text(time.clock)),
    ("phase", |cells, time| cells.text(time.phase)),
    ("count", |cells, time| cells.u64(time.count)),
    ("total_s", |cells, time| cells.seconds(time.total_s)),
    ("mean_s", |cells, time| cells.seconds(time.mean_s)),
    ("std_s", |cells, time| cells.option(time.std_s, Lines::seconds)),
    ("min_s", |cells, time| cells.seconds(time.min_s)),
    ("p50_s", |cells, time| cells.seconds(time.p50_s)),
    ("p95_s", |cells, time| cells.seconds(time.p95_s)),
    ("p99_s", |cells, time| cells.seconds(time.p99_s)),
    ("max_s", |cells, time| cells.seconds(time.max_s)),
    ("share", |cells, time| cells.f64(time.share)),
    ("samples", |cells, time| cells.u64(time.samples)),
];

const TRANSFERS: [Column<Transfer>; 10] = [
    ("kind", |cells, transfer| cells.text(transfer.kind)),
    ("purpose", |cells, transfer| cells.text(transfer.purpose)),
    ("from", |cells, transfer| cells.text(&transfer.from)),
    ("to", |cells, transfer| cells.text(&transfer.to)),
    ("count", |cells, transfer| cells.u64(transfer.count)),
    ("noop_count", |cells, transfer| cells.u64(transfer.noop_count)),
    ("bytes", |cells, transfer| cells.option(transfer.bytes, Lines::u64)),
    ("total_s", |cells, transfer| cells.option(transfer.total_s, Lines::seconds)),
    ("gb_per_s", |cells, transfer| cells.option(gb_per_s(transfer), Lines::f64)),
    ("moved_bytes", |cells, transfer| cells.option(transfer.moved_bytes, Lines::u64)),
];

/// Bandwidth in 10⁹ bytes per second; `None` if nothing moved.
fn gb_per_s(transfer: &Transfer) -> Option<f64> {
    let bytes = transfer.moved_bytes.filter(|&bytes| bytes > 0)?;
    let total_s = transfer.total_s.filter(|seconds| *seconds > 0.0)?;
    Some(bytes as f64 / total_s / 1e9)
}

/// The sink of a file whose rows come as events.
pub(super) struct EventCsv<R: 'static> {
    file: RowFile,
    columns: &'static [Column<R>],
    rows: fn(&Event) -> &[R],
}

impl<R> EventCsv<R> {
    pub fn create(
        path: &Path,
        columns: &'static [Column<R>],
        rows: fn(&Event) -> &[R],
    ) -> Result<Self, RecordError> {
        Ok(Self { file: RowFile::with_columns(path, columns.iter().map(|(name, _)| *name))?, columns, rows })
    }
}

impl EventCsv<PhaseTime> {
    pub fn timing(path: &Path) -> Result<Self, RecordError> {
        Self::create(path, &TIMING, |event| match event {
            Event::Finished(outcome) => &outcome.timing,
            _ => &[],
        })
    }
}

impl EventCsv<Transfer> {
    pub fn transfers(path: &Path) -> Result<Self, RecordError> {
        Self::create(path, &TRANSFERS, |event| match event {
            Event::Finished(outcome) => &outcome.transfers,
            _ => &[],
        })
    }
}

impl<R> Sink for EventCsv<R> {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        (self.rows)(event).iter().try_for_each(|row| self.file.row(self.columns, row))
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
    fn the_whole_files() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let mut timing = EventCsv::timing(&folder.path().join("timing")).unwrap();
        let mut transfers = EventCsv::transfers(&folder.path().join("transfers")).unwrap();
        let sinks: [&mut dyn Sink; 2] = [&mut timing, &mut transfers];
        for sink in sinks {
            sample::events().iter().for_each(|event| sink.event(event).unwrap());
            sink.flush().unwrap();
        }
        insta::assert_snapshot!(read("timing"), @r"
        device,clock,phase,count,total_s,mean_s,std_s,min_s,p50_s,p95_s,p99_s,max_s,share,samples
        cpu,host,step,6,0.375,0.0625,0.001,0.000000001,0.25,0.25,0.25,0.25,0.75,6
        cpu,host,log,2,0.005,0.0025,0.001,0.000000001,0.25,0.25,0.25,0.25,0.01,2
        cpu,host,total,1,0.5,0.5,,0.000000001,0.25,0.25,0.25,0.25,1.0,1
        ");
        insta::assert_snapshot!(read("transfers"), @r"
        kind,purpose,from,to,count,noop_count,bytes,total_s,gb_per_s,moved_bytes
        h2d,dataset,cpu,gpu:0,2,0,4000,0.000002,2.0,4000
        h2d,parameters,cpu,cpu,0,3,0,0.0,,0
        d2h,log,gpu:0,cpu,2,0,72,0.000001,0.072,72
        sync,log,gpu:0,cpu,2,0,,0.001,,
        all_reduce,gradients,gpu:0,gpu:0,48,0,960,,,960
        ");
    }
}
