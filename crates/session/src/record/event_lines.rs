//! `--json`: the events for other programs, one JSON object per line on standard output.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{
    RecordError, Sink,
    error::STANDARD_OUTPUT,
    metrics::{TrainCell, train_cells},
};
use crate::{
    event::{Event, Header, Level, Outcome, TrainRows},
    host::{Stream, json_text},
    spec::Metric,
};

/// The sink of one run.
pub(super) struct EventLines {
    folder: PathBuf,
    /// The trial's number in a sweep.
    trial: Option<usize>,
    metrics: Vec<Metric>,
}

impl EventLines {
    pub fn new(folder: &Path, trial: Option<usize>) -> Self {
        Self { folder: folder.to_owned(), trial, metrics: Vec::new() }
    }

    fn started(&self, header: &Header) -> Value {
        json!({
            "event": "started",
            "folder": self.folder.display().to_string(),
            "name": header.name,
            "devices": header.devices_used,
            "engine": header.engine,
            "epochs_planned": header.epochs_planned,
            "steps_planned": header.steps_planned,
            "resumed_after": header.resumed_after,
        })
    }

    /// Only the last step of a block; `metrics.csv` has all of them.
    fn train(&self, rows: &TrainRows) -> Option<Value> {
        let last = rows.len().checked_sub(1)?;
        let mut line = Map::new();
        line.insert("event".to_owned(), "train".into());
        line.insert("step".to_owned(), (rows.first_step + last as u64).into());
        line.insert("epoch".to_owned(), rows.epoch.into());
        for (metric, value) in train_cells(rows, last, &self.metrics) {
            let value = value.and_then(|value| match value {
                // With the same digits as in `metrics.csv`.
                TrainCell::Measured(value) => value.to_string().parse().ok(),
                TrainCell::Rate(lr) => Some(lr),
            });
            line.insert(metric.name().to_owned(), value.into());
        }
        line.insert("elapsed_s".to_owned(), rows.elapsed_s[last].into());
        Some(Value::Object(line))
    }

    fn finished(&self, outcome: &Outcome) -> Value {
        json!({
            "event": "finished",
            "folder": self.folder.display().to_string(),
            "status": outcome.status.name(),
            "reason": outcome.reason,
            "epochs": outcome.epochs,
            "steps": outcome.steps,
            "final_train_loss": outcome.final_train_loss,
            "final_validation_loss": outcome.final_validation_loss,
            "final_validation_accuracy": outcome.final_validation_accuracy,
            "best_value": outcome.best.map(|best| best.value),
            "best_epoch": outcome.best.map(|best| best.epoch),
            "train_s": outcome.train_s,
        })
    }
}

impl Sink for EventLines {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        let line = match event {
            Event::Started(header) => {
                self.metrics = header.metrics.clone();
                Some(self.started(header))
            }
            Event::Train(rows) => self.train(rows),
            Event::Validation(row) => match serde_json::to_value(row) {
                Ok(Value::Object(row)) => {
                    let event = ("event".to_owned(), "validation".into());
                    Some(Value::Object(std::iter::once(event).chain(row).collect()))
                }
                _ => None,
            },
            Event::Progress(now) => Some(
                json!({ "event": "progress", "step": now.step, "epoch": Some(now.epoch).filter(|epoch| *epoch > 0), "elapsed_s": now.elapsed_s }),
            ),
            Event::Notice(level, message) => {
                let level = match level {
                    Level::Info => "info",
                    Level::Error => "error",
                    Level::Warning => "warning",
                };
                Some(json!({ "event": "notice", "level": level, "message": message }))
            }
            Event::Finished(outcome) => Some(self.finished(outcome)),
            _ => None,
        };
        let Some(mut line) = line else { return Ok(()) };
        if let Some(trial) = self.trial {
            line["trial"] = trial.into();
        }
        match Stream::Output.write_all((json_text(&line) + "\n").as_bytes()) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(RecordError::write(Path::new(STANDARD_OUTPUT), e))
            }
            _ => Ok(()),
        }
    }
}
