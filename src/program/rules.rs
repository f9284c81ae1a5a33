//! What instructions name: activations, losses, and update rules with their numbers.

/// Elementwise functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// max(0, x).
    Relu,
    /// x Φ(x).
    Gelu,
    /// tanh x.
    Tanh,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
}

impl Activation {
    /// Whether the derivative is computed from the input; else from the output, and the input need not be kept.
    pub fn derivative_needs_input(self) -> bool {
        matches!(self, Self::Gelu)
    }
}

/// What is minimized; definitions in [`crate::spec::Loss`].
pub type LossKind = crate::spec::Loss;

/// An update rule with what does not change from step to step. The rest is in [`Hyper`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateRule {
    /// `torch.optim.SGD`.
    Sgd {
        /// Whether there is a momentum buffer.
        momentum: bool,
        /// Nesterov's form.
        nesterov: bool,
        /// L2 penalty.
        weight_decay: f32,
    },
    /// `torch.optim.Adam` and, decoupled, `AdamW`.
    Adam {
        /// Decay of the second moment.
        beta2: f32,
        /// 1 - beta2, rounded once from double precision.
        one_minus_beta2: f32,
        /// Added to the denominator.
        eps: f32,
        /// L2 penalty, or the decoupled decay.
        weight_decay: f32,
        /// AdamW: decay shrinks the weights themselves.
        decoupled: bool,
    },
}

impl UpdateRule {
    /// Numbers of state per parameter.
    pub fn state_per_parameter(self) -> usize {
        match self {
            Self::Sgd { momentum: false, .. } => 0,
            Self::Sgd { momentum: true, .. } => 1,
            Self::Adam { .. } => 2,
        }
    }
}

/// What an update needs that may change at every step; computed on the host in f64, rounded once.
/// Devices read it as C lays it out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Hyper {
    /// SGD: the learning rate. Adam: lr / (1 - beta1^t).
    pub rate: f32,
    /// SGD: momentum. Adam: 1 - beta1.
    pub first: f32,
    /// Adam: 1 / sqrt(1 - beta2^t), by which the root of the second moment is multiplied.
    pub correction: f32,
    /// AdamW: 1 - lr * weight_decay, else 1.
    pub decay_factor: f32,
}
