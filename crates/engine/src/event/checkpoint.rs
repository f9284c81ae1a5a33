//! The state of a training between two steps: all that later steps depend on. Everything else follows from
//! the spec: the order of an epoch from seed and epoch, a dropout mask from seed, step and row, a learning
//! rate from the step, unless it is that of a plateau.

use std::{
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Confusion, ValidationRow};

/// A state on its way to the disk.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub facts: CheckpointFacts,
    pub arrays: Arc<StateArrays>,
    /// Receives the time that writing took. It is dropped once nobody needs the arrays any more.
    pub written: Sender<Duration>,
}

/// A state as it was saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedState {
    pub facts: CheckpointFacts,
    pub arrays: StateArrays,
    /// The monitored values of the checkpoints beside it; smaller is better.
    pub costs: Vec<f64>,
}

/// What the devices hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateArrays {
    /// The flat buffer of parameters.
    pub values: Vec<f32>,
    /// The optimizer's state: the first number of every parameter, then the second; empty if it has none.
    pub optimizer: Vec<f32>,
    /// The parameters of the best validation; empty without one.
    pub best: Vec<f32>,
}

/// The host's part of the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointFacts {
    /// Optimizer steps taken.
    pub step: u64,
    /// The epoch of the last step, from 1.
    pub epoch: u64,
    /// Whether steps of this epoch, its row or its validation are still to come.
    pub in_epoch: bool,
    /// Training rows seen.
    pub samples: u64,
    /// Rows of a global batch.
    pub batch: u64,
    /// Seconds since training began, not counting the time between an end and a resume.
    pub elapsed_s: f64,
    /// The part of it without validation.
    pub train_s: f64,
    pub logging_s: f64,
    /// The loss of the last row that reached the host.
    pub last_loss: Option<f64>,
    pub epoch_loss: EpochLoss,
    /// Rows of the current epoch that are not yet in a recorded mean.
    pub epoch_rows: u64,
    /// Under `per_epoch`, the running sums over these rows.
    pub epoch_sums: Vec<f64>,
    pub validation: Option<ValidationRow>,
    pub best: Option<BestSoFar>,
    pub early_stopping: EarlyStoppingState,
    pub plateau: Option<PlateauState>,
}

/// The mean training loss of the last epoch, as far as its losses have reached the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochLoss {
    pub epoch: u64,
    /// Training rows seen in it.
    pub rows: u64,
    /// The sum of their weights, if they have any.
    pub weight: Option<f64>,
    /// The sum over steps of loss times weight, or times rows without weights.
    pub sum: f64,
}

impl EpochLoss {
    /// Adds a step's loss, which is the mean over its rows, weighted by their weights.
    pub fn add(&mut self, epoch: u64, rows: u64, weight: Option<f64>, loss: f32) {
        if epoch != self.epoch {
            *self = Self { epoch, ..Self::default() };
        }
        self.rows += rows;
        self.weight = weight.map(|weight| self.weight.unwrap_or(0.0) + weight);
        self.sum += f64::from(loss) * weight.unwrap_or(rows as f64);
    }

    /// The mean over rows, by their weights; `None` if nothing counts.
    pub fn mean(&self) -> Option<f64> {
        let weight = self.weight.unwrap_or(self.rows as f64);
        (weight > 0.0).then(|| self.sum / weight)
    }
}

/// The best validation so far, by `trainer.monitor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestSoFar {
    pub value: f64,
    pub epoch: u64,
    pub step: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confusion: Confusion,
}

/// The state of early stopping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlyStoppingState {
    /// The best value so far; smaller is better.
    pub best: Option<f64>,
    /// Validations since then.
    pub waited: u64,
}

/// The state of a plateau.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlateauState {
    /// The present learning rate.
    pub lr: f64,
    /// The best value so far of the metric that is watched.
    pub best: Option<f64>,
    /// Validations without an improvement that count.
    pub waited: u64,
    /// Validations of the cooldown that are left.
    pub cooldown: u64,
}
