//! `[trainer]`: how long, and what happens around the steps.

use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{
    duration,
    reader::{Fields, Item, Range, Word},
    tree::Value,
};

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
    /// After how many validations in a row without improvement the run ends.
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
        Some(d) => s.serialize_str(&duration::write(*d)),
        None => s.serialize_none(),
    }
}

impl Trainer {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let most = i64::MAX as u64;
        Self {
            max_epochs: t.default("max_epochs", "passes over the training rows", 10, |v| v.integer(1..=most)),
            max_steps: t
                .optional("max_steps", "optimizer steps after which the run ends", |v| v.integer(1..=most)),
            max_time: t.optional("max_time", "training time after which the run ends", read_time),
            gradient_clip_val: t.default(
                "gradient_clip_val",
                "global L2 norm to clip gradients to, as torch.nn.utils.clip_grad_norm_; 0 is off",
                0.0,
                |v| v.float(Range::NonNegative),
            ),
            validate_every_epochs: t.default(
                "validate_every_epochs",
                "epochs between two validations; 0 for none",
                1,
                |v| v.integer(0..=most),
            ),
            early_stopping: t.optional(
                "early_stopping",
                "ends the run when a metric no longer improves",
                |v| v.table(EarlyStopping::read),
            ),
        }
    }
}

fn read_time(v: Item<'_>) -> Duration {
    let schema = json!({ "type": "string", "pattern": duration::PATTERN });
    let read = |v: &Value| match v {
        Value::String(s) => duration::parse(s).filter(|d| !d.is_zero()),
        _ => None,
    };
    v.custom("a time above 0, such as `90s`, `15m`, `1h30m` or `250ms`", schema, Duration::from_secs(1), read)
}

impl EarlyStopping {
    fn read(t: &mut Fields<'_>) -> Self {
        Self {
            metric: t.default("metric", "what is watched", Monitor::ValidationLoss, |v| {
                v.word(
                    &[
                        Word { name: "validation.loss", value: Monitor::ValidationLoss, doc: "to fall" },
                        Word {
                            name: "validation.accuracy",
                            value: Monitor::ValidationAccuracy,
                            doc: "to rise",
                        },
                    ],
                    &[],
                )
            }),
            patience: t.required(
                "patience",
                "after how many validations in a row without improvement the run ends",
                |v| v.integer(0..=i64::MAX as u64),
            ),
            min_delta: t
                .default("min_delta", "smallest change that counts", 0.0, |v| v.float(Range::NonNegative)),
        }
    }
}
