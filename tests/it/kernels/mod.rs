//! The CUDA kernels without a GPU: compiled for every architecture by NVIDIA's run-time compiler, and run by
//! the simulator in `tests/cuda_sim`, in three orders of threads, against the f64 references.

#[allow(unsafe_code)]
mod compile;
mod compiled;
#[allow(unsafe_code)]
pub mod driver;
mod grid;
#[allow(unsafe_code)]
mod libraries;
mod machine;
mod ops;
mod planted;
mod programs;
mod tensors;
