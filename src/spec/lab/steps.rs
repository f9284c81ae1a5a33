//! `[[tensors.step]]`: one thing done with tensors.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::numbers::Numbers;
use crate::spec::{DeviceName, Init, Layer};

/// Axes of a tensor at most; more are a slip.
pub(super) const MOST_AXES: usize = 8;

/// One `[[tensors.step]]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// What the result is called; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What is done.
    #[serde(flatten)]
    pub op: StepOp,
    /// Where the result lives; absent: the first device in use, or where the operands are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceName>,
    /// Whether a copy is made even where the tensor is there already.
    #[serde(skip_serializing_if = "is_false")]
    pub force: bool,
    /// The error that must be raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// An error that a step declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// Operands live on different devices.
    DeviceMismatch,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOp {
    /// Ones of that shape.
    Ones(Vec<usize>),
    /// Zeros of that shape.
    Zeros(Vec<usize>),
    /// Uniform in [0, 1), of that shape.
    Rand(Vec<usize>),
    /// The host's numbers.
    From(Numbers),
    /// A tensor, on another device.
    Copy(String),
    /// The sum of two.
    Add([String; 2]),
    /// The matrix product of two.
    Matmul([String; 2]),
    /// The Frobenius norm.
    Norm(String),
    /// A Sequential applied to a tensor.
    Net(Net),
    /// Tensors to a file.
    Save(Save),
    /// A tensor from a file.
    Load(Load),
}

impl StepOp {
    /// The key of the spec.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ones(_) => "ones",
            Self::Zeros(_) => "zeros",
            Self::Rand(_) => "rand",
            Self::From(_) => "from",
            Self::Copy(_) => "copy",
            Self::Add(_) => "add",
            Self::Matmul(_) => "matmul",
            Self::Norm(_) => "norm",
            Self::Net(_) => "net",
            Self::Save(_) => "save",
            Self::Load(_) => "load",
        }
    }

    /// Names of the tensors it needs, each with its place below the step.
    pub fn operands(&self) -> Vec<(String, &str)> {
        let at = |key: &str, name| (key.to_owned(), name);
        match self {
            Self::Ones(_) | Self::Zeros(_) | Self::Rand(_) | Self::From(_) | Self::Load(_) => Vec::new(),
            Self::Copy(name) => vec![at("copy", name.as_str())],
            Self::Norm(name) => vec![at("norm", name)],
            Self::Add([a, b]) => vec![at("add.0", a), at("add.1", b)],
            Self::Matmul([a, b]) => vec![at("matmul.0", a), at("matmul.1", b)],
            Self::Net(net) => vec![at("net.input", &net.input)],
            Self::Save(save) => match &save.what {
                Saved::Net(name) => vec![at("save.net", name)],
                Saved::Tensors(names) => {
                    names.iter().enumerate().map(|(i, n)| (format!("save.tensors.{i}"), n.as_str())).collect()
                }
            },
        }
    }
}

/// A Sequential and what it is applied to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Net {
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// The tensor it is applied to: `[rows, in]`.
    pub input: String,
    /// Where its parameters come from.
    #[serde(flatten)]
    pub start: Start,
}

/// Where the parameters of a net come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// A rule.
    Init(Init),
    /// A safetensors file with the names of PyTorch's `nn.Sequential`.
    Parameters(FileName),
}

/// What is saved, and where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Save {
    /// What.
    #[serde(flatten)]
    pub what: Saved,
    /// Its name within the run's folder.
    pub file: String,
}

/// What is saved.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Saved {
    /// The parameters of the net that made the tensor of that name, under PyTorch's names.
    Net(String),
    /// Tensors, each under its name.
    Tensors(Vec<String>),
}

/// What is loaded, and from where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// The file.
    pub file: FileName,
    /// The tensor's name in it; absent: that of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
}

/// A file to read: one that an earlier step saved, or one that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// As it was written.
    pub text: String,
    /// The same from the spec's folder.
    pub path: PathBuf,
    /// Whether an earlier step saves it.
    pub is_saved: bool,
}

impl Serialize for FileName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.is_saved { s.serialize_str(&self.text) } else { self.path.serialize(s) }
    }
}
