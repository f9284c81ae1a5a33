//! NVIDIA's libraries, opened at run time, and the GPUs that they show.

mod blas;
pub mod cache;
mod compiler;
mod context;
mod driver;
mod gpu;
mod kept_gpus;
mod libraries;
mod library;
pub mod nccl;
mod owned;
mod primary;
mod resource;

pub use blas::Blas;
pub use compiler::Compiler;
pub use context::Context;
pub use driver::{Driver, NOT_READY, Status, allow_many_streams};
pub use gpu::{Gpu, driver_looked_for, gpu, gpus};
pub use kept_gpus::KeptGpus;
pub use libraries::{LibraryRow, libraries, products_library, versions};
pub use nccl::{Id as NcclId, Nccl};
pub use owned::Owned;
pub use primary::{Primary, is_given_up};
pub use resource::{Kind, Resource};
