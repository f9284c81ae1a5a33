//! `[model]`: a Sequential of layers, its loss, its initial weights.

use std::path::PathBuf;

use serde::Serialize;

/// The table `[model]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// What is minimized.
    pub loss: Loss,
    /// How weights begin.
    pub init: Init,
}

/// One layer of a Sequential.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// `y = x Wᵀ + b`.
    Linear(Linear),
    /// max(0, x).
    Relu,
    /// x Φ(x), by the error function.
    Gelu,
    /// Hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// Zeroes units with probability `p` while training and scales the rest by 1 / (1 - p).
    Dropout {
        /// The probability, in [0, 1).
        p: f64,
    },
}

/// A fully connected layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Linear {
    /// Width of the output.
    pub out_features: usize,
    /// Width of the input; inferred where absent, checked where given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_features: Option<usize>,
    /// Whether a bias is added.
    pub bias: bool,
}

/// PyTorch's losses of the same names, with their default reduction (mean).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Mean of squared differences over all elements, no factor 1/2.
    Mse,
    /// Mean of absolute differences over all elements.
    L1,
    /// `HuberLoss` with delta = 1.
    Huber,
    /// `CrossEntropyLoss` over class indices, mean over rows.
    CrossEntropy,
}

impl Loss {
    /// Whether targets are classes (one index per row) rather than numbers.
    pub fn classifies(self) -> bool {
        matches!(self, Self::CrossEntropy)
    }
}

/// How weights begin.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Weights and biases uniform in ±1/sqrt(in_features): `nn.Linear`'s own.
    Pytorch,
    /// Weights uniform in ±sqrt(6 / (in + out)), biases 0.
    XavierUniform,
    /// Weights from N(0, 2 / in), biases 0.
    KaimingNormal,
    /// Weights from N(0, std²), biases 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// From a safetensors file with the names of PyTorch's `nn.Sequential`.
    File(PathBuf),
}
