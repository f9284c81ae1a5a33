//! Devices of other processes: rank 0 gives commands, and each rank runs them on its own device, with its own rows.

mod executor;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

pub use executor::RemoteExecutor;
pub use serve::{ask_for_report, end, fail, report, serve, wait_for_end};
