//! `[trainer]`: how long, and what happens around the steps.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// The table `[trainer]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trainer {
    /// Passes over the training rows (10).
    pub max_epochs: u64,
    /// Optimizer steps after which the run ends, whatever the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
    /// Training time after which the run ends, at the next block of steps.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    pub max_time: Option<Duration>,
    /// Global L2 norm to clip gradients to, as `torch.nn.utils.clip_grad_norm_`; 0 is off.
    pub gradient_clip_val: f64,
    /// Epochs between two validations (1); 0 for none.
    pub validate_every_epochs: u64,
    /// Ends the run when a metric no longer improves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStopping>,
}

/// Ends the run after `patience` validations without an improvement of more than `min_delta`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlyStopping {
    /// What is watched.
    pub metric: Monitor,
    /// Validations without improvement that are allowed.
    pub patience: u64,
    /// Smallest change that counts as an improvement (0).
    pub min_delta: f64,
}

/// What early stopping watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Monitor {
    /// The validation loss, to fall.
    #[serde(rename = "validation.loss")]
    ValidationLoss,
    /// The validation accuracy, to rise.
    #[serde(rename = "validation.accuracy")]
    ValidationAccuracy,
}

fn seconds<S: Serializer>(value: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(d) => s.collect_str(&format_args!("{}s", d.as_secs_f64())),
        None => s.serialize_none(),
    }
}
