//! The CPU: programs walked by one thread or a team, over one arena of memory.

mod arena;
mod compile;
mod executor;
pub mod matmul;
mod ops;
mod simd;
mod task;
mod team;

pub use executor::{CpuExecutor, Job};
pub use simd::{denormals_flushed, flush_denormals};
