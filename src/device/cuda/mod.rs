//! NVIDIA GPUs by the CUDA driver, with kernels of our own that are compiled for the very device where the program
//! runs. Nothing of CUDA is needed to build; what is missing at run time is a sentence, never a crash.

mod blas;
mod cache;
mod compiler;
mod driver;
mod gpu;
mod libraries;
mod library;
mod context;
mod memory;
mod stream;
mod nccl;
mod sums;

pub use gpu::{Gpu, gpus};
pub use libraries::{LibraryRow, libraries};
