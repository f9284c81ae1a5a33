//! The CPU: programs walked by one thread or a team, over one arena of memory.

// `unsafe` is denied to the crate but for the modules so marked.
#[allow(unsafe_code)]
mod arena;
mod backend;
mod compile;
mod executor;
mod footprint;
mod linear;
pub mod matmul;
mod ops;
mod pace;
#[allow(unsafe_code)]
mod pool;
mod rates;
#[allow(unsafe_code)]
mod simd;
mod stage;
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
