//! `[model]`: a Sequential of layers, its loss, its initial weights.

use std::path::PathBuf;

use super::{
    class_weights::ClassWeights,
    reader::{Item, below_one, choices, non_negative, size, some, table, words},
};

/// A longer list is taken for a mistake; planning it would take minutes.
const MAX_LAYERS: usize = 10_000;

table! {
    /// The table `[model]`.
    pub struct Model {
        /// The layers, first to last.
        pub layers: Vec<Layer> => |v| v.list(1..=MAX_LAYERS, Layer::read),
        /// What is minimized (mse; cross_entropy where the data source is idx or synthetic_classification).
        pub loss: Loss, else Loss::Mse,
        /// Weights of the classes in `cross_entropy`, by class or in their order; `"balanced"`: rows / (classes * rows of the class).
        pub class_weights: Option<ClassWeights> = None,
        /// Initial weights.
        pub init: Init = Init::Pytorch,
        /// What draws the initial weights; by default the seed of the run.
        pub init_seed: Option<u64> = None => some(super::read_seed),
    }
}

choices! {
    /// One layer of a Sequential.
    pub enum Layer as "layer" {
        /// Max(0, x).
        Relu = "relu",
        /// x Φ(x), by the error function.
        Gelu = "gelu",
        /// X / (1 + exp(-x)).
        Silu = "silu",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// 1 / (1 + exp(-x)).
        Sigmoid = "sigmoid",
        /// A fully connected layer, y = x Wᵀ + b.
        Linear(Linear) = "linear",
        /// Zeroes units with probability `p` while training and scales the rest by 1 / (1 - p).
        Dropout {
            /// Probability that a unit is zeroed, in [0, 1).
            p: f64,
        } = "dropout" => Layer::read_dropout,
        /// Each row to mean 0 and variance 1, then scaled and shifted, as nn.LayerNorm.
        LayerNorm {
            /// Added to the variance.
            eps: f64,
        } = "layer_norm" => |v: Item<'_>| {
            v.table(|t| Self::LayerNorm { eps: t.default("eps", "added to the variance", 1e-5, non_negative) })
        },
    }
}

/// A weight or bias of a layer.
pub struct Parameter {
    /// `weight` or `bias`.
    pub name: &'static str,
    /// `[in, out]` or `[out]`.
    pub shape: Vec<usize>,
    /// The value that every element starts with, whatever `init` says.
    pub constant: Option<f32>,
}

impl Layer {
    /// Its name in PyTorch's `state_dict`.
    pub fn torch_name(&self) -> &'static str {
        match self {
            Self::Linear(_) => "Linear",
            Self::Relu => "ReLU",
            Self::Gelu => "GELU",
            Self::Silu => "SiLU",
            Self::Tanh => "Tanh",
            Self::Sigmoid => "Sigmoid",
            Self::Dropout { .. } => "Dropout",
            Self::LayerNorm { .. } => "LayerNorm",
        }
    }

    /// Width of the layer's output.
    pub fn outputs(&self, inputs: usize) -> usize {
        match self {
            Self::Linear(linear) => linear.out_features,
            _ => inputs,
        }
    }

    /// Its trainable parameters, in PyTorch's order.
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

    fn read_dropout(v: Item<'_>) -> Self {
        v.table(|t| {
            let p = t.required("p", "the probability of a zero", below_one);
            if p as f32 >= 1.0 {
                t.refuse("p", &[], format!("{p:?} is 1 as f32, and leaves no unit"), "lower it");
            }
            Self::Dropout { p }
        })
    }
}

table! {
    /// A fully connected layer.
    pub struct Linear {
        /// Width of the output.
        pub out_features: usize => size,
        /// Width of the input; inferred, checked where given.
        pub in_features: Option<usize> = None => some(size),
        /// Whether a bias is added.
        pub bias: bool = true,
    }
}

words! {
    /// PyTorch's losses of these names, with their default reduction (mean).
    pub enum Loss {
        /// Mean of squared differences over all elements.
        Mse = "mse",
        /// Mean of absolute differences over all elements.
        L1 = "l1",
        /// `HuberLoss` with delta = 1.
        Huber = "huber",
        /// Over class indices, mean over rows.
        CrossEntropy = "cross_entropy",
    }
}

impl Loss {
    /// Whether targets are classes (one index per row) rather than numbers.
    pub fn classifies(self) -> bool {
        matches!(self, Self::CrossEntropy)
    }
}

choices! {
    /// Initial weights.
    pub enum Init as "init" {
        /// All uniform in ±1/sqrt(in_features), as `nn.Linear` does.
        Pytorch = "pytorch",
        /// Weights uniform in ±sqrt(6 / (in + out)), biases 0.
        XavierUniform = "xavier_uniform",
        /// Weights from N(0, 2 / in), biases 0.
        KaimingNormal = "kaiming_normal",
        /// Weights from N(0, std²), biases 0.
        Normal {
            /// Standard deviation.
            std: f64,
        } = "normal" => |v: Item<'_>| {
            v.table(|t| Self::Normal { std: t.required("std", "standard deviation", non_negative) })
        },
        /// A safetensors file whose tensors are named as in PyTorch's `nn.Sequential` (`0.weight`).
        File(PathBuf) = "file",
    }
}
