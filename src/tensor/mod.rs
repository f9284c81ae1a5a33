//! Tensors: elements of a shape in a device's memory.
//!
//! A tensor is made on a device, and results stay there. **No implicit copies**: operands on different devices are an
//! error that names both and the copy that fixes it. A copy to a tensor's own device returns that tensor.
//! [`Devices::traffic`] counts every copy and wait.
//!
//! May use [`crate::device`], [`crate::program`], [`crate::spec`] and [`crate::random`].
//!
//! ```
//! use runner::tensor::{Devices, Tensor};
//!
//! let devices = Devices::with_virtual_gpus(2);
//! let (first, second) = (devices.get("virtual:0")?, devices.get("virtual:1")?);
//! let x = Tensor::ones(first, &[2, 3])?.named("X");
//! let y = Tensor::ones(second, &[2, 3])?.named("Y");
//! assert_eq!(
//!     x.add(&y).err().map(|e| e.to_string()).as_deref(),
//!     Some("`X` is on virtual:0 and `Y` on virtual:1; copy one: `Z = X.copy(virtual:1)`")
//! );
//! let z = x.copy(second)?;
//! assert_eq!(
//!     z.add(&y)?.show()?,
//!     "tensor([[2., 2., 2.],\n        [2., 2., 2.]], shape=[2, 3], dtype=f32, device='virtual:1')"
//! );
//! assert!(z.copy(second)?.is(&z), "it is there already");
//! # Ok::<(), runner::tensor::TensorError>(())
//! ```

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
