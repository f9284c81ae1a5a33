//! The CPU: programs walked by one thread or a team, over one arena of memory.

mod arena;
mod compile;
mod executor;
pub mod matmul;
mod ops;
mod pace;
mod simd;
mod state;
mod task;
mod team;
mod watch;

pub use executor::{CpuExecutor, Job};
pub use simd::{denormals_flushed, flush_denormals};
