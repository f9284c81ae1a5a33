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

use super::{
    RecordError, RunDir, Sink, environment,
    metrics::{TrainCell, train_cells},
    protobuf::Message,
};
use crate::{
    event::{Event, TrainRows, ValidationRow},
    spec::Metric,
};

const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Records are buffered up to this size.
const BURST_BYTES: usize = 64 * 1024;

/// `SessionLog.START`: TensorBoard keeps earlier files' steps before this event's step and drops later ones.
const SESSION_START: i64 = 1;

/// The fields of `event.proto` that are written here, after the time and the step.
mod field {
    pub const FILE_VERSION: u8 = 3;
    pub const SUMMARY: u8 = 5;
    pub const SESSION_LOG: u8 = 7;
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
        events.push(&event_at(now(), 0).with_text(field::FILE_VERSION, "brain.Event:2"))?;
        events.flush()?;
        Ok(events)
    }

    fn push(&mut self, event: &Message) -> Result<(), RecordError> {
        let length = (event.bytes().len() as u64).to_le_bytes();
        self.buffer.extend(length);
        self.buffer.extend(masked_checksum(&length).to_le_bytes());
        self.buffer.extend(event.bytes());
        self.buffer.extend(masked_checksum(event.bytes()).to_le_bytes());
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
        let tags = tags(&metrics, "train");
        let start = now() - block.elapsed_s.last().unwrap_or(&0.0);
        for row in 0..block.len() {
            let cells = train_cells(block, row, &self.metrics).filter(|(metric, _)| metrics.contains(metric));
            let single = |value| match value {
                TrainCell::Measured(value) => value,
                TrainCell::Rate(lr) => lr as f32,
            };
            let time = start + block.elapsed_s.get(row).unwrap_or(&0.0);
            let step = block.first_step + row as u64;
            self.push(&scalars(time, step, &tags, cells.map(|(_, value)| value.map(single))))?;
        }
        Ok(())
    }

    fn validation(&mut self, row: &ValidationRow) -> Result<(), RecordError> {
        let measured = self.metrics.iter().filter_map(|metric| Some((*metric, row.measured(*metric)?)));
        let (metrics, values): (Vec<_>, Vec<_>) = measured.unzip();
        let values = values.into_iter().map(|value| Some(value as f32));
        self.push(&scalars(now(), row.step, &tags(&metrics, "validation"), values))
    }
}

impl Sink for TensorBoard {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Started(header) => match header.resumed_after {
                Some(step) => {
                    let start = Message::default().with_integer(1, SESSION_START);
                    self.push(&event_at(now(), step + 1).with_message(field::SESSION_LOG, &start))
                }
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

/// An event at a time in seconds since 1970.
fn event_at(time: f64, step: u64) -> Message {
    Message::default().with_double(1, time).with_integer(2, step as i64)
}

/// A value of `summary.proto` per metric, with its tag only; TensorBoard groups them by the first part of their tags.
fn tags(metrics: &[Metric], split: &str) -> Vec<Message> {
    let tag = |metric: &Metric| Message::default().with_text(1, &format!("{}/{split}", metric.name()));
    metrics.iter().map(tag).collect()
}

fn scalars(time: f64, step: u64, tags: &[Message], values: impl Iterator<Item = Option<f32>>) -> Message {
    let scalar = |(tag, value): (&Message, Option<f32>)| match value {
        Some(value) => tag.clone().with_float(2, value),
        None => tag.clone(),
    };
    let summary = tags.iter().zip(values).map(scalar);
    let summary = summary.fold(Message::default(), |summary, scalar| summary.with_message(1, &scalar));
    event_at(time, step).with_message(field::SUMMARY, &summary)
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
        events.push(&event_at(0.0, 0)).unwrap();
        events.flush().unwrap();
        assert_eq!(records(&path), 1 + 2 + whole.len() + 1);
    }
}
