//! `[logging]`: what is recorded of a step, and when it leaves the device.

use serde::Serialize;

/// The table `[logging]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Logging {
    /// When training rows leave the device.
    pub policy: Policy,
    /// Steps in a block of `buffered`; absent: one epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_every: Option<u64>,
    /// The columns, loss first.
    pub metrics: Vec<Metric>,
}

/// When training rows leave the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// After every step.
    Immediate,
    /// In blocks of `flush_every` steps.
    Buffered,
    /// One row-weighted mean per epoch.
    PerEpoch,
    /// Never.
    Off,
}

/// A column of `metrics.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The batch's mean loss before the update.
    Loss,
    /// Part of the batch's rows whose largest output is the label's.
    Accuracy,
    /// L2 norm of all gradients, before clipping.
    GradNorm,
    /// L2 norm of all parameters, before the update.
    ParamNorm,
    /// The rate that the step's update used.
    Lr,
}

impl Metric {
    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Accuracy => "accuracy",
            Self::GradNorm => "grad_norm",
            Self::ParamNorm => "param_norm",
            Self::Lr => "lr",
        }
    }
}
