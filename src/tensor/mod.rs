//! Tensors: elements of a shape in a device's memory.
//!
//! A tensor is made on a device, and results stay there. **No implicit copies**: operands on different devices are an
//! error that names both and the copy that fixes it. A copy to a tensor's own device returns that tensor.
//! [`Devices::traffic`] counts every copy and wait.
//!
//! May use [`crate::device`], [`crate::program`], [`crate::spec`] and [`crate::random`].

mod device;
mod error;
mod file;
mod sequential;
mod shape;
mod show;
mod together;
mod values;

pub use device::{Device, Devices};
pub use error::TensorError;
pub use file::{load, save};
pub use sequential::Sequential;
pub use shape::{DType, Shape};
pub use values::Tensor;
