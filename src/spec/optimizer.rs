//! `[optimizer.*]`: PyTorch's update rules, with PyTorch's defaults.

use serde::Serialize;

/// Exactly one optimizer; the variant is the name of the sub-table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// `torch.optim.SGD`.
    Sgd(Sgd),
    /// `torch.optim.Adam`: weight decay is added to the gradient.
    Adam(Adam),
    /// `torch.optim.AdamW`: weight decay shrinks the weights themselves.
    Adamw(AdamW),
}

impl Optimizer {
    /// The learning rate as written.
    pub fn lr(&self) -> f64 {
        match self {
            Self::Sgd(o) => o.lr,
            Self::Adam(o) => o.lr,
            Self::Adamw(o) => o.lr,
        }
    }
}

/// Stochastic gradient descent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sgd {
    /// Learning rate; must be given.
    pub lr: f64,
    /// Momentum, 0 for none (0).
    pub momentum: f64,
    /// Nesterov's form; needs momentum (false).
    pub nesterov: bool,
    /// L2 penalty (0).
    pub weight_decay: f64,
}

/// Adam.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adam {
    /// Learning rate; must be given.
    pub lr: f64,
    /// Decay of the first moment (0.9).
    pub beta1: f64,
    /// Decay of the second moment (0.999).
    pub beta2: f64,
    /// Added to the denominator (1e-8).
    pub eps: f64,
    /// L2 penalty (0).
    pub weight_decay: f64,
}

/// AdamW.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdamW {
    /// Learning rate; must be given.
    pub lr: f64,
    /// Decay of the first moment (0.9).
    pub beta1: f64,
    /// Decay of the second moment (0.999).
    pub beta2: f64,
    /// Added to the denominator (1e-8).
    pub eps: f64,
    /// Decoupled weight decay (0.01).
    pub weight_decay: f64,
}
