//! Training rows between the device's log and the recorder, by logging policy.
//!
//! Losses wait on the device. What the host already knows (epoch, step, rows, rates, times) waits here. A
//! validation between two flushes waits here as well, so that rows are recorded in step order.

use crate::{
    event::{CheckpointFacts, EpochLoss, Event, TrainRows, ValidationRow},
    program::Layout,
    spec::{Logging, Metric, Policy},
};

/// Consecutive steps of an epoch whose rows are still on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    pub epoch: u64,
    pub first: u64,
    pub count: usize,
    pub rows: u32,
    pub last_rows: u32,
}

enum Waiting {
    Steps(Steps),
    Validation(ValidationRow),
}

/// One half of the device's log, and what the host knows of its rows.
#[derive(Default)]
struct Half {
    /// Its first row in the log.
    first: usize,
    used: usize,
    waiting: Vec<Waiting>,
    lrs: Vec<f64>,
    /// The weight of each step's rows; empty if rows have none.
    weights: Vec<f64>,
}

pub struct MetricBuffer {
    policy: Policy,
    lr: bool,
    width: usize,
    /// Rows of each half of the log.
    slots: usize,
    /// The half that steps write.
    half: Half,
    /// The other one, whose rows may be on their way to the host.
    other: Half,
    /// The time in seconds at which each step ended, as reported by devices; complete once the steps' rows
    /// are read.
    pub ends: Vec<f64>,
    /// Reused buffer for rows read from the device.
    pub read: Vec<f32>,
    /// Number of steps whose ends have been dropped from `ends`.
    done: u64,
    /// Training rows of the epoch so far.
    epoch_rows: u64,
    /// Loss of the last row that reached the host.
    pub last_loss: Option<f32>,
    pub epoch_loss: EpochLoss,
}

impl MetricBuffer {
    pub fn new(logging: &Logging, layout: &Layout) -> Self {
        Self {
            policy: logging.policy,
            lr: logging.metrics.contains(&Metric::Lr),
            width: layout.log_width,
            slots: layout.log_slots.div_ceil(2),
            half: Half::default(),
            other: Half { first: layout.log_slots / 2, ..Half::default() },
            ends: Vec::new(),
            read: Vec::new(),
            done: 0,
            epoch_rows: 0,
            last_loss: None,
            epoch_loss: EpochLoss::default(),
        }
    }

    /// Continues from a saved state. No rows were waiting when it was saved.
    pub fn resume(&mut self, facts: &CheckpointFacts) {
        self.done = facts.step;
        self.epoch_rows = facts.epoch_rows;
        if self.sums_an_epoch() {
            // `ends` needs the end of the last step; the time of saving is close to it.
            self.done -= 1;
            self.ends.push(facts.elapsed_s);
        }
        self.last_loss = facts.last_loss.map(|loss| loss as f32);
        self.epoch_loss = facts.epoch_loss;
    }

    /// This buffer's part of a saved state.
    pub fn facts(&self) -> CheckpointFacts {
        CheckpointFacts {
            last_loss: self.last_loss.map(f64::from),
            epoch_loss: self.epoch_loss,
            epoch_rows: self.epoch_rows,
            ..CheckpointFacts::default()
        }
    }

    /// Whether the device holds the running sums of an unfinished epoch.
    pub fn sums_an_epoch(&self) -> bool {
        self.policy == Policy::PerEpoch && self.epoch_rows > 0
    }

    /// Steps of the whole run that devices have reported as done.
    pub fn done(&self) -> u64 {
        self.done + self.ends.len() as u64
    }

    fn drop_ends(&mut self, count: usize) {
        self.ends.drain(..count);
        self.done += count as u64;
    }

    /// First free row of the device's log.
    pub fn slot(&self) -> usize {
        self.half.first + self.half.used
    }

    /// Steps that may run before the log must be read.
    pub fn room(&self) -> usize {
        match self.policy {
            Policy::Immediate => 1,
            Policy::Buffered => self.slots - self.half.used,
            Policy::PerEpoch | Policy::Off => usize::MAX,
        }
    }

    /// Records steps that ran. `lrs` has one learning rate per step, and `weights` the weight of its rows if they have any.
    pub fn ran(&mut self, steps: Steps, lrs: &[f64], weights: &[f64]) {
        self.epoch_rows += steps.rows as u64 * (steps.count as u64 - 1) + u64::from(steps.last_rows);
        match self.policy {
            Policy::Immediate | Policy::Buffered => {
                self.half.used += steps.count;
                self.half.waiting.push(Waiting::Steps(steps));
                self.half.lrs.extend_from_slice(if self.lr { lrs } else { &[] });
                self.half.weights.extend_from_slice(weights);
            }
            // Only the last end is used, and an epoch may have many steps.
            Policy::PerEpoch | Policy::Off => {
                self.drop_ends(self.ends.len().saturating_sub(1));
            }
        }
    }

