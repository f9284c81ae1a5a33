//! TensorBoard event files: the rows of `metrics.csv`, with a scalar per cell (`loss/train`,
//! `loss/validation`).
//!
//! A file is a sequence of records: length, its checksum, an `Event` as protocol buffer, its checksum. A
//! resumed run writes a file of its own; its start tells TensorBoard to drop the steps that are taken again.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::PathBuf,
};

use crc::{CRC_32_ISCSI, Crc};
use prost::Message;

use super::{
    RecordError, RunDir, Sink, environment,
    metrics::{TrainCell, train_cells},
};
use crate::{
    event::{Event, TrainRows, ValidationRow},
    spec::Metric,
};

const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Records are buffered up to this size.
const BURST_BYTES: usize = 64 * 1024;

/// `SessionLog.START`: TensorBoard keeps earlier files' steps before this event's step and drops later ones.
const SESSION_START: i32 = 1;

/// The part of `event.proto` that is written here.
#[derive(Clone, PartialEq, Message)]
struct EventProto {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// The sink of an event file.
pub struct TensorBoard {
    path: PathBuf,
    file: File,
    metrics: Vec<Metric>,
    /// Bytes of complete records in the file.
    length: u64,
    /// Complete records that are not in the file yet.
    buffer: Vec<u8>,
}

impl TensorBoard {
    /// Creates an event file that sorts after those in the folder.
    pub fn create(run: &RunDir, metrics: &[Metric]) -> Result<Self, RecordError> {
        let names = (0..).map(|number| run.file(&format!("events.out.tfevents.{number:04}")));
        let path = names.into_iter().find(|path| !path.exists()).unwrap_or_default();
        let opened = OpenOptions::new().append(true).create_new(true).open(&path);
        let file = opened.map_err(|e| RecordError::write(&path, e))?;
        let mut events = Self { path, file, metrics: metrics.to_vec(), length: 0, buffer: Vec::new() };
        let version = Some("brain.Event:2".to_owned());
        events.push(&EventProto { wall_time: now(), file_version: version, ..EventProto::default() })?;
        events.flush()?;
        Ok(events)
    }

    fn push(&mut self, event: &EventProto) -> Result<(), RecordError> {
        let start = self.buffer.len();
        let length = (event.encoded_len() as u64).to_le_bytes();
        self.buffer.extend(length);
        self.buffer.extend(masked_checksum(&length).to_le_bytes());
        event.encode_raw(&mut self.buffer);
        let checksum = masked_checksum(&self.buffer[start + 12..]);
        self.buffer.extend(checksum.to_le_bytes());
        if self.buffer.len() >= BURST_BYTES { self.flush() } else { Ok(()) }
    }

    /// After a write that failed halfway: cuts the file to complete records.
    fn cut_torn_record(&mut self) {
        let written = self.file.metadata().map_or(0, |file| file.len().saturating_sub(self.length));
        let whole = ends(&self.buffer).take_while(|&end| end as u64 <= written).last();
        self.length += whole.unwrap_or(0) as u64;
        // Report the first error, not one of this call.
        let _ = self.file.set_len(self.length);
    }

    fn train(&mut self, block: &TrainRows) -> Result<(), RecordError> {
        let metrics: Vec<_> =
            self.metrics.iter().copied().filter(|metric| !metric.needs_predictions()).collect();
        let mut event = scalars(&metrics, "train");
        let start = now() - block.elapsed_s.last().unwrap_or(&0.0);
        for row in 0..block.len() {
            let cells = train_cells(block, row, &self.metrics).filter(|(metric, _)| metrics.contains(metric));
            let single = |value| match value {
                TrainCell::Measured(value) => value,
                TrainCell::Rate(lr) => lr as f32,
            };
            set(&mut event, cells.map(|(_, value)| value.map(single)));
            event.step = (block.first_step + row as u64) as i64;
            event.wall_time = start + block.elapsed_s.get(row).unwrap_or(&0.0);
            self.push(&event)?;
        }
        Ok(())
    }

    fn validation(&mut self, row: &ValidationRow) -> Result<(), RecordError> {
        let measured = self.metrics.iter().filter_map(|metric| Some((*metric, row.measured(*metric)?)));
        let (metrics, values): (Vec<_>, Vec<_>) = measured.unzip();
        let mut event = scalars(&metrics, "validation");
        set(&mut event, values.into_iter().map(|value| Some(value as f32)));
        (event.step, event.wall_time) = (row.step as i64, now());
        self.push(&event)
    }
}

impl Sink for TensorBoard {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Started(header) => match header.resumed_after {
                Some(step) => self.push(&EventProto {
                    wall_time: now(),
                    step: step as i64 + 1,
                    session_log: Some(SessionLog { status: SESSION_START }),
                    ..EventProto::default()
                }),
                None => Ok(()),
            },
            Event::Train(block) => self.train(block),
            Event::Validation(row) => self.validation(row),
            // A run resumes after a checkpoint, so everything before it must be in the file.
            Event::Checkpoint(_) => self.flush(),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        let written = self.file.write_all(&self.buffer);
        match written {
            Ok(()) => self.length += self.buffer.len() as u64,
            Err(_) => self.cut_torn_record(),
        }
        self.buffer.clear();
        written.map_err(|e| RecordError::write(&self.path, e))
    }
}

/// An event with a scalar per metric; TensorBoard groups scalars by the first part of their names.
fn scalars(metrics: &[Metric], split: &str) -> EventProto {
    let scalar = |metric: &Metric| Scalar { tag: format!("{}/{split}", metric.name()), simple_value: None };
    let summary = Some(Summary { value: metrics.iter().map(scalar).collect() });
    EventProto { summary, ..EventProto::default() }
}

fn set(event: &mut EventProto, values: impl Iterator<Item = Option<f32>>) {
    let scalars = event.summary.iter_mut().flat_map(|summary| &mut summary.value);
    scalars.zip(values).for_each(|(scalar, value)| scalar.simple_value = value);
}

/// The offset at which each record ends.
fn ends(records: &[u8]) -> impl Iterator<Item = usize> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let length = u64::from_le_bytes(*records.get(end..)?.first_chunk()?);
        // The length (8 bytes) and the two checksums (4 bytes each) surround the data.
        end += length as usize + 16;
        Some(end)
    })
}

fn masked_checksum(bytes: &[u8]) -> u32 {
    CHECKSUM.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Seconds since 1970.
fn now() -> f64 {
    environment::now().timestamp_micros() as f64 * 1e-6
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::record::sample;

    /// The number of records in a file, which must end with a complete one.
    fn records(path: &std::path::Path) -> usize {
        let bytes = fs::read(path).unwrap();
        let ends: Vec<usize> = ends(&bytes).collect();
        assert_eq!(ends.last(), Some(&bytes.len()));
        ends.len()
    }

    #[test]
    fn a_write_that_fails_leaves_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::existing(folder.path().to_owned());
        let mut events = TensorBoard::create(&run, &sample::header().metrics).unwrap();
        let path = events.path.clone();
        sample::events().iter().for_each(|event| events.event(event).unwrap());
        let whole: Vec<usize> = ends(&events.buffer).collect();
        assert!(whole.len() > 2);
        // What a full disk leaves: two records and part of a third.
        let written = events.buffer[..whole[1] + 5].to_vec();
        events.file.write_all(&written).unwrap();
        events.cut_torn_record();
        assert_eq!(records(&path), 1 + 2);
        events.push(&EventProto::default()).unwrap();
        events.flush().unwrap();
        assert_eq!(records(&path), 1 + 2 + whole.len() + 1);
    }
}
