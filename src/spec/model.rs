//! `[model]`: a Sequential of layers, its loss, its initial weights.

use std::path::PathBuf;

use serde::Serialize;

use super::{
    data::Source,
    reader::{Choice, Fields, Item, Range, Word},
};

/// More layers than any Sequential needs; a longer list is a slip, and would be planned for minutes.
const MAX_LAYERS: usize = 10_000;

/// PyTorch's default.
const LAYER_NORM_EPS: f64 = 1e-5;

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
    /// Normalizes each row to mean 0 and variance 1, then scales and shifts its units by what is learned.
    LayerNorm {
        /// Added to the variance (1e-5).
        eps: f64,
    },
}

/// A weight or bias of a layer.
pub struct Parameter {
    /// `weight` or `bias`.
    pub name: &'static str,
    /// `[in, out]` or `[out]`.
    pub shape: Vec<usize>,
    /// The number that all of it begins with, whatever `init` says.
    pub constant: Option<f32>,
}

impl Layer {
    /// PyTorch's name of it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Linear(_) => "Linear",
            Self::Relu => "ReLU",
            Self::Gelu => "GELU",
            Self::Tanh => "Tanh",
            Self::Sigmoid => "Sigmoid",
            Self::Dropout { .. } => "Dropout",
            Self::LayerNorm { .. } => "LayerNorm",
        }
    }

    /// Whether only training has it, and not a net of tensors.
    pub(super) fn learns_by_training_only(&self) -> bool {
        matches!(self, Self::LayerNorm { .. })
    }

    /// Width of its output.
    pub fn outputs(&self, inputs: usize) -> usize {
        match self {
            Self::Linear(linear) => linear.out_features,
            _ => inputs,
        }
    }

    /// What it learns, in PyTorch's order.
    pub fn parameters(&self, inputs: usize) -> Vec<Parameter> {
        match self {
            Self::Linear(Linear { out_features, bias, .. }) => {
                let weight = Parameter { name: "weight", shape: vec![inputs, *out_features], constant: None };
                let bias =
                    bias.then(|| Parameter { name: "bias", shape: vec![*out_features], constant: None });
                std::iter::once(weight).chain(bias).collect()
            }
            Self::LayerNorm { .. } => [("weight", 1.0), ("bias", 0.0)]
                .map(|(name, start)| Parameter { name, shape: vec![inputs], constant: Some(start) })
                .into(),
            _ => Vec::new(),
        }
    }
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

impl Model {
    /// `source` decides the loss where none is given.
    pub(super) fn read(t: &mut Fields<'_>, source: &Source) -> Self {
        let layers =
            t.required("layers", "the layers, first to last", |v| v.list(1..=MAX_LAYERS, Layer::read));
        let loss = t.optional(
            "loss",
            "what is minimized (mse; cross_entropy where the data source is idx)",
            Loss::read,
        );
        let init = t.default("init", "how weights begin", Init::Pytorch, Init::read);
        let default_loss = if matches!(source, Source::Idx(_)) { Loss::CrossEntropy } else { Loss::Mse };
        Self { layers, loss: loss.unwrap_or(default_loss), init }
    }
}

impl Layer {
    pub(super) fn read(v: Item<'_>) -> Self {
        v.variant(
            "layer",
            &[
                Word { name: "relu", value: Self::Relu, doc: "max(0, x)" },
                Word { name: "gelu", value: Self::Gelu, doc: "x Φ(x), by the error function" },
                Word { name: "tanh", value: Self::Tanh, doc: "hyperbolic tangent" },
                Word { name: "sigmoid", value: Self::Sigmoid, doc: "1 / (1 + exp(-x))" },
                Word {
                    name: "layer_norm",
                    value: Self::LayerNorm { eps: LAYER_NORM_EPS },
                    doc: "each row to mean 0 and variance 1, then scaled and shifted, as nn.LayerNorm",
                },
            ],
            &[
                Choice {
                    name: "linear",
                    doc: "a fully connected layer, y = x Wᵀ + b",
                    read: |v| Self::Linear(v.table(Linear::read)),
                },
                Choice {
                    name: "dropout",
                    doc: "zeroes units while training and scales the rest by 1 / (1 - p)",
                    read: |v| {
                        v.table(|t| {
                            let p =
                                t.required("p", "the probability of a zero", |v| v.float(Range::BelowOne));
                            if p as f32 >= 1.0 {
                                let message = format!("{p:?} is 1 as f32, and leaves no unit");
                                t.refuse("p", &[], message, "lower it");
                            }
                            Self::Dropout { p }
                        })
                    },
                },
                Choice {
                    name: "layer_norm",
                    doc: "each row to mean 0 and variance 1, then scaled and shifted, as nn.LayerNorm",
                    read: |v| {
                        v.table(|t| {
                            let doc = "added to the variance";
                            let eps = t.default("eps", doc, LAYER_NORM_EPS, |v| v.float(Range::NonNegative));
                            Self::LayerNorm { eps }
                        })
                    },
                },
            ],
        )
    }
}

impl Linear {
    fn read(t: &mut Fields<'_>) -> Self {
        Self {
            out_features: t.required("out_features", "width of the output", |v| v.size(1)),
            in_features: t.optional(
                "in_features",
                "width of the input; inferred, checked where given",
                |v| v.size(1),
            ),
            bias: t.default("bias", "whether a bias is added", true, |v| v.boolean()),
        }
    }
}

impl Loss {
    fn read(v: Item<'_>) -> Self {
        v.word(
            &[
                Word { name: "mse", value: Self::Mse, doc: "mean of squared differences over all elements" },
                Word { name: "l1", value: Self::L1, doc: "mean of absolute differences over all elements" },
                Word { name: "huber", value: Self::Huber, doc: "HuberLoss with delta = 1" },
                Word {
                    name: "cross_entropy",
                    value: Self::CrossEntropy,
                    doc: "over class indices, mean over rows",
                },
            ],
            &[],
        )
    }
}

impl Init {
    pub(super) fn read(v: Item<'_>) -> Self {
        v.variant(
            "init",
            &[
                Word { name: "pytorch", value: Self::Pytorch, doc: "all uniform in ±1/sqrt(in_features)" },
                Word {
                    name: "xavier_uniform",
                    value: Self::XavierUniform,
                    doc: "weights uniform in ±sqrt(6 / (in + out)), biases 0",
                },
                Word {
                    name: "kaiming_normal",
                    value: Self::KaimingNormal,
                    doc: "weights from N(0, 2 / in), biases 0",
                },
            ],
            &[
                Choice {
                    name: "normal",
                    doc: "weights from N(0, std²), biases 0",
                    read: |v| {
                        v.table(|t| Self::Normal {
                            std: t.required("std", "standard deviation", |v| v.float(Range::NonNegative)),
                        })
                    },
                },
                Choice {
                    name: "file",
                    doc: "a safetensors file with the names of PyTorch's nn.Sequential",
                    read: |v| Self::File(v.path()),
                },
            ],
        )
    }
}