    /// Returns the row, or keeps it until the rows before it are flushed.
    pub fn hold(&mut self, row: ValidationRow) -> Option<ValidationRow> {
        if self.half.waiting.is_empty() && self.on_the_way().is_none() {
            return Some(row);
        }
        self.half.waiting.push(Waiting::Validation(row));
        None
    }

    /// Elements of the log that steps have written since the last [`turn`](Self::turn): the first and their number.
    pub fn pending(&self) -> [usize; 2] {
        [self.half.first, self.half.used].map(|rows| rows * self.width)
    }

    /// Elements of the other half, if they are on their way to the host.
    pub fn on_the_way(&self) -> Option<[usize; 2]> {
        let Half { first, used, .. } = self.other;
        (used > 0).then(|| [first, used].map(|rows| rows * self.width))
    }

    /// Lets the next steps write the other half, which must be empty.
    pub fn turn(&mut self) {
        std::mem::swap(&mut self.half, &mut self.other);
    }

    /// Turns the rows of one half of the log into events and empties it: of the one on its way, if there is one. Rows of
    /// steps after `until` are dropped.
    pub fn flush(&mut self, values: &[f32], until: u64) -> Vec<Event> {
        let is_other = self.other.used > 0;
        let half = if is_other { &mut self.other } else { &mut self.half };
        let mut half = std::mem::take(half);
        let mut events = Vec::with_capacity(half.waiting.len());
        let mut row = 0;
        for waiting in half.waiting.drain(..) {
            match waiting {
                Waiting::Validation(v) if v.step <= until => events.push(Event::Validation(v)),
                Waiting::Validation(_) => {}
                Waiting::Steps(s) => {
                    let rows = row..row + s.count;
                    row = rows.end;
                    let count = s.count.min(until.saturating_add(1).saturating_sub(s.first) as usize);
                    if count == 0 {
                        continue;
                    }
                    let kept = rows.start..rows.start + count;
                    let block = &values[kept.start * self.width..kept.end * self.width];
                    let last_rows = if count == s.count { s.last_rows } else { s.rows };
                    for (place, row) in block.chunks_exact(self.width).enumerate() {
                        let rows = if place + 1 == count { last_rows } else { s.rows };
                        let weight = half.weights.get(kept.start + place).copied();
                        self.epoch_loss.add(s.epoch, rows.into(), weight, row[0]);
                        self.last_loss = Some(row[0]);
                    }
                    events.push(Event::Train(TrainRows {
                        epoch: s.epoch,
                        first_step: s.first,
                        rows: s.rows,
                        last_rows,
                        width: self.width,
                        values: block.to_vec(),
                        lr: if self.lr { half.lrs[kept.clone()].to_vec() } else { Vec::new() },
                        elapsed_s: self.ends.get(kept).unwrap_or_default().to_vec(),
                    }));
                }
            }
        }
        // The row of an unfinished epoch may still need the end of the last step, and rows of the log their own.
        let kept = usize::from(self.sums_an_epoch());
        let ended = self.ends.len().saturating_sub(kept);
        self.drop_ends(if half.used > 0 { ended.min(half.used) } else { ended });
        half.used = 0;
        half.lrs.clear();
        half.weights.clear();
        *(if is_other { &mut self.other } else { &mut self.half }) = half;
        events
    }

    /// Sets the epoch's number of rows, dropping later ones.
    pub fn cut_epoch(&mut self, rows: u64) {
        self.epoch_rows = rows;
    }

    /// The epoch's row: the means from the device's sums, with the `lr` of the last step. `weight` is that of the epoch's rows, if
    /// they have any. `None` if the epoch had no step.
    pub fn epoch_mean(
        &mut self,
        [epoch, step]: [u64; 2],
        lr: f64,
        sums: &[f64],
        weight: Option<f64>,
    ) -> Option<Event> {
        let rows = self.take_epoch_rows();
        if rows == 0 {
            return None;
        }
        let mut values: Vec<f32> = sums.iter().map(|s| (s / rows as f64) as f32).collect();
        let sum = sums.first().copied().unwrap_or_default();
        self.epoch_loss = EpochLoss { epoch, rows, weight, sum };
        if let Some(loss) = values.first_mut() {
            *loss = self.epoch_loss.mean().unwrap_or_default() as f32;
        }
        self.last_loss = values.first().copied();
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let ended_s = self.ends.last().copied();
        self.drop_ends(self.ends.len());
        Some(Event::Train(TrainRows {
            epoch,
            first_step: step,
            rows,
            last_rows: rows,
            width: self.width,
            values,
            lr: if self.lr { vec![lr] } else { Vec::new() },
            elapsed_s: ended_s.into_iter().collect(),
        }))
    }

    pub fn take_epoch_rows(&mut self) -> u64 {
        std::mem::take(&mut self.epoch_rows)
    }
}
