//! `[[tensors.step]]`: one operation on tensors.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::{
    dtype::{DType, Scalar},
    numbers::Numbers,
    read_steps::{new_file, read_name, read_operand, read_pair, read_range, read_shape},
};
use crate::{
    DeviceName, Init, Layer,
    reader::{Fields, Item, Read, choices, some, table, words},
};

table! {
    /// One `[[tensors.step]]`.
    pub struct Step {
        /// What the result is called.
        pub name: Option<String> = None => some(read_name),
        /// What is done.
        pub op: StepOp [flatten],
        /// Where the result lives (the first device in use, or where the operands are).
        pub device: Option<DeviceName> = None,
        /// The number format of what `ones`, `zeros`, `rand` and `from` make (f32).
        pub dtype: Option<DType> = None,
        /// Of `rand`: [low, high], the least number and what all are below ([0, 1]); whole numbers need it.
        pub range: Option<[f64; 2]> = None => some(read_range),
        /// For a copy: make one even where the tensor is already.
        pub force: bool [skip_serializing_if = "is_false"] = false,
        /// The error that the step must raise.
        pub expect: Option<Expect> = None,
    }
    check check
}

fn is_false(value: &bool) -> bool {
    !value
}

words! {
    /// An error that a step declares.
    pub enum Expect {
        /// Operands live on different devices.
        DeviceMismatch = "device_mismatch",
    }
}

choices! {
    /// What a step does.
    pub enum StepOp {
        /// Ones of that shape.
        Ones(Vec<usize>) = "ones" => read_shape,
        /// Zeros of that shape.
        Zeros(Vec<usize>) = "zeros" => read_shape,
        /// Random numbers of that shape, uniform in `range`, from the seed.
        Rand(Vec<usize>) = "rand" => read_shape,
        /// Numbers of the host, such as [[1, 2], [3, 4]].
        From(Numbers) = "from",
        /// The tensor on `device`; where it is there already, the same tensor.
        Copy(String) = "copy" => read_operand,
        /// The sum of two tensors.
        Add([String; 2]) = "add" => read_pair,
        /// The matrix product of two tensors.
        Matmul([String; 2]) = "matmul" => read_pair,
        /// The Frobenius norm.
        Norm(String) = "norm" => read_operand,
        /// A Sequential applied to a tensor.
        Net(Net) = "net",
        /// Tensors to a safetensors file in the run's folder.
        Save(Save) = "save",
        /// A tensor from a safetensors file.
        Load(Load) = "load",
    }
}

impl StepOp {
    /// Names of its operands, each with its key within the step.
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

table! {
    /// A Sequential and what it is applied to.
    pub struct Net {
        /// The layers, first to last.
        pub layers: Vec<Layer> => |v| v.list(1..=1000, Layer::read),
        /// The tensor it is applied to, [rows, in].
        pub input: String => read_operand,
        /// Where its parameters come from.
        pub start: Start [flatten] = Start::Init(Init::Pytorch),
    }
}

choices! {
    /// Where the parameters of a net come from.
    pub enum Start {
        /// How its parameters begin (pytorch).
        Init(Init) = "init",
        /// A safetensors file whose tensors are named as in PyTorch's `nn.Sequential` (`0.weight`).
        Parameters(FileName) = "parameters",
    }
}

table! {
    /// What is saved, and where.
    pub struct Save {
        /// What.
        pub what: Saved [flatten],
        /// Its name in the run's folder, ending in .safetensors.
        pub file: String => new_file,
    }
}

choices! {
    /// What is saved.
    pub enum Saved {
        /// The parameters of the net that made that tensor.
        Net(String) = "net" => read_operand,
        /// Tensors, each under its name.
        Tensors(Vec<String>) = "tensors" => |v: Item<'_>| v.list(1..=1000, read_operand),
    }
}

table! {
    /// What is loaded, and from where.
    pub struct Load {
        /// One that an earlier step saved, or one that is there.
        pub file: FileName,
        /// Its name in the file (the step's).
        pub tensor: Option<String> = None,
    }
}

/// A file to read: either an earlier step writes it, or it exists already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// The path as written.
    pub text: String,
    /// The path resolved against the spec's folder; only the file's name if an earlier step writes it.
    pub path: PathBuf,
    /// Whether an earlier step writes it.
    pub is_saved: bool,
}

impl Serialize for FileName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.is_saved { s.serialize_str(&self.text) } else { self.path.serialize(s) }
    }
}

impl Read for FileName {
    fn read(v: Item<'_>) -> Self {
        let (text, path) = v.path_as_written();
        Self { text, path, is_saved: false }
    }
}

impl Step {
    fn check(&mut self, t: &mut Fields<'_>) {
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
        self.check_numbers(t);
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

    /// `dtype` and `range` must fit each other and the operation.
    fn check_numbers(&mut self, t: &mut Fields<'_>) {
        let op = self.op.name();
        let makes = matches!(self.op, StepOp::Ones(_) | StepOp::Zeros(_) | StepOp::Rand(_) | StepOp::From(_));
        if self.dtype.is_some() && !makes {
            t.refuse("dtype", &[op], "only `ones`, `zeros`, `rand` and `from` take one", "remove it");
        }
        let dtype = self.dtype.unwrap_or(DType::F32);
        if let StepOp::From(numbers) = &self.op
            && let Err(number) = numbers.words(dtype)
        {
            let message = format!("`{}` holds no {number}", dtype.name());
            t.refuse("from", &["dtype"], message, "write whole numbers that fit, or another `dtype`");
        }
        let whole = dtype != DType::F32;
        match (&self.op, self.range) {
            (StepOp::Rand(_), None) if whole => {
                t.refuse("rand", &["dtype"], "whole numbers need a range", "add one: `range = [0, 10]`");
            }
            (StepOp::Rand(_), Some([low, high])) => {
                let fits = |x: f64| dtype.encode(Scalar::Integer(x as i64)).is_some() && x.fract() == 0.0;
                if low >= high {
                    t.refuse("range", &[], "the first number must be below the second", "write [low, high]");
                } else if whole && !(fits(low) && fits(high - 1.0)) {
                    let message = format!("`{}` takes whole numbers that it holds", dtype.name());
                    t.refuse("range", &["dtype"], message, "write two of them");
                }
            }
            (_, Some(_)) if !matches!(self.op, StepOp::Rand(_)) => {
                t.refuse("range", &[op], "only `rand` takes one", "remove it");
            }
            _ => {}
        }
    }
}
