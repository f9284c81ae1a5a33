//! The CPU: programs walked by one thread or a team, over one arena of memory.

// `unsafe` is denied to the crate but for the modules so marked.
#[allow(unsafe_code)]
mod arena;
mod backend;
mod compile;
mod executor;
mod footprint;
pub mod matmul;
mod ops;
mod pace;
mod rates;
#[allow(unsafe_code)]
mod simd;
#[allow(unsafe_code)]
mod state;
mod task;
mod team;
mod watch;

pub use backend::HostBackend;
pub use executor::{CpuExecutor, Job, Memory};
pub use pace::Sharing;
pub use rates::measure as measure_rates;
pub use simd::{denormals_flushed, flush_denormals};
