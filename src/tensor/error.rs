//! What tensors refuse, in words that name the way out.

use std::path::PathBuf;

use super::Shape;
use crate::{device::backend::BackendError, host::reason};

/// Why an operation on tensors was not done.
#[derive(Debug, thiserror::Error)]
pub enum TensorError {
    /// A layer that only training has.
    #[error("a net of tensors has no `{layer}`")]
    NoLayer {
        /// PyTorch's name of it.
        layer: &'static str,
    },
    /// Operands live on different devices.
    #[error(
        "`{left}` is on {left_device} and `{right}` on {right_device}; copy one: `{} = {left}.copy({right_device})`",
        free_name(left, right)
    )]
    DeviceMismatch {
        /// The left operand's name.
        left: String,
        /// Where it lives.
        left_device: String,
        /// The right operand's name.
        right: String,
        /// Where that lives.
        right_device: String,
    },
    /// Operands do not fit together.
    #[error("`{left}` of shape {left_shape} and `{right}` of shape {right_shape} cannot be {verb}: {rule}")]
    ShapeMismatch {
        /// The left operand's name.
        left: String,
        /// Its shape.
        left_shape: Shape,
        /// The right operand's name.
        right: String,
        /// Its shape.
        right_shape: Shape,
        /// `added`, `multiplied`, ...
        verb: &'static str,
        /// What must hold.
        rule: &'static str,
    },
    /// Numbers and shape do not fit together.
    #[error("a tensor of shape {shape} has {} numbers, and {found} were given", expected(shape))]
    Values {
        /// The shape asked for.
        shape: Shape,
        /// Numbers given.
        found: usize,
    },
    /// No memory could hold such a shape.
    #[error("a tensor of shape {shape} has more numbers than any memory")]
    TooLarge {
        /// The shape asked for.
        shape: Shape,
    },
    /// There is no such device.
    #[error("`{name}` is not there; there is {there}")]
    NoDevice {
        /// What was asked for.
        name: String,
        /// What there is.
        there: String,
    },
    /// The net has no such parameter, or the file no such tensor.
    #[error("there is no `{name}`; there is {there}")]
    NoTensor {
        /// What was asked for.
        name: String,
        /// What there is.
        there: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {verb} `{}`: {}", path.display(), reason(source))]
    File {
        /// `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("`{}`: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The device refused.
    #[error(transparent)]
    Device(#[from] BackendError),
}

/// A name for the copy that none of the operands has.
fn free_name(left: &str, right: &str) -> &'static str {
    ["Z", "Y", "X"].into_iter().find(|name| *name != left && *name != right).unwrap_or("Z")
}

fn expected(shape: &Shape) -> String {
    shape.elements().map_or_else(|| "more than 2^60".to_owned(), |n| n.to_string())
}
