//! `[[tensors.step]]`: one thing done with tensors.

use std::path::PathBuf;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::numbers::{Numbers, read_numbers};
use crate::spec::{
    DeviceName, Init, Layer,
    reader::{Choice, Fields, Item, Word},
    tree::Value,
};

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

impl Step {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let name = t.optional("name", "what the result is called", read_name);
        let nothing = StepOp::Ones(Vec::new());
        let op = t.one_of(
            None,
            &[
                Choice { name: "ones", doc: "ones of that shape", read: |v| StepOp::Ones(read_shape(v)) },
                Choice { name: "zeros", doc: "zeros of that shape", read: |v| StepOp::Zeros(read_shape(v)) },
                Choice {
                    name: "rand",
                    doc: "random numbers in [0, 1) of that shape, from the seed",
                    read: |v| StepOp::Rand(read_shape(v)),
                },
                Choice {
                    name: "from",
                    doc: "numbers of the host, such as [[1, 2], [3, 4]]",
                    read: |v| StepOp::From(read_numbers(v)),
                },
                Choice {
                    name: "copy",
                    doc: "the tensor on `device`; where it is there already, the same tensor",
                    read: |v| StepOp::Copy(read_operand(v)),
                },
                Choice { name: "add", doc: "the sum of two tensors", read: |v| StepOp::Add(read_pair(v)) },
                Choice {
                    name: "matmul",
                    doc: "the matrix product of two tensors",
                    read: |v| StepOp::Matmul(read_pair(v)),
                },
                Choice { name: "norm", doc: "the Frobenius norm", read: |v| StepOp::Norm(read_operand(v)) },
                Choice {
                    name: "net",
                    doc: "a Sequential applied to a tensor",
                    read: |v| StepOp::Net(v.table(Net::read)),
                },
                Choice {
                    name: "save",
                    doc: "tensors to a safetensors file in the run's folder",
                    read: |v| StepOp::Save(v.table(Save::read)),
                },
                Choice {
                    name: "load",
                    doc: "a tensor from a safetensors file",
                    read: |v| StepOp::Load(v.table(Load::read)),
                },
            ],
        );
        let op = op.unwrap_or(nothing);
        let doc = "where the result lives (the first device in use, or where the operands are)";
        let device = t.optional("device", doc, DeviceName::read);
        let force = t
            .default("force", "of a copy: make one even where the tensor is already", false, |v| v.boolean());
        let expect = t.optional("expect", "the error that the step must raise", |v| {
            let doc = "operands live on different devices";
            v.word(&[Word { name: "device_mismatch", value: Expect::DeviceMismatch, doc }], &[])
        });
        let step = Self { name, op, device, force, expect };
        step.check(t);
        step
    }

    fn check(&self, t: &mut Fields<'_>) {
        let op = self.op.name();
        if !t.has(op) {
            return;
        }
        if let StepOp::Save(_) = self.op {
            if self.name.is_some() {
                t.refuse("name", &["save"], "`save` has no result to name", "remove it");
            }
        } else if !t.has("name") {
            t.refuse(op, &[], "its result needs a name", "add one, such as `name = \"X\"`");
        }
        if self.force && !matches!(self.op, StepOp::Copy(_)) {
            t.refuse("force", &[op], "only a copy can be forced", "remove it");
        }
        match self.op {
            StepOp::Copy(_) if self.device.is_none() => {
                t.refuse(
                    "copy",
                    &["device"],
                    "a copy needs a device to go to",
                    "add one: `device = \"gpu:0\"`",
                );
            }
            StepOp::Add(_) | StepOp::Matmul(_) | StepOp::Norm(_) | StepOp::Save(_)
                if self.device.is_some() =>
            {
                let message = "the result lives where the operands do";
                t.refuse("device", &[op], message, "remove it; another device takes a `copy`");
            }
            _ => {}
        }
        let meets = matches!(self.op, StepOp::Add(_) | StepOp::Matmul(_) | StepOp::Net(_));
        if self.expect.is_some() && !meets {
            let message = "only `add`, `matmul` and `net` have operands that can be on different devices";
            t.refuse("expect", &[op], message, "remove it");
        }
    }
}

impl Net {
    fn read(t: &mut Fields<'_>) -> Self {
        let layers = t.required("layers", "the layers, first to last", |v| v.list(1..=1000, Layer::read));
        let input = t.required("input", "the tensor it is applied to, [rows, in]", read_operand);
        let by_rule = Start::Init(Init::Pytorch);
        let start = t.one_of(
            Some(by_rule.clone()),
            &[
                Choice {
                    name: "init",
                    doc: "how its parameters begin (pytorch)",
                    read: |v| Start::Init(Init::read(v)),
                },
                Choice {
                    name: "parameters",
                    doc: "a safetensors file with its parameters",
                    read: |v| Start::Parameters(read_file(v)),
                },
            ],
        );
        Self { layers, input, start: start.unwrap_or(by_rule) }
    }
}

impl Save {
    fn read(t: &mut Fields<'_>) -> Self {
        let what = t.one_of(
            None,
            &[
                Choice {
                    name: "net",
                    doc: "the parameters of the net that made that tensor",
                    read: |v| Saved::Net(read_operand(v)),
                },
                Choice {
                    name: "tensors",
                    doc: "tensors, each under its name",
                    read: |v| Saved::Tensors(v.list(1..=1000, read_operand)),
                },
            ],
        );
        let file = t.required("file", "its name in the run's folder, ending in .safetensors", |v| {
            let schema = json!({ "type": "string", "pattern": r"^[^/\\.][^/\\]*\.safetensors$" });
            v.custom("a file's name, such as `net.safetensors`", schema, String::new(), |v| match v {
                Value::String(s) => {
                    let plain = s.chars().all(|c| c.is_ascii_alphanumeric() || "._=+-".contains(c));
                    (plain && !s.starts_with('.') && s.ends_with(".safetensors")).then(|| s.clone())
                }
                _ => None,
            })
        });
        Self { what: what.unwrap_or(Saved::Tensors(Vec::new())), file }
    }
}

impl Load {
    fn read(t: &mut Fields<'_>) -> Self {
        let file = t.required("file", "one that an earlier step saved, or one that is there", read_file);
        Self { file, tensor: t.optional("tensor", "its name in the file (the step's)", |v| v.string()) }
    }
}

/// A name that can be told from that of a net's parameter, such as `Y.0.weight`.
fn read_name(v: Item<'_>) -> String {
    let schema = json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" });
    v.custom("a name of letters, digits and `_`", schema, String::new(), |v| match v {
        Value::String(s) => {
            let fits = s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            (fits && s.len() <= 100 && s.starts_with(|c: char| !c.is_ascii_digit())).then(|| s.clone())
        }
        _ => None,
    })
}

fn read_operand(v: Item<'_>) -> String {
    let schema = json!({ "type": "string", "minLength": 1 });
    v.custom("the name of a tensor", schema, String::new(), |v| match v {
        Value::String(s) if !s.is_empty() => Some(s.clone()),
        _ => None,
    })
}

fn read_pair(v: Item<'_>) -> [String; 2] {
    v.array(
        "the names of two tensors, such as `[\"X\", \"Y\"]`",
        [String::new(), String::new()],
        read_operand,
    )
}

fn read_file(v: Item<'_>) -> FileName {
    let (text, path) = v.path_as_written();
    FileName { text, path, is_saved: false }
}

fn read_shape(v: Item<'_>) -> Vec<usize> {
    v.list(0..=MOST_AXES, |v| v.size(0))
}
