//! The CPU backend.

pub mod matmul;
mod simd;

pub use simd::{denormals_flushed, flush_denormals};
