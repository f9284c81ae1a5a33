//! `[optimizer.*]`: PyTorch's update rules, with PyTorch's defaults.

use super::reader::{Fields, below_one, choices, non_negative, positive, table};

choices! {
    /// Exactly one optimizer; the variant is the name of the sub-table.
    pub enum Optimizer {
        /// `torch.optim.SGD`.
        Sgd(Sgd) = "sgd",
        /// `torch.optim.Adam`: weight decay is added to the gradient.
        Adam(Adam) = "adam",
        /// `torch.optim.AdamW`: weight decay shrinks the weights themselves.
        Adamw(AdamW) = "adamw",
        /// `torch.optim.RMSprop`.
        Rmsprop(Rmsprop) = "rmsprop",
    }
}

impl Optimizer {
    /// The learning rate in the spec, before any scaling.
    pub fn lr(&self) -> f64 {
        match self {
            Self::Sgd(o) => o.lr,
            Self::Adam(o) => o.lr,
            Self::Adamw(o) => o.lr,
            Self::Rmsprop(o) => o.lr,
        }
    }

    /// The momentum in the spec; Adam's beta1.
    pub fn momentum(&self) -> f64 {
        match self {
            Self::Sgd(o) => o.momentum,
            Self::Adam(o) => o.beta1,
            Self::Adamw(o) => o.beta1,
            Self::Rmsprop(o) => o.momentum,
        }
    }

    /// The same optimizer with its learning rate multiplied by `factor`.
    pub fn with_lr_times(&self, factor: f64) -> Self {
        let mut optimizer = self.clone();
        match &mut optimizer {
            Self::Sgd(o) => o.lr *= factor,
            Self::Adam(o) => o.lr *= factor,
            Self::Adamw(o) => o.lr *= factor,
            Self::Rmsprop(o) => o.lr *= factor,
        }
        optimizer
    }
}

table! {
    /// Stochastic gradient descent.
    pub struct Sgd {
        /// Learning rate.
        pub lr: f64 => positive,
        /// Momentum; 0 for none.
        pub momentum: f64 = 0.0 => non_negative,
        /// Whether to use Nesterov's form; needs momentum.
        pub nesterov: bool = false,
        /// L2 penalty.
        pub weight_decay: f64 = 0.0 => non_negative,
    }
    check check_nesterov
}

impl Sgd {
    fn check_nesterov(&mut self, t: &mut Fields<'_>) {
        if self.nesterov && self.momentum == 0.0 {
            let message = "nesterov momentum requires a momentum";
            t.refuse("nesterov", &["momentum"], message, "set `momentum`, such as 0.9");
        }
    }
}

table! {
    /// Adam.
    pub struct Adam {
        /// Learning rate.
        pub lr: f64 => positive,
        /// Decay of the first moment.
        pub beta1: f64 = 0.9 => below_one,
        /// Decay of the second moment.
        pub beta2: f64 = 0.999 => below_one,
        /// Added to the denominator.
        pub eps: f64 = 1e-8 => non_negative,
        /// L2 penalty, added to the gradient.
        pub weight_decay: f64 = 0.0 => non_negative,
    }
}

table! {
    /// AdamW.
    pub struct AdamW {
        /// Learning rate.
        pub lr: f64 => positive,
        /// Decay of the first moment.
        pub beta1: f64 = 0.9 => below_one,
        /// Decay of the second moment.
        pub beta2: f64 = 0.999 => below_one,
        /// Added to the denominator.
        pub eps: f64 = 1e-8 => non_negative,
        /// Decoupled weight decay.
        pub weight_decay: f64 = 0.01 => non_negative,
    }
}

table! {
    /// RMSprop.
    pub struct Rmsprop {
        /// Learning rate.
        pub lr: f64 => positive,
        /// Decay of the mean square.
        pub alpha: f64 = 0.99 => below_one,
        /// Added to the denominator.
        pub eps: f64 = 1e-8 => non_negative,
        /// Momentum; 0 for none.
        pub momentum: f64 = 0.0 => non_negative,
        /// Whether to divide by the standard deviation of the gradients.
        pub centered: bool = false,
        /// L2 penalty.
        pub weight_decay: f64 = 0.0 => non_negative,
    }
}
