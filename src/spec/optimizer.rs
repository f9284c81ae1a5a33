//! `[optimizer.*]`: PyTorch's update rules, with PyTorch's defaults.

use serde::Serialize;

use super::reader::{Choice, Fields, Range};

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
    /// `torch.optim.RMSprop`.
    Rmsprop(Rmsprop),
}

impl Optimizer {
    /// The learning rate as written.
    pub fn lr(&self) -> f64 {
        match self {
            Self::Sgd(o) => o.lr,
            Self::Adam(o) => o.lr,
            Self::Adamw(o) => o.lr,
            Self::Rmsprop(o) => o.lr,
        }
    }

    /// The name of its sub-table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sgd(_) => "sgd",
            Self::Adam(_) => "adam",
            Self::Adamw(_) => "adamw",
            Self::Rmsprop(_) => "rmsprop",
        }
    }

    /// The momentum as written, or Adam's beta1.
    pub fn momentum(&self) -> f64 {
        match self {
            Self::Sgd(o) => o.momentum,
            Self::Adam(o) => o.beta1,
            Self::Adamw(o) => o.beta1,
            Self::Rmsprop(o) => o.momentum,
        }
    }

    /// The same with `factor` times the learning rate.
    pub fn with_lr_times(mut self, factor: f64) -> Self {
        match &mut self {
            Self::Sgd(o) => o.lr *= factor,
            Self::Adam(o) => o.lr *= factor,
            Self::Adamw(o) => o.lr *= factor,
            Self::Rmsprop(o) => o.lr *= factor,
        }
        self
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

/// RMSprop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rmsprop {
    /// Learning rate; must be given.
    pub lr: f64,
    /// Decay of the mean square (0.99).
    pub alpha: f64,
    /// Added to the denominator (1e-8).
    pub eps: f64,
    /// Momentum, 0 for none (0).
    pub momentum: f64,
    /// Whether the mean gradient is taken out of the mean square (false).
    pub centered: bool,
    /// L2 penalty (0).
    pub weight_decay: f64,
}

const LR: &str = "learning rate";

impl Optimizer {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let optimizer = t.one_of(
            None,
            &[
                Choice { name: "sgd", doc: "torch.optim.SGD", read: |v| Self::Sgd(v.table(Sgd::read)) },
                Choice { name: "adam", doc: "torch.optim.Adam", read: |v| Self::Adam(v.table(Adam::read)) },
                Choice {
                    name: "adamw",
                    doc: "torch.optim.AdamW",
                    read: |v| Self::Adamw(v.table(AdamW::read)),
                },
                Choice {
                    name: "rmsprop",
                    doc: "torch.optim.RMSprop",
                    read: |v| Self::Rmsprop(v.table(Rmsprop::read)),
                },
            ],
        );
        optimizer.unwrap_or(Self::Sgd(Sgd { lr: 0.5, momentum: 0.0, nesterov: false, weight_decay: 0.0 }))
    }
}

impl Sgd {
    fn read(t: &mut Fields<'_>) -> Self {
        let sgd = Self {
            lr: t.required("lr", LR, |v| v.float(Range::Positive)),
            momentum: t.default("momentum", "momentum, 0 for none", 0.0, |v| v.float(Range::NonNegative)),
            nesterov: t.default("nesterov", "Nesterov's form; needs momentum", false, |v| v.boolean()),
            weight_decay: t.default("weight_decay", "L2 penalty", 0.0, |v| v.float(Range::NonNegative)),
        };
        if sgd.nesterov && sgd.momentum == 0.0 {
            let message = "nesterov momentum requires a momentum";
            t.refuse("nesterov", &["momentum"], message, "set `momentum`, such as 0.9");
        }
        sgd
    }
}

impl Adam {
    fn read(t: &mut Fields<'_>) -> Self {
        let (lr, beta1, beta2, eps) = adaptive(t);
        let doc = "L2 penalty, added to the gradient";
        let weight_decay = t.default("weight_decay", doc, 0.0, |v| v.float(Range::NonNegative));
        Self { lr, beta1, beta2, eps, weight_decay }
    }
}

impl AdamW {
    fn read(t: &mut Fields<'_>) -> Self {
        let (lr, beta1, beta2, eps) = adaptive(t);
        let doc = "decoupled weight decay";
        let weight_decay = t.default("weight_decay", doc, 0.01, |v| v.float(Range::NonNegative));
        Self { lr, beta1, beta2, eps, weight_decay }
    }
}

impl Rmsprop {
    fn read(t: &mut Fields<'_>) -> Self {
        let centered = "divides by the standard deviation of the gradients";
        Self {
            lr: t.required("lr", LR, |v| v.float(Range::Positive)),
            alpha: t.default("alpha", "decay of the mean square", 0.99, |v| v.float(Range::BelowOne)),
            eps: t.default("eps", "added to the denominator", 1e-8, |v| v.float(Range::NonNegative)),
            momentum: t.default("momentum", "momentum, 0 for none", 0.0, |v| v.float(Range::NonNegative)),
            centered: t.default("centered", centered, false, |v| v.boolean()),
            weight_decay: t.default("weight_decay", "L2 penalty", 0.0, |v| v.float(Range::NonNegative)),
        }
    }
}

fn adaptive(t: &mut Fields<'_>) -> (f64, f64, f64, f64) {
    (
        t.required("lr", LR, |v| v.float(Range::Positive)),
        t.default("beta1", "decay of the first moment", 0.9, |v| v.float(Range::BelowOne)),
        t.default("beta2", "decay of the second moment", 0.999, |v| v.float(Range::BelowOne)),
        t.default("eps", "added to the denominator", 1e-8, |v| v.float(Range::NonNegative)),
    )
}
