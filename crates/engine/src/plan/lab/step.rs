//! What the steps of a tensor experiment come to: values on devices, and what is done to them.

use std::ops::Range;

use crate::{
    plan::DeviceId,
    program::{Op, Parameter},
    spec::lab::{DType, FileName, Saved, Start, Step, StepOp},
};

/// A tensor of the experiment. Ops name it by its number as a buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Where it lives.
    pub device: DeviceId,
    /// Lengths of its axes, row-major. No axes: one number.
    pub shape: Vec<usize>,
    pub dtype: DType,
    /// 32-bit words in it: its numbers, or twice as many for `i64`.
    pub len: usize,
}

/// All steps, lowered.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorsPlan {
    /// In the order of the spec.
    pub steps: Vec<StepPlan>,
    /// In the order in which steps make them.
    pub values: Vec<Value>,
}

/// What a step will do.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// As a person would write it: `Z = X.copy(virtual:1)`.
    pub expression: String,
    /// The values that it makes.
    pub makes: Range<usize>,
    /// The value that bears its name.
    pub result: Option<usize>,
    /// What is done.
    pub action: Action,
    /// How it will end.
    pub outlook: Outlook,
}

/// What devices do in a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// All numbers of the result are this one.
    Fill(f32),
    /// The result's numbers are uniform in this range, by the seed and the step.
    Random([f64; 2]),
    /// The result's words.
    Numbers(Vec<f32>),
    /// The result is a copy of this value.
    Copy(usize),
    /// The result is there already.
    Same,
    /// Ops over values.
    Compute(Vec<Op>),
    /// A Sequential: its parameters, then its ops.
    Net {
        /// In order.
        parameters: Vec<NetParameter>,
        /// Where their numbers come from.
        start: Start,
        /// Over values.
        ops: Vec<Op>,
    },
    /// Values to a file of the run's folder, each under a name.
    Save(String, Vec<(String, usize)>),
    /// The result from a file, by its name there.
    Load(FileName, String),
}

/// A parameter of a Sequential.
#[derive(Clone, Debug, PartialEq)]
pub struct NetParameter {
    /// The value that holds it, in PyTorch's order of axes.
    pub value: usize,
    /// As programs have it.
    pub parameter: Parameter,
    /// Width of its layer's input.
    pub inputs: usize,
}

/// How a step will end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It is done.
    Done,
    /// It raises the error that it declares.
    Raises(String),
    /// It declares an error that it does not raise.
    DoesNotRaise,
    /// It declares an error that this machine cannot raise, and why.
    Skipped(String),
}

/// The step as a person would write it.
pub(super) fn expression(step: &Step, device: Option<DeviceId>) -> String {
    let device = device.map(|device| device.to_string()).unwrap_or_default();
    let dtype = step.dtype.map(|dtype| format!(", {}", dtype.name())).unwrap_or_default();
    let what = match &step.op {
        StepOp::Ones(shape) => format!("ones({shape:?}{dtype}) on {device}"),
        StepOp::Zeros(shape) => format!("zeros({shape:?}{dtype}) on {device}"),
        StepOp::Rand(shape) => match step.range {
            Some([low, high]) => format!("rand({shape:?}{dtype}) in [{low}, {high}) on {device}"),
            None => format!("rand({shape:?}) on {device}"),
        },
        StepOp::From(numbers) => format!("from numbers of the host, {:?}, on {device}", numbers.shape),
        StepOp::Copy(name) if step.force => format!("{name}.copy({device}), forced"),
        StepOp::Copy(name) => format!("{name}.copy({device})"),
        StepOp::Add([a, b]) => format!("{a} + {b}"),
        StepOp::Matmul([a, b]) => format!("{a} @ {b}"),
        StepOp::Norm(name) => format!("norm({name})"),
        StepOp::Net(net) => format!("net({})", net.input),
        StepOp::Save(save) => match &save.what {
            Saved::Net(name) => format!("save the parameters of {name}'s net to {}", save.file),
            Saved::Tensors(names) => format!("save {} to {}", names.join(", "), save.file),
        },
        StepOp::Load(load) => format!("load from {} to {device}", load.file.text),
    };
    match &step.name {
        Some(name) => format!("{name} = {what}"),
        None => what,
    }
}
