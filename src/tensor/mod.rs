//! Tensors: numbers of a shape in the memory of a device.
//!
//! Whoever makes a tensor says where it lives; what is computed of it lives there, too. **Nothing crosses a device by
//! itself**: operands on different devices are an error that names both and the copy that mends it, and a copy to where
//! a tensor already is gives the same tensor. Every copy and every wait is counted by [`Devices::traffic`].
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
