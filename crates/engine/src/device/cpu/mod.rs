//! The CPU: one thread or a team runs programs over one arena of memory.

// The crate denies `unsafe` except in the modules marked here.
#[allow(unsafe_code)]
mod arena;
mod backend;
mod block;
mod executor;
#[allow(unsafe_code)]
mod pool;
mod product_threads;
mod rates;
mod stage;
#[allow(unsafe_code)]
mod state;
mod team;
mod thread_tuner;
mod watch;

pub use backend::HostBackend;
pub use executor::{CpuExecutor, CpuSetup, Memory};
pub use rates::measure as measure_rates;
pub use thread_tuner::{KnownTimes, ThreadMode};
