//! NVIDIA's libraries, opened while the program runs, and the GPUs that they show.

pub mod blas;
pub mod cache;
pub mod compiler;
pub mod context;
pub mod driver;
pub mod gpu;
pub mod libraries;
pub mod library;
pub mod nccl;
