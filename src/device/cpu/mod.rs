//! The CPU: programs walked by one thread or a team, over one arena of memory.

// `unsafe` is denied to the crate but for the modules so marked.
#[allow(unsafe_code)]
mod arena;
mod backend;
mod compile;
mod executor;
mod pace;
#[allow(unsafe_code)]
mod pool;
mod rates;
mod stage;
#[allow(unsafe_code)]
mod state;
mod team;
mod watch;

pub use backend::HostBackend;
pub use executor::{CpuExecutor, Job, Memory};
pub use pace::Sharing;
pub use rates::measure as measure_rates;
