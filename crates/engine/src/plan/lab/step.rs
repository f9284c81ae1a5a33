//! The lowered form of a tensor experiment: values on devices, and what each step does to them.

use std::ops::Range;

use crate::{
    plan::DeviceId,
    program::{Op, Parameter},
    spec::lab::{DType, FileName, Saved, Start, Step, StepOp},
};

/// A tensor of the experiment. Ops refer to it by its index, used as a buffer number.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The device whose memory holds it.
    pub device: DeviceId,
    /// Lengths of its axes, row-major; empty for a scalar.
    pub shape: Vec<usize>,
    pub dtype: DType,
    /// Its length in 32-bit words: one per element, two for `i64`.
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

/// What one step will do.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// The step in mathematical notation: `Z = X.copy(virtual:1)`.
    pub expression: String,
    /// The values that it creates.
    pub makes: Range<usize>,
    /// The value that the step's name refers to.
    pub result: Option<usize>,
    /// What devices do.
    pub action: Action,
    /// How the step is expected to end.
    pub outlook: Outlook,
}

/// What devices do in a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Fills the result with this number.
    Fill(f32),
    /// Fills the result with uniform numbers in this range, drawn from the seed and the step number.
    Random([f64; 2]),
    /// Writes these 32-bit words to the result.
    Numbers(Vec<f32>),
    /// Copies this value to the result.
    Copy(usize),
    /// A copy to the device that holds the value already: nothing moves.
    Same,
    /// Runs these ops.
    Compute(Vec<Op>),
    /// A Sequential: initializes its parameters, then runs its ops.
    Net {
        /// In layer order.
        parameters: Vec<NetParameter>,
        /// Where their initial values come from.
        start: Start,
        /// The ops of its forward pass.
        ops: Vec<Op>,
    },
    /// Saves values, each under a name, to a file in the run folder.
    Save(String, Vec<(String, usize)>),
    /// Loads the result from a file, where it has this name.
    Load(FileName, String),
}

/// A parameter of a Sequential.
#[derive(Clone, Debug, PartialEq)]
pub struct NetParameter {
    /// The value that holds it, in PyTorch's order of axes.
    pub value: usize,
    /// Its shape and offset, as programs describe a parameter.
    pub parameter: Parameter,
    /// Width of its layer's input.
    pub inputs: usize,
}

/// How a step is expected to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It succeeds.
    Done,
    /// It raises the error that the step declares.
    Raises(String),
    /// The step declares an error that this machine cannot raise; the text says why.
    Skipped(String),
}

/// The step in mathematical notation.
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
