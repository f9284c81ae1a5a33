//! What tensors refuse, in words that name the way out.

use std::path::PathBuf;

use super::Shape;
use crate::{device::DeviceError, host::reason};

/// Why an operation on tensors was not done.
#[derive(Debug, thiserror::Error)]
pub enum TensorError {
    #[error("a net of tensors has no `{layer}`")]
    NoLayer { layer: &'static str },
    #[error(
        "`{left}` is on {left_device} and `{right}` on {right_device}; copy one: `{} = {left}.copy({right_device})`",
        free_name(left, right)
    )]
    DeviceMismatch { left: String, left_device: String, right: String, right_device: String },
    #[error("`{left}` of shape {left_shape} and `{right}` of shape {right_shape} cannot be {verb}: {rule}")]
    ShapeMismatch {
        left: String,
        left_shape: Shape,
        right: String,
        right_shape: Shape,
        /// `added`, `multiplied`, ...
        verb: &'static str,
        rule: &'static str,
    },
    #[error("a tensor of shape {shape} has {} numbers, and {found} were given", expected(shape))]
    Values { shape: Shape, found: usize },
    /// No memory could hold such a shape.
    #[error("a tensor of shape {shape} has more numbers than any memory")]
    TooLarge { shape: Shape },
    #[error("`{name}` is not there; there is {there}")]
    NoDevice { name: String, there: String },
    /// The net has no such parameter, or the file no such tensor.
    #[error("there is no `{name}`; there is {there}")]
    NoTensor { name: String, there: String },
    /// A file cannot be read or written.
    #[error("cannot {verb} `{}`: {}", path.display(), reason(source))]
    File {
        /// `read` or `write`.
        verb: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("`{}`: {message}", path.display())]
    Content { path: PathBuf, message: String },
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A name for the copy that none of the operands has.
fn free_name(left: &str, right: &str) -> &'static str {
    ["Z", "Y", "X"].into_iter().find(|name| *name != left && *name != right).unwrap_or("Z")
}

fn expected(shape: &Shape) -> String {
    shape.elements().map_or_else(|| "more than 2^60".to_owned(), |n| n.to_string())
}
